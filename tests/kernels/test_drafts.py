"""The compiled pass of compact drafts equals torch's, in one call or token by token, alone and in shared passes."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from passes import TEXT, error, in_one_pass
from tiny_compact import compact, features_of, feeding, injecting, mixing

from specdemo.config.settings import COUPLED, TOKEN, RunSettings, Sampling
from specdemo.drafters.base import DraftingContext
from specdemo.drafters.draft_model import DraftModel
from specdemo.drafters.reader import DraftReader
from specdemo.engine.cost import CostProfile
from specdemo.engine.sampling import Shaper
from specdemo.engine.target import FeatureReader, PrefixReader
from specdemo.engine.types import Proposal
from specdemo.kernels import cpu_features, runtime
from specdemo.kernels.plan import DraftPlan, StopRule
from specdemo.models.networks.chain import CompactDecoder, CompactModel

pytestmark = pytest.mark.usefixtures("compiled_pass")
# Inputs of a draft besides tokens: none, the target's states, its own states too, and mixed embeddings.
READS = {"text": lambda weights: weights, "states": injecting, "own": feeding, "mixed": mixing}


@pytest.mark.parametrize("reads", ["text", "states", "own"])
def test_a_compact_draft_is_what_torch_makes_of_it(reads):
    weights, found = READS[reads](compact()), []
    for compiles in (False, True):
        features = features_of(0)
        features.length = 5 if reads == "own" else 60
        decoder = CompactDecoder(weights)
        assert decoder.compiled is not None
        decoder.compiled = decoder.compiled if compiles else None
        model = CompactModel(decoder, features)
        rows = [model.read(TEXT[:5])[None]]
        rows += [model.read(TEXT[5:6])[None], model.guess(TEXT[6:7])]
        states = model.states
        rows += [model.grow([3, 4], [-1, -1]), model.grow([5, 6], [1, 2])]
        model.rollback(6)
        model.adjust = lambda states: 2 * states
        rows += [model.read([9])[None]]
        assert len(model.words.tokens) > 64  # some are the text's
        found.append((torch.cat([row.flatten() for row in rows]), states))
    for one, other in zip(*found, strict=True):
        assert error(other, one) < 0.02


def drafting(sampling: Sampling, policy: str, *, alone: bool, reads: str) -> list[Proposal]:
    """Draft with a model, in one call or token by token, along a text that accepts a part of each draft.

    With an odd seed by the noise that target and drafter share.
    """
    weights, features = replace(READS[reads](compact()), depth=1), features_of(0)
    model = CompactModel(CompactDecoder(weights), features)
    reader = FeatureReader(model) if weights.reads else PrefixReader(model)
    if not alone:
        model.draft = lambda *_: None
    profile = CostProfile(((1, 1.0), (4, 1.1), (8, 1.6)), draft_step=0.02)
    settings = RunSettings(
        sampling=sampling, policy=policy, lookahead=9, threshold=0.05,
        verification=COUPLED if sampling.seed % 2 else TOKEN,
    )  # fmt: skip
    context = DraftingContext(settings, Shaper.of(settings), 128, profile)
    context.costs.observe_draft = lambda *_: None
    draft = DraftReader(reader, context.shaper, 128, context.costs)
    drafter = DraftModel(draft, context.lookahead())
    text, found = list(TEXT[:7]), []
    drafter.start(text)
    for keeps in (2, 0, 5, 1):
        features.length = len(text) - 1
        found.append(drafter.propose(text, 6))
        text += [*found[-1].token_ids[:keeps], 40]
    return found


@pytest.mark.parametrize("reads", READS)
@pytest.mark.parametrize("policy", ["constant", "confidence", "cost"])
@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(),
        Sampling(1.0),
        Sampling(0.6),
        Sampling(1.0, top_p=0.8),
        Sampling(1.0, seed=1),
        Sampling(repetition_penalty=1.5),
        Sampling(1.0, top_k=7, seed=3),
        Sampling(0.7, top_k=20, top_p=0.8, repetition_penalty=1.1, seed=4),
        Sampling(1.5, repetition_penalty=0.8, seed=5),
    ],
)
def test_a_draft_in_one_go_is_the_one_made_token_by_token(sampling, policy, reads):
    drafts = [drafting(sampling, policy, alone=alone, reads=reads) for alone in (True, False)]
    # A state that is fed back differs in its last bit, which may round a cached key or value the other way,
    # and with products in bfloat16 each input of the next layer.
    rounded = (2e-2, 1e-2, 1e-2) if cpu_features.has("avx512bf16") else (5e-3, 1e-4, 1e-5)
    near = rounded if reads == "mixed" else (1e-5, 1e-6, 1e-7)
    for one, other in zip(*drafts, strict=True):
        assert one.token_ids == other.token_ids
        for reason, same in zip(one.reasons, other.reasons, strict=True):
            assert reason.code == same.code
            assert reason.values == pytest.approx(same.values, rel=near[0], abs=near[1])
        torch.testing.assert_close(one.confidences, other.confidences, rtol=near[0], atol=near[1])
        for row, wanted in zip(one.draft_probs, other.draft_probs, strict=True):
            torch.testing.assert_close(row, wanted, rtol=near[0], atol=near[2])


def test_a_draft_that_memory_corrects_is_made_token_by_token():
    model = CompactModel(CompactDecoder(replace(compact(), depth=1)))
    guide = DraftPlan(3, StopRule.never(3))
    assert model.draft([1, 2], guide) is not None
    model.rollback(0)
    model.adjust = lambda states: states
    assert model.draft([1, 2], guide) is None
    assert model.length == 0


@pytest.mark.parametrize("token", [-1, 128])
def test_a_token_without_an_embedding_is_refused(token):
    with pytest.raises(IndexError, match="no embedding"):
        runtime.rows_of(compact().embedding, [3, token])


def test_rows_of_drafts_are_the_same_alone_and_in_one_pass():
    """Several runs' drafts read, guess, grow and draft in one pass; each has its own words and states of the target."""
    decoder = CompactDecoder(injecting(compact()))
    texts = [5, 9, 77, 100], [3], [60, 2, 2, 90, 11, 14, 8]
    assert decoder.compiled is not None

    def opened() -> list[CompactModel]:
        return [CompactModel(decoder, features_of(number)) for number in range(len(texts))]

    alone, together = opened(), opened()
    for step in (
        lambda model, text: model.read(text),
        lambda model, text: model.guess(text[:2]),
        lambda model, text: model.grow(text[:1], [-1]),
        lambda model, _: model.grow([7, 8], [-1, 0]),
    ):
        wanted = [step(model, text) for model, text in zip(alone, texts, strict=True)]
        found = in_one_pass(
            [partial(step, model, text) for model, text in zip(together, texts, strict=True)]
        )
        for one, other, first, second in zip(found, wanted, together, alone, strict=True):
            assert torch.equal(one, other)
            assert torch.equal(first.states, second.states)
            assert first.words.tokens == second.words.tokens


