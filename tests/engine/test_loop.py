"""The loop: lossless for every drafter, cut at the limits, cancelled within a step, cache invariant kept."""

from __future__ import annotations

from dataclasses import replace
from itertools import zip_longest

import pytest
import torch
from conftest import VOCABULARY, header, reference_greedy, run_lane

from specdemo.drafters.base import METHODS, DraftingContext, make_drafter
from specdemo.drafters.nothing import Nothing
from specdemo.drafters.oracle import Scripted, always_right, always_wrong
from specdemo.engine.limits import Limits
from specdemo.engine.loop import generate
from specdemo.engine.prefix import PrefixReader
from specdemo.engine.sampling import Shaper, draw
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal, TargetOutput
from specdemo.settings import POLICIES, RunSettings, Sampling
from specdemo.trace.events import FinishReason, Status, Verified
from specdemo.trace.metrics import measure, output_ids

PROMPT = [5, 6, 7, 5, 6, 7, 5, 6, 11, 30, 2, 17]


def drafter_for(method, weights, *, sampling=None, **changes):
    settings = RunSettings(
        method=method, sampling=sampling or Sampling(), **{"fallback": False, **changes}
    )
    shaper = Shaper(settings.sampling)
    return make_drafter(
        DraftingContext(settings, shaper, VOCABULARY, PrefixReader(CachedModel(weights)))
    )


@pytest.mark.parametrize("lookahead", [1, 2, 4, 9])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("method", sorted(METHODS))
def test_greedy_output_is_that_of_transformers(
    target_weights, draft_weights, method, policy, lookahead
):
    drafter = drafter_for(method, draft_weights, policy=policy, lookahead=lookahead)
    events = run_lane(target_weights, drafter, PROMPT, max_new_tokens=48)
    assert output_ids(events) == reference_greedy(target_weights, PROMPT, 48)


@pytest.mark.parametrize("method", sorted(METHODS))
def test_greedy_output_with_a_repetition_penalty_is_that_of_transformers(
    target_weights, draft_weights, method
):
    """The penalty must see the right prefix at every drafted position, and be rolled back with it."""
    sampling = Sampling(repetition_penalty=1.3)
    events = run_lane(
        target_weights,
        drafter_for(method, draft_weights, sampling=sampling),
        PROMPT,
        sampling=sampling,
    )
    assert output_ids(events) == reference_greedy(
        target_weights, PROMPT, 40, repetition_penalty=1.3
    )


def test_oracles_prove_the_plumbing(target_weights):
    answer = PROMPT + reference_greedy(target_weights, PROMPT, 40)
    right = run_lane(target_weights, always_right(answer, 4), PROMPT, max_new_tokens=40)
    assert output_ids(right) == answer[len(PROMPT) :]
    assert measure(right).drafted_accept_rate == 1
    assert measure(right).steps == 8  # five tokens a step
    wrong = run_lane(target_weights, always_wrong(answer, 4, VOCABULARY), PROMPT, max_new_tokens=40)
    assert output_ids(wrong) == answer[len(PROMPT) :]
    assert measure(wrong).accepted == 0
    assert measure(wrong).steps == 40


def test_a_scripted_tree_is_lossless(target_weights):
    answer = PROMPT + reference_greedy(target_weights, PROMPT, 40)

    def tree(committed, budget):
        truth = answer[len(committed) : len(committed) + min(2, budget)]
        if len(truth) < 2:
            return Proposal()
        wrong = (truth[0] + 1) % VOCABULARY
        return Proposal((wrong, truth[0], wrong, truth[1]), (-1, -1, 1, 1))

    events = run_lane(target_weights, Scripted(tree), PROMPT, max_new_tokens=40)
    assert output_ids(events) == answer[len(PROMPT) :]
    assert (
        measure(events).steps == 14
    )  # thirteen whole trees of three tokens, and one step for the last


