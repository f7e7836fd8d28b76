"""A datastore of token ids that is searched by suffix: two memory-mapped arrays and a card, never pickle."""

from __future__ import annotations

import hashlib
import json
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from specdemo.config.errors import Phrase, UserError
from specdemo.config.strings import ASSETS, Json, JsonView

DATASTORE_FORMAT = 1
CARD, TOKENS, SUFFIXES = "card.json", "tokens.npy", "suffixes.npy"
CHECKED = 4096  # entries of each array that are checked when a store is opened
RUN = 4  # tokens of the runs that a small store also has as a set
SMALL = 1 << 18  # tokens


@dataclass(frozen=True, slots=True, eq=False)
class Datastore:
    """Texts of one tokenizer; immutable, shared by all sessions.

    tokens: (n,) uint16 or int32 — all texts, a separator after each; an id of `vocabulary_size` or more
        is a separator and matches nothing
    suffixes: (n,) int32 — positions in `tokens`, ordered by the tokens from there on
    card: its sources, the method of its construction, and the licence

        tokens       a b c / a b d /
        suffixes     those of "a b c", "a b d", "b c", "b d", ... : suffixes with the same start are neighbours
    """

    tokens: np.ndarray
    suffixes: np.ndarray
    vocabulary_size: int
    card: JsonView
    # All runs of a small store, as bytes: most searches end here, in a few microseconds in place of fifty.
    _runs: frozenset[bytes] | None = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        if RUN <= len(self.tokens) <= SMALL:
            runs = np.ascontiguousarray(sliding_window_view(self.tokens, RUN))
            found = runs.view(np.dtype((np.void, runs.itemsize * RUN))).ravel().tolist()
            object.__setattr__(self, "_runs", frozenset(found))

    @classmethod
    def open(cls, folder: Path, tokenizer: str = "") -> Datastore:
        """Map a folder into memory. Raises UserError when it is damaged or of another tokenizer.

        tokenizer: fingerprint of the target's; empty: not compared
        """
        card = _read_card(folder)
        if tokenizer and card.get("tokenizer") != tokenizer:
            raise UserError("datastore.other_tokenizer", folder=folder.name)
        tokens, suffixes = (_map(folder, name) for name in (TOKENS, SUFFIXES))
        size = card.get("vocabulary_size")
        if not isinstance(size, int):
            raise _damaged(folder, Phrase("datastore.no_vocabulary"))
        _check(folder, tokens, suffixes, size, card)
        return cls(tokens, suffixes, size, card)

    @property
    def memory_bytes(self) -> int:
        """Size of the mapped arrays; only the pages that are read are loaded into memory."""
        return int(self.tokens.nbytes + self.suffixes.nbytes)

    def __len__(self) -> int:
        return len(self.tokens)

    def lookup(
        self, token_ids: Sequence[int], *, longest: int = 16, shortest: int = 2, most: int = 64
    ) -> tuple[int, list[int]]:
        """Find the longest suffix of a text in the store, with at most `longest` and at least `shortest` tokens.

        returns: its length, and the positions that follow its occurrences; (0, []) for none. Of more
        than `most` occurrences it returns evenly spaced ones: they are ordered by the tokens that follow, so each
        continuation retains its fraction.
        """
        ids = self._searchable(token_ids[-longest:])
        if len(ids) < shortest or not (
            found := self._range(ids[-shortest:])
        ):  # most texts end here
            return 0, []
        # All longer suffixes occur at some of these positions: the tokens before them decide.
        ends = self.suffixes[found.start : found.stop].astype(np.int64) + shortest
        before = np.array(ids[:-shortest][::-1])
        where = ends[:, None] - shortest - 1 - np.arange(len(before))
        same = (self.tokens[where.clip(0)] == before) & (where >= 0)
        lengths = np.logical_and.accumulate(same, axis=1).sum(axis=1)
        longer = int(lengths.max(initial=0))
        ends = ends[lengths == longer]
        rows = np.arange(min(most, len(ends))) * len(ends) // min(most, len(ends))
        return shortest + longer, ends[rows].tolist()

    def following(self, positions: Sequence[int], depth: int) -> list[list[int]]:
        """The `depth` tokens at each position, cut at the end of its text."""
        where = np.asarray(positions, np.int64)[:, None] + np.arange(depth)
        rows = self.tokens[where.clip(0, len(self.tokens) - 1)]
        ended = rows >= self.vocabulary_size
        lengths = np.where(ended.any(axis=1), ended.argmax(axis=1), depth).tolist()
        return [row[:length] for row, length in zip(rows.tolist(), lengths, strict=True)]

    def _searchable(self, token_ids: Sequence[int]) -> list[int]:
        """Return the part of a text after the last id that is not in the store's vocabulary."""
        ids, size = list(token_ids), self.vocabulary_size
        if not ids or 0 <= min(ids) <= max(ids) < size:
            return ids
        unknown = [place for place, token in enumerate(ids) if not 0 <= token < size]
        return ids[unknown[-1] + 1 :]

    def _range(self, ids: list[int]) -> range:
        """Return the rows of `suffixes` that start with `ids`."""
        if self._runs is not None and len(ids) >= RUN:
            start = array(self.tokens.dtype.char, ids[:RUN]).tobytes()
            if start not in self._runs:
                return range(0)

        def beginning(position: int) -> list[int]:
            return self.tokens[position : position + len(ids)].tolist()  # type: ignore[no-any-return]

        first = bisect_left(self.suffixes, ids, key=beginning)
        if first == len(self.suffixes) or beginning(self.suffixes[first]) != ids:
            return range(first, first)
        return range(first, bisect_right(self.suffixes, ids, lo=first, key=beginning))