@pytest.mark.parametrize("depth", [1, 4])
@pytest.mark.parametrize("reads", [False, True])
def test_a_draft_that_reads_in_pieces_says_what_it_says_after_one_pass(depth, reads):
    weights = injecting(compact()) if reads else compact()
    found, text = [], [5 * n % 128 for n in range(50)]
    for piece in (7, 64):
        decoder = CompactDecoder(replace(weights, depth=depth))
        decoder.chunk = piece
        model = CompactModel(decoder, features_of(0))
        rows = [model.guess(text) if depth > 1 else model.read(text)]
        model.rollback(3)
        chain = model.draft(text[3:], DraftPlan(4, StopRule.never(4)))
        assert (chain is None) == (depth > 1)
        if chain:
            rows += [torch.tensor(chain.columns), *chain.rows]
        model.rollback(3)
        states = torch.randn(47, 128, generator=torch.Generator().manual_seed(1)).bfloat16()
        model._inputs = lambda ids, *_, own=model: states[own.length - 3 :][: len(ids)]  # noqa: B023
        rows.append(model.read(text[3:]))
        assert model.length == 50
        found.append(rows)
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("feeds", [False, True])
@pytest.mark.parametrize("drawn", [False, True])
def test_drafts_that_go_on_together_are_those_made_alone(drawn, feeds):
    """Drafts of different length, and rows that are only read, share the passes of one job."""
    weights = feeding(compact()) if feeds else replace(injecting(compact()), depth=1)
    decoder = CompactDecoder(weights)
    texts, mosts = ([5, 9, 77], [3], [60, 2, 2, 90], [8, 1]), (6, 1, 9, 3)
    uniforms = torch.rand(9, dtype=torch.float64) if drawn else None

    def drafts(models):
        for model, text, most in zip(models, texts, mosts, strict=True):
            least = 0.02 if most == 9 else 0.0
            plan = DraftPlan(most, StopRule.never(most, least), uniforms, 0.7)
            yield partial(model.draft, text, plan)

    alone, together = ([CompactModel(decoder, features_of(n)) for n in range(4)] for _ in range(2))
    reader, other = (CompactModel(decoder) for _ in range(2))
    wanted = [*(draft() for draft in drafts(alone)), reader.read([1, 2, 3])]
    found = in_one_pass([*drafts(together), partial(other.read, [1, 2, 3])])
    assert torch.equal(found[-1], wanted[-1])
    assert [len(chain.columns) for chain in found[:-1]][:2] == [6, 1]
    for chain, expected, model, same in zip(found, wanted, together, alone, strict=False):
        assert chain.columns == expected.columns
        assert chain.confidences == expected.confidences
        assert all(map(torch.equal, chain.rows, expected.rows))
        assert model.length == same.length
        assert torch.equal(model.read([4]), same.read([4]))  # the cache contains the drafted tokens
