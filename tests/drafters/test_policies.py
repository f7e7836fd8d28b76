"""Policies, the stopping rule and fallback: their decisions, compared with the rates that they maximise."""

import pytest
from conftest import PROFILE
from lanes import Always
from outcomes import chain, judged

from specdemo.config.errors import UserError
from specdemo.config.settings import COUPLED, TOKEN, RunSettings, Sampling
from specdemo.drafters.base import DraftingContext
from specdemo.drafters.methods import METHODS, make_drafter
from specdemo.drafters.policies.calibration import Calibration
from specdemo.drafters.policies.guard import Fallback, survivals
from specdemo.drafters.policies.lookahead import Confidence, Constant, CostAware, Heuristic
from specdemo.drafters.policies.rule import GROUP_TOKENS, StoppingRule
from specdemo.engine.clock import Sharing
from specdemo.engine.cost import CostProfile, Costs, best_rate, pays
from specdemo.engine.sampling import Shaper
from specdemo.engine.types import Proposal
from specdemo.trace.events import Reason


def test_constant_never_moves():
    policy = Constant(4)
    policy.observe(chain([0.1] * 4, 0))
    assert policy.allowed([1]) == 4
    assert policy.go_on(0.0)


def test_heuristic_grows_by_two_and_shrinks_by_one_down_to_one():
    policy = Heuristic(5)
    policy.observe(chain([0.9] * 5, 5))
    assert policy.allowed([1]) == 7
    for _ in range(20):
        policy.observe(chain([0.9] * 3, 1))
    assert policy.allowed([1]) == 1
    policy.observe(chain([], 0))
    assert policy.allowed([1]) == 1


def test_confidence_stops_below_its_threshold_and_the_threshold_adapts():
    policy = Confidence(0.4)
    assert policy.go_on(0.4)
    assert not policy.go_on(0.39)
    for _ in range(40):  # everything above .2 is accepted, everything below rejected
        policy.observe(chain([0.9, 0.25, 0.15], 2))
    assert not policy.go_on(0.15)
    assert policy.go_on(0.25)
    for _ in range(200):  # now only very confident ones are accepted
        policy.observe(chain([0.95, 0.8], 1))
    assert not policy.go_on(0.8)
    assert policy.go_on(0.95)
    assert policy.reason == Reason("confidence", {"threshold": policy.threshold})


def test_cost_aware_drafts_on_only_while_it_pays():
    """Five rows cost a fifth more than one and a draft step a tenth: sure tokens pay, doubtful ones do not."""
    costs, calibration = Costs(PROFILE), Calibration()
    policy = CostAware(8, costs, calibration)
    assert policy.allowed([1]) == 8
    assert policy.go_on(0.95)
    assert policy.go_on(0.95)
    policy.allowed([1])
    for _ in range(200):  # no token is ever accepted
        calibration.observe(chain([0.3], 0))
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
        fast.observe(chain([0.9] * 4, 4, 0.01, 0.01))
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
        calibration.observe(chain([0.35], 1))
        calibration.observe(chain([0.95], 0))
    assert calibration.chance(0.35) > 0.9 > before
    assert calibration.chance(0.95) < 0.1
    assert calibration.chance(None) == pytest.approx(0.5, abs=0.05)


def test_siblings_share_the_remaining_chance():
    class Half(Calibration):
        def chance(self, confidence, *, sibling=False):
            return 0.5

    tree = Proposal((1, 2, 3), (-1, -1, 0), confidences=(0.5, 0.5, 0.5))
    assert survivals(tree, Half()) == [0.5, 0.25, 0.25]


def test_fallback_rests_while_drafting_loses_probes_again_and_says_so():
    costs = Costs(CostProfile(((1, 0.010), (8, 0.013))))
    drafter = Fallback(Always([1], 0.5), costs)
    drafter.start([1])
    steps = []
    for _ in range(400):
        steps.append(drafter.propose([1], 4))
        seconds = 0.030 if len(steps[-1]) else 0.010
        drafter.observe(judged(steps[-1], 0, seconds / 2, seconds / 2))
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


