"""What loading a pair would mean here: the automatic choice never downloads, and rates say what they are made from."""

from __future__ import annotations

import pytest

from specdemo.engine.cost import CostProfile
from specdemo.models import outlook
from specdemo.models.files.catalogue import find, pairs
from specdemo.models.outlook import (
    KEPT,
    SPARE_BYTES,
    Measured,
    choose,
    memory_bytes,
    pass_bytes,
    rates,
    to_download,
)
from specdemo.settings import AppSettings

GB = 10**9
PAIRS = {pair.name: pair for pair in pairs()}
USUAL, LARGER = PAIRS["smollm2-135m-instruct"], PAIRS["qwen2.5-1.5b-instruct"]


@pytest.fixture
def disk(monkeypatch):
    """Names of the models that are on this disk."""
    here = {"smollm2-135m-instruct", "smollm2-135m-instruct-draft"}
    monkeypatch.setattr(
        outlook, "missing_bytes", lambda entry, _cache, _precision: 7 * (entry.name not in here)
    )
    return here


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize(
    ("free", "whole", "choice"),
    [
        (2, True, "smollm2-135m-instruct"),
        (80, False, "smollm2-135m-instruct"),
        (80, True, "qwen3-8b"),
        (4, True, "qwen2.5-1.5b-instruct"),
        (None, True, "smollm2-135m-instruct"),
    ],
)
def test_the_largest_that_is_here_and_fits(monkeypatch, disk, device, free, whole, choice):
    if whole:
        disk |= {entry.name for pair in pairs() for entry in (pair.target, pair.draft)}
        disk -= {name for name in disk if "coder" in name}
    monkeypatch.setattr(
        outlook, "free_memory", lambda asked: free and asked == device and free * GB
    )
    pair, larger = choose(AppSettings(target="auto", device=device))
    assert (pair.name, larger) == (choice, choice != USUAL.name)


def test_a_model_without_its_draft_is_not_chosen(monkeypatch, disk):
    monkeypatch.setattr(outlook, "free_memory", lambda _device: 80 * GB)
    disk.add(LARGER.target.name)
    assert choose(AppSettings(target="auto"))[0] is USUAL
    disk.add(LARGER.draft.name)
    assert choose(AppSettings(target="auto"))[0] is LARGER


def test_more_precise_weights_take_more_room(monkeypatch, disk):
    disk |= {LARGER.target.name, LARGER.draft.name}
    monkeypatch.setattr(outlook, "free_memory", lambda _device: SPARE_BYTES + 2 * GB)
    chosen = [choose(AppSettings(target="auto", precision=one))[0] for one in ("nf4", "bf16")]
    assert chosen == [LARGER, USUAL]


def test_what_a_pass_reads_and_what_a_model_takes():
    entry = find("qwen2.5-1.5b-instruct")
    head = 151_936 * 1536
    assert pass_bytes(entry, "bf16") == 2 * entry.parameters
    assert pass_bytes(entry, "nf4") == 0.5625 * (entry.parameters - head) + 2 * head
    assert memory_bytes(entry, "nf4") == 1.3 * GB
    assert 2.4 < memory_bytes(entry, "bf16") / memory_bytes(entry, "nf4") < 2.7
    own = find("qwen3-8b")  # its embedding is not read by a pass
    assert pass_bytes(own, "bf16") == 2 * (own.parameters - own.head_parameters)


def test_rates_of_a_profile_by_hand():
    free_drafts = CostProfile(((1, 0.1), (9, 0.1)), 1e-9)
    plain, drafted = rates(free_drafts)
    assert plain == pytest.approx(10)
    assert drafted == pytest.approx(10 * (1 - KEPT**9) / (1 - KEPT), rel=1e-3)
    assert rates(CostProfile(((1, 0.1), (2, 0.2)), 0.1)) == pytest.approx((10, 10))  # never below
    one = CostProfile(((1, 0.1), (2, 0.1), (3, 9.0)), 0.01)
    assert rates(one)[1] == pytest.approx((1 + KEPT) / 0.11)
    assert rates(CostProfile(((1, 0.1),))) == pytest.approx((10, 10))


def looked(known, pair=LARGER, free=80 * GB):
    return outlook.outlook(pair, "nf4", AppSettings().cache_dir, free, known)


def test_an_outlook_says_what_its_rates_are_made_from(disk):
    usual = Measured(USUAL.name, "nf4", CostProfile(((1, 0.005), (9, 0.01)), 0.0005))
    own = Measured(LARGER.name, "nf4", CostProfile(((1, 0.05), (9, 0.1)), 0.005))
    nothing, scaled, measured = looked([]), looked([usual]), looked([own, usual])
    assert (nothing.plain, nothing.drafted, nothing.measured) == (None, None, False)
    ratio = pass_bytes(LARGER.target, "nf4") / pass_bytes(USUAL.target, "nf4")
    assert scaled.plain == pytest.approx(200 / ratio)
    assert scaled.drafted > scaled.plain
    assert not scaled.measured
    assert (measured.plain, measured.measured) == (pytest.approx(20), True)
    assert looked([Measured("unknown", "nf4", own.profile)]).plain is None
    assert looked([Measured(LARGER.name, "bf16", own.profile)]).measured is False
    assert (nothing.download, nothing.fits) == (14, True)
    disk |= {LARGER.target.name}
    assert looked([]).download == 7
    assert not looked([], free=GB).fits
    assert looked([], free=None).fits


def test_what_must_be_downloaded_is_known_before(monkeypatch, disk, tmp_path):
    monkeypatch.setattr(outlook.hub, "is_cached", lambda repo, _revision: repo == "a/here")
    name = LARGER.name
    assert to_download(name, "auto", "nf4", tmp_path) == 14
    assert to_download(name, "none", "nf4", tmp_path) == 7
    disk |= {LARGER.target.name, LARGER.draft.name}
    assert to_download(name, "auto", "nf4", tmp_path) == 0
    assert to_download("a/here", "auto", "nf4", tmp_path) == 0
    assert to_download("a/model", "auto", "nf4", tmp_path) is None
    assert to_download(str(tmp_path), "none", "nf4", tmp_path) == 0
