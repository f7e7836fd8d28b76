"""One suite over every registered method: lossless, within its budget, clean after a restart, alone and in shared passes.

A method that is lossy by design must fail the test of its distribution, which proves that the test can fail.
"""

import random
import time
from dataclasses import dataclass, field, replace
from itertools import accumulate, repeat, zip_longest

import pytest
import torch
from conftest import (
    ALL_METHODS,
    PROMPT,
    VOCABULARY,
    bound_target,
    drafter_for,
    innermost,
    open_target,
    reference_greedy,
    run_lane,
    steps_of,
)
from lanes import Scripted
from tiny_published import published
from toy import Table
from transformers import GPT2Config, GPT2LMHeadModel

from specdemo.bench.statistics import chi_square_p
from specdemo.config.settings import BLOCK, COUPLED, TOKEN, RunSettings, Sampling
from specdemo.drafters.methods import METHODS
from specdemo.drafters.policies.guard import Wrapper
from specdemo.engine.sampling import Shaper, draw
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal, depths
from specdemo.engine.verify import verify_block, verify_sampling
from specdemo.trace.events import Drafted, FinishReason, Status, Verified
from specdemo.trace.metrics import dropped, output_ids

LOSSLESS = [name for name in ALL_METHODS if not METHODS[name].lossy]
SAMPLINGS = [
    Sampling(temperature=1.0),
    Sampling(temperature=0.7, top_p=0.8, repetition_penalty=1.2),
    Sampling(temperature=1.3, top_k=3),
]


# compositions of methods that are tested with every policy and sampling on their own
OF_PARTS = {"copy_through", "block_tree"}


def policies_of(method):
    if method in OF_PARTS:
        return ("constant", "cost")
    return METHODS[method].policies or ("cost",)


@pytest.mark.parametrize("lookahead", [1, 3, 9])
@pytest.mark.parametrize(
    ("method", "policy"), [(name, policy) for name in ALL_METHODS for policy in policies_of(name)]
)
def test_greedy_output_is_that_of_transformers(pair, method, policy, lookahead):
    drafter = pair.drafter(method, policy=policy, lookahead=lookahead)
    assert output_ids(pair.run(drafter, max_new_tokens=48)) == pair.greedy(most=48)


@pytest.mark.parametrize("method", [name for name in ALL_METHODS if name != "auto"])
def test_a_seed_repeats_a_text_whatever_the_clock_says(pair, method, monkeypatch):
    sampling, texts = Sampling(temperature=0.8, seed=3), set()
    for seed in range(2):
        clock = accumulate(map(random.Random(seed).expovariate, repeat(10.0 ** (2 * seed))))
        with monkeypatch.context() as timed:
            timed.setattr(time, "perf_counter", clock.__next__)
            drafter = pair.drafter(method, policy="constant", sampling=sampling)
            events = pair.run(drafter, sampling=sampling)
        texts.add(tuple(output_ids(events)))
    assert len(texts) == 1


COUPLED_RUNS = [
    (Sampling(0.7, top_p=0.8, repetition_penalty=1.2, seed=2), "constant", 3),
    (Sampling(1.3, top_k=9, seed=3), "cost", 9),
]


def text_of_seed(pair, method, sampling, policy="cost", lookahead=1, **inputs):
    """Return the text of a method with the noise of the seed."""
    inputs |= {"policy": policy, "lookahead": lookahead, "verification": COUPLED}
    drafter = pair.drafter(method, sampling=sampling, **inputs)
    shaper = Shaper.of(RunSettings(verification=COUPLED, sampling=sampling))
    events = pair.run(drafter, shaper=shaper)
    assert not dropped(events)
    return output_ids(events)


@pytest.mark.parametrize("method", [name for name in ALL_METHODS if name != "nothing"])
def test_a_seed_has_one_text_under_every_method(pair, method):
    """Also under the one that is lossy by the other rules: which drafts are tested has no effect on this text."""
    for sampling, policy, lookahead in COUPLED_RUNS:
        plain = text_of_seed(pair, "nothing", sampling)
        assert text_of_seed(pair, method, sampling, policy, lookahead) == plain


