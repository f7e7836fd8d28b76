"""Python and the page read the whole part of a trace from another program, or refuse it in one sentence."""

import csv
import io
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fuzz.odd import COUNT, SEED, changed
from programs import module, needs_node, run

from specdemo.config.errors import UserError
from specdemo.config.strings import ASSETS, load
from specdemo.trace.codec import dumps
from specdemo.trace.events import LARGEST_FILE
from specdemo.trace.metrics import calibration_error, measure, output_ids
from specdemo.trace.replay import csv_table, parse, read

HERE = Path(__file__).parent
BAD = json.loads((HERE / "bad_traces.json").read_text(encoding="utf-8"))
RUNS = sorted((ASSETS / "runs").glob("*.jsonl"))
LINES = 8  # number of lines of a recorded run in one mutated trace
LITERALS = ["NaN", "Infinity", "-Infinity", "1e999", "[" * 50_000, '{"a":' * 40 + "1" + "}" * 40]


def text_of(case: dict[str, Any]) -> str:
    return "".join(piece * count for piece, count in case["pieces"])


def verdict(text: str) -> tuple[int, str, int]:
    """Line that cannot be read (0 for none), its sentence, and how many events there are before it."""
    try:
        replay = parse(text)
    except UserError as error:
        return (int(str(error.message).partition("line ")[2].partition(":")[0]), error.message, 0)
    line = int(replay.problem.split()[1]) if replay.problem else 0
    return line, replay.problem, len(replay.trace.events)


@pytest.mark.parametrize("case", BAD, ids=lambda case: case["name"])
def test_a_bad_trace_is_refused_with_its_line_and_field(case):
    line, sentence, _ = verdict(text_of(case))
    assert line == case["line"]
    if case["problem"]:
        assert case["problem"] in sentence


def mutated(rng: random.Random, runs: list[list[str]]) -> str:
    """A few lines of a recorded run with one to three faults."""
    lines = rng.choice(runs)
    begin = rng.randrange(max(1, len(lines) - LINES))
    picked = [lines[0], *lines[1 + begin : begin + LINES]]
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(picked))
        fault = rng.choice((cut, swapped, *[changed_line] * 4))
        picked[place] = fault(rng, picked[place])
    if rng.random() < 0.2:
        rng.shuffle(picked)
    return "\n".join(picked) + "\n"


def cut(rng: random.Random, line: str) -> str:
    begin = rng.randrange(len(line) + 1)
    return line[:begin] + line[begin + rng.randrange(20) :]


def swapped(rng: random.Random, line: str) -> str:
    numbers = [at for at, sign in enumerate(line) if sign.isdigit()] or [0]
    at = rng.choice(numbers)
    return line[:at] + rng.choice(LITERALS) + line[at + 1 :]


def changed_line(rng: random.Random, line: str) -> str:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        return line
    return json.dumps(changed(rng, data), ensure_ascii=rng.random() < 0.5)


@pytest.fixture(scope="module")
def mutations() -> list[str]:
    rng = random.Random(SEED)
    runs = [path.read_text(encoding="utf-8").splitlines() for path in RUNS]
    return [mutated(rng, runs) for _ in range(COUNT)]


def test_a_mutated_trace_is_measured_or_refused(mutations):
    refused = 0
    for text in mutations:
        line, sentence, count = verdict(text)
        refused += bool(line)
        if not count:
            assert f"line {line}: " in sentence
            continue
        trace = parse(text).trace
        for lane in trace.lanes:
            metrics = measure(trace.lane(lane))
            assert metrics.tokens_per_second is None or metrics.tokens_per_second >= 0
            calibration_error(metrics.survivals)
            assert len(output_ids(trace.lane(lane))) == metrics.new_tokens
        assert list(csv.reader(io.StringIO(csv_table(text), newline="")))
        saved = dumps(trace.events)
        assert not parse(saved).problem
        saved.encode()
    # The faults are real ones, and some lines with them are still events.
    assert 0.5 < refused / len(mutations) < 0.98


@needs_node
def test_the_script_says_the_same_of_every_bad_and_every_mutated_trace(mutations, tmp_path):
    texts = [*map(text_of, BAD), *(text for text in mutations if is_text(text))]
    given = tmp_path / "texts.json"
    given.write_text(json.dumps(texts), encoding="utf-8")
    verdicts = json.loads(run("node", Path(__file__).with_name("foreign.mjs"), given))
    for text, (line, problem, count) in zip(texts, verdicts, strict=True):
        ours = verdict(text)
        assert (line, count) == (ours[0], ours[2]), (problem, ours[1], text[:2000])
        assert "too deep" in ours[1] or problem in ours[1], (problem, ours[1])


def is_text(text: str) -> bool:
    """A file cannot contain half a character."""
    return text.encode("utf-8", "replace").decode() == text


def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path):
    large = tmp_path / "large.jsonl"
    with large.open("wb") as file:
        file.truncate(50 * 2**20)
    with pytest.raises(UserError, match="is larger than 16 MB") as raised:
        read(large)
    assert raised.value.unaffected
    if Path("/dev/zero").exists():
        with pytest.raises(UserError, match="is larger than 16 MB"):
            read("/dev/zero")
    with pytest.raises(UserError, match="is larger than 16 MB"):
        parse("€" * (LARGEST_FILE // 3 + 1))


def test_the_page_says_the_limit_before_and_in_the_sentence():
    for language in ("en", "de"):
        view = load("page", language)["VIEW"]
        assert "16 MB" in view["open"]
        assert "16 MB" in view["trace"]["large"]


@needs_node
def test_the_script_refuses_a_file_that_is_too_large_before_it_is_read():
    script = """
      import { readFile } from "./assets/view/play/runs.js";
      import { readTrace } from "./assets/view/core/lines.js";
      const words = { large: "too large: {name}", unharmed: "u", advice: "a" };
      const file = { name: "x", size: %d, text() { throw new Error("it was read"); } };
      const [notice, ...more] = await readFile(file, words);
      if (more.length || notice.message !== "too large: x") throw new Error(JSON.stringify(notice));
      if (readTrace(" ".repeat(%d)).problem !== "it is too large") throw new Error("the text was read");
    """
    module(script % (LARGEST_FILE + 1, LARGEST_FILE + 1))


def test_checking_costs_little_more_than_making_the_events():
    """Each field is read once: reading costs a small multiple of parsing the JSON."""
    text = next(path for path in RUNS if "06" in path.stem).read_text(encoding="utf-8")

    def seconds(work: Callable[[str], object]) -> float:
        begun = time.process_time()
        work(text)
        return time.process_time() - begun

    ratios = [seconds(parse) / seconds(lambda text: [*map(json.loads, text.splitlines())]) for _ in range(5)]  # fmt: skip
    assert min(ratios) < 12
