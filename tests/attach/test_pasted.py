"""Logs and tables of other programs: numbers equal the source's own sums, and damaged files are reported."""

from __future__ import annotations

import json
import random
import re
import time
from contextlib import suppress
from pathlib import Path

import pytest
from fuzz.odd import COUNT, SEED, damaged

from specdemo.attach.pasted import read_text
from specdemo.attach.records import markdown, total
from specdemo.cli.parser import main
from specdemo.config.errors import UserError
from specdemo.trace.events import Status, Verified
from specdemo.trace.metrics import measure, output_text
from specdemo.trace.replay import read

LOG = Path(__file__).with_name("data") / "llama-server.log"
LINE = "slot print_timing: id  3 | task 17 | "
OLD = (
    f"{LINE}\nprompt eval time =     371.39 ms /    20 tokens (   18.57 ms per token)\n"
    "       eval time =    2000.00 ms /    48 tokens (   41.67 ms per token)\n"
    f"{LINE}\ndraft acceptance rate = 0.57576 (  171 accepted /   297 generated)\n"
)
OLDER = (
    f"{LINE}draft acceptance = 0.64479 (  167 accepted /   259 generated), mean acceptance length =  2.92, "
    "acceptance rate per position = (0.805, 0.632, 0.483)"
)
BENCH = "  code_python        pred= 192 draft= 166 acc= 107 rate=0.645 tok/s=93.6"
NO_DRAFTS = "  translation        pred=  64 draft=   0 acc=   0 rate=n/a tok/s=60.1"
SPEC_BENCH = "| code     |   1 | mtp     |     759 | eog   |  11.068 |   68.58 |    220 |     538/660 |  81.52% |   3.45 | 90.5% 80.5% 73.6% |"
VLLM = (
    "(APIServer pid=79) INFO 08-05 12:25:03 [metrics.py:120] SpecDecoding metrics: Mean acceptance length: 2.91, "
    "Accepted throughput: 0.72 tokens/s, Drafted throughput: 2.64 tokens/s, Accepted: 44 tokens, Drafted: 161 tokens"
)
PLACES = ", Per-position acceptance rate: 0.739, 0.478, 0.261, Avg Draft acceptance rate: 27.3%"
SGLANG = (
    "[2025-05-27 20:14:38 TP0] Decode batch. #running-req: 18, token usage: 0.71, accept len: 2.40, accept rate: 0.84, "
    "gen throughput (token/s): 2520.18, #queue-req: 3"
)
RECORD = {
    "num_spec_steps": 43,
    "num_accepted_draft_tokens": 10,
    "num_draft_tokens": 129,
    "acceptance_histogram": [39, 1, 0, 3],
}
STEPS = {
    "num_accepted_draft_tokens": 3,
    "num_draft_tokens": 7,
    "per_step_accepted": [2, 1, 0],
    "per_step_drafted": [3, 3, 1],
}
SGLEXT = {
    "spec_num_correct_drafts": 63,
    "spec_num_proposed_drafts": 215,
    "spec_verify_ct": 43,
    "spec_correct_drafts_histogram": [11, 14, 11, 4, 0, 3],
}
METRICS = "".join(
    f"# TYPE llamacpp:spec_decode_{name} counter\nllamacpp:spec_decode_{name} {value}\n"
    for name, value in (("num_draft_tokens_total", 45), ("num_accepted_tokens_total", 38), ("num_drafts_total", 9), ('num_accepted_tokens_per_pos_total{position="0"}', 9), ('num_accepted_tokens_per_pos_total{position="1"}', 8))
)  # fmt: skip
STUDIO = {"stats": {"total_draft_tokens_count": 20, "accepted_draft_tokens_count": 17}}


@pytest.mark.parametrize(
    ("text", "kind", "cells"),
    [
        (OLD, "llama-server", "task 17|48|-|297|171|57.6%|-|24.0|-"),
        (OLDER, "llama-server", "task 17|-|~87|259|167|64.5%|2.92|-|80% 63% 48%"),
        (BENCH, "mtp-bench", "code_python|192|~84|166|107|64.5%|2.27|93.6|-"),
        (NO_DRAFTS, "mtp-bench", "translation|64|0|0|0|-|-|60.1|-"),
        (SPEC_BENCH, "llama-spec-bench", "code 1 mtp|759|220|660|538|81.5%|3.45|68.6|90% 80% 74%"),
        (VLLM, "vLLM log", "08-05 12:25:03|-|~23|161|44|27.3%|2.91|-|-"),
        (VLLM + PLACES, "vLLM log", "08-05 12:25:03|-|~23|161|44|27.3%|2.91|-|74% 48% 26%"),
        (SGLANG, "SGLang log", "20:14:38|-|-|-|-|-|2.40|2520.2|-"),
        (
            json.dumps({"id": "x", "usage": {"completion_tokens": 53}, "metrics": {"speculative_decoding": RECORD}}),
            "JSON",
            "x|53|43|129|10|7.8%|1.23|-|9% 7% 7%",
        ),
        (json.dumps([STEPS], indent=1), "JSON", "request|-|3|7|3|42.9%|2.00|-|67% 33%"),
        (json.dumps({"usage": {"completion_tokens": 106}, "sglext": SGLEXT}), "JSON", "request|106|43|215|63|29.3%|2.47|-|74% 42% 16% 7% 7%"),
        (json.dumps(STUDIO), "JSON", "request|-|-|20|17|85.0%|-|-|-"),
        (METRICS, "metrics", "since its start|-|9|45|38|84.4%|5.22|-|100% 89%"),
        (METRICS.replace("llamacpp", "vllm").replace("_total ", '_total{engine="0",model_name="m"} '), "metrics", "since its start|-|9|45|38|84.4%|5.22|-|100% 89%"),
    ],
)  # fmt: skip
def test_read_text_knows_each_format(text: str, kind: str, cells: str) -> None:
    found = read_text(f"Some words.\n{text}\nMore words." if kind != "JSON" else text, "file")
    assert found.kinds == (kind,)
    assert ["|".join(record.cells()) for record in found.records] == [cells]
    assert not found.problems.count