def test_the_first_forecast_of_a_drawn_token_depends_on_the_rule():
    def chance(method, rule, temperature=0.7):
        sampling = Sampling(temperature)
        settings = RunSettings(method=method, sampling=sampling, verification=rule)
        prior = METHODS[method].prior
        context = DraftingContext(settings, Shaper.of(settings), 8, prior=prior)
        return context.calibration.chance(0.3)

    assert chance("draft_model", COUPLED) < chance("draft_model", TOKEN) - 0.1
    assert chance("draft_model", COUPLED, 0.0) == chance("draft_model", TOKEN, 0.0)
    assert chance("ngram", COUPLED) == chance("ngram", TOKEN)


def test_fallback_in_company_counts_what_a_step_takes_if_all_did_the_same():
    """A pass that seven others share takes as long whether this run drafts or not: by that alone it would never rest."""
    costs = Costs(CostProfile(((1, 0.007), (8, 0.019), (16, 0.033)), 0.001), together=8)
    drafter = Fallback(Always([1], 0.5), costs)
    rests = 0
    for _ in range(40):
        proposal = drafter.propose([1], 8)
        rests += not len(proposal)
        drafter.observe(judged(proposal, 0, 0.0, 0.019, Sharing(8, 8)))
    assert rests > 20


@pytest.mark.parametrize("gain", [0.01, 0.2, 0.21, 0.9])
@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.5])
def test_pays_exactly_if_the_addition_raises_the_rate(gain, seconds):
    tokens, duration = 2.0, 1.0
    faster = (tokens + gain) / (duration + seconds) > tokens / duration
    assert pays(gain, seconds, tokens / duration) == faster


@pytest.mark.parametrize(
    ("seconds", "count"),
    [((1, 2.5, 2.5, 2.5, 3.5), 3), ((1, 2.5, 4, 5.5, 7), 0)],  # seconds of passes over 1 to 5 rows
)
def test_later_copies_pay_for_an_expensive_row(seconds, count):
    rule = StoppingRule(Costs(CostProfile(tuple(enumerate(seconds, 1)))))
    assert rule.copies([0.9, 0.8, 0.7, 0.1], drafted=0) == count
    assert rule.copies([], drafted=0) == 0


def test_a_chain_continues_above_the_price_of_its_cheapest_group():
    seconds = enumerate((1, 2, 3, 3, 4, 5, 6), 1)  # passes over 1 to 7 rows
    floors = StoppingRule(Costs(CostProfile(tuple(seconds)))).chain_floors(2, 0.5, 0.1)
    # The second row after one drafted token costs nothing, nor does the first one after two.
    assert floors == pytest.approx([(2 * 0.1 + 1) / 0.75, 0.1 / 0.5])


def test_best_rate_is_the_fastest_length():
    chances = [0.8, 0.5, 0.1]
    rates = [1 / 1.0, 1.8 / 1.2, 2.2 / 1.4, 2.24 / 1.6]
    for lengths in ([0], [0, 1], range(4)):
        expected = max(rates[length] for length in lengths)
        assert best_rate(chances, lambda n: 1 + 0.2 * n, lengths) == pytest.approx(expected)


def test_stopping_rule_decides_by_the_costs_of_the_run():
    """A node, a position of a block, a chain and copies agree on where one row is not worth its time."""
    costs = Costs(PROFILE)
    rule = StoppingRule(costs)
    row = min(costs.row_seconds(1, more) / more for more in range(1, GROUP_TOKENS + 1))
    worth = costs.rate() * row
    assert rule.node_pays(0.0, nodes=0)
    assert rule.node_pays(1.01 * worth, nodes=1)
    assert not rule.node_pays(0.99 * worth, nodes=1)
    assert not rule.node_pays(1.01 * worth, nodes=1, reading_seconds=0.01)
    assert rule.chain_floors(3, 1.0, 0.0)[0] == pytest.approx(worth)
    assert rule.chain_floors(3, 1.0, 0.002)[0] > worth
    own = 1.5 / (costs.draft_step + costs.verify_seconds(1))
    assert rule.position_pays(1.01 * own * costs.row_seconds(1), 1, 1.5)
    assert not rule.position_pays(0.99 * own * costs.row_seconds(1), 1, 1.5)
    assert rule.copies([0.9, 0.8, 0.001], drafted=2) == 2
    expected = 1.9 / (costs.verify_seconds(1) + 0.002) * costs.verify_seconds(0)
    assert rule.speedup([1], 0.9, 0.002) == pytest.approx(expected)
