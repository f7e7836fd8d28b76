"""Prompts, answers and hidden states: stored in shards without pickle, held out by prompt, cut into batches.

A shard is a .npz with one row per answer: source, row_id, temperature, prompt_ids cut by prompt_offsets,
answer_ids cut by answer_offsets, and top_ids / top_probs (tokens, 8) before each answer token.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import BadZipFile, is_zipfile

import numpy as np
import torch

from specdemo.config.errors import Phrase, UserError
from specdemo.config.strings import Json
from specdemo.models.devices import training_dtype
from specdemo.session.text import read_prompts as read_items

if TYPE_CHECKING:
    from torch import Tensor

MOST_HELD_OUT = 0.2  # share of the prompts
SORTED_WITHIN = 1024  # rows that are sorted by length together: little padding, still mixed


@dataclass(frozen=True, slots=True)
class Prompt:
    """A user's text, and the file and the row that it comes from."""

    source: str
    row_id: int
    text: str


@dataclass(frozen=True, slots=True)
class Answer:
    """The target's answer to a prompt.

    prompt_ids: (P,) int64; answer_ids: (A,) int64
    top_ids: (A, 8) int64, top_probs: (A, 8) float16 — most likely tokens before each answer token, or None
    """

    source: str
    row_id: int
    temperature: float
    prompt_ids: np.ndarray
    answer_ids: np.ndarray
    top_ids: np.ndarray | None = None
    top_probs: np.ndarray | None = None

    @property
    def key(self) -> str:
        """Names the prompt: answers to the same prompt share it."""
        return f"{self.source}/{self.row_id}"


@dataclass(frozen=True, slots=True)
class Row:
    """One text for training.

    token_ids: (n,) int64 — prompt and answer without the last token, which nothing follows
    first: position whose next token is the answer's first; start: index of its first hidden state

    Prompt "a b", answer "x y z": token_ids are a b x y, first is 1 (b predicts x).
    """

    key: str
    token_ids: np.ndarray
    first: int
    start: int


def read_prompts(paths: Iterable[Path]) -> list[Prompt]:
    """Return the first turns of files of prompts."""
    return [
        Prompt(path.stem, int(item.name) if item.name.isdigit() else number, item.turns[0])
        for path in paths
        for number, item in enumerate(read_items(path))
    ]


def save_answers(path: Path, answers: Sequence[Answer], vocabulary_size: int) -> None:
    """Write a shard in one move."""
    dtype = np.uint16 if vocabulary_size <= 1 << 16 else np.uint32
    arrays: Json = {
        "source": np.array([answer.source for answer in answers]),
        "row_id": np.array([answer.row_id for answer in answers], np.int32),
        "temperature": np.array([answer.temperature for answer in answers], np.float16),
    }
    for name in ("prompt", "answer"):
        texts = [getattr(answer, f"{name}_ids") for answer in answers]
        arrays[f"{name}_offsets"] = np.cumsum([0, *map(len, texts)]).astype(np.int32)
        arrays[f"{name}_ids"] = np.concatenate(texts).astype(dtype)
    if all(answer.top_ids is not None for answer in answers):
        arrays["top_ids"] = np.concatenate([answer.top_ids for answer in answers]).astype(dtype)
        arrays["top_probs"] = np.concatenate([answer.top_probs for answer in answers])
    temporary = path.with_suffix(".part")
    with temporary.open("wb") as stream:
        np.savez_compressed(stream, **arrays)
    temporary.replace(path)


def read_answers(paths: Iterable[Path], vocabulary_size: int) -> list[Answer]:
    """Return every answer of the shards that has a prompt and at least one token."""
    answers = []
    for path in paths:
        with _reading(path), np.load(path, allow_pickle=False) as shard:
            arrays = {name: shard[name] for name in shard.files}
            prompts = np.split(
                arrays["prompt_ids"].astype(np.int64), arrays["prompt_offsets"][1:-1]
            )
            texts = np.split(arrays["answer_ids"].astype(np.int64), arrays["answer_offsets"][1:-1])
            facts = zip(arrays["source"], arrays["row_id"], arrays["temperature"], strict=True)
            rows = list(zip(facts, prompts, texts, _tops(arrays), strict=True))
        for (source, row_id, temperature), prompt, text, top in rows:
            if not len(prompt) or not len(text):
                continue
            if max(prompt.max(), text.max()) >= vocabulary_size:
                raise UserError("training.answers_tokens", path=path.name)
            answers.append(Answer(str(source), int(row_id), float(temperature), prompt, text, *top))
    return answers


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn the errors of a shard that cannot be read into a UserError."""
    try:
        yield
    except (OSError, EOFError, ValueError, KeyError, AttributeError, BadZipFile) as error:
        known = isinstance(error, OSError) or is_zipfile(
            path
        )  # NumPy takes other files for pickles
        reason = error if known else Phrase("training.not_answers")
        raise UserError("training.answers_unread", path=path.name, error=reason) from error


def _tops(arrays: dict[str, np.ndarray]) -> list[tuple[np.ndarray | None, np.ndarray | None]]:
    """Return each answer's `top_ids` and `top_probs`, None if the shard has none."""
    if "top_ids" not in arrays:
        return [(None, None)] * len(arrays["row_id"])
    ids, probs = (
        np.split(arrays[name], arrays["answer_offsets"][1:-1]) for name in ("top_ids", "top_probs")
    )
    return list(zip((one.astype(np.int64) for one in ids), probs, strict=True))


