"""Builds the datastore of `retrieval` from text files, saved runs, or a target's own answers."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from specdemo.config.errors import Phrase, UserError
from specdemo.config.settings import Sampling
from specdemo.config.strings import Json
from specdemo.drafters.copies import LONGEST_MATCH
from specdemo.drafters.memory.datastore import CARD, DATASTORE_FORMAT, SUFFIXES, TOKENS, fingerprint
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.files.store import make_folder, making
from specdemo.session.text import read_prompts
from specdemo.trace.events import RunStarted
from specdemo.trace.metrics import output_ids
from specdemo.trace.replay import read
from specdemo.training.data import Prompt

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from specdemo.models.pair import LoadedPair

MAX_TOKENS = 1 << 30  # limit of int32 positions and of an hour of sorting
MOST_NEW_TOKENS = 160  # of an answer
WARMTH = 0.2  # temperature of the answers that are drawn
DRAWN_ANSWERS = 8  # answers drawn to each example


def build(
    files: Sequence[Path],
    tokenizer: PreTrainedTokenizerBase,
    model_name: str,
    out: Path,
    report: ProgressCallback = silent,
    *,
    licence: str = "that of its sources",
) -> Path:
    """Build a datastore from text files, each whole, and from the answers in saved runs of one target. returns: `out`

    model_name: of the target. Raises UserError for a file that cannot be read and for a run of another target.
    """
    report(Progress("read", None, f"{len(files)} files"))
    texts = [
        _answer_of_run(path, model_name) if path.suffix == ".jsonl" else _encoded(path, tokenizer)
        for path in files
    ]
    card: Json = {
        "sources": [path.name for path in files],
        "licence": licence,
        "how": "python -m specdemo train datastore FILES --out FOLDER",
    }
    return _store(texts, tokenizer, model_name, out, card, report)


def build_from_prompts(
    prompts: Path,
    pair: LoadedPair,
    out: Path,
    report: ProgressCallback = silent,
    *,
    examples: Sequence[str] = (),
    licence: str = "that of the model and of the prompts",
) -> Path:
    """Build a datastore of a target's own greedy answers. prompts: a text file, one a line. returns: `out`

    examples: prompts that are answered `DRAWN_ANSWERS` times more, drawn at the temperature `WARMTH`. In low precision
        near-ties fall one way or the other with the rows of a pass: one answer alone is soon left behind.
    """
    lines = [item.turns[0] for item in read_prompts(prompts)]
    texts = answer_texts(pair, lines, report)
    again = [prompt for prompt in examples for _ in range(DRAWN_ANSWERS)]
    texts += answer_texts(pair, again, report, temperature=WARMTH)
    info = pair.target.info
    sources = [f"greedy answers of {info.name} to the {len(lines)} prompts of {prompts.name}"]
    if again:
        sources.append(
            f"{DRAWN_ANSWERS} answers to each of {len(examples)} examples, drawn at {WARMTH}"
        )
    card: Json = {
        "revision": info.revision,
        "precision": info.precision,
        "sources": sources,
        "licence": licence,
        "how": f"python -m specdemo train datastore --prompts {prompts.name} --out FOLDER",
        "max_new_tokens": MOST_NEW_TOKENS,
    }
    return _store(texts, pair.tokenizer, info.name, out, card, report)


def _store(
    texts: Sequence[Sequence[int]],
    tokenizer: PreTrainedTokenizerBase,
    model_name: str,
    out: Path,
    card: Json,
    report: ProgressCallback,
) -> Path:
    """Write a datastore whose card also names the model and its tokenizer."""
    vocabulary = tokenizer.get_vocab()
    report(Progress("sort", None, f"{sum(map(len, texts)):,} tokens"))
    facts = {
        "model": model_name,
        "tokenizer": fingerprint(vocabulary),
        "vocabulary_size": max(vocabulary.values()) + 1,
    }
    return build_datastore(texts, out, facts | card)


def check_sources(files: Sequence[Path], prompts: Path | None, out: Path) -> None:
    """Read all sources, and make the folder around `out`. Raises UserError before a model is needed."""
    for path in files:
        read(path) if path.suffix == ".jsonl" else _read_text(path)
    if prompts:
        read_prompts(prompts)
    _check_out(out)


def _check_out(out: Path) -> None:
    """Refuse an existing folder that is no datastore, and make the folder around it."""
    if out.exists() and not (out / CARD).is_file() and (not out.is_dir() or any(out.iterdir())):
        raise UserError("training.not_a_datastore", path=out)
    make_folder(out.absolute().parent)


def build_datastore(texts: Iterable[Sequence[int]], out: Path, card: Json) -> Path:
    """Write the arrays and the card of a datastore in one move; an earlier one at `out` is replaced. returns: `out`

    card: must name the `vocabulary_size`; counts and the format are filled in here
    """
    size = int(card["vocabulary_size"])
    texts = [list(text) for text in texts if len(text)]
    if not texts:
        raise UserError("training.no_text")
    if any(not 0 <= token < size for text in texts for token in text):
        raise UserError("training.texts_tokens")
    _check_out(out)
    dtype = np.uint16 if size < np.iinfo(np.uint16).max else np.int32
    separator = np.iinfo(dtype).max
    tokens = np.concatenate([np.array([*text, separator], dtype) for text in texts])
    if len(tokens) > MAX_TOKENS:
        raise UserError("training.datastore_full", most=f"{MAX_TOKENS:,}")
    facts = {"format": DATASTORE_FORMAT, **card, "texts": len(texts), "tokens": len(tokens)}
    with making(out.absolute(), None, Phrase("disk.while_writing", name=out.name)) as content:
        np.save(content / TOKENS, tokens, allow_pickle=False)
        np.save(content / SUFFIXES, suffix_array(tokens), allow_pickle=False)
        (content / CARD).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return out


def suffix_array(tokens: np.ndarray) -> np.ndarray:
    """Sort positions by the tokens from there on: (n,) int32; a sequence precedes those that continue it.

    Prefix doubling (Manber and Myers 1990): with every position ranked by its first k tokens, the pair of
    ranks at i and i + k ranks it by 2 k.
    """
    count = len(tokens)
    rank = np.unique(tokens, return_inverse=True)[1].astype(np.int64) + 1
    width = 1
    while True:
        after = np.zeros(count, np.int64)
        after[:-width] = rank[width:]
        pairs = rank * (count + 1) + after
        order = np.argsort(pairs, kind="stable")
        ordered = pairs[order]
        rank[order] = np.cumsum(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        if rank[order[-1]] == count:
            return order.astype(np.int32)
        width *= 2


def answer_texts(
    pair: LoadedPair,
    prompts: Sequence[str],
    report: ProgressCallback,
    *,
    temperature: float = 0.0,
) -> list[list[int]]:
    """Return a target's answers, each behind the end of its prompt: as many tokens of it as a lookup compares."""
    from specdemo.training.answers import AnswerWriter, new_texts

    numbered = [Prompt("", number, text) for number, text in enumerate(prompts)]
    decoder, samplings = pair.target.decoder, [Sampling(temperature)]
    started = new_texts(numbered, pair.tokenizer, decoder, 0, 0, samplings)
    texts: dict[int, list[int]] = {}
    for one in AnswerWriter(decoder, (), pair.stop_ids(), MOST_NEW_TOKENS).write(started):
        texts[one.row_id] = [*one.prompt_ids[-LONGEST_MATCH:], *one.answer_ids]
        report(
            Progress("answer", len(texts) / len(prompts), f"{len(texts)} of {len(prompts)} prompts")
        )
    return [texts[number] for number in sorted(texts)]


def _answer_of_run(path: Path, model_name: str) -> list[int]:
    """Return the committed ids of a saved run with drafts, or of its plain run if it has no other."""
    trace = read(path).trace
    wrote = {event.target.name for event in trace.events if isinstance(event, RunStarted)}
    if wrote != {model_name}:
        names = ", ".join(sorted(wrote)) or "no model"
        raise UserError("training.other_run", path=path.name, target=model_name, names=names)
    return output_ids(trace.lane("speculative")) or output_ids(trace.lane("plain"))


def _encoded(path: Path, tokenizer: PreTrainedTokenizerBase) -> list[int]:
    """Return the ids of a text file; control tokens that it spells out stay text."""
    encoded = tokenizer(
        _read_text(path), add_special_tokens=False, split_special_tokens=True, verbose=False
    )
    return list(encoded["input_ids"])


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", "") or "it is not UTF-8 text"
        raise UserError("training.file_unread", path=path, error=reason) from error
