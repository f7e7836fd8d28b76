"""Reads files that people paste into issues: logs, tables and reports of engines and benchmarks as records.

The files are untrusted: their size, lines and numbers are bounded, and a malformed line is counted with its number.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from specdemo.attach.client import whole
from specdemo.attach.logs import LlamaLog
from specdemo.attach.records import MOST_DRAFTED, MOST_ROUNDS, Problems, Record
from specdemo.config.errors import UserError
from specdemo.config.strings import Json, JsonView

LARGEST_LOG = 128 * 2**20  # bytes: a debug log has about 5 kB for each round
LONGEST_LINE = 2**20  # characters of a line of other formats
MOST_MARKS = 100_000  # records of one file
N, X = r"(\d{1,12})", r"(\d{1,12}(?:\.\d{1,12})?)"


@dataclass(frozen=True, slots=True)
class Findings:
    """Content of a file. kinds: names of the formats in it; settings: of the server, if its log names them"""

    kinds: tuple[str, ...]
    records: list[Record]
    problems: Problems
    settings: dict[str, float] = field(default_factory=dict)
    method: str = ""
    synthetic: bool = False


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
    problems, records, kinds = Problems(), list[Record](), list[str]()
    log = LlamaLog(problems)
    if any(mark in text for mark in ("draft acceptance", "add accepted tokens", "eval time =")):
        records += log.read(io.StringIO(text))
        kinds += ["llama-server"] if records else []
    for kind, mark, pattern, read in FORMATS:
        if mark in text:
            rows = list(_rows(text, mark, pattern, read, problems))
            records += rows
            kinds += [kind] if rows else []
    end = text.find("n_accept") + 40
    if (found := SPECULATIVE.search(text, max(0, end - 500), end)) and int(found[2]) <= int(
        found[1]
    ):
        counts = Record("llama-speculative", "llama.cpp", None, int(found[1]), int(found[2]))
        records.append(counts)
        kinds.append("llama-speculative")
    if totals := counters(text):
        records.append(totals)
        kinds.append("metrics")
    if '"' in text and any(f'"{mark}"' in text for mark in COUNTERS):
        listed = [record for value in _documents(text, problems) for record in reports(value)]
        records += listed[:MOST_MARKS]
        kinds += ["JSON"] if listed else []
    if not records:
        raise UserError("servers.foreign_file", name=name, count=problems.count)
    return Findings(
        tuple(dict.fromkeys(kinds)), records, problems, log.settings, log.method, log.synthetic
    )


Read = Callable[[re.Match[str]], Record]


def _rows(
    text: str, mark: str, pattern: re.Pattern[str], read: Read, problems: Problems
) -> Iterator[Record]:
    count = 0
    for number, line in enumerate(io.StringIO(text), 1):
        if mark not in line or len(line) > LONGEST_LINE:
            continue
        found = pattern.search(line)
        try:
            record = read(found).counted() if found else None
        except (ValueError, ArithmeticError):
            record = None
        if record is None or (record.accepted or 0) > (record.drafted or 0):
            problems.add(number, "malformed")
            continue
        count += 1
        if count > MOST_MARKS:
            problems.add(number, "too_many")
            return
        yield record


def _bench_row(found: re.Match[str]) -> Record:
    """Return a row of mtp-bench; its first token comes from the prompt's pass, so a round fewer than the difference."""
    name, tokens, drafted, accepted, rate = found.groups()
    rounds = max(0, int(tokens) - int(accepted) - 1) if int(drafted) else 0
    counts = int(tokens), int(drafted), int(accepted), rounds
    return Record(name, "llama-server", *counts, rate=float(rate), approximate=True)


def _spec_bench_row(found: re.Match[str]) -> Record:
    task, run, stage, tokens, seconds, speed, rounds, accepted, drafted, length, places = (
        found.groups()
    )
    positions = tuple(float(place.rstrip("%")) / 100 for place in places.split())[:MOST_DRAFTED]
    counts = int(tokens), int(drafted), int(accepted), int(rounds)
    record = Record(f"{task} {run} {stage}", "ik_llama.cpp", *counts, float(length), positions)
    return replace(record, seconds=float(seconds), rate=float(speed))


