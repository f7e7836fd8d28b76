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
from specdemo.attach.rounds import Generation, Knowledge, Piece, Round
from specdemo.config.errors import UserError
from specdemo.trace.events import Choice

LONGEST_ENTRY = 4096  # characters that are kept of an entry; tokens are shorter
MOST_CANDIDATES = 16  # candidates of one position that are kept
MOST_SLOTS = 1024
LOG_SECONDS = 0.2  # that the log of a round may come later than its tokens
LARGEST_PART = 2**22  # bytes that are read of a growing log at once
SERVER = "llama-server"
GLUED = "assuming pure content parser."
STARTS = re.compile(
    r"(?:[^'\n]{0,80}?[|:\]] )??(?:(\d{1,6})\.(\d\d)\.(\d{3})\.(\d{3}) )?"
    r"(?:[DIWE] (?=\S)|(?=(?:slot|srv|spec|que|cmn|main|print_timing|build)\b))"
)
HEAD = r"\S+ +\S+ +id +(\d{1,9}) \| task +(-?\d{1,15}) \|"
COUNT = r"(\d{1,9})"
NUMBER = r"(\d[0-9.]{0,15})"


def _parts(line: str) -> Iterator[str]:
    """Yield the parts of a line; llama-server writes GLUED without the end of one."""
    start, glue, rest = line.rpartition(GLUED)
    yield from filter(None, (start + glue, rest))


def entries(lines: Iterable[str]) -> Iterator[tuple[int, float | None, str]]:
    """Yield each entry of a log: number of its first line, seconds since the server's start if it has them, its text."""
    first, clock, parts, size = 0, None, list[str](), 0
    numbered = ((n, part) for n, line in enumerate(lines, 1) for part in _parts(line))
    for number, line in numbered:
        if start := STARTS.match(line):
            if parts:
                yield first, clock, "".join(parts)
            minutes, seconds, *fraction = start.groups("0")
            clock = 60.0 * int(minutes) + int(seconds) + int("".join(fraction)) / 1e6
            clock = clock if start[1] else None
            first, parts, size = number, [line[start.end() :][:LONGEST_ENTRY]], len(line)
        elif size < LONGEST_ENTRY:
            parts.append(line[:LONGEST_ENTRY])
            size += len(line)
    if parts:
        yield first, clock, "".join(parts)


@dataclass(frozen=True, slots=True)
class _Draft:
    """A draft that was not verified yet. started, ended: seconds on the log's clock"""

    candidates: tuple[tuple[Choice, ...], ...]
    drafted: int
    started: float | None
    ended: float | None


@dataclass(slots=True)
class _Open:
    """A generation that the log has not finished.

    listed: number of tokens of the last round that the log has listed one by one; None if it lists none
    clock: end of the last round
    """

    task: int
    first: tuple[Piece, ...] = ()
    rounds: list[Round] = field(default_factory=list)
    listed: int | None = None
    clock: float | None = None
    numbers: dict[str, float] = field(default_factory=dict)
    finish: str = ""
    positions: tuple[float, ...] = ()


@dataclass(slots=True)
class _Slot:
    """State of one slot of the server. places: candidates by position, of the draft that is being made"""

    open: _Open | None = None
    drafting: float | None = None
    places: dict[int, list[Choice]] = field(default_factory=dict)
    draft: _Draft | None = None