@pytest.mark.parametrize("stop_at", [3, 4, 5, 6, 7])
def test_an_answer_ends_inside_a_draft(target_weights, stop_at):
    answer = reference_greedy(target_weights, PROMPT, 40)
    stop = answer[stop_at]
    length = answer.index(stop) + 1
    target = CachedModel(target_weights)
    drafter = always_right(PROMPT + answer, 4)
    events = run_lane(target_weights, drafter, PROMPT, stop_ids=frozenset([stop]), target=target)
    assert output_ids(events) == answer[:length]
    assert events[-1].reason is FinishReason.STOP
    assert target.length == len(PROMPT) + length - 1  # the last id stays pending
    last = events[-2]
    assert sum(node.status is Status.ACCEPTED for node in last.nodes) == len(last.path)


@pytest.mark.parametrize("max_new_tokens", [1, 2, 5, 6, 11])
def test_the_length_limit_is_never_overrun(target_weights, draft_weights, max_new_tokens):
    events = run_lane(
        target_weights,
        drafter_for("draft_model", draft_weights),
        PROMPT,
        max_new_tokens=max_new_tokens,
    )
    assert len(output_ids(events)) == max_new_tokens
    assert events[-1].reason is FinishReason.LENGTH


@pytest.mark.parametrize("method", sorted(METHODS))
def test_invariants_hold_after_each_step(target_weights, draft_weights, method):
    target = CachedModel(target_weights)
    drafter = drafter_for(method, draft_weights, lookahead=6, policy="constant")
    committed = list(PROMPT)
    for event in generate(
        target, drafter, PROMPT, shaper=Shaper(Sampling()), limits=Limits(40), started=header()
    ):
        if isinstance(event, Verified):
            assert len(event.nodes) <= 6
            committed += output_ids([event])
            assert target.length == len(committed) - 1
            if method == "draft_model":
                text = committed[: len(committed) - len(output_ids([event]))]
                text += [node.token_id for node in event.nodes]
                assert drafter.reader.cached_ids == text[: len(drafter.reader.cached_ids)]
                assert drafter.reader.model.length == len(drafter.reader.cached_ids)


def test_cancel_stops_within_one_step_and_keeps_what_there_is(target_weights):
    asked = iter([False, False, True])
    events = list(
        generate(
            CachedModel(target_weights),
            Nothing(),
            PROMPT,
            shaper=Shaper(Sampling()),
            limits=Limits(40),
            started=header(),
            cancelled=lambda: next(asked),
        )
    )
    assert events[-1].reason is FinishReason.CANCELLED
    assert len(output_ids(events)) == 2


def test_interleaved_runs_do_not_meet(target_weights, draft_weights):
    alone = output_ids(run_lane(target_weights, drafter_for("draft_model", draft_weights), PROMPT))
    lanes = [
        generate(
            CachedModel(target_weights),
            drafter_for("draft_model", draft_weights),
            prompt,
            shaper=Shaper(Sampling()),
            limits=Limits(40),
            started=header(),
        )
        for prompt in (PROMPT, [9, 9, 8])
    ]
    first = [one for one, _ in zip_longest(*lanes) if one is not None]
    assert output_ids(first) == alone


def test_a_second_run_starts_clean(target_weights, draft_weights):
    drafter = drafter_for("draft_model", draft_weights)
    target = CachedModel(target_weights)
    once = run_lane(target_weights, drafter, PROMPT, target=target)
    target.rollback(0)
    again = run_lane(target_weights, drafter, PROMPT, target=target)
    assert output_ids(once) == output_ids(again)


