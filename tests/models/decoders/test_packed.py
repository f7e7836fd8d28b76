"""A module and its compiled pass share one memory, the check is unchanged, and stored measurements are not repeated."""

import json

import pytest
import torch
from bitsandbytes.functional import dequantize_4bit
from passes import TEXT, TREE, WORDS, passes_of, tiny_nf4
from torch import nn

from specdemo.engine.attention import ModuleDecoder
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.kernels import cpu_features, packing
from specdemo.models.decoders import choose, heads, packed
from specdemo.models.decoders.blocks import NF4_GROUP, head_of_bytes, part_of_nf4
from specdemo.models.decoders.choose import open_decoder
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.models.decoders.operators import scales_of
from specdemo.models.decoders.packed import CompiledDecoder
from specdemo.models.measurements import pass_check

pytestmark = pytest.mark.usefixtures("compiled_pass")

# Distance of logits of a small model after its values of NF4 were rounded for products of bytes; 0 if they were not.
ROUNDED = 0.05 if cpu_features.multiplies_bytes() else 0


def sample() -> list[int]:
    return [5 * n % WORDS for n in range(40)]


def weight_bytes(model) -> int:
    """Bytes of all 4-bit codes of a model, each memory counted once."""
    found = {}
    for one in model.modules():
        codes = one.weight if is_nf4(one) else codes_of(one)
        if codes is not None:
            found[codes.data_ptr()] = codes.nbytes
    return sum(found.values())


def codes_of(layer) -> torch.Tensor | None:
    """Codes that a layer shares with the compiled pass; None for a layer that was not packed."""
    matrix = getattr(layer, "part", None) or getattr(layer, "matrix", None)
    return None if matrix is None else matrix.codes


def all_codes(matrix) -> list[torch.Tensor]:
    """Codes of a matrix of the compiled pass."""
    return [one.codes for one in getattr(matrix, "parts", (matrix,))]


@pytest.mark.parametrize("name", ["llama", "qwen2"])
def test_the_module_shares_the_memory_of_the_compiled_pass_and_predicts_the_same(name):
    model = tiny_nf4(name)
    want = passes_of(ModuleDecoder(model))
    before = {path: layer.weight for path, layer in model.named_modules() if is_nf4(layer)}
    sizes = sum(weight.nbytes for weight in before.values())
    decoder, _ = open_decoder(model)
    assert not any(map(is_nf4, model.modules()))
    assert sum(weight.nbytes for weight in before.values()) == 0, "kept twice"
    matrices = [
        getattr(layer, name)
        for layer in decoder._layers.layers
        for name in ("qkv", "output", "gate_up", "down")
    ]
    codes = [one for matrix in matrices for one in all_codes(matrix)]
    assert sum(one.nbytes for one in codes) == sizes
    shared = [one for one in map(codes_of, model.modules()) if one is not None]
    assert {one.data_ptr() for one in shared} == {one.data_ptr() for one in codes}
    for got, wanted in zip(passes_of(ModuleDecoder(model)), want, strict=True):
        assert (got - wanted).float().norm() < (ROUNDED or 0.003) * wanted.float().norm()


def is_nf4(layer) -> bool:
    return getattr(getattr(layer, "weight", None), "quant_state", None) is not None


def test_packing_a_model_takes_the_memory_of_one_matrix_more_at_most(monkeypatch):
    model, most, real = tiny_nf4("qwen2"), [], packed._pack
    size = weight_bytes(model)

    def watched(parent, names):
        before = sum(getattr(parent, name).weight.nbytes for name in names)
        matrix = real(parent, names)
        most.append(sum(one.nbytes for one in all_codes(matrix)) - before)
        assert weight_bytes(model) == size
        return matrix

    monkeypatch.setattr(packed, "_pack", watched)
    assert open_decoder(model)[1].startswith("compiled")
    assert most == [0] * 12


