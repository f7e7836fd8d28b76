"""Reads files that people paste into issues: logs, tables and reports of engines and benchmarks as records.

The files are untrusted: their size, lines and numbers are bounded, and a malformed line is counted with its number.
"""

from __future__ import annotations

import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, BeforeValidator, Field, TypeAdapter, ValidationError

from specdemo.attach.client import OR_UNKNOWN, Foreign, KnownAmount, KnownCount
from specdemo.attach.logs import LlamaLog
from specdemo.attach.records import MOST_DRAFTED, MOST_ROUNDS, Problems, Record
from specdemo.config.errors import UserError
from specdemo.config.strings import Json, JsonView
from specdemo.trace.events import Count

LARGEST_LOG = 128 * 2**20  # bytes: a debug log has about 5 kB for each round
LONGEST_LINE = 2**20  # characters of a line of other formats
MOST_MARKS = 100_000  # records of one file
N, X = r"\d{1,12}", r"\d{1,12}(?:\.\d{1,12})?"


@dataclass(frozen=True, slots=True)
class Findings:
    """Content of a file. kinds: names of the formats in it; facts: of the server, if its log names them, see `LlamaLog`"""

    kinds: tuple[str, ...]
    records: list[Record]
    problems: Problems
    facts: dict[str, str] = field(default_factory=dict)


