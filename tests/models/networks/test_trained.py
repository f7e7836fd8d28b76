"""The runtime's networks compute the same as the trainer's; trained folders are found by the table of networks."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from drafter_folders import kept
from safetensors.torch import load_file, save_file
from torch.nn import functional as F
from transformers import LlamaConfig

from specdemo.config.errors import UserError
from specdemo.kernels.blocks import BlockMatrix
from specdemo.kernels.packing import Packed
from specdemo.models.networks.chain import CompactDecoder, CompactModel
from specdemo.models.networks.folders import (
    TargetTensors,
    load_compact,
    load_medusa,
    read_state,
    save_compact,
)
from specdemo.models.networks.four_bit import dense, pack_linear, rounded, stacked
from specdemo.models.networks.registry import NETWORKS, find_network, find_trained, stored_states
from specdemo.training.block import plan_blocks
from specdemo.training.data import Row
from specdemo.training.networks import Eagle3Network, FeatureNetwork, MedusaHeads
from specdemo.training.package import Card, draft_config, package
from specdemo.training.recipes import RECIPES
from specdemo.training.student import Student
from specdemo.training.trainer import trained_state

HIDDEN, WORDS, READS, DEPTH = 64, 96, (1, 3), 4
TEXT = [5, 17, 9, 40, 2, 61, 33, 8, 70, 11]
CONFIG = LlamaConfig(
    vocab_size=WORDS, hidden_size=HIDDEN, intermediate_size=128, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=2, head_dim=16, tie_word_embeddings=True,
    initializer_range=0.1,
)  # fmt: skip


@pytest.fixture
def target_folder(tmp_path):
    folder = tmp_path / "target"
    CONFIG.save_pretrained(folder)
    return folder


def make_student(**options) -> Student:
    """A layer with random parts on top of a draft of two."""
    torch.manual_seed(1)
    base = Student(CONFIG).eval()
    student = Student(draft_config(CONFIG, 1), base=base, **options).eval()
    student.embed_tokens.weight.data = base.embed_tokens.weight.data
    with torch.no_grad():
        for name, parameter in student.named_parameters():
            if name in ("mask", "inject.project.weight") or name.startswith("markov."):
                parameter.normal_(std=0.1)
    return student


def exact(embedding: torch.Tensor) -> TargetTensors:
    """A target on the CPU whose drafters have their matrices in 16 bits."""
    return TargetTensors(embedding, torch.device("cpu"), four_bit=False)


def as_stored(network: torch.nn.Module) -> None:
    """Round a network's own matrices to 4 bits."""
    for name, tensor in trained_state(network).items():
        if tensor.ndim == 2:
            network.get_parameter(name).data = rounded(tensor)


def stored(student, kind, target_folder, folder, **facts):
    """Write and load with its draft, and round the student as its files are; the draft is in 8 bits."""
    target, base = exact(student.embed_tokens.weight.data), None
    for part, name in ((student.base, "draft"), (student, kind)):
        card = Card("target", "bf16", name, (0, 1), WORDS, (), 0, 0, 0.0, 0)
        more = {} if part is student.base else {"extends": 2, **facts}
        out = folder / name
        package(trained_state(part), torch.arange(WORDS), target_folder, out, card, more)
        base = load_compact(out, target, base)
    as_stored(student)
    return base


def states_of(length: int) -> torch.Tensor:
    """(length, 2 x H): the target's states over a text."""
    return torch.randn(length, 2 * HIDDEN, generator=torch.Generator().manual_seed(2))


def same(one: torch.Tensor, other: torch.Tensor) -> None:
    """Assert equality up to a draft model's 8 bits and bf16 arithmetic."""
    one, other = one.float(), other.float()
    assert F.cosine_similarity(one, other, dim=-1).min() > 0.998


