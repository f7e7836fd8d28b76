"""The target answers prompts, many together, and what its drafters read of it is kept while it does.

A shard is a pair of files: the answers (see `data`), and `.npy` with the hidden states of their texts one after
another, (positions, layers, H) bf16 bits as int16. Passes are the program's own, so the states are those that a
drafter meets in a run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from specdemo.config.errors import UserError
from specdemo.config.settings import Sampling
from specdemo.engine.cache import RollbackCache
from specdemo.engine.passes import Decoder, ForwardInput
from specdemo.engine.sampling import Shaper, draw_at
from specdemo.files.progress import Progress, ProgressCallback
from specdemo.session.text import encode_conversation
from specdemo.training.data import (
    Answer,
    Prompt,
    Row,
    answered_keys,
    read_answers,
    save_answers,
    to_rows,
)
from specdemo.training.teacher import HiddenStates

ROWS = 48  # conversations that are answered together
PROMPT_ROWS = 32  # rows of prompts that are read in a pass beside them
SHARD = 64  # answers
TOP = 8
SAMPLINGS = tuple(Sampling(temperature) for temperature in (0.0, 0.7, 0.0, 1.0))


@dataclass(slots=True, eq=False)
class Writing:
    """A text that is being written.

    most: tokens of the answer at most; 0 for an answer that was given with the prompt and is only read
    answer_ids: so far; top: likeliest tokens and their probabilities before each of them
    states: (rows, layers, H) int16 of each pass
    """

    prompt: Prompt
    prompt_ids: list[int]
    sampling: Sampling
    cache: RollbackCache
    random: np.random.Generator
    answer_ids: list[int] = field(default_factory=list)
    top: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    states: list[np.ndarray] = field(default_factory=list)

    @property
    def unread(self) -> list[int]:
        """Tokens that the target has not read yet."""
        return [*self.prompt_ids, *self.answer_ids][self.cache.length :]

    def answer(self) -> Answer:
        """What was written."""
        top_ids, top_probs = (
            np.stack([one.numpy() for one in part]) for part in zip(*self.top, strict=True)
        )
        return Answer(
            self.prompt.source, self.prompt.row_id, self.sampling.temperature,
            np.array(self.prompt_ids), np.array(self.answer_ids), top_ids, top_probs,
        )  # fmt: skip


class Writer:
    """Writes texts with a target's decoder; `layers` are the hidden states that are kept."""

    def __init__(
        self, decoder: Decoder, layers: Sequence[int], stop_ids: Iterable[int], most: int
    ) -> None:
        self.decoder, self.layers = decoder, tuple(layers)
        self.stop_ids, self.most = frozenset(stop_ids), most
        self._pattern: Writing | None = (
            None  # the first text; others that begin alike take that part over
        )

    @torch.inference_mode()
    def write(self, waiting: Iterator[Writing]) -> Iterator[Writing]:
        """Texts as they end. waiting: texts to begin"""
        active: list[Writing] = []
        while True:
            inputs = [(one, one.unread) for one in active if one.answer_ids]
            room = PROMPT_ROWS
            for one in self._reading(active, waiting):
                inputs.append((one, one.unread[:room]))
                room -= len(inputs[-1][1])
                if not room:
                    break
            if not inputs:
                return
            self._go_on(inputs)
            for one in [one for one in active if self._ended(one)]:
                active.remove(one)
                yield one

    def _reading(self, active: list[Writing], waiting: Iterator[Writing]) -> Iterator[Writing]:
        """Texts whose prompt is not read yet: those that have begun, then new ones while there is room for them."""
        yield from [one for one in active if not one.answer_ids]
        while len(active) < ROWS and (one := next(waiting, None)):
            active.append(self._begun(one))
            yield one

    def _ended(self, one: Writing) -> bool:
        return bool(one.answer_ids) and (
            one.answer_ids[-1] in self.stop_ids or len(one.answer_ids) == self.most
        )

    def _begun(self, one: Writing) -> Writing:
        """Take over what another text has read of the same begin."""
        pattern = self._pattern
        if pattern is None or not pattern.cache.length:
            self._pattern = pattern or one
            return one
        pairs = zip(pattern.prompt_ids, one.prompt_ids[:-1], strict=False)
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        count = min(same, pattern.cache.length)
        if count:
            for mine, theirs in zip(one.cache.layers, pattern.cache.layers, strict=True):
                mine.update(theirs.keys[:, :, :count], theirs.values[:, :, :count])
            one.cache.gather(range(count))
            one.states.append(np.concatenate(pattern.states)[:count])
        return one

    def _go_on(self, inputs: Sequence[tuple[Writing, list[int]]]) -> None:
        """One pass; texts whose prompt is read get their next token."""
        outputs = self.decoder.run([self._rows(one, rows) for one, rows in inputs])
        ready: list[Writing] = []
        logits: list[Tensor] = []
        for (one, rows), output in zip(inputs, outputs, strict=True):
            states = torch.stack([state.to(torch.bfloat16) for state in output.states], dim=1)
            one.states.append(states.cpu().view(torch.int16).numpy())
            one.cache.gather(range(len(rows)))
            if not one.unread:
                ready.append(one)
                logits.append(output.logits[-1:])
        if ready:
            self._choose(ready, torch.cat(logits).float().cpu())

    def _rows(self, one: Writing, rows: Sequence[int]) -> ForwardInput:
        start = one.cache.length
        seen = None
        if start and len(rows) > 1:
            seen = torch.ones(len(rows), start + len(rows), dtype=torch.bool).tril_(start)
        return ForwardInput(rows, range(start, start + len(rows)), seen, one.cache, 1, self.layers)

    def _choose(self, ready: Sequence[Writing], logits: Tensor) -> None:
        """Give each text its next token. logits: (n, V) float32"""
        likely = logits.topk(min(TOP, logits.shape[-1]))
        top_probs = (likely.values - logits.logsumexp(-1, keepdim=True)).exp().half()
        for row, one in enumerate(ready):
            token = int(likely.indices[row, 0])
            if not one.sampling.greedy:
                text = [*one.prompt_ids, *one.answer_ids]
                probs = Shaper(one.sampling).probs(logits[row : row + 1], text, [[]])[0]
                token = draw_at(probs, float(one.random.random()))
            one.answer_ids.append(token)
            one.top.append((likely.indices[row], top_probs[row]))


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked, and how it is answered.

    samplings: prompts take turns in them; layers: hidden states to keep, as transformers counts them
    most: tokens of an answer; most_positions: of hidden states, in all shards together
    """

    prompts: Sequence[Prompt]
    layers: Sequence[int]
    stop_ids: Iterable[int]
    most: int
    most_positions: int
    seed: int
    samplings: Sequence[Sampling] = SAMPLINGS

    def texts(self, tokenizer: Any, config: Any, done: set[tuple[str, int]]) -> Iterator[Writing]:
        """Texts to write, in an order that the seed gives. done: prompts (source, row) that were answered before"""
        room = config.max_position_embeddings - self.most
        order = np.random.default_rng(self.seed).permutation(len(self.prompts)).tolist()
        for number, index in enumerate(order):
            prompt = self.prompts[index]
            if (prompt.source, prompt.row_id) in done:
                continue
            try:
                messages = [{"role": "user", "content": prompt.text}]
                ids = encode_conversation(tokenizer, messages, room)
            except UserError:  # empty, or too long for the target
                continue
            sampling, random = self.samplings[number % len(self.samplings)], (self.seed, index)
            cache = RollbackCache(config.num_hidden_layers)
            yield Writing(prompt, ids, sampling, cache, np.random.default_rng(random))


def answer_prompts(
    decoder: Decoder, tokenizer: Any, asked: Asked, folder: Path, progress: ProgressCallback
) -> list[Path]:
    """Write the target's answers in shards; prompts that have an answer there are not asked again.

    returns: paths of the answers' files, each with its states beside it
    """
    folder.mkdir(parents=True, exist_ok=True)
    paths = sorted(folder.glob("answers-*.npz"))
    done, positions = answered_keys(paths)
    finished: list[Writing] = []
    ended, tokens = len(done), 0

    def save() -> None:
        if finished:
            paths.append(_save(folder, len(paths), finished, decoder.config.vocab_size))
            finished.clear()

    writer = Writer(decoder, asked.layers, asked.stop_ids, asked.most)
    try:
        for one in writer.write(asked.texts(tokenizer, decoder.config, done)):
            finished.append(one)
            ended, tokens = ended + 1, tokens + len(one.answer_ids)
            positions += one.cache.length
            detail = f"{ended:,} of {len(asked.prompts):,} prompts, {tokens:,} tokens"
            progress(Progress("answer", ended / len(asked.prompts), detail))
            if len(finished) == SHARD:
                save()
            if positions >= asked.most_positions:
                break
    finally:
        save()
    if not paths:
        raise UserError("training.long_prompts")
    return paths


def states_path(answers: Path) -> Path:
    """Where the hidden states of a shard lie."""
    return answers.with_name(answers.name.replace("answers", "states")).with_suffix(".npy")


@dataclass(frozen=True, slots=True)
class Joined:
    """Arrays one after another, as one that takes a slice within a part, or places (n,) int64 of any part."""

    parts: Sequence[np.ndarray]

    @property
    def shape(self) -> tuple[int, int]:
        """Rows of all parts, and numbers of a row."""
        return sum(len(part) for part in self.parts), self.parts[0].shape[1]

    def __getitem__(self, where: slice | np.ndarray) -> np.ndarray:
        begins = np.cumsum([0, *(len(part) for part in self.parts)])
        if isinstance(where, slice):
            part = int(begins.searchsorted(where.start, side="right")) - 1
            return self.parts[part][where.start - begins[part] : where.stop - begins[part]]
        found = np.empty((len(where), self.shape[1]), self.parts[0].dtype)
        which = begins.searchsorted(where, side="right") - 1
        for part in np.unique(which):
            found[which == part] = self.parts[part][where[which == part] - begins[part]]
        return found


def read_shards(
    paths: Sequence[Path], layers: Sequence[int], vocabulary_size: int
) -> tuple[list[Answer], list[Row], HiddenStates]:
    """Answers, the texts to train on, and what the target knew of them. layers: which states the shards hold"""
    answers: list[Answer] = []
    states: list[np.ndarray] = []
    for path in paths:
        here = read_answers([path], vocabulary_size)
        try:
            states.append(np.load(states_path(path), mmap_mode="r"))
        except (OSError, ValueError) as error:
            raise UserError("training.no_states", path=path.name) from error
        positions = sum(len(one.prompt_ids) + len(one.answer_ids) - 1 for one in here)
        if states[-1].shape[:2] != (positions, len(layers)) or any(
            one.top_ids is None for one in here
        ):
            raise UserError("training.other_states", path=path.name)
        answers += here
    mass = np.zeros(vocabulary_size)
    for one in answers:
        assert one.top_ids is not None
        assert one.top_probs is not None
        np.add.at(mass, one.top_ids, one.top_probs)
    arrays = {layer: Joined([part[:, n] for part in states]) for n, layer in enumerate(layers)}
    return answers, to_rows(answers), HiddenStates(arrays, mass)


def _save(folder: Path, number: int, texts: Sequence[Writing], vocabulary_size: int) -> Path:
    """Write a shard; it counts when the answers are there."""
    states = np.concatenate([part for one in texts for part in one.states])
    path = folder / f"answers-{number:04d}.npz"
    with path.with_suffix(".part").open("wb") as stream:
        np.save(stream, states)
    path.with_suffix(".part").replace(states_path(path))
    save_answers(path, [one.answer() for one in texts], vocabulary_size)
    return path
