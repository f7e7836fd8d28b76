"""The stopping rule, compared with the rate that it maximises."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import PROFILE

from specdemo.drafters.policies.rule import GROUP_TOKENS, StoppingRule
from specdemo.engine.cost import Costs, best_count, best_rate, pays, survival_floors


@pytest.mark.parametrize("gain", [0.01, 0.2, 0.21, 0.9])
@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.5])
def test_pays_exactly_if_the_addition_raises_the_rate(gain, seconds):
    tokens, duration = 2.0, 1.0
    faster = (tokens + gain) / (duration + seconds) > tokens / duration
    assert pays(gain, seconds, tokens / duration) == faster


def test_best_count_lets_later_rows_pay_for_an_expensive_one():
    survivals = [0.9, 0.8, 0.7, 0.1]
    assert best_count(survivals, [1.5, 1.5, 1.5, 2.5], rate=1.0) == 3
    assert best_count(survivals, [1.5, 3.0, 4.5, 6.0], rate=1.0) == 0
    assert best_count([], [], rate=1.0) == 0


def test_survival_floors_are_those_of_the_cheapest_group():
    floors = survival_floors(np.array([[1.0, 1.0], [0.1, 1.0]]), chance=0.5, rate=2.0)
    assert floors == pytest.approx([2 * 1.0 / 0.75, 2 * 0.1 / 0.5])


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