@pytest.mark.parametrize("method", ALL_METHODS)
def test_greedy_output_with_a_repetition_penalty_is_that_of_transformers(pair, method):
    """The penalty must see the right prefix at every drafted position, and be rolled back with it."""
    sampling = Sampling(repetition_penalty=1.3)
    events = pair.run(pair.drafter(method, sampling=sampling), sampling=sampling)
    assert output_ids(events) == pair.greedy(repetition_penalty=1.3)


def draft_lengths(pair, target, method, monkeypatch, **changes):
    """Run a method on a text that copies itself; returns the drafted tokens of each step, and the settings it read."""
    read = set()

    def recording(settings, name):
        if name in RunSettings.__dataclass_fields__:
            read.add(name)
        return object.__getattribute__(settings, name)

    with monkeypatch.context() as patch:
        patch.setattr(RunSettings, "__getattribute__", recording)
        drafter = pair.drafter(method, target=target, **changes)
    with monkeypatch.context() as patch:  # costs stay those of the profile
        patch.setattr(time, "perf_counter", lambda: 0.0)
        events = pair.run(drafter, max_new_tokens=64, target=target)
    return [len(event.nodes) for event in events if isinstance(event, Verified)], read


@pytest.mark.parametrize("method", ALL_METHODS)
def test_a_method_reads_exactly_the_options_that_it_declares(pair, method, monkeypatch):
    """Options: every value that its policies read. Policies: no two of its menu draft alike; others count as cost."""
    entry, read, lengths = METHODS[method], set(), {}
    for policy in (*entry.policies, "unknown"):
        changes = {"policy": policy, "lookahead": 6, "threshold": 0.7, "fallback": True}
        target = open_target(pair.target)
        lengths[policy], found = draft_lengths(pair, target, method, monkeypatch, **changes)
        # Replacing an unknown policy copies every setting.
        if policy != "unknown" or not entry.policies:
            read |= found - {"method", "sampling"}
    # Conversations pass memory on only if the setting allows it; `make_drafter` itself reads exact and fallback. The
    # verifier and the shaper of every method read the rule of verification.
    by_others = {"memory", "exact", "fallback", "verification"}
    assert read - by_others == set(entry.options) - by_others
    assert ("policy" in entry.options) == bool(entry.policies)
    if entry.tokens not in ("copied", "mixed"):  # this text has too few copies to distinguish them
        drafted = [tuple(lengths[policy]) for policy in entry.policies]
        assert len(set(drafted)) == len(drafted)
    if entry.policies and method != "parallel":  # its thread determines the drafting time
        assert lengths["unknown"] == lengths[entry.policies[-1]]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("method", ALL_METHODS)
def test_a_proposal_keeps_the_contract(pair, method, temperature):
    """Never deeper than the budget or larger than allowed; parents first, no sibling twice, honest rows."""
    sampling = Sampling(temperature)
    drafter = pair.drafter(method, sampling=sampling, policy="constant", lookahead=6)
    target = bound_target(drafter)
    answer = [*PROMPT, *PROMPT]  # a text that copies itself, so that copying methods draft too
    drafter.start(PROMPT)
    seen = 0
    for place, budget in enumerate([0, 1, 2, 3, 5, 9, 30, 0, 1], start=len(PROMPT)):
        if target:  # states of all but the pending token are there
            target.rollback(0)
            target.read(answer[: place - 1])
        proposal = drafter.propose(answer[:place], budget)
        seen += len(proposal)
        levels = depths(proposal.parents)
        assert max(levels, default=0) <= min(budget, 24)
        assert len(proposal) <= 24
        assert all(parent < node for node, parent in enumerate(proposal.parents))
        if proposal.chained:  # a tree may be a chain by chance
            assert proposal.parents == tuple(range(-1, len(proposal) - 1))
            assert "nodes" not in METHODS[method].options
        pairs = list(zip(proposal.parents, proposal.token_ids, strict=True))
        assert len(pairs) == len(set(pairs))
        assert len(proposal.confidences) in (0, len(proposal))
        chances = proposal.survivals
        assert len(chances) == len(proposal)
        for node, parent in enumerate(proposal.parents):
            assert 0 <= chances[node] <= (chances[parent] if parent >= 0 else 1)
        assert all(0 <= token < VOCABULARY for token in proposal.token_ids)
        assert proposal.reasons or not METHODS[method].options
        if proposal.drawn_from is not None:
            for node, token in enumerate(proposal.token_ids):
                row = proposal.all_probs(node)
                if row is None:  # copied next to drawn ones
                    assert METHODS[method].tokens == "mixed"
                    continue
                assert row.sum() == pytest.approx(1, abs=1e-5)
                assert row[token] > 0
                older = [n for n in range(node) if proposal.parents[n] == proposal.parents[node]]
                assert all(row[proposal.token_ids[sibling]] == 0 for sibling in older)
        if len(proposal) and METHODS[method].tokens != "mixed":
            drawn = temperature > 0 and METHODS[method].tokens == "drawn"
            assert (proposal.drawn_from is not None) == drawn
            assert (proposal.draft_probs is None) == (METHODS[method].tokens == "copied")
    assert bool(seen) == (METHODS[method].tokens != "none")


