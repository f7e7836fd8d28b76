"""The outlook of loading a pair here: the automatic choice never downloads, and rates name their source."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from specdemo.config.settings import AppSettings
from specdemo.engine.cost import CostProfile
from specdemo.files.catalogue import Pair, find, pairs
from specdemo.files.found import FoundModel
from specdemo.files.header import Header, StoredTensor
from specdemo.models import outlook
from specdemo.models.memory import Way, pass_bytes
from specdemo.models.outlook import (
    ACCEPTED_FRACTION,
    SPARE_BYTES,
    Measured,
    acceptance,
    choose,
    rates,
    to_download,
)

GB = 10**9
PAIRS = {pair.name: pair for pair in pairs()}
USUAL, LARGER = PAIRS["smollm2-135m-instruct"], PAIRS["qwen2.5-1.5b-instruct"]


def timed(rate):
    """Passes of the larger pair that give so many tokens a second without drafts; further rows are cheap."""
    profile = CostProfile(((1, 1 / rate), (8, 1.2 / rate)), 0.02 / rate)
    return [Measured(LARGER.name, "nf4", profile)]


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
    ],
)
def test_the_largest_that_is_here_and_fits(monkeypatch, disk, device, free, whole, choice):
    if whole:
        disk |= {entry.name for pair in pairs() for entry in pair.models}
        disk -= {name for name in disk if "coder" in name}
    monkeypatch.setattr(outlook, "free_on", lambda asked: free * GB if asked == device else 0)
    pair, larger = choose(AppSettings(target="auto", device=device))
    assert (pair.name, larger) == (choice, choice != USUAL.name)


def test_a_model_without_its_draft_is_not_chosen(monkeypatch, disk):
    monkeypatch.setattr(outlook, "free_on", lambda _device: 80 * GB)
    disk.add(LARGER.target.name)
    assert choose(AppSettings(target="auto"), timed(50.0))[0] == USUAL
    disk.add(LARGER.draft.name)
    assert choose(AppSettings(target="auto"), timed(50.0))[0] == LARGER


@pytest.mark.parametrize(
    ("known", "choice"), [(11.0, LARGER), (5.0, USUAL), (None, USUAL)], ids=str
)
def test_the_choice_answers_at_fifteen_tokens_a_second(monkeypatch, disk, known, choice):
    """Drafts count: 11 tokens a second without them are enough, 5 are not, and no measurement is none."""
    monkeypatch.setattr(outlook, "free_on", lambda _device: 80 * GB)
    disk |= {LARGER.target.name, LARGER.draft.name}
    passes = timed(known) if known else []
    assert choose(AppSettings(target="auto"), passes)[0] == choice


def test_more_precise_weights_take_more_room(monkeypatch, disk):
    disk |= {LARGER.target.name, LARGER.draft.name}
    monkeypatch.setattr(outlook, "free_on", lambda _device: SPARE_BYTES + 2 * GB)
    for precision, pair in (("nf4", LARGER), ("bf16", USUAL)):
        assert choose(AppSettings(target="auto", precision=precision), timed(50.0))[0] == pair


def test_auto_counts_the_blocks_of_a_file_where_the_pass_is_compiled():
    listed = PAIRS["qwen2.5-coder-1.5b-instruct"]
    found = Pair(replace(listed.target, blocks=0.6), listed.draft)
    known = [Measured(listed.name, "nf4", CostProfile(((1, 0.05), (9, 0.1))))]

    def seen(pair, *, compiled=True):
        way = Way("auto", compiled=compiled)
        one = outlook.outlook(pair, way, AppSettings().cache_dir, 1 << 40, known)
        return one.precision, one.measured

    assert seen(found) == ("file", False)  # the passes that were timed are those of NF4
    assert seen(found, compiled=False) == ("nf4", True)
    assert seen(listed) == ("nf4", True)


def test_passes_in_the_same_precision_are_scaled_first():
    coder = PAIRS["qwen2.5-coder-1.5b-instruct"]
    other = Measured(LARGER.name, "nf4", CostProfile(((1, 0.05),)))
    same = Measured(USUAL.name, "file", CostProfile(((1, 0.005),)))
    found = outlook.outlook(coder, Way("file"), AppSettings().cache_dir, 1 << 40, [other, same])
    ratio = pass_bytes(coder.target, Way("file")) / pass_bytes(USUAL.target, Way("file"))
    assert found.plain == pytest.approx(200 / ratio)


def test_rates_of_a_profile_by_hand():
    free_drafts = CostProfile(((1, 0.1), (9, 0.1)), 1e-9)
    plain, drafted = rates(free_drafts)
    assert plain == pytest.approx(10)
    tokens = sum(ACCEPTED_FRACTION**more for more in range(9))
    assert drafted == pytest.approx(10 * tokens, rel=1e-3)
    assert rates(CostProfile(((1, 0.1), (2, 0.2)), 0.1)) == pytest.approx((10, 10))  # never below
    one = CostProfile(((1, 0.1), (2, 0.1), (3, 9.0)), 0.01)
    assert rates(one)[1] == pytest.approx((1 + ACCEPTED_FRACTION) / 0.11)
    assert rates(CostProfile(((1, 0.1),))) == pytest.approx((10, 10))


def test_a_card_says_how_much_of_a_draft_is_kept():
    profile = CostProfile(((1, 0.1), (9, 0.1)), 0.01)
    known = [Measured(USUAL.name, "nf4", profile)]
    results = USUAL.draft.recorded["card"]["results"]
    assert acceptance(USUAL) == (results["greedy_agreement"],)
    found = looked(known, USUAL)
    assert (found.recorded, found.kept) == ("nf4", results["greedy_agreement"])
    assert found.drafted == rates(profile, acceptance(USUAL))[1]
    assert acceptance(PAIRS["smollm2-360m-instruct"]) == ()  # the card is of another target
    assumed = looked(known)
    assert (assumed.recorded, assumed.kept) == ("", ACCEPTED_FRACTION)


def test_each_place_of_a_draft_has_its_own_share():
    profile = CostProfile(((1, 0.1), (2, 0.1), (3, 0.1), (4, 9.0)), 0.01)
    assert rates(profile, (0.8, 0.5))[1] == pytest.approx((1 + 0.8 + 0.8 * 0.5) / 0.12)
    free = CostProfile(((1, 0.1), (9, 0.1)), 1e-9)  # after the last position its rate continues
    tokens = 1 + 0.8 * sum(0.5**more for more in range(8))
    assert rates(free, (0.8, 0.5))[1] == pytest.approx(tokens / 0.1, rel=1e-3)


@pytest.mark.usefixtures("disk")
def test_a_target_without_a_draft_counts_no_partner():
    pair = PAIRS["qwen2.5-coder-0.5b-instruct"]
    known = [Measured(pair.name, "nf4", CostProfile(((1, 0.05), (9, 0.1))))]
    found = looked(known, pair)
    assert (found.download, found.plain, found.drafted) == (7, pytest.approx(20), None)
    assert looked([Measured(USUAL.name, "nf4", known[0].profile)], pair).drafted is None
    assert to_download(pair.name, "auto", Way("nf4"), AppSettings().cache_dir) == 7


def looked(known, pair=LARGER, free=80 * GB):
    return outlook.outlook(pair, Way("nf4"), AppSettings().cache_dir, free, known)


def test_an_outlook_says_what_its_rates_are_made_from(disk):
    usual = Measured(USUAL.name, "nf4", CostProfile(((1, 0.005), (9, 0.01)), 0.0005))
    own = Measured(LARGER.name, "nf4", CostProfile(((1, 0.05), (9, 0.1)), 0.005))
    nothing, scaled, measured = looked([]), looked([usual]), looked([own, usual])
    assert (nothing.plain, nothing.drafted, nothing.measured) == (None, None, False)
    ratio = pass_bytes(LARGER.target, Way("nf4")) / pass_bytes(USUAL.target, Way("nf4"))
    assert scaled.plain == pytest.approx(200 / ratio)
    assert scaled.drafted > scaled.plain
    assert not scaled.measured
    slow = Measured(USUAL.name, "nf4", CostProfile(((1, 0.3), (9, 0.4))))  # through another pass
    assert looked([slow, usual]) == looked([usual, slow]) == scaled
    assert (measured.plain, measured.measured) == (pytest.approx(20), True)
    assert looked([Measured("unknown", "nf4", own.profile)]).plain is None
    assert looked([Measured(LARGER.name, "bf16", own.profile)]).measured is False
    assert (nothing.download, nothing.fits) == (14, True)
    disk |= {LARGER.target.name}
    assert looked([]).download == 7
    assert not looked([], free=GB).fits


def test_the_size_of_a_download_is_known_before_it(monkeypatch, disk, tmp_path):
    monkeypatch.setattr(
        outlook.hub, "cached_folder", lambda repo, _: tmp_path if repo == "a/here" else None
    )
    name = LARGER.name
    assert to_download(name, "auto", Way("nf4"), tmp_path) == 14
    assert to_download(name, "none", Way("nf4"), tmp_path) == 7
    disk |= {LARGER.target.name, LARGER.draft.name}
    assert to_download(name, "auto", Way("nf4"), tmp_path) == 0
    assert to_download("a/here", "auto", Way("nf4"), tmp_path) == 0
    assert to_download("a/model", "auto", Way("nf4"), tmp_path) is None
    assert to_download(str(tmp_path), "none", Way("nf4"), tmp_path) == 0


def found(name, parameters, tokenizer="same"):
    sizes = {"token_embd.weight": parameters // 10, "output_norm.weight": parameters * 9 // 10}
    tensors = {key: StoredTensor((int(size),), 0, 0) for key, size in sizes.items()}
    header = Header({"general.architecture": "llama"}, tensors, name, tokenizer)
    return FoundModel(f"/models/{name}.gguf", "LM Studio", Path(name), header)


@pytest.mark.usefixtures("disk")
@pytest.mark.parametrize(
    ("rate", "others", "draft"),
    [
        (20, [found("small", 3e8), found("tiny", 2e8)], "/models/tiny.gguf"),
        (20, [found("small", 3e8, "other")], None),
        (20, [found("half", 1.2e9)], None),
        (None, [found("small", 3e8)], "/models/small.gguf"),
    ],
)
def test_suggest_proposes_the_draft_model_with_the_best_forecast(rate, others, draft):
    target = found("target", 2e9)
    known = timed(rate) if rate else []
    seen = outlook.suggest(target, [target, *others], partial(looked, known))
    assert (seen and seen.draft) == draft
    if seen:
        assert f"run --target /models/target.gguf --draft {draft} PROMPT" in str(seen)
        assert ("modelled" in str(seen)) == (rate is not None)


def test_suggest_offers_a_catalogue_model_with_the_same_tokenizer(disk):
    entry = find("qwen2.5-coder-0.5b-instruct")
    target = found("target", 8e9, entry.tokenizer)
    disk.add(target.name)
    for here in (False, True):
        disk |= {entry.name} if here else set()
        seen = outlook.suggest(target, [], partial(looked, timed(20)))
        assert seen.draft == entry.name
        assert seen.speedup > outlook.WORTH_PROPOSING
        assert ("downloads" in str(seen)) == (not here)
