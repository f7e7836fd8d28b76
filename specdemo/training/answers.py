"""The target answers prompts in batches of conversations, or reads answers that are given, and its hidden states are stored.

A shard is a pair of files: the answers (see `data`), and `.npy` with the hidden states of their texts one after
another, (positions, layers, H) bf16 bits as int16. Passes are the program's own, so the states are those that a
drafter reads in a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from specdemo.config.errors import UserError
from specdemo.config.settings import Sampling
from specdemo.engine.cache import RollbackCache
from specdemo.engine.passes import Decoder, ForwardInput
from specdemo.engine.sampling import Shaper, TextTokens, draw_at
from specdemo.files.progress import Progress, ProgressCallback
from specdemo.session.text import encode_prompt
from specdemo.training.data import Answer, Prompt, answered_keys, save_answers, states_path

CONVERSATIONS = 48  # conversations per pass
PROMPT_ROWS = 32  # rows of prompts and given answers per pass while other answers are written
READING_ROWS = 256  # the same per pass while none is written
SHARD_ANSWERS = 64
TOP_TOKENS = 8  # most likely tokens that are stored for each position
SAMPLINGS = (
    Sampling(0.0),
    Sampling(0.7, top_p=0.9, repetition_penalty=1.1),
    Sampling(0.2, top_p=0.9),
    Sampling(0.0),
    Sampling(1.0, repetition_penalty=1.1),
    Sampling(1.0),
)  # of prompts in turn; without a penalty a small model soon repeats itself


@dataclass(slots=True, eq=False)
class AnswerText:
    """A prompt and the answer to it so far.

    given: the answer was given with the prompt, and is read instead of written
    top: most likely token ids before each token of the answer and their probabilities, (rows, 8) each per pass
    states: (rows or more, layers, H) int16, of the tokens that were read
    """

    source: str
    row_id: int
    prompt_ids: Sequence[int]
    cache: RollbackCache
    sampling: Sampling = SAMPLINGS[0]
    random: np.random.Generator = field(default_factory=np.random.default_rng)
    answer_ids: list[int] = field(default_factory=list)
    given: bool = False
    top: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    states: np.ndarray = field(default_factory=lambda: np.empty((0, 0, 0), np.int16))

    @property
    def unread(self) -> list[int]:
        """Tokens that the target has not read yet. Nothing follows a given answer, so its last token is not read."""
        text = [*self.prompt_ids, *(self.answer_ids[:-1] if self.given else self.answer_ids)]
        return text[self.cache.length :]

    @property
    def is_written(self) -> bool:
        """Whether tokens of the answer have been chosen, so that each pass reads one more."""
        return bool(self.answer_ids) and not self.given

    def store(self, states: np.ndarray, most: int) -> None:
        """Store the states of the next rows, (n, layers, H), in one array for `most` rows.

        Arrays of single passes, which are small, would lie between freed caches, so that no larger cache fits there.
        """
        if not len(self.states):
            self.states = np.empty((most, *states.shape[1:]), np.int16)
        self.states[self.cache.length : self.cache.length + len(states)] = states

    @property
    def stored(self) -> np.ndarray:
        """Return the states of all rows that were read: nothing follows the last token."""
        return self.states[: len(self.prompt_ids) + len(self.answer_ids) - 1]

    def answer(self) -> Answer:
        top_ids, top_probs = (torch.cat(parts).numpy() for parts in zip(*self.top, strict=True))
        return Answer(
            self.source, self.row_id, self.sampling.temperature,
            np.array(self.prompt_ids), np.array(self.answer_ids), top_ids, top_probs,
        )  # fmt: skip


class AnswerWriter:
    """Runs many texts through a target's decoder. layers: hidden states that are stored; most: tokens of an answer"""

    def __init__(
        self, decoder: Decoder, layers: Sequence[int], stop_ids: Iterable[int], most: int
    ) -> None:
        self.decoder, self.layers = decoder, tuple(layers)
        self.stop_ids, self.most = frozenset(stop_ids), most

    @torch.inference_mode()
    def write(self, waiting: Iterator[AnswerText]) -> Iterator[AnswerText]:
        """Yield texts in the order in which they end."""
        active: list[AnswerText] = []
        while True:
            inputs = [(one, one.unread) for one in active if one.is_written]
            room = PROMPT_ROWS if inputs else READING_ROWS
            for one in self._readers(active, waiting):
                inputs.append((one, one.unread[:room]))
                room -= len(inputs[-1][1])
                if not room:
                    break
            if not inputs:
                return
            self._advance(inputs)
            for one in [one for one in active if self._is_complete(one)]:
                active.remove(one)
                yield one

    def _readers(
        self, active: list[AnswerText], waiting: Iterator[AnswerText]
    ) -> Iterator[AnswerText]:
        """Yield texts whose prompt or given answer is not read yet: started ones first, then new ones."""
        yield from [one for one in active if not one.is_written]
        while len(active) < CONVERSATIONS and (one := next(waiting, None)):
            active.append(one)
            yield one

    def _is_complete(self, one: AnswerText) -> bool:
        if not one.is_written:
            return one.given and not one.unread
        return one.answer_ids[-1] in self.stop_ids or len(one.answer_ids) == self.most

    def _advance(self, inputs: Sequence[tuple[AnswerText, list[int]]]) -> None:
        """Run one pass, and give written texts whose prompt is read their next token."""
        outputs = self.decoder.run([self._input(one, rows) for one, rows in inputs])
        counts, logits = [], []
        for (one, rows), output in zip(inputs, outputs, strict=True):
            if self.layers:
                assert output.states is not None
                states = output.states.bfloat16().unflatten(-1, (len(self.layers), -1))
                most = len(one.prompt_ids) + max(self.most, len(one.answer_ids))
                one.store(states.cpu().view(torch.int16).numpy(), most)
            one.cache.gather(range(len(rows)))
            counts.append(min(len(rows), max(0, one.cache.length - len(one.prompt_ids) + 1)))
            logits.append(output.logits[len(output.logits) - counts[-1] :])
        self._choose([one for one, _ in inputs], counts, torch.cat(logits).float().cpu())

    def _input(self, one: AnswerText, rows: Sequence[int]) -> ForwardInput:
        start, end = one.cache.length, one.cache.length + len(rows)
        # The last row of the prompt and each row behind it precede a token of the answer.
        answers = min(len(rows), max(1, end - len(one.prompt_ids) + 1))
        return ForwardInput(rows, range(start, end), None, one.cache, answers, self.layers)

    def _choose(self, texts: Sequence[AnswerText], counts: list[int], logits: Tensor) -> None:
        """Store the most likely tokens of each row, and choose the next token of written texts.

        counts: rows of each text; logits: (rows, V) float32
        """
        likely = logits.topk(min(TOP_TOKENS, logits.shape[-1]))
        probs = (likely.values - logits.logsumexp(-1, keepdim=True)).exp().half()
        parts = zip(
            texts, *(one.split(counts) for one in (likely.indices, probs, logits)), strict=True
        )
        for one, top_ids, top_probs, rows in parts:
            if len(rows):
                one.top.append((top_ids, top_probs))
                if not one.given:
                    one.answer_ids.append(self._next_token(one, int(top_ids[0, 0]), rows))

    def _next_token(self, one: AnswerText, likeliest: int, logits: Tensor) -> int:
        if one.sampling.greedy:
            return likeliest
        text, shaper = TextTokens([*one.prompt_ids, *one.answer_ids]), Shaper(one.sampling)
        probs = shaper.compiled(logits[0], text)
        if probs is None:
            probs = shaper.probs(logits, text, [[]])[0]
        return draw_at(probs, float(one.random.random()))