@pytest.mark.parametrize("method", ALL_METHODS)
def test_invariants_hold_after_each_step(pair, method):
    """The target has cached all but the pending token; a drafter's own cache is a prefix of a real text."""
    target = open_target(pair.target)
    drafter = pair.drafter(method, lookahead=6, policy="constant", target=target)
    committed = list(PROMPT)
    for event in steps_of(target, drafter, PROMPT):
        if isinstance(event, Verified):
            before = list(committed)
            committed += output_ids([event])
            assert target.length == len(committed) - 1
            draft = getattr(innermost(drafter), "draft", None)
            if draft and method != "parallel":  # this one also drafts ahead
                drafted = [node.token_id for node in event.nodes]
                chain = [*before, *drafted]
                text = draft.reader.cached_ids
                assert text[: len(before)] == before[: len(text)]
                branches = "tree" in method or method in ("auto", "look_back")
                assert branches or text == chain[: len(text)]
                assert draft.reader.model.length == len(text)


@pytest.mark.parametrize("method", ALL_METHODS)
def test_a_second_run_starts_clean(pair, method):
    """The same drafter again, after another text: the same output, and the first draft of a new one."""
    target = open_target(pair.target)
    used = pair.drafter(method, policy="constant", lookahead=4, target=target)
    pair.run(used, [9, 9, 8, 3, 9, 9, 8], target=target)
    target.rollback(0)
    assert output_ids(pair.run(used, target=target)) == pair.greedy()
    if method in ("draft_model", "parallel", "quantised_self", "retrieval"):  # remember nothing
        fresh = pair.drafter(method, policy="constant", lookahead=4)
        for drafter in (used, fresh):
            drafter.start(PROMPT)
        assert used.propose(PROMPT, 8).token_ids == fresh.propose(PROMPT, 8).token_ids


@pytest.mark.parametrize("stop_at", [3, 5, 6])
@pytest.mark.parametrize("method", ALL_METHODS)
def test_an_answer_ends_inside_a_draft(pair, method, stop_at):
    answer, target = pair.greedy(), open_target(pair.target)
    stop = answer[stop_at]
    length = answer.index(stop) + 1
    drafter = pair.drafter(method, policy="constant", lookahead=6, target=target)
    events = pair.run(drafter, stop_ids=frozenset([stop]), target=target)
    assert output_ids(events) == answer[:length]
    assert events[-1].reason is FinishReason.STOP
    assert target.length == len(PROMPT) + length - 1  # the last id stays pending
    last = events[-2]
    assert sum(node.status is Status.ACCEPTED for node in last.nodes) == len(last.path)
    above = [last.nodes[node.parent].token_id for node in last.nodes if node.parent >= 0]
    assert stop not in above  # nothing is drafted after the end of an answer


@pytest.mark.parametrize("max_new_tokens", [1, 2, 6])
@pytest.mark.parametrize("method", ALL_METHODS)
def test_the_length_limit_is_never_overrun(pair, method, max_new_tokens):
    drafter = pair.drafter(method, policy="constant", lookahead=6)
    events = pair.run(drafter, max_new_tokens=max_new_tokens)
    assert output_ids(events) == pair.greedy(most=max_new_tokens)
    assert events[-1].reason is FinishReason.LENGTH


@pytest.mark.parametrize("method", ALL_METHODS)
def test_two_interleaved_runs_do_not_affect_each_other(pair, method):
    prompts = (PROMPT, [9, 9, 8, 3, 9, 9, 8])
    targets = [open_target(pair.target) for _ in prompts]
    drafters = [pair.drafter(method, target=one) for one in targets]
    lanes = map(steps_of, targets, drafters, prompts, (32, 32))
    steps = list(zip_longest(*lanes))
    for place, prompt in enumerate(prompts):
        events = [both[place] for both in steps if both[place] is not None]
        assert output_ids(events) == pair.greedy(prompt, 32)