def read_file(path: Path) -> Findings:
    """Read a file. Raises UserError if it cannot be read, is too large, or has no format that is known."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_LOG + 1)
    except OSError as error:
        raise UserError("trace.unreadable", path=path, error=error.strerror or error) from error
    if len(data) > LARGEST_LOG:
        raise UserError("servers.log_too_large", name=path.name, most=LARGEST_LOG >> 20)
    return read_text(data.decode("utf-8-sig", "replace"), path.name)


def read_text(text: str, name: str) -> Findings:
    """Read the content of a file; a text may contain several formats. Raises UserError if none is known."""
    problems = Problems()
    log = LlamaLog(problems)
    found: dict[str, list[Record]] = {}
    if any(mark in text for mark in ("draft acceptance", "add accepted tokens", "eval time =")):
        found["llama-server"] = log.read(io.StringIO(text))
    for kind, mark, pattern in FORMATS:
        if mark in text:
            found.setdefault(kind, []).extend(_rows(text, kind, mark, pattern, problems))
    if totals := counters(text):
        found["metrics"] = [totals]
    if any(f'"{mark}"' in text for mark in ENGINES):
        listed = [record for value in _documents(text, problems) for record in reports(value)]
        found["JSON"] = listed[:MOST_MARKS]
    records = [record for each in found.values() for record in each]
    if not records:
        raise UserError("servers.foreign_file", name=name, count=problems.count)
    kinds = tuple(kind for kind, each in found.items() if each)
    return Findings(kinds, records, problems, log.facts)


# Format, text that a line of it contains, and its pattern, whose groups are fields of `Record`.
FORMATS: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (kind, mark, re.compile(pattern))
    for kind, mark, pattern in (
        ("mtp-bench", " pred=", rf"(?<![\w-])(?P<name>[\w-]{{1,60}}) +pred= *(?P<tokens>{N}) draft= *(?P<drafted>{N}) acc= *(?P<accepted>{N}) rate=\S+ tok/s= *(?P<rate>{X})"),
        ("llama-spec-bench", "% |", rf"\| *(?P<name>[\w-]{{1,60}} *\| *{N} *\| *[\w-]{{1,40}}) *\| *(?P<tokens>{N}) *\| *\w+ *\| *(?P<seconds>{X}) *\| *(?P<rate>{X}) *\| *(?P<rounds>{N}) *\| *(?P<accepted>{N})/ *(?P<drafted>{N}) *\| *[0-9.]+% *\| *(?P<mean>{X}) *\| *(?P<percents>[0-9.% ]{{0,2000}}?) *\|"),
        ("vLLM log", "SpecDecoding metrics:", rf"(?:(?P<name>\d\d-\d\d \d\d:\d\d:\d\d).{{0,60}}?)?SpecDecoding metrics: Mean acceptance length: (?P<mean>{X}), .{{0,200}}?Accepted: (?P<accepted>{N}) tokens, Drafted: (?P<drafted>{N}) tokens(?:, Per-position acceptance rate: (?P<positions>[0-9., ]{{1,8000}}?)(?:, Avg|\s*$))?"),
        ("SGLang log", "accept len:", rf"(?:\[[\d-]* ?(?P<name>\d\d:\d\d:\d\d)[^\]]{{0,40}}\] )?Decode batch[.,].{{0,400}}?accept len: (?P<mean>{X})(?:.{{0,400}}?gen throughput \(token/s\): (?P<rate>{X}))?"),
    )
)  # fmt: skip
RECORD = TypeAdapter(Record)  # reads the numbers of a line


def _rows(
    text: str, kind: str, mark: str, pattern: re.Pattern[str], problems: Problems
) -> Iterator[Record]:
    count = 0
    for number, line in enumerate(io.StringIO(text), 1):
        if mark not in line or len(line) > LONGEST_LINE:
            continue
        found = pattern.search(line)
        record = _row(kind, found.groupdict()) if found else None
        count += record is not None
        if record is None or count > MOST_MARKS:
            problems.add(number, "malformed" if record is None else "too_many")
        else:
            yield record


def _row(kind: str, named: dict[str, str | None]) -> Record | None:
    """Return the record of a line by the groups of its pattern; None if more tokens are accepted than drafted."""
    values: Json = {name: text for name, text in named.items() if text is not None}
    places = [float(one) / 100 for one in re.findall(X, values.pop("percents", ""))]
    places += [float(one) for one in re.findall(X, values.pop("positions", ""))]
    name = re.sub(r"[ |]+", " ", values.pop("name", "interval"))
    found = RECORD.validate_python({"name": name, "positions": places[:MOST_DRAFTED], **values})
    if (found.accepted or 0) > (found.drafted or 0):
        return None
    if kind == "mtp-bench":  # the first token comes from the prompt's pass
        rounds = max(0, (found.tokens or 0) - (found.accepted or 0) - 1) if found.drafted else 0
        return replace(found, rounds=rounds, approximate=True)
    return found.counted()


# Counters of a server's Prometheus page: name, labels and value.
COUNTER = re.compile(
    r"^(?:llamacpp|vllm):(?:spec_decode_num_)?(drafts|draft_tokens|accepted_tokens(?:_per_pos)?|generation_tokens|tokens_predicted)_total"
    rf"(\{{[^}}\n]{{0,400}}\}})? ({X}(?:e\+\d\d)?)\s*$",
    re.MULTILINE,
)


def counters(text: str, before: str = "") -> Record | None:
    """Return the sums of a llama-server or vLLM from its Prometheus page; None if it has none, or impossible ones.

    before: an earlier page; the sums are those since then, by default since the start of the server
    """
    sums = _sums(text)
    if not sums.keys() >= {"drafts", "draft_tokens", "accepted_tokens"}:
        return None
    sums.subtract(_sums(before))
    drafted, accepted, rounds = sums["draft_tokens"], sums["accepted_tokens"], sums["drafts"]
    places = sorted(filter(str.isdecimal, sums), key=int)[:MOST_DRAFTED]
    reached = [rounds, *(sums[place] for place in places), 0]
    histogram = tuple(a - b for a, b in pairwise(reached))
    if not 0 <= accepted <= drafted <= MOST_DRAFTED * rounds or min(histogram) < 0:
        return None
    positions = tuple(each / rounds for each in reached[1:-1]) if rounds else ()
    name = "llama-server" if "llamacpp:" in text else "vllm"
    tokens = sums["generation_tokens"] or sums["tokens_predicted"] or None
    return Record("since its start", name, tokens, drafted, accepted, rounds, positions=positions, histogram=histogram)  # fmt: skip


def _sums(page: str) -> Counter[str]:
    """Return the counters of a page by their names, accepted tokens also by the number of their position."""
    sums = Counter[str]()
    for name, labels, value in COUNTER.findall(page[:LONGEST_LINE]):
        place = re.search(r'position="(\d{1,4})"', labels)
        sums[place[1] if place else name] += int(float(value))
    return sums


def _dense(value: object) -> object:
    """Return AIPerf's sparse histogram as a list."""
    if not isinstance(value, dict):
        return value
    keys = [int(key) for key in value if str(key).isdecimal() and len(str(key)) < 5]
    return [value.get(str(number), 0) for number in range(max(keys, default=-1) + 1)]