def new_texts(
    prompts: Sequence[Prompt], tokenizer: PreTrainedTokenizerBase, decoder: Decoder, most: int, seed: int,
    samplings: Sequence[Sampling] = SAMPLINGS,
) -> Iterator[AnswerText]:  # fmt: skip
    """Start a text for each prompt that fits, in an order that the seed gives. most: tokens of an answer

    samplings: prompts use them in turn
    """
    room = decoder.config.max_position_embeddings - most
    order = np.random.default_rng(seed).permutation(len(prompts)).tolist()
    for number, index in enumerate(order):
        prompt = prompts[index]
        try:
            ids = encode_prompt(tokenizer, prompt.text, room)
        except UserError as error:
            if error.code == "prompt.template":  # it refuses every prompt
                raise
            continue  # empty, or too long for the target
        yield AnswerText(
            prompt.source, prompt.row_id, ids, RollbackCache(decoder.config.num_hidden_layers),
            samplings[number % len(samplings)], np.random.default_rng((seed, index)),
        )  # fmt: skip


def given_texts(answers: Iterable[Answer], decoder: Decoder) -> Iterator[AnswerText]:
    """Start a text for each given answer that fits into the target's context."""
    for one in answers:
        if len(one.prompt_ids) + len(one.answer_ids) - 1 <= decoder.config.max_position_embeddings:
            yield AnswerText(
                one.source, one.row_id, one.prompt_ids.tolist(), RollbackCache(decoder.config.num_hidden_layers),
                Sampling(one.temperature), answer_ids=one.answer_ids.tolist(), given=True,
            )  # fmt: skip