def gpt2(context):
    """A model with learned positions, which cannot read beyond them."""
    torch.manual_seed(1)
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=context, n_embd=32, n_layer=2, n_head=2,
        bos_token_id=None, eos_token_id=None,
    )  # fmt: skip
    return GPT2LMHeadModel(config).eval()


@pytest.mark.parametrize(
    "name", [one for one in ALL_METHODS if {"draft", "copy"} & {*METHODS[one].uses}]
)
@pytest.mark.parametrize("context", [8, 32])
def test_a_draft_model_proposes_nothing_beyond_its_context(pair, name, context):
    """Texts that pass the draft's context, from the prompt on or later."""
    drafter = drafter_for(name, CachedModel(gpt2(context)), policy="constant", lookahead=4)
    events = pair.run(drafter)
    assert output_ids(events) == pair.greedy()
    assert dropped(events) == ""
    length = len(PROMPT)
    for event in events:
        if isinstance(event, Verified):
            if event.nodes and name not in ("auto", "copy_through"):  # which copy beyond it
                deepest = max(depths([node.parent for node in event.nodes]))
                assert length + deepest <= context + 1
            length += len(output_ids([event]))


@pytest.mark.parametrize("lookahead", [1, 3, 8])
def test_parallel_drafts_end_before_the_context_of_both_models(lookahead):
    """The thread drafts ahead of the text: it must not read beyond the end either."""
    model = gpt2(32)
    drafter = drafter_for("parallel", CachedModel(model), policy="constant", lookahead=lookahead)
    room = 32 - len(PROMPT)
    events = run_lane(model, drafter, PROMPT, target=CachedModel(model), max_new_tokens=room)
    assert dropped(events) == ""
    assert output_ids(events) == reference_greedy(model, PROMPT, room)


class Failing(Wrapper):
    """A drafter that fails in one of its calls, or proposes a draft that cannot be checked."""

    def __init__(self, drafter, call):
        super().__init__(drafter)
        self.wrong = call if isinstance(call, Proposal) else None
        if self.wrong is None:
            setattr(self, call, self.fail)

    def fail(self, *_values):
        raise IndexError("index out of range in self")

    def propose(self, committed, budget):
        return self.wrong or self.drafter.propose(committed, budget)


@pytest.mark.parametrize(
    "call",
    [
        "start", "propose", "verifying", "observe",
        Proposal.chain([VOCABULARY]), Proposal.chain([-1]), Proposal.chain([1] * 100),
        Proposal((1, 2), (-1, 1)), Proposal((1, 2), (-1,)), Proposal.chain([1], confidences=(float("nan"),)),
        Proposal.chain([1, 2], confidences=(0.5,)), Proposal.chain([1, 2], survivals=(0.5,)),
    ],
)  # fmt: skip
def test_a_drafter_that_fails_is_dropped_and_the_text_is_that_of_plain_decoding(pair, call):
    events = pair.run(Failing(pair.drafter("parallel"), call))
    assert output_ids(events) == pair.greedy()
    assert events[-1].reason is FinishReason.LENGTH
    error = dropped(events)
    assert error.startswith(("IndexError: index out of range in self", "ValueError: a draft"))
    reported = [event for event in events if isinstance(event, Drafted) and event.reason]
    assert [event.reason for event in reported] == [error]  # once
    later = events[events.index(reported[0]) :]
    assert not any(event.nodes for event in later if isinstance(event, Verified))


@dataclass(frozen=True)
class Remembering(Shaper):
    """Shapes the same rows of a toy target once: a thousand runs have only so many texts."""

    known: dict = field(default_factory=dict)

    def logits(self, logits, committed, paths, words=None):
        text = logits.numpy().tobytes(), tuple(committed), tuple(map(tuple, paths))
        if text not in self.known:
            self.known[text] = super().logits(logits, committed, paths, words)
        return self.known[text].clone()


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
    ("method", "sampling"),
    [
        (name, sampling)
        for name in [*(name for name in LOSSLESS if name != "nothing"), "siblings"]
        for sampling in (SAMPLINGS[1:2] if name in OF_PARTS else SAMPLINGS)
    ],
)
def test_three_sampled_tokens_have_the_exact_joint_distribution(method, sampling):
    """Chi-square of seeded runs against the exact joint of a toy target (four words), at p = 1e-4."""
    assert_exact(method, sampling, runs=300 if method in OF_PARTS else 1_000)