@pytest.mark.parametrize("made", [FeatureNetwork, Eagle3Network])
def test_a_feature_drafter_feeds_its_own_states_back(tmp_path, target_folder, made):
    """The runtime computes after a text and two drafted tokens, in a chain and in a tree, the same as the unrolled training."""
    torch.manual_seed(1)
    embedding = torch.randn(WORDS, HIDDEN) / 40
    config = draft_config(CONFIG, 1)
    network = made(config, 2, embedding, 40.0).eval()
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if name in ("feedback", "inject.project.weight"):
                parameter.normal_(std=0.3)
    card = Card("target", "bf16", "feature", (3,), WORDS, (), 0, 0, 0.0, 0)
    facts = {"reads": list(READS), "feedback": True}
    out = tmp_path / "feature"
    package(network.folded(), torch.arange(WORDS), target_folder, out, card, facts)
    as_stored(network)
    weights = load_compact(out, exact(embedding))
    states = states_of(len(TEXT) - 3)
    model = CompactModel(CompactDecoder(weights), kept(READS, states))
    model.read(TEXT[:-2])
    found = [model.states[0]]
    model.grow(TEXT[-2:], [-1, 0])
    found.append(model.states[0])
    for token in TEXT[-2:]:
        model.read([token])
        found.append(model.states[0])
    before = torch.zeros(1, len(TEXT), 2 * HIDDEN)
    before[0, 1 : len(TEXT) - 2] = states
    texts, rows = torch.tensor([TEXT]), torch.tensor([3, len(TEXT) - 3])
    with torch.no_grad():
        draft, wanted = network.begin(texts, before, rows)
        same(found[0], wanted[1])
        draft, first = network.go_on(draft, torch.tensor(TEXT[-2:-1]), torch.tensor([1]))
        draft, second = network.go_on(draft, torch.tensor(TEXT[-1:]), torch.tensor([0]))
    same(torch.stack(found[1:]), torch.cat([second, first, second]))


@pytest.mark.parametrize("causal", [True, False])
def test_a_block_is_guessed_as_it_was_trained(tmp_path, target_folder, causal):
    student = make_student(num_states=2, depth=DEPTH, markov=(0, 0) if causal else (WORDS, 32))
    facts = {"reads": list(READS), "depth": DEPTH, "causal": causal}
    weights = stored(student, "jet" if causal else "block", target_folder, tmp_path / "o", **facts)
    states = states_of(len(TEXT) - 1)
    model = CompactModel(CompactDecoder(weights), kept(READS, states))
    model.read(TEXT[:3])
    model.guess(TEXT[3:])
    assert model.length == len(TEXT)
    # The trainer's own layout: one block whose last known token is the text's last.
    longer = [*TEXT, *[0] * (DEPTH - 1)]
    row = Row("x", np.array(longer), len(TEXT) - 1, 0)
    plan = plan_blocks([row], DEPTH, [0], causal=causal)
    width = plan.where.shape[1]
    assert width == len(longer) + DEPTH - 1
    before = torch.zeros(1, len(longer), 2 * HIDDEN)
    before[0, 1 : len(TEXT)] = states
    unseen = torch.zeros(1, 1, width, width).masked_fill_(~torch.from_numpy(plan.seen), -1e30)
    with torch.no_grad():
        token_ids, where, anchors, ahead = (
            torch.from_numpy(x) for x in (plan.token_ids, plan.where, plan.anchors, plan.ahead)
        )
        final, _ = student.read(token_ids, before, where, unseen, anchors, ahead)
    same(model.states, final[0, torch.from_numpy(plan.here)])
    if weights.markov:
        previous, words = 12, torch.zeros(1, WORDS)
        head = weights.markov
        with torch.no_grad():
            logits, sure = student.markov(final[0, -1:], words, torch.tensor([previous]))
        same(head.bias(head.token[previous][None]), logits)
        inputs = torch.cat([model.states[-1].float(), head.token[previous].float()])
        logit = float(inputs @ head.confidence) + float(head.constant)
        assert logit == pytest.approx(sure.item(), abs=0.15)


def test_medusa_guesses_as_it_was_trained(tmp_path, target_folder):
    torch.manual_seed(3)
    heads = MedusaHeads(3, HIDDEN)
    with torch.no_grad():
        for parameter in heads.parameters():
            parameter.normal_(std=0.1)
    card = Card("target", "bf16", "medusa", (), WORDS, (), 0, 0, 0.0, 0)
    facts = {"reads": [3], "depth": 3}
    package(heads.state_dict(), torch.arange(WORDS), target_folder, tmp_path / "o", card, facts)
    as_stored(heads)
    embedding = torch.randn(WORDS, HIDDEN)
    weights = load_medusa(tmp_path / "o", exact(embedding))
    state = torch.randn(1, HIDDEN).bfloat16()
    with torch.no_grad():
        guesses = [heads.guess(number, state.float()) for number in range(3)]
        wanted = torch.cat(guesses) @ embedding.T
    same(weights.guess(state), wanted)


def test_rounding_gives_what_the_kernel_computes_with():
    weight = torch.randn(64, 64)
    coarse = rounded(weight)
    assert 0 < (weight - coarse).abs().max() < 0.3
    assert all(len(group.unique()) <= 16 for group in coarse.reshape(-1, 32))
    assert rounded(torch.ones(3, 5)).equal(torch.ones(3, 5))


