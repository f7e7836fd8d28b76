"""The target answers prompts in batches of conversations, or reads answers that are given, and its hidden states are stored.

A shard is a pair of files: the answers (see `data`), and `.npy` with the hidden states of their texts one after
another, (positions, layers, H) bf16 bits as int16. Passes are the program's own, so the states are those that a
drafter reads in a run.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from specdemo.config.errors import UserError
from specdemo.config.settings import Sampling
from specdemo.engine.passes import Decoder, ForwardRequest, RunStack, chunks, run_together
from specdemo.engine.sampling import Shaper, TextTokens, draw_at
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.files.progress import Progress, ProgressCallback
from specdemo.session.text import encode_prompt
from specdemo.training.data import Answer, Prompt, answered_keys, save_answers, states_path

CONVERSATIONS = 48  # conversations per pass
SHARED_ROWS = 192  # rows of a pass besides one chunk of a text, at least one for each conversation
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
    stored: (positions, layers, H) int16, of all tokens once the text has ended, except the last, which nothing follows
    """

    source: str
    row_id: int
    prompt_ids: Sequence[int]
    sampling: Sampling = SAMPLINGS[0]
    random: np.random.Generator = field(default_factory=np.random.default_rng)
    answer_ids: list[int] = field(default_factory=list)
    given: bool = False
    top: list[tuple[Tensor, Tensor]] = field(default_factory=list)
    stored: np.ndarray = field(default_factory=lambda: np.empty((0, 0, 0), np.int16))

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

    def write(self, waiting: Iterator[AnswerText]) -> Iterator[AnswerText]:
        """Yield texts in the order in which they end. Each has its own stack, and they share their passes."""
        active: dict[RunStack, AnswerText] = {}
        try:
            while True:
                for one in islice(waiting, CONVERSATIONS - len(active)):
                    active[RunStack(partial(self._work, one))] = one
                if not active:
                    return
                for stack in list(active):
                    waits = stack.request and not stack.request.done
                    if not waits and not stack.resume():
                        yield active.pop(stack)
                if requests := [stack.request for stack in active if stack.request]:
                    run_together(self._first(requests))
        finally:
            for stack in active:
                stack.close()

    def _first(self, requests: Sequence[ForwardRequest]) -> list[ForwardRequest]:
        """Return the requests of the next pass: all next tokens fit into it behind a chunk, and so none waits forever."""
        first, room = [], self.decoder.chunk + SHARED_ROWS
        for one in requests:
            rows = len(one.input.token_ids)
            if rows <= room:
                first.append(one)
                room -= rows
        return first

    def _work(self, one: AnswerText) -> None:
        """Read a prompt, and write its answer or read the given one."""
        model = CachedModel(self.decoder, self.layers)
        model.record(wanted=True)
        if one.given:
            *before, last = one.prompt_ids
            model.read(before)
            unread = [last, *one.answer_ids[:-1]]
            for part in chunks(model.length, len(unread), self.decoder.chunk):
                first, *others = unread[part]
                self._store_top(one, model.forward(first, Proposal.chain(others)).logits)
                model.keep(range(len(others)))
        else:
            logits = model.read(one.prompt_ids)
            while self._add_token(one, logits):
                logits = model.read(one.answer_ids[-1:])
        if self.layers:
            states = model.features.read(0, model.length, self.layers)
            states = states.bfloat16().unflatten(-1, (len(self.layers), -1))
            one.stored = states.cpu().view(torch.int16).numpy()

    def _store_top(self, one: AnswerText, logits: Tensor) -> int:
        """Store the most likely tokens of each row, and return that of the first. logits: (rows, V)"""
        logits = logits.float()
        likely = logits.topk(min(TOP_TOKENS, logits.shape[-1]))
        probs = (likely.values - logits.logsumexp(-1, keepdim=True)).exp().half()
        one.top.append((likely.indices.cpu(), probs.cpu()))
        return int(one.top[-1][0][0, 0])

    def _add_token(self, one: AnswerText, logits: Tensor) -> bool:
        """Add the next token to an answer. logits: (V,). returns: whether another token follows"""
        token_id = self._store_top(one, logits[None])
        if not one.sampling.greedy:
            logits, shaper = logits.float().cpu(), Shaper(one.sampling)
            text = TextTokens([*one.prompt_ids, *one.answer_ids])
            probs = shaper.compiled(logits, text)
            if probs is None:
                probs = shaper.probs(logits[None], text, [[]])[0]
            token_id = draw_at(probs, float(one.random.random()))
        one.answer_ids.append(token_id)
        return token_id not in self.stop_ids and len(one.answer_ids) < self.most


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
            prompt.source, prompt.row_id, ids, samplings[number % len(samplings)],
            np.random.default_rng((seed, index)),
        )  # fmt: skip


def given_texts(answers: Iterable[Answer], decoder: Decoder) -> Iterator[AnswerText]:
    """Start a text for each given answer that fits into the target's context."""
    for one in answers:
        if len(one.prompt_ids) + len(one.answer_ids) - 1 <= decoder.config.max_position_embeddings:
            yield AnswerText(
                one.source, one.row_id, one.prompt_ids.tolist(), Sampling(one.temperature),
                answer_ids=one.answer_ids.tolist(), given=True,
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