def test_tokens_judged_as_blocks_have_the_exact_joint_distribution():
    """Chains whose length depends on the drawn tokens, in the real loop."""
    assert_exact("draft_model", SAMPLINGS[0], verifier=verify_block)


PUBLISHED = [
    ("speculators", "feature"), ("DFlash", "block"), ("SpecForge", "feature_tree"), ("SafeAILab", "feature"),
    ("DFlash", "jet"), ("JetSpec", "jet"), ("DSpark", "block"),
    ("DFlash 2", "block"), ("DFlash 2", "block_tree"),
]  # fmt: skip


@pytest.mark.parametrize(("layout", "name"), PUBLISHED)
def test_greedy_output_with_a_published_drafter_is_that_of_transformers(pair, layout, name):
    """Its draft is really its own, and the runs are as with trained ones: two after each other, with one interrupted."""
    target, options = open_target(pair.target), {"policy": "constant", "lookahead": 3}
    drafter = pair.drafter(name, target=target, published=published(layout), **options)
    pair.run(drafter, [9, 9, 8, 3, 9, 9, 8], target=target, max_new_tokens=5)
    target.rollback(0)
    events = pair.run(drafter, target=target, max_new_tokens=24)
    assert output_ids(events) == pair.greedy(most=24)
    trained = pair.drafter(name, **options)
    for one in (drafter, trained):
        one.start(PROMPT)
        bound_target(one).rollback(0)
        bound_target(one).read(PROMPT[:-1])
    drafts = [one.propose(PROMPT, 8).token_ids for one in (drafter, trained)]
    assert drafts[0]
    assert drafts[0] != drafts[1]


@pytest.mark.parametrize(("layout", "name"), PUBLISHED)
def test_a_seed_has_one_text_with_a_published_drafter(pair, layout, name):
    sampling, policy, lookahead = COUPLED_RUNS[0]
    inputs = {"target": open_target(pair.target), "published": published(layout)}
    text = text_of_seed(pair, name, sampling, policy, lookahead, **inputs)
    assert text == text_of_seed(pair, "nothing", sampling)


@pytest.mark.parametrize(("layout", "name"), PUBLISHED[:3])
def test_sampled_tokens_with_a_published_drafter_have_the_exact_joint_distribution(layout, name):
    assert_exact(name, SAMPLINGS[1], runs=200, published=published(layout))


def test_a_lossy_method_fails_the_checks():
    assert [name for name in ALL_METHODS if METHODS[name].lossy] == ["look_back"]
    assert p_value("look_back", Sampling(temperature=1.0), runs=2_000) < 1e-8


def assert_exact(method, sampling, **options):
    assert p_value(method, sampling, **options) > 1e-4


def p_value(method, sampling, *, words=4, runs=1_000, published=None, verifier=verify_sampling):
    """Return the p-value of a chi-square test of the outputs; 0 if one was impossible.

    Four words and 1,000 runs find as small an error as five words and 1,500 runs: 64 cells instead of 125.
    """
    prompt = [1, 2, 3, 1, 2]
    target, draft = Table(3, words), Table(4, words)
    exact = exact_joint(target, prompt, sampling, words)
    counts = torch.zeros_like(exact)
    shaper, text = Remembering(sampling), lambda: target.ids

    for seed in range(runs):
        seeded = replace(sampling, seed=seed)
        if method == "siblings":
            drafter = siblings(draft, Shaper(seeded), words)
        else:
            drafter = drafter_for(
                method, draft, vocabulary=words, sampling=seeded, policy="confidence", threshold=0.5,
                lookahead=3, nodes=6, toy_text=text, published=published,
                verification=BLOCK if verifier is verify_block else TOKEN,
            )  # fmt: skip
        target.rollback(0)
        seeded_shaper = replace(shaper, sampling=seeded)
        events = list(steps_of(target, drafter, prompt, 3, shaper=seeded_shaper, verifier=verifier))
        assert not dropped(events)
        counts[tuple(output_ids(events))] += 1
    return chi_square_p(counts.flatten().tolist(), (exact * runs).flatten().tolist())


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
