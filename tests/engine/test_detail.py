"""The detail of a step reports the compared values and changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from conftest import bound_target, drafter_for, header

from specdemo.config.settings import Sampling
from specdemo.engine.loop import generate
from specdemo.engine.sampling import Shaper
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Limits
from specdemo.trace.codec import decode, encode
from specdemo.trace.events import Status, Verified

PROMPT = [5, 6, 7, 5, 6, 7, 5, 6, 11, 30, 2, 17]


def verified(target_weights, draft_weights, method, sampling, detail):
    drafter = drafter_for(method, CachedModel(draft_weights), sampling=sampling, policy="constant")
    events = generate(
        bound_target(drafter) or CachedModel(target_weights), drafter, PROMPT,
        shaper=Shaper(sampling), limits=Limits(40), started=header(), detail=detail,
    )  # fmt: skip
    return [event for event in events if isinstance(event, Verified)]


def timeless(event):
    times = dict.fromkeys(
        ("draft_seconds", "verify_seconds", "overhead_seconds", "elapsed_seconds"), 0
    )
    return replace(event, places=None, **times)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("method", ["draft_model", "tree", "ngram", "nothing", "jet", "block"])
def test_it_changes_nothing_and_is_told_of_each_place_reached(
    target_weights, draft_weights, method, temperature
):
    sampling = Sampling(temperature)
    told = verified(target_weights, draft_weights, method, sampling, 64)
    silent = verified(target_weights, draft_weights, method, sampling, 0)
    assert all(event.places is None for event in silent)
    assert [timeless(event) for event in told] == [timeless(event) for event in silent]
    for event in told:
        assert [place.after for place in event.places] == [-1, *event.path]
        assert decode(encode(event)).places is not None
        last = event.places[-1]
        if event.next is not None:
            own = {choice.token_id: choice.prob for choice in last.target}
            assert own[event.next.token_id] == pytest.approx(event.next.target_prob, rel=1e-4)
        for place in event.places:
            for part in (place.target, place.draft, place.residual):
                probs = [choice.prob for choice in part]
                assert probs == sorted(probs, reverse=True)
                assert not part or sum(probs) == pytest.approx(1, abs=1e-3)
            children = [node for node in event.nodes if node.parent == place.after]
            assert not (place.draft and not children)
            if place.draft:
                assert method != "ngram"
                drawn = {choice.token_id: choice.prob for choice in place.draft}
                first = children[0]
                assert drawn[first.token_id] == pytest.approx(first.confidence, rel=1e-3)


def test_the_residual_is_what_is_left_of_the_target(target_weights, draft_weights):
    told = verified(target_weights, draft_weights, "draft_model", Sampling(1.0), 64)
    corrected = [e for e in told if e.next is not None and e.next.status is Status.CORRECTION]
    assert corrected
    for event in told:
        assert bool(event.places[-1].residual) == (event in corrected)
    for event in corrected:
        place = event.places[-1]
        rows = [torch.zeros(64), torch.zeros(64)]
        for row, part in zip(rows, (place.target, place.draft), strict=True):
            for choice in part:
                row[choice.token_id] = choice.prob
        left = (rows[0] - rows[1]).clamp(min=0)
        left /= left.sum()
        for choice in place.residual:
            assert choice.prob == pytest.approx(float(left[choice.token_id]), abs=1e-4)


def test_only_the_likeliest_are_kept(target_weights, draft_weights):
    told = verified(target_weights, draft_weights, "draft_model", Sampling(1.0), 3)
    assert all(len(place.target) == 3 for event in told for place in event.places)