def tensors_of(matrix: Packed | BlockMatrix) -> list[torch.Tensor]:
    """Codes, scales or units, zeros and steps of a packed matrix of one part."""
    (part,) = matrix.parts if isinstance(matrix, BlockMatrix) else (matrix,)
    found = (getattr(part, name, None) for name in ("codes", "scales", "units", "zeros", "steps"))
    return [one for one in found if one is not None]


def test_a_matrix_stored_in_4_bits_gives_the_same_products_bit_by_bit(tmp_path):
    """A matrix on disk is the one that the kernel and the compiled pass would be given without the file."""
    weight, bias = torch.randn(96, 64).bfloat16(), torch.randn(96).bfloat16()
    save_compact(tmp_path, {}, {"one.weight": weight, "mask": weight}, torch.arange(3), bits=4)
    state = read_state(tmp_path)
    assert isinstance(state["mask"], torch.Tensor)  # its rows are added, so they have 8 bits
    parts = [state["one.weight"], state["one.weight"]]
    options = {"four_bit": True, "in_pass": True}
    found = pack_linear(stacked(parts, torch.device("cpu")), torch.cat([bias, bias]), **options)
    wanted = pack_linear(torch.cat([weight, weight]), torch.cat([bias, bias]), **options)
    x = torch.randn(3, 64).bfloat16()
    assert torch.equal(found(x), wanted(x))
    if found.packed:
        assert all(map(torch.equal, tensors_of(found.packed), tensors_of(wanted.packed)))
        assert torch.equal(found.packed.bias, wanted.packed.bias)
    whole = pack_linear(parts[0], bias, four_bit=False)
    torch.testing.assert_close(whole(x), F.linear(x, rounded(weight), bias))
    assert torch.equal(dense(parts[0]).bfloat16(), rounded(weight))


def loaded(hidden: int) -> SimpleNamespace:
    """The used part of a loaded target."""
    table = torch.nn.Embedding(WORDS, hidden)
    model = SimpleNamespace(get_input_embeddings=lambda: table, get_output_embeddings=lambda: table)
    return SimpleNamespace(
        model=model, info=SimpleNamespace(name="tiny"), known="tiny", device=torch.device("cpu")
    )


def test_trained_folders_are_found_read_once_and_refused_for_other_targets(tmp_path, target_folder):
    folder = str(tmp_path / "all")
    student = make_student(num_states=2, depth=DEPTH)
    weights = stored(student, "jet", target_folder, tmp_path / "all", reads=[1, 3], depth=DEPTH)
    draft = replace(weights, layers=weights.layers[:2], extends=0)
    found = find_trained(loaded(HIDDEN), draft, folder)
    assert list(found) == ["jet"]
    assert found["jet"].reads == READS
    assert found["jet"].card["kind"] == "jet"
    assert found["jet"].network() is found["jet"].network()
    assert len(found["jet"].network().weights.layers) == 3
    assert find_trained(loaded(HIDDEN), draft, "none") == find_trained(loaded(HIDDEN), draft) == {}
    assert find_trained(loaded(HIDDEN), None, folder) == {}
    with pytest.raises(UserError, match="another target"):
        find_trained(loaded(32), draft, folder)
    with pytest.raises(UserError, match="no folder"):
        find_trained(loaded(HIDDEN), draft, str(tmp_path / "nothing"))
    (path,) = (tmp_path / "all" / "jet").glob("part-*.safetensors")
    tensors = load_file(path)
    for name, value in (("norm.weight", torch.nan), ("word_ids", WORDS), ("word_ids", -1)):
        save_file(tensors | {name: torch.full_like(tensors[name], value)}, path)
        with pytest.raises(UserError, match="in jet are damaged"):
            find_trained(loaded(HIDDEN), draft, folder)["jet"].network()


# The hidden states that each row reads of a target with eight layers.
STATES = {
    ("draft", "own"): (),
    ("feature", "own"): (2, 6, 8),
    ("feature", "eagle3"): (2, 4, 5),
    ("exit", "own"): (2,),
    ("medusa", "own"): (8,),
    ("block", "own"): (2, 6, 8),
    ("jet", "own"): (2, 6, 8),
    ("block", "dflash"): (2, 4, 5),
    ("jet", "dflash"): (2, 4, 5),
}


@pytest.mark.parametrize("network", NETWORKS)
def test_registry_row_is_found_and_has_a_recipe(network):
    kind, form = network.kind, network.form
    assert find_network(kind, form) is network
    assert network.recipe in RECIPES
    assert stored_states(8, form)[network.states] == STATES[kind, form]
    assert ("reads" in network.facts) == bool(STATES[kind, form])