def _vllm_row(found: re.Match[str]) -> Record:
    when, mean, accepted, drafted, places = found.groups()
    positions = tuple(float(place) for place in (places or "").split(",") if place.strip())
    record = Record((when or "interval").strip(), "vllm", None, int(drafted), int(accepted))
    return replace(record, mean=float(mean), positions=positions[:MOST_DRAFTED])


def _old_vllm_row(found: re.Match[str]) -> Record:
    accepted, drafted = found.groups()
    return Record("until then", "vllm", None, int(drafted), int(accepted))


def _sglang_row(found: re.Match[str]) -> Record:
    when, mean, rate = found.groups()
    return Record(when or "batch", "sglang", mean=float(mean), rate=float(rate) if rate else None)


# Name, text that a line of the format contains, its pattern, and the record of a match.
FORMATS: tuple[tuple[str, str, re.Pattern[str], Read], ...] = tuple(
    (name, mark, re.compile(pattern), read)
    for name, mark, pattern, read in (
        ("mtp-bench", " pred=", rf"(?<![\w-])([\w-]{{1,60}}) +pred= *{N} draft= *{N} acc= *{N} rate=\S+ tok/s= *{X}", _bench_row),
        ("llama-spec-bench", "% |", rf"\| *([\w-]{{1,60}}) *\| *{N} *\| *([\w-]{{1,40}}) *\| *{N} *\| *\w+ *\| *{X} *\| *{X} *\| *{N} *\| *{N}/ *{N} *\| *[0-9.]+% *\| *{X} *\| *([0-9.% ]{{0,2000}}?) *\|", _spec_bench_row),
        ("vLLM log", "SpecDecoding metrics:", rf"(?:(\d\d-\d\d \d\d:\d\d:\d\d).{{0,60}}?)?SpecDecoding metrics: Mean acceptance length: {X}, .{{0,200}}?Accepted: {N} tokens, Drafted: {N} tokens(?:, Per-position acceptance rate: ([0-9., ]{{1,8000}}?)(?:, Avg|\s*$))?", _vllm_row),
        ("vLLM log", "Speculative metrics:", rf"Number of accepted tokens: {N}, Number of draft tokens: {N}", _old_vllm_row),
        ("SGLang log", "accept len:", rf"(?:\[[\d-]* ?(\d\d:\d\d:\d\d)[^\]]{{0,40}}\] )?Decode batch[.,].{{0,400}}?accept len: {X}(?:.{{0,400}}?gen throughput \(token/s\): {X})?", _sglang_row),
    )
)  # fmt: skip
SPECULATIVE = re.compile(rf"n_drafted *= *{N}\s.{{0,400}}?n_accept *= *{N}", re.DOTALL)

# Counters of a server's Prometheus page: server, name, labels and value.
COUNTER = re.compile(
    r"^(llamacpp|vllm):spec_decode_num_(drafts|draft_tokens|accepted_tokens|accepted_tokens_per_pos)_total"
    r"(\{[^}\n]{0,400}\})? (\d[0-9.e+]{0,20})\s*$",
    re.MULTILINE,
)


def counters(text: str) -> Record | None:
    """Return the sums since the start of a llama-server or vLLM from its Prometheus page; None if it has none."""
    sums, places, engine = dict[str, int](), dict[int, int](), ""
    for found in COUNTER.finditer(text[:LONGEST_LINE]):
        server, name, labels, value = found.groups()
        place = re.search(r'position="(\d{1,4})"', labels or "")
        engine, count = "llama-server" if server == "llamacpp" else server, int(float(value))
        if place:
            places[int(place[1])] = places.get(int(place[1]), 0) + count
        else:
            sums[name] = sums.get(name, 0) + count
    if not sums.keys() >= {"drafts", "draft_tokens", "accepted_tokens"}:
        return None
    rounds = sums["drafts"]
    positions = tuple(places[place] / rounds for place in sorted(places)) if rounds else ()
    counts = sums["draft_tokens"], sums["accepted_tokens"], rounds
    return Record("since its start", engine, None, *counts, positions=positions[:MOST_DRAFTED])


