"""A draft model as a source of distributions: shaped exactly as the target's, and mixed with the counts in memory.

A row of W columns is a distribution over the model's own vocabulary; the counts cover all tokens, and
then a row has V columns. `token` returns the token of a column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from specdemo.drafters.memory.markov import MarkovBias
from specdemo.drafters.memory.visit import HeadBias, attach
from specdemo.drafters.policies.lookahead import Lookahead
from specdemo.engine.clock import Stopwatch
from specdemo.engine.cost import Costs
from specdemo.engine.sampling import ReducedVocabulary, Shaper, draw, draw_at, likeliest
from specdemo.engine.target import PrefixReader
from specdemo.engine.types import Proposal
from specdemo.kernels.plan import Chain
from specdemo.trace.events import Reason


class DraftReader:
    """The draft model's predictions, as probabilities over the target's vocabulary.

    costs: learn the seconds of the model's steps
    bias: learns from the target's verdicts its tokens after each context; None for the model alone
    head: learns from them a correction of the model's final states; None for no correction
    """

    def __init__(
        self,
        reader: PrefixReader,
        shaper: Shaper,
        vocabulary_size: int,
        costs: Costs,
        bias: MarkovBias | None = None,
    ) -> None:
        self.reader = reader
        self.shaper = shaper
        self.vocabulary_size = vocabulary_size
        self.costs = costs
        self.bias = bias
        self.head: HeadBias | None = None
        self._warm = False  # whether the model has been read in this step
        self._seed = shaper.sampling.seed + 1_000_003
        self._generator = torch.Generator()

    @property
    def words(self) -> ReducedVocabulary | None:
        """Vocabulary of the columns; None for all tokens."""
        return None if self.bias else self.reader.model.words

    @property
    def greedy(self) -> bool:
        """Whether tokens are chosen, not drawn."""
        return self.shaper.sampling.greedy

    @property
    def _learners(self) -> list[MarkovBias | HeadBias]:
        return [learner for learner in (self.bias, self.head) if learner]

    def start(self, prompt_ids: Sequence[int]) -> None:
        # The drafter's draws must not be those of the verifier, which counts from the seed itself.
        self._generator.manual_seed(self._seed)
        attach(self.reader.model, self.head)
        for learner in self._learners:
            learner.start(prompt_ids)
        self.reader.follow(prompt_ids[:-1])
        if self.reader.room(len(prompt_ids), 1):
            self.reader.prepare(prompt_ids[:-1])

    def follow(self, committed: Sequence[int]) -> None:
        """Start a step: learn from the target's tokens since the last one."""
        self._warm = False
        self.reader.follow(committed)
        for learner in self._learners:
            learner.follow(committed)

    def room(self, committed: Sequence[int], most: int) -> int:
        """Return how many tokens can be drafted after a text within the model's context, at most `most`."""
        return self.reader.room(len(committed), most)

    @staticmethod
    def why(allowed: int, reason: Reason) -> Reason:
        """Return the policy's reason, unless no token may be drafted."""
        return reason if allowed else Reason("no_room")

    def probs_after(self, committed: Sequence[int], drafted: Sequence[int] = ()) -> Tensor:
        """The distribution that follows a text and a draft: (W,) float32."""

        def read() -> Tensor:
            return self.reader.logits_after([*committed, *drafted])[None]

        return self._read(read, committed, [drafted])[0]

    def probs_below(
        self,
        committed: Sequence[int],
        token_ids: Sequence[int],
        parents: Sequence[int],
        paths: Sequence[Sequence[int]],
    ) -> Tensor:
        """Return the distributions after new nodes of a tree on the text of the last `probs_after`: (N, W) float32.

        parents: index among all nodes read in this step, -1 = follows the text
        paths: drafted tokens down to each node, itself included
        """

        def read() -> Tensor:
            return self.reader.model.grow(token_ids, parents)

        return self._read(read, committed, paths)

    def chain(self, committed: Sequence[int], most: int, lookahead: Lookahead) -> Chain:
        """Draft tokens one after another until the policy stops.

        In one call if the model supports it and nothing must be decided in between: the code between two of its steps
        needs as much time as the step itself.
        """
        uniforms = None
        if not self.greedy and not self.shaper.tickets:
            uniforms = torch.rand(most, generator=self._generator, dtype=torch.float64)
        if not (self.bias or self.head):
            plan = self.shaper.plan(most, lookahead.rule, uniforms)
            found = self.reader.chain_after(committed, plan)
            if found:
                if found.step_seconds:
                    self.costs.observe_draft(found.step_seconds, found.runs)
                lookahead.took(len(found.columns), found.survival)
                return found
        chain = Chain()
        while (at := len(chain.columns)) < most:
            probs = self.probs_after(committed, self.tokens(chain.columns))
            column = (
                self.expected(probs, len(committed) + at)
                if uniforms is None
                else draw_at(probs, float(uniforms[at]))
            )
            chain.add(column, probs)
            if not lookahead.go_on(chain.confidences[-1]):
                break
        return chain

    def proposal(self, chain: Chain, allowed: int, reason: Reason, **more: object) -> Proposal:
        """Return a drafted chain as a proposal.

        allowed: tokens that the policy allowed; reason: why it ended; more: further fields of the proposal
        """
        return Proposal.chain(
            self.tokens(chain.columns),
            draft_probs=chain.rows,
            words=self.words,
            chosen=self.greedy,
            confidences=tuple(chain.confidences),
            lookahead=allowed,
            reasons=(self.why(allowed, reason),),
            **more,
        )

    def _read(
        self, read: Callable[[], Tensor], committed: Sequence[int], paths: Sequence[Sequence[int]]
    ) -> Tensor:
        """Return the distributions of a step of the model, (N, W) float32, and measure the cost of one more step.

        read: runs the step and returns its logits; the first of each draft also reads the committed text
        """
        with Stopwatch() as watch:
            logits = read()
            if self.head:
                self.head.note(paths)
            probs = self.shaped(logits, committed, paths)
        if self._warm:
            self.costs.observe_draft(watch.fair_seconds, watch.runs)
        self._warm = True
        return probs

    def expected(self, probs: Tensor, position: int) -> int:
        """Return the column that a target of this distribution would draw with the run's tickets, or else the most likely.

        position: of the token in the text
        """
        if self.shaper.tickets:
            return self.shaper.tickets.winner(
                probs, position, self.words.ids if self.words else None
            )
        return int(likeliest(probs))

    def pick(self, probs: Tensor, position: int, *, repeatable: bool = False) -> int:
        """Return the most likely column of a distribution when greedy, else one drawn.

        repeatable: draw by position in the text, so that a draft prepared ahead is the one that would be drawn later
        """
        if self.greedy or self.shaper.tickets:
            return self.expected(probs, position)
        if repeatable:
            self._generator.manual_seed(self._seed + 7919 * position)
        return draw(probs, self._generator)

    def token(self, column: int) -> int:
        return self.words.token(column) if self.words else column

    def tokens(self, columns: Sequence[int]) -> list[int]:
        words = self.words
        return [words.tokens[column] for column in columns] if words else list(columns)

    def shaped(
        self, logits: Tensor, committed: Sequence[int], paths: Sequence[Sequence[int]]
    ) -> Tensor:
        """The model's logits as the distributions that are drawn from after a text and paths of drafted tokens."""
        words = self.reader.model.words
        probs = self.shaper.probs(self._fit(logits), committed, paths, words).cpu()
        if self.bias:
            probs = words.widen(probs) if words else probs
            for row, path in zip(probs, paths, strict=True):
                self.bias.mix(row, [*committed[-3:], *path])
        return probs

    def _fit(self, logits: Tensor) -> Tensor:
        """Cut or pad padded vocabularies to the target's width (Qwen: 151936 and 152064)."""
        if self.reader.model.words:
            return logits
        missing = self.vocabulary_size - logits.shape[-1]
        if missing <= 0:
            return logits[..., : self.vocabulary_size]
        return torch.nn.functional.pad(logits, (0, missing), value=-torch.inf)
