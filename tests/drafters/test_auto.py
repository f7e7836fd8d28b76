"""Auto: copy where a copy is likely right, draft where it pays, decode plainly where nothing does."""

from collections import Counter

import pytest
from conftest import PROFILE
from lanes import Always, Scripted
from outcomes import judged

from specdemo.drafters.auto import Auto
from specdemo.drafters.copy_through import Arm
from specdemo.drafters.policies.calibration import Calibration
from specdemo.drafters.policies.guard import Ledger, WithForecast
from specdemo.engine.clock import ALONE, Sharing
from specdemo.engine.cost import CostProfile, Costs
from specdemo.engine.types import Outcome, Proposal, Verdict
from specdemo.trace.events import Status


def guesses(count, confidence=0.8):
    return Always(range(count), confidence)


def live(drafter, costs, steps, kept, step_seconds, sharing=ALONE):
    """Run steps with made-up laps. kept: accepted tokens by source; step_seconds: one draft step by source."""
    drafter.start([1])
    sources = []
    for _ in range(steps):
        proposal = drafter.propose([1], 30)
        source = proposal.source
        sources.append(source)
        drafting = step_seconds.get(source, 0.0) * len(proposal)
        verifying = PROFILE.verify_seconds(1 + len(proposal))
        outcome = judged(proposal, kept.get(source, 0), drafting, verifying, sharing)
        drafter.observe(outcome)
        costs.observe(outcome)
    return sources


def auto(costs, **arms):
    copiers = [Arm("ngram", arms["ngram"])] if "ngram" in arms else []
    model = Arm("draft_model", arms["draft_model"]) if "draft_model" in arms else None
    return Auto(copiers, model, costs)


def test_auto_stays_with_a_model_that_pays():
    costs = Costs(PROFILE)
    chooser = auto(costs, draft_model=guesses(3))
    sources = live(chooser, costs, 100, {"draft_model": 3}, {"draft_model": 0.002})
    assert set(sources) == {"draft_model"}


def test_auto_judges_a_model_by_chances_not_by_luck():
    rates = []
    for path in ((0,), ()):
        chooser = auto(Costs(PROFILE), draft_model=guesses(1))
        chooser.start([1])
        verdict = Verdict(path, 99, Status.BONUS, (0.5,))
        proposal = chooser.propose([1], 30)
        chooser.observe(Outcome((*path, 99), proposal, verdict, 0.001, 0.01))
        rates.append(chooser.ledger.rate(chooser.model.record))
    assert rates[0] == rates[1] > 0


def test_auto_decodes_plainly_when_drafting_loses_and_says_why():
    costs = Costs(PROFILE)
    chooser = auto(costs, draft_model=guesses(6))
    sources = live(chooser, costs, 200, {"draft_model": 0}, {"draft_model": 0.004})
    assert Counter(sources[20:])["plain"] > 160
    assert "draft_model" in sources[100:]  # a trial now and then
    proposal = chooser.propose([1], 30)
    assert "plain" in proposal.reasons[0].values


def test_auto_takes_a_good_copy_and_drops_a_bad_one():
    costs = Costs(PROFILE)
    chooser = auto(costs, ngram=guesses(8, 0.9), draft_model=guesses(2))
    good = live(chooser, costs, 60, {"ngram": 8, "draft_model": 1}, {"draft_model": 0.002})
    assert Counter(good[10:])["ngram"] > 45
    chooser = auto(costs, ngram=guesses(8, 0.9), draft_model=guesses(2))
    bad = live(chooser, costs, 60, {"ngram": 0, "draft_model": 2}, {"draft_model": 0.002})
    assert Counter(bad[30:])["draft_model"] > 25


def test_auto_does_not_begin_a_model_that_company_makes_too_dear():
    costs, model = Costs(PROFILE, together=8), guesses(3)
    chooser = auto(costs, draft_model=model)
    assert set(live(chooser, costs, 5, {}, {}, Sharing(runs=8))) == {"plain"}
    assert not model.prompts
    costs.together = 1  # the others have ended
    assert chooser.propose([1, 2], 30).source == "draft_model"
    assert chooser.propose([1, 2], 30).source == "draft_model"
    assert model.prompts == [[1, 2]]


@pytest.mark.parametrize(("left", "reads"), [(4, False), (400, True)])
def test_auto_in_company_reads_a_long_text_only_for_an_answer_that_repays_it(left, reads):
    costs, model = Costs(ARITHMETIC, together=8), guesses(3)
    chooser = auto(costs, draft_model=model)
    text = list(range(300))
    chooser.start(text)
    costs.together = 2  # the others have ended
    for _ in range(5):
        chooser.propose(text, left)
    assert bool(model.prompts) == reads


