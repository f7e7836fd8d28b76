"""Policies, prompt lookup and fallback: their decisions, and that they never change the text."""

from __future__ import annotations

import pytest
from conftest import PROFILE

from specdemo.config.errors import UserError
from specdemo.config.settings import RunSettings, Sampling
from specdemo.drafters.base import DraftingContext
from specdemo.drafters.methods import make_drafter
from specdemo.drafters.policies.calibration import Calibration
from specdemo.drafters.policies.guard import Fallback, survivals
from specdemo.drafters.policies.lookahead import Confidence, Constant, CostAware, Heuristic
from specdemo.engine.clock import Sharing
from specdemo.engine.cost import CostProfile, Costs
from specdemo.engine.sampling import Shaper
from specdemo.engine.types import Drafter, Outcome, Proposal, Verdict
from specdemo.trace.events import Reason, Status


def outcome(confidences, kept, *, seconds=0.01):
    """A chain of which the first `kept` tokens were accepted."""
    proposal = Proposal.chain(range(len(confidences)), confidences=tuple(confidences))
    tested = min(kept + 1, len(confidences))
    chances = tuple([1.0] * kept + [0.0] * (tested - kept) + [None] * (len(confidences) - tested))
    verdict = Verdict(tuple(range(kept)), 9, Status.BONUS, chances)
    return Outcome((*range(kept), 9), proposal, verdict, seconds / 2, seconds / 2)


def test_constant_never_moves():
    policy = Constant(4)
    policy.observe(outcome([0.1] * 4, 0))
    assert policy.allowed([1]) == 4
    assert policy.go_on(0.0)


def test_heuristic_grows_by_two_and_shrinks_by_one_down_to_one():
    policy = Heuristic(5)
    policy.observe(outcome([0.9] * 5, 5))
    assert policy.allowed([1]) == 7
    for _ in range(20):
        policy.observe(outcome([0.9] * 3, 1))
    assert policy.allowed([1]) == 1
    policy.observe(outcome([], 0))
    assert policy.allowed([1]) == 1


def test_confidence_stops_below_its_threshold_and_the_threshold_adapts():
    policy = Confidence(0.4)
    assert policy.go_on(0.4)
    assert not policy.go_on(0.39)
    for _ in range(40):  # everything above .2 is accepted, everything below rejected
        policy.observe(outcome([0.9, 0.25, 0.15], 2))
    assert not policy.go_on(0.15)
    assert policy.go_on(0.25)
    for _ in range(200):  # now only very confident ones are accepted
        policy.observe(outcome([0.95, 0.8], 1))
    assert not policy.go_on(0.8)
    assert policy.go_on(0.95)
    assert policy.reason == Reason("confidence", {"threshold": policy.threshold})


class Guess(Drafter):
    """Proposes one token each time."""

    def propose(self, committed, budget):
        return Proposal.chain([1], confidences=(0.5,), lookahead=1, reasons=(Reason("guess"),))


def step(drafter, drafting_seconds, plain_seconds, kept):
    proposal = drafter.propose([1], 4)
    seconds = drafting_seconds if len(proposal) else plain_seconds
    result = outcome([0.5] * len(proposal), kept if len(proposal) else 0, seconds=seconds)
    drafter.observe(result)
    return proposal


def test_cost_aware_drafts_on_only_while_it_pays():
    """Five rows cost a fifth more than one and a draft step a tenth: sure tokens pay, doubtful ones do not."""
    costs, calibration = Costs(PROFILE), Calibration()
    policy = CostAware(8, costs, calibration)
    assert policy.allowed([1]) == 8
    assert policy.go_on(0.95)
    assert policy.go_on(0.95)
    policy.allowed([1])
    for _ in range(200):  # no token is ever accepted
        calibration.observe(outcome([0.3], 0))
    assert not policy.go_on(0.3)
    assert policy.reason.code == "cost_stop"


def test_cost_aware_asks_more_of_a_draft_when_the_run_is_fast():
    def drafted(costs):
        policy = CostAware(30, costs, Calibration())
        policy.allowed([1])
        count = 1
        while count < 30 and policy.go_on(0.7):
            count += 1
        return count

    slow, fast = Costs(PROFILE), Costs(PROFILE)
    for _ in range(100):
        fast.observe(outcome([0.9] * 4, 4, seconds=0.02))
    assert drafted(fast) < drafted(slow)