def open_store(target: str, tokenizer: str, wanted: str = "auto") -> Datastore | None:
    """Open the datastore of a target; None if there is none. Raises UserError if it is damaged or another tokenizer's.

    tokenizer: fingerprint of the target's vocabulary; wanted: a folder, "none", or "auto" for the shipped one
    """
    folder = ASSETS / "datastore" / target if wanted == "auto" else Path(wanted).expanduser()
    if wanted == "none" or (wanted == "auto" and not folder.is_dir()):
        return None
    return Datastore.open(folder, tokenizer)


def fingerprint(vocabulary: Mapping[str, int]) -> str:
    """Names a tokenizer by its words and their ids: SHA-256 in hexadecimal."""
    words = json.dumps(sorted(vocabulary.items()), ensure_ascii=True)
    return hashlib.sha256(words.encode()).hexdigest()


def _read_card(folder: Path) -> Json:
    try:
        card = json.loads((folder / CARD).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            "datastore.not_one", folder=folder, error=error.strerror or error
        ) from error
    except ValueError as error:
        raise _damaged(folder, Phrase("datastore.card_unreadable")) from error
    if not isinstance(card, dict) or card.get("format") != DATASTORE_FORMAT:
        raise _damaged(folder, Phrase("datastore.card_format", format=DATASTORE_FORMAT))
    return card


def _map(folder: Path, name: str) -> np.ndarray:
    try:
        array = np.load(folder / name, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(folder, Phrase("datastore.array_unreadable", name=name)) from error
    if not isinstance(array, np.ndarray):
        raise _damaged(folder, Phrase("datastore.not_an_array", name=name))
    return array.view(np.ndarray)  # the mapping stays; single elements are read much faster


def _check(
    folder: Path, tokens: np.ndarray, suffixes: np.ndarray, size: int, card: JsonView
) -> None:
    """Kinds, sizes, and a sample of the values. A wrong value that is missed costs speed, never text."""
    if tokens.dtype not in (np.uint16, np.int32) or suffixes.dtype != np.int32:
        raise _damaged(folder, Phrase("datastore.array_kind"))
    if tokens.ndim != 1 or tokens.shape != suffixes.shape or card.get("tokens") != len(tokens):
        raise _damaged(folder, Phrase("datastore.size"))
    if not len(tokens) or tokens[-1] < size:
        raise _damaged(folder, Phrase("datastore.no_end"))
    step = max(1, len(tokens) // CHECKED)
    places = suffixes[::step]
    if tokens[::step].min() < 0 or places.min() < 0 or places.max() >= len(tokens):
        raise _damaged(folder, Phrase("datastore.range"))


def _damaged(folder: Path, reason: Phrase) -> UserError:
    return UserError("datastore.damaged", folder=folder.name, reason=reason)