def test_the_module_goes_through_each_layer_once_before_it_is_packed():
    model, runs = tiny_nf4("qwen2"), []
    for number, layer in enumerate(model.model.layers):
        layer.register_forward_pre_hook(lambda *_, n=number: runs.append((n, packed_now(model))))
    assert open_decoder(model)[1].startswith("compiled pass on ")
    assert runs == [(0, 0), (1, 0), (2, 0)]


def packed_now(model) -> int:
    return sum(codes_of(one) is not None for one in model.modules())


@pytest.mark.parametrize("wrong", ["layers", "head"])
def test_a_pass_that_computes_something_else_is_not_taken(monkeypatch, wrong, tmp_path):
    def model():
        found = tiny_nf4("llama")
        if wrong == "layers":
            found.model.layers[1].mlp.act_fn = nn.GELU()
        return found

    check, want = pass_check(tmp_path, "weights", "auto"), passes_of(ModuleDecoder(model()))[0]
    if wrong == "head":
        real = choose.head_of_bytes
        monkeypatch.setattr(choose, "head_of_bytes", lambda weight: real(weight.roll(1, 0)))
    monkeypatch.setattr(choose, "LARGE_HEAD", 0 if wrong == "head" else 1e9)
    monkeypatch.setattr(heads, "MAX_VARIATION", 1.0)
    monkeypatch.setattr(heads, "MAX_KL", 100.0)
    for _ in range(2):  # found out, and read
        decoder, way = open_decoder(model(), "auto", sample, check)
        assert not isinstance(decoder, CompiledDecoder)
        assert "transformers" in way if wrong == "layers" else way == "lean pass"
        got = passes_of(decoder)[0]
        assert (got - want).float().norm() < (ROUNDED or 0.03) * want.float().norm()
    assert json.loads(next(tmp_path.rglob("*.json")).read_text())["agrees"] is False


def test_a_measured_choice_is_not_measured_again(monkeypatch, tmp_path):
    monkeypatch.setattr(choose, "LARGE_HEAD", 0)
    weights, check = tiny_nf4("qwen2"), pass_check(tmp_path, "weights", "auto")
    first, way = open_decoder(weights, "auto", sample, check)
    assert way.endswith(", 8-bit head")
    want = passes_of(first)

    def fail(*_, **__):
        raise AssertionError("it ran")

    with monkeypatch.context() as patch:
        patch.setattr(ModuleDecoder, "run", fail)
        patch.setattr(heads, "suits", fail)
        second, again = open_decoder(tiny_nf4("qwen2"), "auto", sample, check)
        assert again == way
        assert all(map(torch.equal, passes_of(second), want))
        for other in (
            ("16", sample, pass_check(tmp_path, "weights", "16")),
            ("auto", sample, pass_check(tmp_path, "other", "auto")),
            ("auto", sample, None),
        ):
            with pytest.raises(AssertionError, match="it ran"):
                open_decoder(tiny_nf4("qwen2"), *other)
        patch.setattr("specdemo.kernels.cpu_features.target", lambda: ["another processor"])
        assert pass_check(tmp_path, "weights", "auto").read() is None
    (file,) = tmp_path.rglob("*.json")
    for damaged in ("", "[]", '{"bits": 16}', '{"agrees": 1, "bits": "x", "divergence": 3}'):
        file.write_text(damaged)
        assert check.read() is None


def test_an_8_bit_head_is_the_target_in_every_pass(monkeypatch):
    """Logits are those of the head's own values, and a drafted row's are a plain row's, bit for bit."""
    model = tiny_nf4("qwen2")
    monkeypatch.setattr(choose, "LARGE_HEAD", 0)
    decoder, way = open_decoder(model, "auto", sample)
    assert way.endswith(", 8-bit head")
    weight = model.lm_head.weight
    target = CachedModel(decoder, reads=(3,))
    target.record(wanted=True)
    target.read(TEXT[:-1])
    together = target.forward(TEXT[-1], TREE).logits
    target.rollback(len(TEXT) - 1)
    alone = target.forward(TEXT[-1], Proposal.chain([])).logits
    assert torch.equal(alone[0], together[0])
    states = heads.states_of(decoder, TEXT)
    own = heads.logits_of(states, heads.head_values(len(weight), decoder.head))
    assert (alone[0] - own[-1]).norm() < 0.01 * own[-1].norm()
    exact = heads.logits_of(states, heads.exact_values(weight))
    assert 0.001 < float((own - exact).norm() / exact.norm()) < 0.012


