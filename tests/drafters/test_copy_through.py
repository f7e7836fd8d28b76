"""Copy-through: copies after the tokens of another drafter, as many as pay; each part learns from its own outcomes."""

import pytest
from conftest import PROFILE, drafter_for, open_draft, run_lane
from lanes import Always, Scripted
from outcomes import judged

from specdemo.config.settings import Sampling
from specdemo.drafters.auto import Auto
from specdemo.drafters.copies import NGRAM
from specdemo.drafters.copy_through import Arm, CopyThrough, Through
from specdemo.drafters.memory.automaton import SuffixAutomaton
from specdemo.drafters.policies.calibration import Calibration
from specdemo.engine.cost import CostProfile, Costs
from specdemo.engine.types import Proposal
from specdemo.trace.events import Drafted, Origin, Reason

TEXT = [1, 2, 3, 4, 5, 6, 7, 8, 9, 1]
FREE = CostProfile(((1, 0.01), (64, 0.0101)), 0.001)
DEAR = CostProfile(((1, 0.01), (64, 0.64)), 0.001)
STEP = CostProfile(((1, 0.01), (3, 0.0101), (64, 0.64)), 0.001)  # free up to two drafted tokens


def says(*token_ids):
    return Always(token_ids, 0.95, lookahead=4)


def behind(model, profile=FREE, most=None):
    costs = Costs(profile)
    arm, calibration = Arm("draft_model", model), Calibration(NGRAM.prior.greedy)
    drafter = CopyThrough(arm, Through(SuffixAutomaton(), calibration, costs, most))
    drafter.start(TEXT)
    return drafter


def test_the_text_that_followed_the_end_of_a_draft_is_copied_behind_it():
    proposal = behind(says(2, 3)).propose(TEXT, 30)
    assert proposal.token_ids[:8] == (2, 3, 4, 5, 6, 7, 8, 9)
    assert proposal.chained
    assert proposal.source == "copy_through"
    assert proposal.lookahead == 4 + len(proposal) - 2
    copied = {"count": len(proposal) - 2, "drafted": 2, "distance": 7}
    assert Reason("copied", copied) in proposal.reasons
    assert list(proposal.survivals) == sorted(proposal.survivals, reverse=True)
    assert proposal.expected_tokens == pytest.approx(1 + sum(proposal.survivals))
    assert behind(says(2, 3)).propose(TEXT, 4).token_ids == (2, 3, 4, 5)
    assert behind(says(2, 3), most=3).propose(TEXT, 30).token_ids == (2, 3, 4, 5, 6)


@pytest.mark.parametrize("drafted", [(3, 2), (8,), ()])
def test_a_draft_whose_end_never_occurred_stays_unchanged(drafted):
    drafter = behind(says(*drafted))
    alone = drafter.model.propose(TEXT, 30, drafter.through.costs)
    assert drafter.propose(TEXT, 30) == alone


def test_a_draft_that_fills_its_budget_or_is_long_stays_what_it_is():
    assert behind(says(2, 3)).propose(TEXT, 2).token_ids == (2, 3)
    assert behind(says(*[2, 3] * 15)).propose(TEXT, 60).token_ids == (2, 3) * 15


def test_nothing_is_copied_behind_a_tree():
    tree = Proposal((2, 3), (-1, -1), confidences=(0.9, 0.9))
    proposal = behind(Scripted(lambda *_: tree)).propose(TEXT, 30)
    assert proposal.token_ids == tree.token_ids


def test_copies_alone_where_nothing_was_drafted_are_those_of_the_text():
    drafter, text = behind(says()), [*TEXT, 2, 3]
    proposal = drafter.propose(text, 30)
    assert proposal.token_ids[:3] == (4, 5, 6)
    assert (proposal.source, proposal.draft_probs) == ("ngram", None)


def test_as_many_tokens_are_copied_as_pay_for_their_rows():
    free, dear = (len(behind(says(2, 3), profile).propose(TEXT, 30)) for profile in (FREE, DEAR))
    assert free > dear == 2
    # A position that is unlikely to be reached is not worth a row, however good the copy.
    unsure = says(2, 3)
    drafter = behind(unsure, PROFILE)
    sure = len(drafter.propose(TEXT, 30))
    for _ in range(40):
        drafted = drafter.model.propose(TEXT, 2, drafter.through.costs)
        drafter.model.calibration.observe(judged(drafted, 0, 0.002))
    assert len(drafter.propose(TEXT, 30)) < sure


@pytest.mark.parametrize("kept", [0, 1, 2, 5])
def test_model_and_copier_learn_each_from_its_own_part(kept):
    model = says(2, 3)
    drafter = behind(model, most=4)
    copies = drafter.through.calibration.mean
    drafter.observe(judged(drafter.propose(TEXT, 30), kept, 0.002))
    (heard,) = model.outcomes
    assert heard.proposal.token_ids == (2, 3)
    assert heard.verdict.path == tuple(range(min(kept, 2)))
    assert len(heard.verdict.accept_probs) == 2
    mean = drafter.through.calibration.mean
    if kept < 2:  # no copy was tested
        assert mean == copies
    else:
        assert (mean > copies) == (kept > 2)


def test_a_draft_marks_drawn_and_copied_tokens(target_weights, draft_weights):
    drafter = drafter_for(
        "copy_through", open_draft(draft_weights), sampling=Sampling(0.8, seed=1), policy="constant",
        lookahead=2,
    )  # fmt: skip
    events = run_lane(
        target_weights, drafter, [5, 6, 7, 8] * 8, sampling=Sampling(0.8, seed=1), max_new_tokens=60
    )
    drafts = [event.nodes for event in events if isinstance(event, Drafted)]
    mixed = [nodes for nodes in drafts if {node.origin for node in nodes} == set(Origin)]
    assert mixed
    for first, second, *copies in mixed:
        assert None not in (first.draft_prob, second.draft_prob)
        assert all(node.draft_prob is None for node in copies)


def auto_behind(model, profile):
    """`auto` with a model that drafts, and copies after its drafts."""
    costs = Costs(profile)
    through = Through(SuffixAutomaton(), Calibration(NGRAM.prior.greedy), costs)
    through.automaton.begin(TEXT)
    chooser = Auto([], Arm("draft_model", model), costs, through)
    chooser.start(TEXT)
    return chooser


def test_auto_copies_on_behind_its_model_where_rows_pay():
    free, step = (auto_behind(says(2, 3), profile) for profile in (FREE, STEP))
    proposal = free.propose(TEXT, 30)
    assert proposal.token_ids[:6] == (2, 3, 4, 5, 6, 7)
    assert proposal.source == "copy_through"
    assert proposal.expected_tokens > 3
    assert step.propose(TEXT, 30).source == "draft_model"
    free.costs.join(8)  # runs in whose company no row is free
    free.costs.profile = STEP
    assert "copy_through" not in {free.propose(TEXT, 30).source for _ in range(3)}


@pytest.mark.parametrize("kept", [1, 4])
def test_auto_s_model_learns_from_its_own_share_of_a_step(kept):
    model = says(2, 3)
    chooser = auto_behind(model, FREE)
    proposal = chooser.propose(TEXT, 30)
    record = chooser.model.record
    record.seen = 1
    chooser.observe(judged(proposal, kept, 0.002))
    assert model.outcomes[0].proposal.token_ids == (2, 3)
    assert model.outcomes[0].verify_seconds < 0.01  # cost of a pass without the copies
    assert (record.tokens, record.drafted) == pytest.approx((1 + min(2, kept), 2))
