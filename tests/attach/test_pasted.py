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
from tests.attach.recorded import BENCH, FORMATS, LOG


@pytest.mark.parametrize("sample", FORMATS.values(), ids=FORMATS)
def test_read_text_knows_each_format(sample: dict[str, str]) -> None:
    kind, text = sample["kind"], sample["text"]
    found = read_text(f"Some words.\n{text}\nMore words." if kind != "JSON" else text, "file")
    assert found.kinds == (kind,)
    assert ["|".join(record.cells()) for record in found.records] == [sample["cells"]]
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
    words = ["import", str(LOG), str(tmp_path / "bench"), "--aiperf", str(out), "--save", str(tmp_path / "traces")]  # fmt: skip
    assert main(words) == 1
    printed = capsys.readouterr()
    assert printed.out.count("\n") == 5
    assert "bench:2: a line that looks like draft statistics" in printed.err
    (report,) = map(json.loads, out.read_text(encoding="utf-8").splitlines())
    assert sum(report["acceptance_histogram"].values()) == report["num_spec_steps"] == 9
    assert sum(report["per_step_accepted"]) == report["num_accepted_draft_tokens"] == 38
    saved = read(tmp_path / "traces" / "request-1.jsonl")
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
    texts = [log, *(sample["text"] for sample in FORMATS.values())]
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