class LlamaLog:
    """Reader of one log.

    settings: n_max, n_min, p_min if the log names them; synthetic: the server simulates acceptance, its text is not valid
    """

    def __init__(self, problems: Problems) -> None:
        self.problems = problems
        self.records: list[Record] = []
        self.settings: dict[str, float] = {}
        self.version = self.method = ""
        self.synthetic = False
        self._slots: dict[int, _Slot] = {}
        self._count = 0

    def read(self, lines: Iterable[str]) -> list[Record]:
        """Read a whole log and return a record of each generation."""
        self.feed(lines)
        for slot in self._slots.values():
            self._close(slot)
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
            self._count += "add accepted tokens" in text
            if self._count >= MOST_ROUNDS:
                self.problems.add(number, "too_many")
                break

    def rounds(self) -> Iterator[Round]:
        """Yield the rounds so far, those of generations that have not ended first."""
        for slot in self._slots.values():
            yield from reversed(slot.open.rounds if slot.open else ())
        for record in reversed(self.records):
            yield from record.generation.rounds if record.generation else ()

    def _slot(self, number: str) -> _Slot:
        if len(self._slots) >= MOST_SLOTS and int(number) not in self._slots:
            raise ValueError
        return self._slots.setdefault(int(number), _Slot())

    def _at(self, found: re.Match[str]) -> tuple[_Slot, _Open]:
        """Return the slot and the generation of an entry; a generation of another task is closed first."""
        slot, task = self._slot(found[1]), int(found[2])
        if slot.open is None or slot.open.task != task:
            self._close(slot)
            slot.open = _Open(task)
        return slot, slot.open

    def _number(self, found: re.Match[str], _clock: float | None) -> None:
        """Store the numbers of an entry; a name that ends in _ms is stored in seconds."""
        _, generation = self._at(found)
        for name, text in found.groupdict().items():
            if text is not None:
                value = float(text)
                seconds = name.endswith("_ms")
                generation.numbers[name.removesuffix("_ms")] = value / 1000 if seconds else value

    def _starts_drafting(self, found: re.Match[str], clock: float | None) -> None:
        slot, _ = self._at(found)
        slot.drafting = clock

    def _candidate(self, found: re.Match[str], _clock: float | None) -> None:
        slot = self._slot(found[1])
        rank, place = int(found[2]), int(found[3])
        if rank == place == 0:
            slot.places = {}
        ranked = slot.places.setdefault(place, []) if place <= MOST_DRAFTED else []
        if len(ranked) == rank < MOST_CANDIDATES:
            text = found[6].rpartition("'")[0]
            ranked.append(Choice(int(found[4]), min(1.0, float(found[5])), text))

    def _drafted(self, found: re.Match[str], clock: float | None) -> None:
        slot, _ = self._at(found)
        places, slot.places, drafted = slot.places, {}, int(found[3])
        if drafted > MOST_DRAFTED:
            raise ValueError
        candidates = tuple(
            tuple(places[place]) for place in range(drafted + 1) if places.get(place)
        )
        candidates = candidates if len(candidates) >= drafted else ()
        slot.draft = _Draft(candidates, drafted, slot.drafting, clock)

    def _accepted(self, found: re.Match[str], clock: float | None) -> None:
        slot, generation = self._at(found)
        draft, slot.draft = slot.draft, None
        accepted, drafted = int(found[4]) - 1, int(found[5])
        if draft is None or drafted != draft.drafted or not 0 <= accepted <= drafted:
            raise ValueError
        self._cut(generation)
        best = [ranked[0] for ranked in draft.candidates[:accepted]]
        pieces = [Piece(one.text, one.token_id) for one in best] or [Piece("")] * accepted
        started = draft.started if generation.clock is None else generation.clock
        generation.rounds.append(
            Round(
                (*pieces, Piece("", int(found[3]))),
                drafted,
                accepted,
                _difference(started, clock),
                _difference(draft.started, draft.ended),
                draft.candidates,
            )
        )
        generation.clock = clock
        generation.listed = None if generation.listed is None else 0

    def _token(self, found: re.Match[str], clock: float | None) -> None:
        """One token of the answer: the first, one of the last round, or a step without a draft."""
        _, generation = self._at(found)
        piece = Piece(found[5].rpartition("'")[0], int(found[4]))
        if int(found[3]) == 1:
            generation.first, generation.clock = (piece,), clock
            return
        last = generation.rounds[-1] if generation.rounds else Round(())
        number = generation.listed or 0
        if number < len(last.committed) and last.drafted:
            if last.committed[number].token_id not in (piece.token_id, None):
                raise ValueError
            pieces = (*last.committed[:number], piece, *last.committed[number + 1 :])
            generation.rounds[-1] = replace(last, committed=pieces)
            generation.listed = number + 1
        elif len(generation.rounds) < MOST_ROUNDS:
            generation.rounds.append(Round((piece,), 0, 0, _difference(generation.clock, clock)))
            generation.clock, generation.listed = clock, 1

    def _stopped(self, found: re.Match[str], _clock: float | None) -> None:
        self._at(found)[1].finish = "length" if found[3] == "limit" else "stop"

    def _positions(self, found: re.Match[str], _clock: float | None) -> None:
        parts = [part.strip() for part in found[3].split(",")][:MOST_DRAFTED]
        self._at(found)[1].positions = tuple(min(1.0, float(part)) for part in parts if part)

    def _released(self, found: re.Match[str], _clock: float | None) -> None:
        self._close(self._at(found)[0])

    def _options(self, found: re.Match[str], _clock: float | None) -> None:
        self.settings = {name: float(value) for name, value in found.groupdict().items()}

    def _fact(self, found: re.Match[str], _clock: float | None) -> None:
        self.synthetic |= "synthetic" in found[0]
        self.method = found.groupdict().get("method") or self.method
        self.version = found.groupdict().get("version") or self.version

    def _cut(self, generation: _Open) -> None:
        """Cut the last round to the tokens that the log lists: a limit or the end of the answer drops the others."""
        if generation.listed and generation.rounds:
            last = generation.rounds[-1]
            pieces = last.committed[: generation.listed]
            generation.rounds[-1] = replace(last, committed=pieces)

    def _close(self, slot: _Slot) -> None:
        """Make a record of the slot's generation, if the log says anything about its drafts or its speed."""
        done, slot.open, slot.draft = slot.open, None, None
        if done is None or not (done.rounds or done.numbers.keys() & {"drafted", "tokens"}):
            return
        self._cut(done)
        count = {name: int(value) for name, value in done.numbers.items()}
        seconds, name = done.numbers.get("seconds"), f"task {done.task}"
        drafted, accepted = count.get("drafted"), count.get("accepted")
        if not any(one.drafted for one in done.rounds):
            tokens, mean = count.get("tokens"), done.numbers.get("mean")
            plain = Record(name, SERVER, tokens, drafted or 0, accepted or 0, None, mean)
            record = replace(plain, positions=done.positions, seconds=seconds).counted()
            self.records.append(record)
            return
        found = Generation(
            SERVER,
            self.version,
            Knowledge.EXACT,
            done.first,
            tuple(done.rounds),
            count.get("prompt"),
            count.get("cached"),
            done.numbers.get("prefill"),
            seconds,
            done.finish,
            drafted,
            accepted,
            method=self.method,
        )
        if found.mismatches():
            self.problems.add(0, "sums")
        self.records.append(from_rounds(name, found))


