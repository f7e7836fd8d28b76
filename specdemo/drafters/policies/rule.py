"""The stopping rule of `engine.cost` with the costs of one run: used by chains, trees, blocks, copies and `auto`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from specdemo.engine.cost import Costs, best_rate, pays

# tokens: a pass costs more by groups of rows, so up to this many are charged as one
GROUP_TOKENS = 4


class StoppingRule:
    """Decides whether more draft tokens make this run faster.

    costs: seconds of passes and tokens per second of the run, corrected during the run
    """

    def __init__(self, costs: Costs) -> None:
        self.costs = costs

    def node_pays(self, gain: float, nodes: int, reading_seconds: float = 0.0) -> bool:
        """Return whether one more node of a tree pays.

        gain: chance that the target accepts its whole path; nodes: drafted so far
        reading_seconds: duration of computing the distribution below a node, if the decision is about that

        The first node always does: if even that loses, the fallback stops drafting.
        """
        if not nodes:
            return True
        row = min(self.costs.row_seconds(nodes, more) / more for more in range(1, GROUP_TOKENS + 1))
        return pays(gain, row + reading_seconds, self.costs.rate())

    def position_pays(self, survival: float, position: int, expected: float) -> bool:
        """Return whether one more position of a block pays, whose guesses have been computed already.

        survival: chance that it and all before it are accepted
        position: tokens drafted so far; expected: tokens that the step gives with these

        The rate to exceed is that of this step, not of the run: its pass over the block is spent in any case.
        """
        row = self.costs.row_seconds(position)
        before = self.costs.draft_step + self.costs.verify_seconds(position)
        return pays(survival, row, expected / before)

    def chain_floors(self, most: int, chance: float, token_seconds: float) -> list[float]:
        """Return the survival above which a chain of 1 to `most` tokens continues: `most` numbers, for the compiled loop.

        chance: that one more token is accepted once all before it are; token_seconds: duration of drafting it

        A pass costs more by groups of several rows, so each floor is that of the cheapest group of further tokens.
        """
        groups = range(1, GROUP_TOKENS + 1)
        gains = list(accumulate(chance**more for more in groups))
        rate = self.costs.rate()
        return [
            rate
            * min(
                (more * token_seconds + row) / gain
                for more, row, gain in zip(groups, rows, gains, strict=True)
            )
            for rows in self.costs.rows_seconds(most, GROUP_TOKENS)
        ]

    def copies(self, survivals: Sequence[float], drafted: int) -> int:
        """Return how many copied tokens to append to a draft of `drafted` tokens so that gain - rate * seconds is largest.

        survivals: chance that each copy is accepted with all before it
        returns: 0 if no number of them pays

        All copies are known before they are checked, so an expensive row may be paid by those after it.
        """
        rate = self.costs.rate()
        nets = [0.0]
        for number, gain in enumerate(accumulate(survivals), 1):
            nets.append(gain - rate * self.costs.row_seconds(drafted, number))
        return nets.index(max(nets))

    def speedup(self, lengths: Sequence[int], chance: float, token_seconds: float) -> float:
        """Return tokens per second of the best of some chain lengths, divided by those of plain decoding.

        chance: that a token is accepted once all before it are; token_seconds: duration of drafting one
        """

        def seconds(drafted: int) -> float:
            return self.costs.verify_seconds(drafted) + drafted * token_seconds

        return best_rate([chance] * max(lengths), seconds, lengths) / self.costs.plain_rate()
