"""What one visitor's runs leave for the next: their texts, and what the target said after which words."""

from __future__ import annotations

from specdemo.drafters.automaton import SuffixAutomaton
from specdemo.drafters.markov import MarkovCounts


class Memory:
    """One visitor's; never shared. Holds token ids only, in this process only."""

    def __init__(self) -> None:
        self.texts = SuffixAutomaton()
        self.counts = MarkovCounts()

    def forget(self) -> None:
        """Start over."""
        self.texts = SuffixAutomaton()
        self.counts = MarkovCounts()