# Names of accepted tokens, drafted tokens, rounds and the histogram, as different engines call them.
COUNTERS: dict[str, tuple[str, str, str, str]] = {
    "num_accepted_draft_tokens": ("vllm", "num_draft_tokens", "num_spec_steps", "acceptance_histogram"),
    "spec_num_correct_drafts": ("sglang", "spec_num_proposed_drafts", "spec_verify_ct", "spec_correct_drafts_histogram"),
    "spec_accept_token_num": ("sglang", "spec_draft_token_num", "spec_verify_ct", "spec_accept_histogram"),
    "total_accepted_draft_tokens": ("tensorrt-llm", "total_draft_tokens", "num_spec_steps", "acceptance_histogram"),
    "accepted_draft_tokens_count": ("lm-studio", "total_draft_tokens_count", "", ""),
    "draft_n_accepted": ("llama-server", "draft_n", "", ""),
}  # fmt: skip


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
            report = _report(item, around)
            if report:
                yield report
            elif item.get("stop") is not False:  # chunks of a stream have running sums
                outer = (
                    item
                    if "usage" in item or "engine" in item or "tokens_predicted" in item
                    else around
                )
                waiting += [(one, outer) for one in reversed(item.values())]  # fmt: skip


def _report(item: JsonView, around: JsonView) -> Record | None:
    for accepted, (engine, drafted, rounds, histogram) in COUNTERS.items():
        kept, made = whole(item.get(accepted)), whole(item.get(drafted))
        if kept is None or made is None or kept > made:
            continue
        usage = around.get("usage")
        tokens = whole(item.get("completion_tokens", item.get("predicted_n")))
        if tokens is None and isinstance(usage, dict):
            tokens = whole(usage.get("completion_tokens"))
        named = item.get("engine")
        name = str(around.get("id") or item.get("id") or "request")
        spent, speed = item.get("predicted_ms"), item.get("tokens_per_second")
        found = Record(name, named if isinstance(named, str) else engine, tokens, made, kept)
        found = replace(
            found,
            rounds=whole(item.get(rounds)),
            steps=_steps(item, kept),
            histogram=_histogram(item.get(histogram), kept),
            seconds=spent / 1000 if isinstance(spent, int | float) and 0 < spent < 1e12 else None,
            rate=float(speed) if isinstance(speed, int | float) and 0 < speed < 1e9 else None,
        )
        return found.counted()
    return None


def _histogram(value: object, accepted: int) -> tuple[int, ...]:
    """Return rounds by accepted tokens from a list or from AIPerf's sparse object; empty if its sum contradicts `accepted`."""
    if isinstance(value, dict):
        keys = [int(key) for key in value if str(key).isdecimal() and len(str(key)) < 5]
        value = [value.get(str(number), 0) for number in range(max(keys, default=-1) + 1)]
    if not isinstance(value, list) or len(value) > MOST_DRAFTED:
        return ()
    counts = [whole(count) for count in value]
    known = tuple(count for count in counts if count is not None)
    weighted = sum(number * count for number, count in enumerate(known))
    return known if len(known) == len(counts) and weighted == accepted else ()


def _steps(item: Json | JsonView, accepted: int) -> tuple[tuple[int, int], ...]:
    """Return (accepted, drafted) of each round, if both lists are valid."""
    lists = item.get("per_step_accepted"), item.get("per_step_drafted")
    if not all(isinstance(one, list) and len(one) <= MOST_ROUNDS for one in lists):
        return ()
    kept, made = ([whole(count) for count in one or ()] for one in lists)
    steps = tuple(
        (a, d)
        for a, d in zip(kept, made, strict=False)
        if a is not None and d is not None and a <= d <= MOST_DRAFTED
    )
    complete = len(steps) == len(kept) == len(made) and sum(a for a, _ in steps) == accepted
    return steps if complete else ()