def test_cost_aware_fills_a_step_of_the_ladder_before_it_takes_the_next():
    """A pass over 1 to 4 rows costs 10 ms, one over 5 to 8 rows 20 ms: the fourth token starts a stage, the fifth is nearly free."""
    stairs = tuple((rows, 0.01 * (1 + (rows - 1) // 4)) for rows in range(1, 18))
    policy = CostAware(12, Costs(CostProfile(stairs, 0.0005)), Calibration())
    policy.allowed([1])
    floors = policy.rule.numbers[-12:].tolist()  # by tokens that have been drafted
    for full in (3, 7, 11):
        before, after = floors[full - 2], floors[full]
        assert floors[full - 1] > 2 * max(before, after)


def test_calibration_learns_what_a_confidence_is_worth():
    calibration = Calibration()
    before = calibration.chance(0.35)
    for _ in range(60):
        calibration.observe(outcome([0.35], 1))
        calibration.observe(outcome([0.95], 0))
    assert calibration.chance(0.35) > 0.9 > before
    assert calibration.chance(0.95) < 0.1
    assert calibration.chance(None) == pytest.approx(0.5, abs=0.05)


def test_siblings_share_what_is_left():
    class Half(Calibration):
        def chance(self, confidence, *, sibling=False):
            return 0.5

    tree = Proposal((1, 2, 3), (-1, -1, 0), confidences=(0.5, 0.5, 0.5))
    assert survivals(tree, Half()) == [0.5, 0.25, 0.25]


PLAIN_COSTS = CostProfile(((1, 0.010), (8, 0.013)))


def test_fallback_rests_while_drafting_loses_probes_again_and_says_so():
    drafter = Fallback(Guess(), Costs(PLAIN_COSTS))
    drafter.start([1])
    steps = [step(drafter, 0.030, 0.010, 0) for _ in range(400)]
    drafted = [place for place, proposal in enumerate(steps) if len(proposal)]
    assert drafted[0] == 0
    assert len(drafted) < 12
    assert drafted[-1] > 200  # it tries again
    rested = next(proposal for proposal in steps if not len(proposal)).reasons[0]
    assert rested.code == "fallback_rest"
    assert rested.values["drafting_seconds"] == pytest.approx(0.030)
    assert rested.values["plain_seconds"] == pytest.approx(0.010)
    drafter.start([1])
    assert len(drafter.propose([1], 4)) == 1


def test_fallback_leaves_a_winner_alone():
    drafter = Fallback(Guess(), Costs(PLAIN_COSTS))
    drafter.start([1])
    steps = [step(drafter, 0.012, 0.010, 1) for _ in range(200)]
    assert sum(not len(proposal) for proposal in steps) == 0


def test_a_method_that_is_unknown_or_lacks_its_draft_is_a_sentence():
    for method, match in (
        ("nonsense", "no drafting method"),
        ("draft_model", "needs a draft model"),
        ("retrieval", "needs a datastore"),
        ("quantised_self", "whose 4-bit copy drafts"),
    ):
        settings = RunSettings(method=method)
        with pytest.raises(UserError, match=match):
            make_drafter(DraftingContext(settings, Shaper(Sampling()), 8))


def test_fallback_in_company_counts_what_a_step_takes_if_all_did_the_same():
    """A pass that seven others share takes as long whether this run drafts or not: by that alone it would never rest."""
    costs = Costs(CostProfile(((1, 0.007), (8, 0.019), (16, 0.033)), 0.001), together=8)
    drafter = Fallback(Guess(), costs)
    rests = 0
    for _ in range(40):
        proposal = drafter.propose([1], 8)
        rests += not len(proposal)
        verdict = Verdict((), 9, Status.CORRECTION, (0.0,) * len(proposal))
        drafter.observe(Outcome((9,), proposal, verdict, 0.0, 0.019, Sharing(8, 8)))
    assert rests > 20