def test_a_debug_log_gives_refused_tokens_and_times() -> None:
    found = read_text(LOG.read_text(encoding="utf-8"), "log")
    (record,) = found.records
    generation = record.generation
    assert generation is not None
    assert not generation.contradictory
    assert (record.drafted, record.accepted, record.rounds, record.tokens) == (45, 38, 9, 48)
    assert generation.text.startswith("```python\ndef fibonacci(n):\n    # Base")
    refused = [
        each.candidates[each.accepted or 0][0]
        for each in generation.rounds
        if each.drafted and each.accepted != each.drafted
    ]
    assert all(one.token_id > 0 for one in refused)
    assert refused[0].text == ' """\n'
    assert all(one.seconds and one.seconds > (one.draft_seconds or 0) for one in generation.rounds)
    places = "".join(f"{part:.3f} " for part in record.positions)
    assert places == "1.000 0.889 0.778 0.778 0.778 "  # the server's own line


def test_a_line_that_a_program_puts_before_each_entry_is_ignored() -> None:
    lines = LOG.read_text(encoding="utf-8").splitlines(keepends=True)
    marked = [f"llama-1  | {line}" if re.match(r"\d\.\d\d\.", line) else line for line in lines]
    assert read_text("".join(marked), "log").records == read_text("".join(lines), "log").records


def test_a_message_without_the_end_of_its_line_hides_no_entry() -> None:
    text = LOG.read_text(encoding="utf-8")
    message = "No parser definition detected, assuming pure content parser."
    glued = re.sub(r"^(?=\d.*process_toke)", message, text, flags=re.MULTILINE)
    found = read_text(glued, "log")
    assert glued.count(message) > 40
    assert (found.records, found.problems.count) == (read_text(text, "log").records, 0)


def test_import_writes_a_table_and_records(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "records.jsonl"
    (tmp_path / "bench").write_text(BENCH + "\n" + BENCH[:44], encoding="utf-8")
    words = ["import", str(LOG), str(tmp_path / "bench"), "--aiperf", str(out), "--save", str(tmp_path)]  # fmt: skip
    assert main(words) == 1
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 5
    assert "bench:2: a line that looks like draft statistics" in printed.err
    (report,) = map(json.loads, out.read_text(encoding="utf-8").splitlines())
    assert sum(report["acceptance_histogram"].values()) == report["num_spec_steps"] == 9
    assert sum(report["per_step_accepted"]) == report["num_accepted_draft_tokens"] == 38
    saved = read(tmp_path / "request-1.jsonl")
    figures = measure(saved.trace)
    assert (saved.problem, figures.drafted, figures.accepted) == ("", 45, 38)
    assert output_text(saved.trace).startswith("```python\ndef fibonacci(n):")
    refused = [node for event in saved.trace.events if isinstance(event, Verified) for node in event.nodes if node.status is Status.REJECTED]  # fmt: skip
    assert all(node.token_id is not None and node.text for node in refused)
    again = read_text(json.dumps({"record": report}), "aiperf").records[0]
    assert again.steps == read_text(LOG.read_text(encoding="utf-8"), "log").records[0].steps


def test_any_file_is_read_or_refused() -> None:
    rng = random.Random(SEED)
    log = "".join(LOG.read_text(encoding="utf-8").splitlines(keepends=True)[:60])
    texts = [log, OLD, OLDER, BENCH, SPEC_BENCH, VLLM + PLACES, SGLANG]
    texts += [json.dumps(value) for value in (RECORD, STEPS, SGLEXT, STUDIO)]
    for _ in range(COUNT):
        data = damaged(rng, rng.choice(texts).encode())
        with suppress(UserError):
            found = read_text(data.decode("utf-8", "replace"), "file")
            assert markdown(found.records).count("\n") >= 2
            assert (total(found.records).accepted or 0) >= 0
            for record in found.records:
                report = record.aiperf()
                assert report is None or report["num_accepted_draft_tokens"] <= report["num_draft_tokens"]  # fmt: skip


@pytest.mark.parametrize("text", ["", "hello", "[" * 100_000 + '"draft_n_accepted"', "\x00" * 99])
def test_read_text_refuses_what_it_does_not_know(text: str) -> None:
    with pytest.raises(UserError, match="no draft statistics"):
        read_text(text, "file")


@pytest.mark.parametrize(
    ("text", "most"),  # seconds a megabyte
    [
        ("llamacpp:spec_decode_num_drafts_total{a\n" * 100_000, 0.4),
        (("a" * 900_000 + " pred=\n") * 3, 0.4),
    ],
    ids=["metrics", "mtp-bench"],
)
def test_a_text_that_nearly_matches_everywhere_is_read_in_time(text: str, most: float) -> None:
    """A page reads such a file for one visitor, and meanwhile no other visitor gets an answer."""
    start = time.process_time()
    with pytest.raises(UserError, match="no draft statistics"):
        read_text(text, "file")
    assert time.process_time() - start < most * len(text) / 1e6