# The field with the accepted tokens, as each engine calls it.
ENGINES = {
    "num_accepted_draft_tokens": "vllm",
    "spec_num_correct_drafts": "sglang",
    "spec_accept_token_num": "sglang",
    "accepted_draft_tokens_count": "lm-studio",
    "draft_n_accepted": "llama-server",
}
Counts = Annotated[
    tuple[Count, ...] | None, Field(max_length=MOST_ROUNDS), BeforeValidator(_dense), OR_UNKNOWN
]


class Report(Foreign):
    """Draft counters of a reply, as different engines call them."""

    accepted: Count = Field(validation_alias=AliasChoices(*ENGINES))
    drafted: Count = Field(validation_alias=AliasChoices("num_draft_tokens", "spec_num_proposed_drafts", "spec_draft_token_num", "total_draft_tokens_count", "draft_n"))  # fmt: skip
    rounds: KnownCount = Field(
        None, validation_alias=AliasChoices("num_spec_steps", "spec_verify_ct")
    )
    histogram: Counts = Field(None, validation_alias=AliasChoices("acceptance_histogram", "spec_correct_drafts_histogram", "spec_accept_histogram"))  # fmt: skip
    per_step_accepted: Counts = None
    per_step_drafted: Counts = None
    tokens: KnownCount = Field(
        None, validation_alias=AliasChoices("completion_tokens", "predicted_n")
    )
    predicted_ms: KnownAmount = None
    rate: KnownAmount = Field(None, validation_alias="tokens_per_second")

    def record(self, name: str, engine: str) -> Record:
        """Return the record; lists that contradict the sums are left out."""
        steps = tuple(zip(self.per_step_accepted or (), self.per_step_drafted or (), strict=False))
        kept = len(self.per_step_accepted or ()), sum(accepted for accepted, _ in steps)
        fits = kept == (len(self.per_step_drafted or ()), self.accepted)
        possible = all(accepted <= drafted <= MOST_DRAFTED for accepted, drafted in steps)
        counts = (self.histogram or ())[: MOST_DRAFTED + 1]
        weighted = sum(number * count for number, count in enumerate(counts))
        return Record(
            name,
            engine,
            self.tokens,
            self.drafted,
            self.accepted,
            self.rounds,
            steps=steps if fits and possible else (),
            histogram=counts if weighted == self.accepted else (),
            seconds=self.predicted_ms / 1000 if self.predicted_ms else None,
            rate=self.rate or None,
        ).counted()


def _documents(text: str, problems: Problems) -> Iterator[object]:
    """Yield the JSON values of a text: the whole of it, or one for each line, of which those of a stream start with `data:`."""
    try:
        yield json.loads(text)
    except (ValueError, RecursionError):
        for number, line in enumerate(io.StringIO(text), 1):
            part = line.strip().removeprefix("data: ")
            if not part.startswith("{"):
                continue
            try:
                yield json.loads(part[:LONGEST_LINE])
            except (ValueError, RecursionError):
                problems.add(number, "malformed")


def reports(value: object) -> Iterator[Record]:
    """Yield a record for each object with draft counters, however deep; of a stream only the final chunk counts."""
    waiting: list[tuple[object, JsonView]] = [(value, {})]
    while waiting:
        item, around = waiting.pop()
        if isinstance(item, list):
            waiting += [(one, around) for one in reversed(item)]
        elif isinstance(item, dict):
            if record := _report(item, around):
                yield record
            elif item.get("stop") is not False:  # chunks of a stream have running sums
                outer = item if {"usage", "engine", "tokens_predicted"} & item.keys() else around
                waiting += [(one, outer) for one in reversed(item.values())]


def _report(item: JsonView, around: JsonView) -> Record | None:
    engine = next((engine for name, engine in ENGINES.items() if name in item), None)
    if engine is None:
        return None
    usage = around.get("usage")
    try:
        found = Report.model_validate({**usage, **item} if isinstance(usage, dict) else item)
    except ValidationError:
        return None
    named = item.get("engine")
    name = str(around.get("id") or item.get("id") or "request")
    whole = found.record(name, named if isinstance(named, str) else engine)
    return whole if found.accepted <= found.drafted else None
