"""Events survive their wire form; replay returns every complete event; metrics follow their definitions."""

import pytest
from fuzz.odd import TEXTS

from specdemo.config.errors import UserError
from specdemo.trace.codec import dumps
from specdemo.trace.events import (
    LONE_SURROGATE,
    Choice,
    Drafted,
    FinishReason,
    Knowledge,
    ModelInfo,
    Node,
    Origin,
    Place,
    RunFailed,
    RunFinished,
    RunStarted,
    Status,
    Trace,
    Verified,
)
from specdemo.trace.metrics import measure, output_ids, speedup
from specdemo.trace.replay import parse, read

WOMAN = "\N{WOMAN}\u200d\N{PERSONAL COMPUTER}"
HOSTILE = [*(text for text in TEXTS if not LONE_SURROGATE.search(text)), WOMAN, "\n\u2028"]


@pytest.mark.parametrize(
    ("kernel", "precision", "more", "may"),
    [
        ("lean pass", "nf4", {}, True),
        ("compiled pass on matrix tiles", "nf4", {}, False),
        ("lean pass", "fp32", {}, False),
        ("", "nf4", {}, False),
        ("lean pass", "nf4", {"settings": {"exact": True}}, False),
        ("lean pass", "nf4", {"method": "nothing"}, False),
        ("lean pass", "nf4", {"knowledge": Knowledge.EXACT}, False),
    ],
)
def test_a_run_says_whether_its_text_may_leave_plain_decodings(kernel, precision, more, may):
    target = ModelInfo("tiny", precision=precision, kernel=kernel)
    values = {"method": "ngram", "settings": {}, **more}
    started = RunStarted("speculative", prompt="p", target=target, **values)
    assert started.may_split is may


def example() -> Trace:
    """A short run with odd texts wherever a text may be."""
    odd = "".join(HOSTILE)
    nodes = tuple(
        Node(place, text, place - 1, confidence=0.5, origin=Origin.CHOSEN)
        for place, text in enumerate(HOSTILE)
    )
    judged = (
        Node(0, HOSTILE[0], -1, Status.ACCEPTED, 0.5, 0.25, 1.0, 0.123, origin=Origin.DRAWN),
        Node(1, HOSTILE[1], 0, Status.REJECTED, 0.1, 0.5, 0.2, 0.9, origin=Origin.DRAWN),
    )
    lane, models = "speculative", (ModelInfo(odd, odd, odd, odd, 5), ModelInfo("d"))
    choices = tuple(Choice(place, 0.1, text) for place, text in enumerate(HOSTILE))
    places = (Place(-1, choices, choices, choices),)
    correction, plain = Node(7, " x", status=Status.CORRECTION), Node(8, status=Status.PLAIN)
    events = (
        RunStarted(
            lane,
            "draft_model",
            odd,
            {"odd": HOSTILE},
            *models,
            machine=odd,
            started_at=odd,
            history=(0.25, 0.5),
        ),
        Drafted(lane, 0, 2, "constant", nodes, 0.001),
        Verified(lane, 0, judged, (0,), correction, 0.1, 0.2, 0.01, 0.31, places=places),
        Verified(lane, 1, (), (), plain, 0.0, 0.2, 0.01, 0.52),
        RunFailed(lane, odd, odd, odd),
        RunFinished(lane, FinishReason.CANCELLED, 3, 0.52),
    )
    return Trace(events)


def test_events_survive_the_round_trip():
    trace = example()
    text = dumps(trace.events)
    assert text.count("\n") == len(trace.events)
    assert parse(text).trace == trace


def test_a_cut_file_shows_what_is_whole(tmp_path):
    text = dumps(example().events)
    path = tmp_path / "cut.jsonl"
    path.write_text(text[: text.index('"finished"')], encoding="utf-8")
    replay = read(path)
    assert replay.trace.events == example().events[:-1]
    assert "5 events" in replay.problem
    with pytest.raises(UserError, match="empty"):
        parse("\n")
    with pytest.raises(UserError, match="cannot be read"):
        read(tmp_path / "missing.jsonl")


def test_metrics_are_computed_as_documented():
    metrics = measure(example())
    assert (metrics.steps, metrics.new_tokens, metrics.drafted, metrics.accepted) == (2, 3, 2, 1)
    assert metrics.drafted_accept_rate == 0.5
    assert metrics.first_accept_rate == 1
    assert metrics.tokens_per_step == 1.5
    assert metrics.tokens_per_second == pytest.approx(3 / 0.52)
    assert (metrics.draws, metrics.draws_kept, metrics.draws_overlap) == (2, 1, 1 + 0.1 / 0.5)
    assert output_ids(example()) == [0, 7, 8]
    assert measure(()).tokens_per_second is None
    assert speedup(metrics, metrics) == 1