class Table:
    """A toy language model whose logits depend on the last two tokens: fast, and exactly enumerable."""

    def __init__(self, seed, words):
        self.logits = (
            torch.randn(words, words, words, generator=torch.Generator().manual_seed(seed)) * 1.5
        )
        self.ids = []
        self.step = []

    @property
    def length(self):
        return len(self.ids)

    def row(self, text):
        return self.logits[text[-2], text[-1]]

    def read(self, token_ids):
        self.ids += token_ids
        return self.row(self.ids) if len(self.ids) > 1 else self.logits[0, self.ids[-1]]

    def rollback(self, length):
        del self.ids[length:]

    def forward(self, pending_id, proposal):
        self.step = [pending_id, *proposal.token_ids]
        texts = [
            [proposal.token_ids[i] for i in proposal.path_to(n)] for n in range(-1, len(proposal))
        ]
        return TargetOutput(
            torch.stack([self.row([*self.ids, pending_id, *text]) for text in texts])
        )

    def keep(self, path):
        self.ids += [self.step[0], *(self.step[node + 1] for node in path)]


def siblings(draft, shaper, words):
    """Two siblings drawn without replacement, the first with a chosen child: every kind of node in one tree."""
    generator = torch.Generator().manual_seed(shaper.sampling.seed + 99)

    def script(committed, budget):
        if budget < 2:
            return Proposal()
        first_probs = shaper.probs(draft.row(committed)[None], committed, [[]])[0]
        first = draw(first_probs, generator)
        second_probs = first_probs.clone()
        second_probs[first] = 0
        if not second_probs.sum() > 0:
            return Proposal.chain([first], draft_probs=first_probs[None])
        second_probs /= second_probs.sum()
        second = draw(second_probs, generator)
        child = torch.nn.functional.one_hot(torch.tensor((first + 1) % words), words).float()
        probs = torch.stack([first_probs, second_probs, child])
        return Proposal((first, second, (first + 1) % words), (-1, -1, 0), draft_probs=probs)

    return Scripted(script)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(temperature=1.0),
        Sampling(temperature=0.7, top_p=0.8, repetition_penalty=1.2),
        Sampling(temperature=1.3, top_k=4),
    ],
)
@pytest.mark.parametrize("method", ["draft_model", "ngram", "siblings"])
def test_three_sampled_tokens_have_the_exact_joint_distribution(method, sampling):
    """Chi-square of 2,000 seeded runs against the exact joint of a toy target (five words), at p = 1e-4."""
    words, runs, prompt = 5, 2_000, [1, 2, 3, 1, 2]
    target, draft = Table(3, words), Table(4, words)
    exact = exact_joint(target, prompt, sampling, words)
    settings = RunSettings(
        method=method, policy="confidence", lookahead=3, fallback=False, sampling=sampling
    )
    counts = torch.zeros_like(exact)
    for seed in range(runs):
        shaper = Shaper(replace(sampling, seed=seed))
        if method == "siblings":
            drafter = siblings(draft, shaper, words)
        else:
            drafter = make_drafter(
                DraftingContext(settings, shaper, words, PrefixReader(Table(4, words)))
            )
        target.rollback(0)
        events = generate(
            target, drafter, prompt, shaper=shaper, limits=Limits(3), started=header()
        )
        counts[tuple(output_ids(events))] += 1
    expected = exact * runs
    common = expected >= 5
    statistic = float(((counts[common] - expected[common]) ** 2 / expected[common]).sum())
    rare = float(expected[~common].sum())
    if rare > 0:
        statistic += (float(counts[~common].sum()) - rare) ** 2 / rare
    freedom = int(common.sum()) - (rare == 0)
    limit = (
        freedom * (1 - 2 / (9 * freedom) + 3.72 * (2 / (9 * freedom)) ** 0.5) ** 3
    )  # Wilson-Hilferty
    assert statistic < limit
    assert counts[expected == 0].sum() == 0


def exact_joint(model, prompt, sampling, words):
    """(V, V, V): probability of each continuation of three tokens under plain sampling."""
    shaper = Shaper(sampling)
    joint = torch.zeros(words, words, words, dtype=torch.float64)

    def row(path):
        return shaper.probs(model.row([*prompt, *path])[None], prompt, [path])[0].double()

    for a in range(words):
        for b in range(words):
            joint[a, b] = row([])[a] * row([a])[b] * row([a, b])
    return joint
