"""DSpark's counter-example: stopping is exact, looking back gives .85 / .15, by listing and by running."""

from fractions import Fraction

import pytest
import torch
from lanes import Scripted

from specdemo.bench.results import markdown
from specdemo.bench.wrong_rules import (
    TARGET,
    Control,
    Draws,
    after_unlikely,
    as_row,
    bugs,
    controls,
    first_non_improvement,
    first_word,
    p_of,
    schedulers,
)
from specdemo.cli.commands.bench import counterexample_table
from specdemo.drafters.draft_model import LookBack
from specdemo.engine.types import Proposal

LOOKED_BACK = (Fraction(17, 20), Fraction(3, 20))


def test_the_non_improvement_lies_inside_the_lookahead():
    """Else the scheduler would be a constant and prove nothing."""
    assert [first_non_improvement([0] * count) for count in range(4)] == [True, True, True, False]
    assert first_word(lambda _drawn: False) == TARGET  # without a draft


def test_the_real_loop_gives_what_was_listed():
    rules = list(schedulers())
    rows = [rule.run(1_000) for rule in rules]
    assert [rule.exact for rule in rules] == [TARGET, TARGET, LOOKED_BACK]
    assert [rule.lossless for rule in rules] == [True, True, False]
    assert all(p_of(row, rule.exact) > 0.001 for rule, row in zip(rules, rows, strict=True))
    assert p_of(rows[2], TARGET) < 1e-12
    table = markdown(counterexample_table(list(zip(rules, rows, strict=True)))).splitlines()
    assert len(table) == 5
    assert [rule.needed for rule in rules] == [None, None, 139]
    assert table[-1].startswith("| look back")
    assert "0.85 / 0.15" in table[-1]


def test_both_bugs_are_enumerated_found_and_need_as_many_tokens_as_listed():
    shared, reported = bugs()
    assert shared.exact == (Fraction(1, 10), Fraction(61, 135), Fraction(121, 270))
    for rule, runs, needed in ((shared, 1_500, 1441), (reported, 600, 556)):
        row = rule.run(runs)
        assert p_of(row, rule.exact) > 0.001 > p_of(row, rule.target)
        assert rule.needed == needed
    assert all(control.found(1e-5) for control in controls())
    assert not Control("", 1, 0.3, 0.5).found(1e-5)


def test_the_winner_of_the_draft_changes_who_wins_in_the_rest_as_listed():
    """Runs in which token 0 won in the draft are counted. Without shared noise token 1 would win three of five of them."""
    shared, _ = bugs()
    rest = torch.tensor([0.3, 0.2])
    waits = torch.empty(2_000_000, 3).exponential_(generator=torch.Generator().manual_seed(1))
    refused = waits[(waits / as_row(shared.draft)).argmin(1) == 0]
    won = float(((refused[:, 1:] / rest).argmin(1) == 0).float().mean())
    assert won == pytest.approx(19 / 27, abs=0.002)
    assert float(shared.exact[1]) == pytest.approx(0.1 + 0.5 * won, abs=0.001)


def test_a_test_with_the_listed_number_of_tokens_finds_nine_of_ten_biases():
    generator = torch.Generator().manual_seed(1)
    for bug in bugs():
        exact = as_row(bug.exact).expand(300, -1)
        tokens = torch.multinomial(exact, bug.needed, replacement=True, generator=generator)
        counts = [one.bincount(minlength=len(bug.target)).tolist() for one in tokens]
        found = [p_of(one, bug.target) < 0.01 for one in counts]
        assert sum(found) / len(found) == pytest.approx(0.9, abs=0.05)


def test_look_back_reports_dropped_tokens_and_that_it_is_lossy():
    drafter = LookBack(Draws(after_unlikely, seed=1), 0.8)
    for _ in range(50):
        proposal = drafter.propose([0], 4)
        assert 1 not in proposal.token_ids[-1:]
        assert len(proposal.confidences) == len(proposal.draft_probs) == len(proposal)
        assert proposal.reasons[0].code == "look_back_lossy"


def test_look_back_drops_unsure_tokens_of_a_chosen_draft_and_stays_lossless():
    unsure = Proposal.chain(range(4), confidences=(0.9, 0.9, 0.1, 0.1), chosen=True)
    proposal = LookBack(Scripted(lambda *_: unsure), 0.5).propose([0], 4)
    assert tuple(proposal.token_ids) == (0, 1)
    assert proposal.reasons[0].code == "look_back"