def answered_keys(paths: Iterable[Path]) -> tuple[Counter[tuple[str, int]], int]:
    """Count the answers of shards by (source, row), and the positions of all their texts."""
    keys: Counter[tuple[str, int]] = Counter()
    positions = 0
    for path in paths:
        with _reading(path), np.load(path, allow_pickle=False) as shard:
            keys.update(zip(shard["source"].tolist(), shard["row_id"].tolist(), strict=True))
            positions += len(shard["prompt_ids"]) + len(shard["answer_ids"]) - len(shard["row_id"])
    return keys, positions


def to_rows(answers: Sequence[Answer]) -> list[Row]:
    """Return the answers as training rows, whose hidden states are stored one after another."""
    rows, start = [], 0
    for answer in answers:
        token_ids = np.concatenate([answer.prompt_ids, answer.answer_ids])[:-1]
        rows.append(Row(answer.key, token_ids, len(answer.prompt_ids) - 1, start))
        start += len(token_ids)
    return rows


def hold_out(rows: Sequence[Row], prompts: int, seed: int) -> tuple[list[Row], list[Row]]:
    """Split into training and held-out rows; rows of the same prompt are on the same side.

    A prompt's number depends on the prompt and the seed alone, and the lowest numbers are held out. So when answers are
    added, no prompt that was trained on becomes a held-out one.
    """
    numbers = {row.key: _number(row.key, seed) for row in rows}
    lowest = sorted(numbers, key=numbers.__getitem__)[:prompts]
    held = {key for key in lowest if numbers[key] < MOST_HELD_OUT} or set(lowest[:1])
    return [row for row in rows if row.key not in held], [row for row in rows if row.key in held]


