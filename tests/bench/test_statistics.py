"""The statistics of the audit: right on known cases, calibrated under the null, awake to a shift."""

import pytest
import torch

from specdemo.bench.statistics import (
    chi_square_p,
    independence_p,
    overrated,
    transform,
    uniformity_p,
)


def uniforms(count, seed):
    return torch.rand(
        count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ).tolist()


@pytest.mark.parametrize(
    ("observed", "expected", "p"),
    [
        ([50, 50], [50, 50], 1.0),
        ([60, 40], [50, 50], 0.0455),  # one degree of freedom, statistic 4
        ([30, 20, 10], [20, 20, 20], 0.006738),  # two, statistic 10: exp(-5)
        # 1 + 1 + 1 is still below five, so the next smallest joins: 13 seen where 13 are expected
        ([3, 0, 0, 10, 50], [1, 1, 1, 10, 50], 1.0),
        ([20, 0, 0, 10, 50], [1, 1, 1, 10, 50], 0.0),
        ([100, 1], [101, 0], 0.0),  # an impossible cell is never pooled
        ([101, 0], [101, 0], 1.0),
        ([3], [3], 1.0),
    ],
)
def test_chi_square_on_known_cases(observed, expected, p):
    assert chi_square_p(observed, expected) == pytest.approx(p, abs=1e-5)


def test_too_few_samples_give_no_verdict():
    assert uniformity_p([]) == independence_p([]) == 1.0
    assert uniformity_p([0.1, 0.1, 0.2]) == independence_p([0.1, 0.9]) == 1.0


@pytest.mark.parametrize("count", [60, 960])
@pytest.mark.parametrize("test", [uniformity_p, independence_p])
def test_p_values_are_calibrated_under_the_null(test, count):
    ps = torch.tensor([test(uniforms(count, seed)) for seed in range(1_000)])
    for level in (0.01, 0.05, 0.25, 0.5, 0.75):
        share = float((ps <= level).double().mean())
        error = (level * (1 - level) / len(ps)) ** 0.5
        assert abs(share - level) < 4 * error + 0.01, (level, share)


def test_a_shift_is_detected():
    shifted = [value**0.8 for value in uniforms(960, 1)]
    assert uniformity_p(shifted) < 1e-4


def test_dependence_is_detected_where_each_value_alone_is_uniform():
    noise = uniforms(961, 2)
    # the fractional part of a sum with a uniform is uniform, and here close to its neighbour
    values = [0.0]
    for one in noise:
        values.append((values[-1] + 0.4 * one) % 1)
    assert uniformity_p(values[1:]) > 0.001
    assert independence_p(values[1:]) < 1e-9


def test_transform_on_the_example_and_on_ties():
    probs = torch.tensor([0.5, 0.3, 0.2])
    assert transform(probs, 1, 0.5) == pytest.approx(0.65)
    assert transform(probs, 0, 1.0) == pytest.approx(0.5)
    assert transform(torch.tensor([0.6, 0.4, 0.0]), 2, 0.3) == pytest.approx(1.0)
    tied = torch.tensor([0.25, 0.25, 0.25, 0.25])
    assert [transform(tied, token, 0.0) for token in range(4)] == [0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize(("drawn_from", "holds"), [(0, True), (1, False)])
def test_transformed_draws_are_uniform_only_under_the_right_distribution(drawn_from, holds):
    generator = torch.Generator().manual_seed(7)
    logits = torch.randn(2, 300, 50, generator=generator) * 2
    logits[1] = logits[0] * 1.3  # a little sharper than it should be
    probs = logits.softmax(-1)
    tokens = torch.multinomial(probs[drawn_from], 4, replacement=True, generator=generator)
    rows = probs[0].repeat_interleave(4, dim=0)
    draws = zip(rows, tokens.flatten().tolist(), uniforms(1_200, 8), strict=True)
    values = [transform(*draw) for draw in draws]
    assert (uniformity_p(values) > 0.01) is holds


def test_a_bias_towards_the_draft_shows_in_its_own_order():
    """The draft errs here one way and there the other: by probability that averages out."""
    generator = torch.Generator().manual_seed(11)
    logits = torch.randn(900, 50, generator=generator) * 2
    target = logits.softmax(-1)
    draft = (logits + torch.randn(900, 50, generator=generator) * 0.7).softmax(-1)
    leaning = 0.8 * target + 0.2 * draft

    def p_values(said):
        tokens = torch.multinomial(said, 1, generator=generator)[:, 0].tolist()
        rows = list(zip(target, tokens, uniforms(900, 12), draft, strict=True))
        by_probability = [transform(probs, token, uniform) for probs, token, uniform, _ in rows]
        by_draft = [
            transform(probs, token, uniform, overrated(probs, guess))
            for probs, token, uniform, guess in rows
        ]
        return uniformity_p(by_probability), uniformity_p(by_draft)

    assert min(p_values(target)) > 0.01
    assert p_values(leaning)[0] > 0.01
    assert p_values(draft)[1] < 1e-9


def test_tokens_that_the_target_rules_out_come_last_in_every_order():
    probs, draft = torch.tensor([0.6, 0.4, 0.0]), torch.tensor([0.1, 0.4, 0.5])
    rank = overrated(probs, draft)
    assert transform(probs, 1, 0.0, rank) == 0
    assert transform(probs, 0, 0.0, rank) == pytest.approx(0.4)
    assert transform(probs, 2, 0.5, rank) == pytest.approx(1.0)