def test_auto_takes_8_bits_for_a_large_head_that_says_the_same(monkeypatch):
    """A head with one huge number in each group has no room for the others in 8 bits."""
    model = tiny_nf4("qwen2")
    assert "head" not in open_decoder(tiny_nf4("qwen2"), "auto", sample)[1]  # a small one
    monkeypatch.setattr(choose, "LARGE_HEAD", model.lm_head.weight.nbytes)
    assert open_decoder(tiny_nf4("qwen2"), "auto", sample)[1].endswith(", 8-bit head")
    assert "head" not in open_decoder(tiny_nf4("qwen2"))[1]  # nothing to measure on
    model.lm_head.weight *= 40  # distributions are sharp, and rounding is not small any more
    model.lm_head.weight[:, ::64] *= 100
    decoder, way = open_decoder(model, "auto", sample)
    assert "head" not in way
    assert decoder.head.bits == 16
    assert "head" not in open_decoder(tiny_nf4("qwen2"), "16", sample)[1]


def test_divergence_is_computed_as_documented():
    wanted = torch.tensor([[0.5, 0.5], [0.9, 0.1]]).log()
    found = torch.tensor([[0.25, 0.75], [0.9, 0.1]]).log() + 3
    found_kl, variation = heads.divergence(found, wanted)
    kl = 0.5 * (torch.tensor(0.5 / 0.25).log() + torch.tensor(0.5 / 0.75).log()) / 2
    assert found_kl == pytest.approx(float(kl), rel=1e-4)
    assert variation == pytest.approx(0.125, rel=1e-4)


def test_codes_are_laid_out_in_blocks_of_32_outputs():
    pairs = torch.randint(0, 256, (96, 64), dtype=torch.uint8)
    levels = torch.stack([pairs >> 4, pairs & 15], dim=-1).view(3, 32, 64, 2)
    laid = packing.lay_pairs(pairs)
    halves = torch.cat([laid & 15, laid >> 4], dim=-1)
    assert torch.equal(halves, levels.transpose(1, 2).flatten(2))
    assert torch.equal(packing.pairs_of(laid), pairs)


def test_nf4_in_blocks_is_nf4_but_for_the_rounding_of_its_values():
    layer = tiny_nf4("qwen2").get_submodule("model.layers.0.mlp.up_proj")
    found = part_of_nf4(layer.weight).values(0, layer.out_features)
    state = layer.weight.quant_state
    wanted = dequantize_4bit(layer.weight.data, state).float()
    scale = scales_of(state).view(len(wanted), -1, 1)
    apart = (found - wanted).view(len(wanted), -1, NF4_GROUP).abs() / scale
    # Of the largest weight of a group; neighbouring values are 0.08 apart.
    assert 0.001 < apart.max() < 0.005


def test_a_head_of_bytes_is_near_the_head():
    weight = tiny_nf4("qwen2").lm_head.weight
    found = head_of_bytes(weight).values(0, len(weight))
    assert (found - weight).abs().max() <= weight.abs().max() / 127


def test_the_lean_pass_reads_packed_layers():
    model = tiny_nf4("llama")
    want = passes_of(LeanDecoder(model))[0]
    packed.pack_layers(model, packed.layout_of(model).form)
    got = passes_of(LeanDecoder(model))[0]
    assert (got - want).float().norm() < (ROUNDED or 0.01) * want.float().norm()