def _number(key: str, seed: int) -> float:
    """Return a number from 0 to 1 for a prompt."""
    digest = hashlib.blake2b(f"{seed} {key}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


def from_prompts_too(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with their prompts as training positions too, except the beginning that all prompts share: the template.

    The target writes no prompt, but its states and its distributions there are as good to learn from.
    """
    shortest = min(row.first for row in rows)
    texts = np.stack([row.token_ids[: shortest + 1] for row in rows])
    differ = np.flatnonzero((texts != texts[0]).any(axis=0))
    first = max(int(differ[0]) - 1, 0) if len(differ) else shortest
    return [replace(row, first=first) for row in rows]


def batches(
    rows: Sequence[Row], max_tokens: int, shuffle_seed: int | None = None
) -> list[list[Row]]:
    """Return batches of at most `max_tokens` with padding; the same seed gives the same order."""
    random = np.random.default_rng(shuffle_seed)
    order = list(rows) if shuffle_seed is None else [rows[i] for i in random.permutation(len(rows))]
    result: list[list[Row]] = []
    for begin in range(0, len(order), SORTED_WITHIN):
        batch: list[Row] = []
        for row in sorted(order[begin : begin + SORTED_WITHIN], key=lambda row: len(row.token_ids)):
            if batch and len(row.token_ids) * (len(batch) + 1) > max_tokens:
                result.append(batch)
                batch = []
            batch.append(row)
        result.append(batch)
    return result if shuffle_seed is None else [result[i] for i in random.permutation(len(result))]


def padded(rows: Sequence[Row]) -> np.ndarray:
    """Return token ids, (B, L) int64, with zeros after each text, which causal attention never reads."""
    table = np.zeros((len(rows), max(len(row.token_ids) for row in rows)), np.int64)
    for line, row in zip(table, rows, strict=True):
        line[: len(row.token_ids)] = row.token_ids
    return table


def positions(rows: Sequence[Row], *, answers_only: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return positions of the texts, (n,) int64 each: in the flattened batch, and in the stored hidden states.

    The first position of a text is left out: its hidden state is an attention sink, far from all others.
    """
    length = max(len(row.token_ids) for row in rows)
    here, there = [], []
    for index, row in enumerate(rows):
        inside = np.arange(max(row.first, 1) if answers_only else 1, len(row.token_ids))
        here.append(index * length + inside)
        there.append(row.start + inside)
    return np.concatenate(here), np.concatenate(there)


@dataclass(frozen=True, slots=True)
class HiddenStates:
    """The target's hidden states over all rows, memory-mapped, and what it said after each position.

    shards: (positions, layers, H) int16 each, the bits of bf16 numbers
    layers: which states they have, ascending, as transformers counts them (0 = embedding, the last = after the norm)
    word_mass: (V,) float64 — the target's probability of each token, summed over the answers
    likeliest, chances: (positions,) int64 and float16 — its most likely next token, and the probability of that token
    greedy: (positions,) bool — whether the answer was written at temperature 0; all three are 0 in prompts
    """

    shards: Sequence[np.ndarray]
    layers: tuple[int, ...]
    word_mass: np.ndarray
    likeliest: np.ndarray
    chances: np.ndarray
    greedy: np.ndarray

    def rows(self, layers: Sequence[int], where: np.ndarray, device: torch.device) -> Tensor:
        """Return states at positions of any shard. where: (...) int64, -1 for zeros. returns: (..., layers x H) of `training_dtype`"""
        columns = [self.layers.index(layer) for layer in layers]
        begins = np.cumsum([0, *map(len, self.shards)])
        found = np.zeros((*where.shape, len(columns) * self.shards[0].shape[-1]), np.int16)
        which = begins.searchsorted(where, side="right") - 1
        for number in np.unique(which[where >= 0]):
            chosen = which == number
            inside = where[chosen] - begins[number]
            found[chosen] = self.shards[number][inside[:, None], columns].reshape(len(inside), -1)
        return torch.from_numpy(found).view(torch.bfloat16).to(device, training_dtype(device))

    def final(self, where: np.ndarray, device: torch.device) -> Tensor:
        """Return the last states, from which the target's head computes its distribution: (n, H)."""
        return self.rows(self.layers[-1:], where, device)

    def texts(
        self, batch: Sequence[Row], layers: Sequence[int], device: torch.device, *, shift: int = 0
    ) -> Tensor:
        """Return each token's states, (B, L, layers x H), or those of the token `shift` positions before; else zeros."""
        where = np.full((len(batch), max(len(row.token_ids) for row in batch)), -1)
        for line, row in zip(where, batch, strict=True):
            count = len(row.token_ids) - shift
            line[shift : shift + count] = row.start + np.arange(count)
        return self.rows(layers, where, device)


def states_path(answers: Path) -> Path:
    return answers.with_name(answers.name.replace("answers", "states")).with_suffix(".npy")


def read_shards(
    paths: Sequence[Path], layers: Sequence[int], vocabulary_size: int
) -> tuple[list[Answer], list[Row], HiddenStates]:
    """Read answers, the texts to train on, and the target's states over them. layers: which states the shards have"""
    answers: list[Answer] = []
    shards: list[np.ndarray] = []
    for path in paths:
        here = read_answers([path], vocabulary_size)
        try:
            shards.append(np.load(states_path(path), mmap_mode="r"))
        except (OSError, ValueError) as error:
            raise UserError("training.no_states", path=path.name) from error
        positions = sum(len(one.prompt_ids) + len(one.answer_ids) - 1 for one in here)
        if shards[-1].shape[:2] != (positions, len(layers)) or any(
            one.top_ids is None for one in here
        ):
            raise UserError("training.other_states", path=path.name)
        answers += here
    rows, count = to_rows(answers), sum(map(len, shards))
    hidden = HiddenStates(
        shards, tuple(layers), np.zeros(vocabulary_size),
        np.zeros(count, np.int64), np.zeros(count, np.float16), np.zeros(count, bool),
    )  # fmt: skip
    for one, row in zip(answers, rows, strict=True):
        assert one.top_ids is not None
        assert one.top_probs is not None
        np.add.at(hidden.word_mass, one.top_ids, one.top_probs)
        said = slice(row.start + row.first, row.start + len(row.token_ids))
        hidden.likeliest[said], hidden.chances[said] = one.top_ids[:, 0], one.top_probs[:, 0]
        hidden.greedy[said] = one.temperature == 0
    return answers, rows, hidden