def _difference(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None or end < start else end - start


Act = Callable[[LlamaLog, re.Match[str], "float | None"], None]
SECONDS = r"(?P<{}_ms>\d[0-9.]{{0,15}}) ms"
WHOLE = r"(?P<{}>\d{{1,9}})"
# Text that an entry contains, its pattern, and what is done with it.
RULES: tuple[tuple[str, re.Pattern[str], Act], ...] = tuple(
    (mark, re.compile(pattern, re.DOTALL), act)
    for mark, pattern, act in (
        ("draft candidate", rf"spec +draft: +- seq_id {COUNT}, draft candidate +{COUNT}, pos +{COUNT}: +{COUNT} \( *{NUMBER}\) '(.*)", LlamaLog._candidate),
        ("#draft=", rf"{HEAD} generate_draft: .{{0,99}}?#draft={COUNT}", LlamaLog._drafted),
        ("add accepted", rf"{HEAD} add accepted tokens: sampled={COUNT}, ids\.size={COUNT}, n_draft={COUNT}", LlamaLog._accepted),
        ("next token", rf"{HEAD} n_(?:gen|decoded) = {COUNT}, n_remaining = -?\d+, next token: +{COUNT} '(.*)", LlamaLog._token),
        ("max possible", rf"{HEAD} max possible draft", LlamaLog._starts_drafting),
        ("new prompt", rf"{HEAD} new prompt, .{{0,99}}?task\.n_tokens = {WHOLE.format('prompt')}", LlamaLog._number),
        ("cached n_tokens", rf"{HEAD} cached n_tokens = {WHOLE.format('cached')}", LlamaLog._number),
        ("stopped by", rf"{HEAD} stopped by (\w+)", LlamaLog._stopped),
        ("prompt eval", rf"{HEAD}\s{{0,99}}prompt eval time = +{SECONDS.format('prefill')}", LlamaLog._number),
        ("eval time", rf"{HEAD}(?:[^\n]{{0,9}}\n[^\n]{{0,200}}\n)? {{0,40}}eval time = +{SECONDS.format('seconds')} / +{WHOLE.format('tokens')}", LlamaLog._number),
        ("draft acceptance", rf"{HEAD}\s{{0,99}}draft acceptance[^(]{{0,40}}\( *{WHOLE.format('accepted')} accepted / *{WHOLE.format('drafted')} generated\)(?:, mean (?:len|acceptance length) = *(?P<mean>\d[0-9.]{{0,15}}))?", LlamaLog._number),
        ("per pos", rf"{HEAD}.{{0,200}}?(?:acc|rate) per pos(?:ition)? = \(([0-9., ]*)\)", LlamaLog._positions),
        ("stop processing", rf"{HEAD} stop processing", LlamaLog._released),
        ("n_max=", rf".{{0,80}}?- n_max={WHOLE.format('n_max')}, n_min={WHOLE.format('n_min')}, p_min=(?P<p_min>\d[0-9.]{{0,15}})", LlamaLog._options),
        ("synthetic", r".{0,200}?synthetic speculative acceptance is enabled", LlamaLog._fact),
        ("implementation", r".{0,80}?implementation '(?P<method>[\w-]{1,40})'", LlamaLog._fact),
        ("build", r".{0,80}?build(?:_info)?: (?P<version>b?\d[\w-]{0,40})", LlamaLog._fact),
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
