"""Reads logs of llama-server: each generation with its rounds, refused tokens, draft probabilities and times.

A log at verbosity 5 names every drafted token; at the usual verbosity it has totals of each request only. One round:

    get_n_draft_   max possible draft: 40                     drafting starts
    draft          draft candidate 0, pos 0: 262 (0.996) '   '   up to three for each position, the first is the draft
    handle_last_   generate_draft: id=73594, #draft=5         drafting ends; candidates beyond #draft were cut by p_min
    operator()     add accepted tokens: sampled=982, ids.size=6  5 accepted, and the target's own token
    process_toke   n_gen = 2, next token: 12669 'python'      one line for each of the six

The text of a token may contain quotes and line breaks: an entry lasts until the next line that looks like the start of one.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from specdemo.attach.records import MOST_DRAFTED, MOST_ROUNDS, Problems, Record, from_rounds
from specdemo.attach.servers import Generation, Piece, Round
from specdemo.config.errors import UserError
from specdemo.trace.events import Choice, Knowledge

LONGEST_ENTRY = 4096  # characters that are kept of an entry; tokens are shorter
MOST_CANDIDATES = 16  # candidates of one position that are kept
MOST_SLOTS = 1024
LOG_SECONDS = 0.2  # that the log of a round may come later than its tokens
LARGEST_PART = 2**22  # bytes that are read of a growing log at once
SERVER = "llama-server"
GLUED = "assuming pure content parser."
FINISH = {None: "", "limit": "length"}  # any other reason is the end of the answer
STARTS = re.compile(
    r"(?:[^'\n]{0,80}?[|:\]] )??(?:(\d{1,6})\.(\d\d)\.(\d{3})\.(\d{3}) )?"
    r"(?:[DIWE] (?=\S)|(?=(?:slot|srv|spec|que|cmn|main|print_timing|build)\b))"
)


def entries(lines: Iterable[str]) -> Iterator[tuple[int, float | None, str]]:
    """Yield each entry of a log: number of its first line, seconds since the server's start if it has them, its text."""
    first, clock, text = 0, None, ""
    for number, line in enumerate(lines, 1):
        before, glue, rest = line.rpartition(GLUED)  # llama-server does not end the line there
        for part in filter(None, (before + glue, rest)):
            if start := STARTS.match(part):
                if text:
                    yield first, clock, text
                minutes, seconds, *fraction = start.groups("0")
                clock = 60.0 * int(minutes) + int(seconds) + int("".join(fraction)) / 1e6
                clock = clock if start[1] else None
                first, text = number, part[start.end() :][:LONGEST_ENTRY]
            elif text and len(text) < LONGEST_ENTRY:
                text += part[:LONGEST_ENTRY]
    if text:
        yield first, clock, text


@dataclass(slots=True)
class _Slot:
    """One slot of the server: the generation that it makes.

    draft: the one that was not verified yet; places: candidates by position, of the draft that is being made
    clock, drafting: end of the last round and start of the draft, in seconds on the log's clock
    facts: what the log says about the generation, by the names of the groups in RULES
    """

    task: str = ""
    first: tuple[Piece, ...] = ()
    rounds: list[Round] = field(default_factory=list)
    draft: Round | None = None
    places: dict[int, list[Choice]] = field(default_factory=dict)
    clock: float | None = None
    drafting: float | None = None
    facts: dict[str, str] = field(default_factory=dict)

    def count(self, name: str) -> int | None:
        """Return a whole number that the log names."""
        return int(self.facts[name]) if name in self.facts else None

    def seconds(self, name: str) -> float | None:
        """Return a duration that the log names in milliseconds."""
        return float(self.facts[name]) / 1000 if name in self.facts else None


