"""A suffix automaton over growing texts: finds the latest earlier occurrence of the end of a text (Blumer et al. 1985)."""

from __future__ import annotations

from collections.abc import Sequence

AUTOMATON_TOKENS = 65_536  # then it starts again from the current text
STATE_BYTES = 360  # bytes of a state and its part of the text, measured
WALK = 256  # most suffix links followed for one token: bounds the work for "aaaa..."


class SuffixAutomaton:
    """Every substring of all texts entered, and the last end of each; amortised constant work a token.

    text: the tokens entered; a negative id, used once, separates two texts, so no match crosses it
    begun: position in `text` where the current text starts

    A state represents all substrings that end at the same positions. Its suffix link leads to the longest suffix
    that also ends elsewhere, so the link of the whole text's state is its longest suffix that occurred before:

        text     a b c a b      longest suffix that occurred before: "a b", it ended after 2 tokens
        the state of "abcab" links to the state of "ab", "b"

    The last end of a state is recorded when the next token comes, up the chain of suffix links, so a record
    is always an earlier position. Chains are a few links long except for texts that repeat themselves
    immediately: there a record beyond `WALK` links is not updated and names an earlier occurrence than the latest.
    """

    def __init__(self, max_tokens: int = AUTOMATON_TOKENS) -> None:
        self.max_tokens = max_tokens
        self._num_texts = 0
        self._reset()

    def _reset(self) -> None:
        self.text: list[int] = []
        self._next: list[dict[int, int]] = [{}]
        self._link = [-1]
        self._length = [0]
        self._ended = [0]
        self._last = 0
        self.begun = 0
        self._dropped = 0  # tokens of the current text that were let go to bound the memory

    @property
    def current_length(self) -> int:
        """Tokens of the current text that were entered, those let go since included."""
        return self._dropped + len(self.text) - self.begun

    @property
    def memory_bytes(self) -> int:
        return STATE_BYTES * len(self._next)

    def begin(self, token_ids: Sequence[int]) -> None:
        """Enter a new text, or only its new tokens if it continues the current one."""
        held = self.text[self.begun :]
        if held != list(token_ids[self._dropped : self.current_length]):
            self._num_texts += 1
            self.extend(-self._num_texts)
            self.begun, self._dropped = len(self.text), 0
        self.follow(token_ids)

    def follow(self, token_ids: Sequence[int]) -> None:
        """Enter the new tokens of the current text. token_ids: the whole text"""
        for token_id in token_ids[self.current_length :]:
            self.extend(token_id)

    def extend(self, token_id: int) -> None:
        if len(self.text) >= self.max_tokens:
            self._start_again()
        self._note()
        self.text.append(token_id)
        state = self._add({}, len(self.text), 0)
        place = self._last
        while place >= 0 and token_id not in self._next[place]:
            self._next[place][token_id] = state
            place = self._link[place]
        self._link[state] = 0 if place < 0 else self._suffix(place, token_id)
        self._last = state

    def match(self, longest: int = 64, drafted: Sequence[int] = ()) -> tuple[int, int]:
        """Find the longest suffix of the text, at most `longest` tokens, that also occurs earlier.

        drafted: the end of the text that is not entered, because it may be refused
        returns: its length, and the position right after its latest earlier occurrence; (0, 0) for none

        text     a b c d a      drafted: b      "a b" ended after 2 tokens
        """
        state = max(0, self._link[self._last])
        length = self._length[state]
        for token_id in drafted:
            while state > 0 and token_id not in self._next[state]:
                state = self._link[state]
                length = self._length[state]
            after = self._next[state].get(token_id)
            state, length = (0, 0) if after is None else (after, length + 1)
        if state == self._last:  # it ends where the text does, and nothing followed it there
            state = max(0, self._link[state])
            length = self._length[state]
        if state <= 0:
            return 0, 0
        for _ in range(WALK):
            if self._length[self._link[state]] < longest:
                break
            state = self._link[state]
            length = self._length[state]
        return min(longest, length), self._ended[state]

    def following(self, position: int, most: int, drafted: Sequence[int] = ()) -> list[int]:
        """Return the tokens from `position` on, up to the end of that text.

        At the end of the entered and drafted tokens it continues with its own copy, as in LZ77: text that
        repeats itself is copied repeatedly.

            text     x a b a b, position 3      following: a b, then a b a b ...
        """
        copied = self.text[position : position + most]
        for place, token_id in enumerate(copied):
            if token_id < 0:
                return copied[:place]
        copied += drafted[: most - len(copied)]
        period = len(copied)
        while period > 0 and len(copied) < most:
            copied.append(copied[-period])
        return copied

    def _note(self) -> None:
        """Note that every suffix of the text ends here."""
        state, position = self._last, len(self.text)
        for _ in range(WALK):
            if state <= 0:
                return
            self._ended[state] = position
            state = self._link[state]

    def _suffix(self, place: int, token_id: int) -> int:
        """Return the state of the longest suffix that occurred before, split off from a longer one if necessary."""
        longer = self._next[place][token_id]
        length = self._length[place] + 1
        if self._length[longer] == length:
            return longer
        split = self._add(dict(self._next[longer]), length, self._ended[longer])
        self._link[split] = self._link[longer]
        self._link[longer] = split
        while place >= 0 and self._next[place].get(token_id) == longer:
            self._next[place][token_id] = split
            place = self._link[place]
        return split

    def _add(self, followers: dict[int, int], length: int, ended: int) -> int:
        self._next.append(followers)
        self._link.append(0)
        self._length.append(length)
        self._ended.append(ended)
        return len(self._next) - 1

    def _start_again(self) -> None:
        """Forget everything but the last half's worth of the current text."""
        begun = max(self.begun, len(self.text) - self.max_tokens // 2)
        kept, dropped = self.text[begun:], self._dropped + begun - self.begun
        self._reset()
        for token_id in kept:
            self.extend(token_id)
        self._dropped = dropped