ARITHMETIC = CostProfile(  # vectors of 256 bits: each further row takes its time
    ((1, 0.0066), (4, 0.0104), (8, 0.0189), (16, 0.0329), (32, 0.0609)),
    0.0012,
    draft_rows=((4, 0.0020), (8, 0.0034), (16, 0.0060), (32, 0.0110)),
)
NEARLY_FREE = CostProfile(  # tiles, or a GPU: reading the weights determines the time of a pass
    ((1, 0.0060), (8, 0.0063), (32, 0.0075), (64, 0.0090)),
    0.0008,
    draft_rows=((8, 0.0009), (32, 0.0012)),
)


def in_company(profile, runs):
    """A run of auto among others that do the same: tokens a second over plain decoding's, by the profile's own costs."""
    costs, model, copier = Costs(profile, runs), guesses(3), guesses(0)
    chooser = Auto([Arm("ngram", copier)], Arm("draft_model", model), costs)
    chooser.start([1])
    tokens = seconds = 0.0
    for _ in range(120):
        drafted = len(proposal := chooser.propose([1], 30))
        drafting = drafted * profile.draft_growth(runs) * profile.draft_step
        rows = runs * (1 + drafted)
        verifying = profile.verify_seconds(rows)
        outcome = judged(proposal, 2, drafting, verifying, Sharing(runs, rows))
        chooser.observe(outcome)
        costs.observe(outcome)
        tokens, seconds = tokens + len(outcome.new_ids), seconds + drafting + verifying
    return tokens / seconds * profile.verify_seconds(runs), len(model.texts), len(copier.texts)


@pytest.mark.parametrize("runs", [8, 30])
@pytest.mark.parametrize(
    ("profile", "gain", "fewest", "most"),
    [(ARITHMETIC, 0.98, 0, 0), (NEARLY_FREE, 1.3, 101, 120)],
    ids=["arithmetic", "nearly free"],
)
def test_auto_in_company_drafts_only_where_rows_are_nearly_free(profile, gain, fewest, most, runs):
    found, drafts, searches = in_company(profile, runs)
    assert found >= gain
    assert fewest <= drafts <= most
    assert fewest <= searches <= most  # for copies


def test_auto_follows_the_company_as_runs_come_and_go():
    """A run that drafts alone decodes plainly as soon as seven others share its passes, and drafts again after them."""
    costs, model = Costs(ARITHMETIC), guesses(3)
    chooser = auto(costs, draft_model=model)
    rates = {"draft_model": 2}
    sources = live(chooser, costs, 60, rates, {"draft_model": 0.0012})
    assert set(sources) <= {"draft_model", "plain"}
    assert sources.count("plain") <= 3  # passes cost twice the forecast: do plain ones, too?
    costs.observe(judged(Proposal(), 0, 0.0, 0.0189 * costs.scale, Sharing(8, 8)))
    sources = [chooser.propose([1], 30).source for _ in range(10)]
    assert set(sources) == {"plain"}
    costs.together = 1
    assert chooser.propose([1], 30).source == "draft_model"


def test_runs_that_started_while_the_prompt_was_read_are_counted():
    """A run starts alone; seven others have started before the draft model would read the prompt."""
    costs, model = Costs(ARITHMETIC), guesses(3)
    drafter = WithForecast(auto(costs, draft_model=model), costs, Calibration(), 0.0, lambda: 8)
    drafter.start([1, 2])
    assert not model.prompts
    assert drafter.propose([1, 2], 30).source == "plain"


def test_in_company_a_step_counts_for_what_it_would_take_if_all_did_the_same():
    costs = Costs(PROFILE, together=8)
    arm, ledger = Arm("draft_model", guesses(2)), Ledger(costs)
    proposal = arm.propose([1], 30, costs)
    verdict = Verdict((0,), 99, Status.BONUS, (0.5, 0.5))
    outcome = Outcome((0, 99), proposal, verdict, 0.001, 0.01, Sharing(runs=8))
    ledger.drafted_step(outcome, arm.record)
    assert proposal.expected_seconds == costs.verify_seconds(2) == PROFILE.verify_seconds(24)
    assert ledger.elapsed == pytest.approx(costs.verify_seconds(2) / costs.verify_seconds(0))


def test_auto_without_any_arm_is_plain_decoding():
    costs = Costs(PROFILE)
    assert set(live(Auto([], None, costs), costs, 5, {}, {})) == {"plain"}


def test_auto_copies_few_tokens_until_copies_have_gained():
    lengths = []

    def copy(_committed, budget):
        count = min(budget, 8)
        return Proposal.chain(range(count), confidences=(0.95,) * count)

    chooser = auto(Costs(PROFILE), ngram=Scripted(copy))
    chooser.start([1])
    for _ in range(5):
        proposal = chooser.propose([1], 30)
        lengths.append(len(proposal))
        chooser.observe(judged(proposal, 8, 0.0, PROFILE.verify_seconds(1 + len(proposal))))
    assert lengths == [3, 3, 3, 8, 8]