class LlamaLog:
    """Reader of one log. facts: values that it names about the server, by the names of the groups in RULES"""

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.records: list[Record] = []
        self.facts: dict[str, str] = {}
        self._slots: dict[str, _Slot] = {}
        self._count = 0

    def read(self, lines: Iterable[str]) -> list[Record]:
        """Read a whole log and return a record of each generation."""
        self.feed(lines)
        for number in [*self._slots]:
            self._close(number)
        return self.records

    def feed(self, lines: Iterable[str]) -> None:
        """Read more lines of a log, up to the end of an entry."""
        for number, clock, text in entries(lines):
            for mark, pattern, act in RULES:
                if mark in text and (found := pattern.match(text)):
                    try:
                        act(self, found, clock)
                    except ValueError:
                        self.problems.add(number, "contradiction")
            if self._count >= MOST_ROUNDS:
                self.problems.add(number, "too_many")
                break

    def rounds(self) -> Iterator[Round]:
        """Yield the rounds so far, those of generations that have not ended first."""
        for slot in self._slots.values():
            yield from reversed(slot.rounds)
        for record in reversed(self.records):
            yield from record.generation.rounds if record.generation else ()

    def _slot(self, found: re.Match[str]) -> _Slot:
        """Return the slot of an entry; a generation of another task is closed first."""
        number, task = found["slot"], found.groupdict().get("task", "")
        if number in self._slots and task not in ("", self._slots[number].task):
            self._close(number)
        if len(self._slots) >= MOST_SLOTS and number not in self._slots:
            raise ValueError
        return self._slots.setdefault(number, _Slot(task))

    def _store(self, found: re.Match[str], _clock: float | None) -> None:
        """Store what an entry says about its generation, or about the server."""
        named = {name: text for name, text in found.groupdict().items() if text is not None}
        (self._slot(found).facts if "slot" in named else self.facts).update(named)

    def _offloaded(self, found: re.Match[str], clock: float | None) -> None:
        """Store how many layers are on the graphics card, if only a part of a model is."""
        if 0 < int(found["offloaded"]) < int(found["layers"]):
            self._store(found, clock)

    def _starts_drafting(self, found: re.Match[str], clock: float | None) -> None:
        self._slot(found).drafting = clock

    def _candidate(self, found: re.Match[str], _clock: float | None) -> None:
        slot, rank, place = self._slot(found), int(found["rank"]), int(found["place"])
        if rank == place == 0:
            slot.places = {}
        ranked = slot.places.setdefault(place, []) if place <= MOST_DRAFTED else []
        if len(ranked) == rank < MOST_CANDIDATES:
            text = found["text"].rpartition("'")[0]
            ranked.append(Choice(int(found["token"]), min(1.0, float(found["prob"])), text))

    def _drafted(self, found: re.Match[str], clock: float | None) -> None:
        slot, drafted = self._slot(found), int(found["drafted"])
        places, slot.places = slot.places, {}
        if drafted > MOST_DRAFTED:
            raise ValueError
        named = tuple(tuple(places[place]) for place in range(drafted + 1) if places.get(place))
        spent = _difference(slot.drafting, clock)
        slot.draft = Round((), drafted, None, None, spent, named if len(named) >= drafted else ())

    def _accepted(self, found: re.Match[str], clock: float | None) -> None:
        slot = self._slot(found)
        draft, slot.draft = slot.draft, None
        accepted, drafted = int(found["ids"]) - 1, int(found["drafted"])
        if draft is None or drafted != draft.drafted or not 0 <= accepted <= drafted:
            raise ValueError
        spent = _difference(slot.drafting if slot.clock is None else slot.clock, clock)
        self._add(slot, replace(draft, accepted=accepted, seconds=spent), clock)

    def _token(self, found: re.Match[str], clock: float | None) -> None:
        """Add a token of the answer: the first, one of the last round, or a step without a draft."""
        slot = self._slot(found)
        piece = Piece(found["text"].rpartition("'")[0], int(found["token"]))
        last = slot.rounds[-1] if slot.rounds else Round((), 0, -1)
        if int(found["number"]) == 1:
            slot.first, slot.clock = (piece,), clock
        elif len(last.committed) <= (last.accepted or 0):
            slot.rounds[-1] = replace(last, committed=(*last.committed, piece))
        else:
            self._add(slot, Round((piece,), 0, 0, _difference(slot.clock, clock)), clock)

    def _add(self, slot: _Slot, found: Round, clock: float | None) -> None:
        slot.rounds.append(found)
        slot.clock = clock
        self._count += 1

    def _released(self, found: re.Match[str], _clock: float | None) -> None:
        self._slot(found)
        self._close(found["slot"])

    def _close(self, number: str) -> None:
        """Make a record of a slot's generation, if the log says anything about its drafts or its speed."""
        done = self._slots.pop(number)
        name, seconds = f"task {done.task}", done.seconds("seconds_ms")
        tokens, drafted, accepted = map(done.count, ("tokens", "drafted", "accepted"))
        if any(one.drafted for one in done.rounds):
            found = Generation(
                SERVER,
                self.facts.get("version", ""),
                Knowledge.EXACT,
                done.first,
                tuple(done.rounds),
                done.count("prompt"),
                done.count("cached"),
                done.seconds("prefill_ms"),
                seconds,
                FINISH.get(done.facts.get("finish"), "stop"),
                drafted,
                accepted,
                method=self.facts.get("method", ""),
            )
            if found.contradictory:
                self.problems.add(0, "sums")
            self.records.append(from_rounds(name, found))
        elif done.rounds or drafted is not None or tokens is not None:
            places = re.findall(NUMBER, done.facts.get("positions", ""))[:MOST_DRAFTED]
            positions = tuple(min(1.0, float(place)) for place in places)
            mean = float(done.facts.get("mean", 0)) or None
            sums = drafted or 0, accepted or 0
            record = Record(name, SERVER, tokens, *sums, None, mean, positions, seconds=seconds)
            self.records.append(record.counted())