def write_shards(
    writer: AnswerWriter,
    texts: Iterable[AnswerText],
    count: int,
    most_positions: int,
    folder: Path,
    progress: ProgressCallback,
) -> list[Path]:
    """Write texts with their states in shards; texts that an earlier call has finished are skipped.

    count: number of texts; most_positions: of hidden states, over all shards
    returns: paths of the answers' files, each with its states next to it; at least one text is written
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = sorted(folder.glob("answers-*.npz"))
    done, positions = answered_keys(paths)
    if paths and positions >= most_positions:
        return paths
    ended, tokens = done.total(), 0
    finished: list[AnswerText] = []

    def save() -> None:
        if finished:
            vocabulary_size = writer.decoder.config.vocab_size
            paths.append(_save(folder, len(paths), finished, vocabulary_size))
            finished.clear()

    try:
        for one in writer.write(_unfinished(texts, done)):
            finished.append(one)
            ended, tokens = ended + 1, tokens + len(one.answer_ids)
            positions += len(one.stored)
            one.cache = RollbackCache(0)  # a shard of long answers would keep gigabytes
            progress(
                Progress(
                    "answer", ended / count, f"{ended:,} of {count:,} prompts, {tokens:,} tokens"
                )
            )
            if len(finished) == SHARD_ANSWERS:
                save()
            if positions >= most_positions:
                break
    finally:
        save()
    if not paths:
        raise UserError("training.long_prompts")
    return paths


def _unfinished(
    texts: Iterable[AnswerText], done: Counter[tuple[str, int]]
) -> Iterator[AnswerText]:
    """Yield the texts that were not finished, by source and row. Given answers may share a row."""
    left = done.copy()
    for one in texts:
        if left[one.source, one.row_id]:
            left[one.source, one.row_id] -= 1
        else:
            yield one


def _save(folder: Path, number: int, texts: Sequence[AnswerText], vocabulary_size: int) -> Path:
    """Write a shard. The answers come last: only with them it counts as finished."""
    states = np.concatenate([one.stored for one in texts])
    path = folder / f"answers-{number:04d}.npz"
    with path.with_suffix(".part").open("wb") as stream:
        np.save(stream, states)
    path.with_suffix(".part").replace(states_path(path))
    save_answers(path, [one.answer() for one in texts], vocabulary_size)
    return path