def _difference(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None or end < start else end - start


Act = Callable[[LlamaLog, re.Match[str], "float | None"], None]
COUNT, NUMBER = r"\d{1,9}", r"\d{1,9}(?:\.\d{1,9})?"
HEAD = r"\S+ +\S+ +id +(?P<slot>\d{1,9}) \| task +(?P<task>-?\d{1,15}) \|"
TOKEN = rf"(?P<token>{COUNT})"
# Text that an entry contains, its pattern, and what is done with it.
RULES: tuple[tuple[str, re.Pattern[str], Act], ...] = tuple(
    (mark, re.compile(pattern, re.DOTALL), act)
    for mark, pattern, act in (
        ("draft candidate", rf"spec +draft: +- seq_id (?P<slot>{COUNT}), draft candidate +(?P<rank>{COUNT}), pos +(?P<place>{COUNT}): +{TOKEN} \( *(?P<prob>{NUMBER})\) '(?P<text>.*)", LlamaLog._candidate),
        ("#draft=", rf"{HEAD} generate_draft: .{{0,99}}?#draft=(?P<drafted>{COUNT})", LlamaLog._drafted),
        ("add accepted", rf"{HEAD} add accepted tokens: sampled={COUNT}, ids\.size=(?P<ids>{COUNT}), n_draft=(?P<drafted>{COUNT})", LlamaLog._accepted),
        ("next token", rf"{HEAD} n_(?:gen|decoded) = (?P<number>{COUNT}), n_remaining = -?\d+, next token: +{TOKEN} '(?P<text>.*)", LlamaLog._token),
        ("max possible", rf"{HEAD} max possible draft", LlamaLog._starts_drafting),
        ("new prompt", rf"{HEAD} new prompt, .{{0,99}}?task\.n_tokens = (?P<prompt>{COUNT})", LlamaLog._store),
        ("cached n_tokens", rf"{HEAD} cached n_tokens = (?P<cached>{COUNT})", LlamaLog._store),
        ("stopped by", rf"{HEAD} stopped by (?P<finish>\w+)", LlamaLog._store),
        ("prompt eval", rf"{HEAD}\s{{0,99}}prompt eval time = +(?P<prefill_ms>{NUMBER}) ms", LlamaLog._store),
        ("eval time", rf"{HEAD}(?:[^\n]{{0,9}}\n[^\n]{{0,200}}\n)? {{0,40}}eval time = +(?P<seconds_ms>{NUMBER}) ms / +(?P<tokens>{COUNT})", LlamaLog._store),
        ("draft acceptance", rf"{HEAD}\s{{0,99}}draft acceptance[^(]{{0,40}}\( *(?P<accepted>{COUNT}) accepted / *(?P<drafted>{COUNT}) generated\)(?:, mean (?:len|acceptance length) = *(?P<mean>{NUMBER}))?", LlamaLog._store),
        ("per pos", rf"{HEAD}.{{0,200}}?(?:acc|rate) per pos(?:ition)? = \((?P<positions>[0-9., ]*)\)", LlamaLog._store),
        ("stop processing", rf"{HEAD} stop processing", LlamaLog._released),
        ("n_max=", rf".{{0,80}}?- n_max=(?P<n_max>{COUNT}), n_min=(?P<n_min>{COUNT}), p_min=(?P<p_min>{NUMBER})", LlamaLog._store),
        ("loading draft", r".{0,80}?loading (?P<draft>draft) model", LlamaLog._store),
        ("offloaded", rf".{{0,80}}?offloaded (?P<offloaded>{COUNT})/(?P<layers>{COUNT}) layers", LlamaLog._offloaded),
        ("synthetic", r".{0,200}?(?P<synthetic>synthetic speculative acceptance is enabled)", LlamaLog._store),
        ("implementation", r".{0,80}?implementation '(?P<method>[\w-]{1,40})'", LlamaLog._store),
        ("build", r".{0,80}?build(?:_info)?: (?P<version>b?\d[\w-]{0,40})", LlamaLog._store),
    )
)  # fmt: skip


def _begins(logged: Sequence[Piece], shown: Sequence[Piece]) -> bool:
    """Return whether logged tokens begin with the shown ones; a shown one without an id may be any."""
    pairs = zip(logged, shown, strict=False)
    alike = all(other.token_id in (None, one.token_id) for one, other in pairs)
    return alike and len(logged) >= len(shown)


class GrowingLog:
    """The log of a server that writes to it, from now on."""

    def __init__(self, path: Path) -> None:
        """Raise UserError if the file cannot be read."""
        try:
            self._size = path.stat().st_size
            path.open("rb").close()
        except OSError as error:
            raise UserError("trace.unreadable", path=path, error=error.strerror or error) from error
        self._path, self._rest, self._log = path, b"", LlamaLog(Problems())
        self._patience = LOG_SECONDS

    def named(self, found: Round, cancel: threading.Event) -> Round:
        """Return a round with the refused tokens, probabilities and drafting time of the log; unchanged if it has none.

        The log may come later than the round, so up to LOG_SECONDS are waited for it, unless it lacked a round before.
        """
        late = time.monotonic() + self._patience
        while True:
            self._grow()
            for one in self._log.rounds():
                if one.drafted == found.drafted and _begins(one.committed, found.committed):
                    drafting, choices = one.draft_seconds, one.candidates
                    return replace(found, draft_seconds=drafting, candidates=choices)
            if time.monotonic() > late or cancel.wait(0.01):
                self._patience = 0.0
                return found

    def _grow(self) -> None:
        """Read what was added, up to the last line that begins an entry: that entry may not be complete."""
        with self._path.open("rb") as file:
            file.seek(self._size)
            added = file.read(LARGEST_PART)
        self._size += len(added)
        raw = (self._rest + added).split(b"\n")
        lines = [f"{line.decode('utf-8', 'replace')}\n" for line in raw]
        last = max((n for n, line in enumerate(lines) if STARTS.match(line)), default=0)
        self._rest = b"\n".join(raw[last:])[-LARGEST_PART:]
        self._log.feed(lines[:last])
