"""gemlite's kernels as a second way: what they are given, that they compute it, and when they are taken.

No card is needed. With gemlite installed and TRITON_INTERPRET=1, Triton's interpreter runs the kernels on the processor.
"""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest
import torch
from passes import nf4_layers, tiny
from torch.nn import functional as F

from specdemo.config.settings import AppSettings
from specdemo.models import doctor, ways
from specdemo.models.decoders import gemlite
from specdemo.models.decoders.choose import agrees
from specdemo.models.decoders.gemlite import GridProduct, on_gemlite, on_grid, regridded
from specdemo.models.decoders.graphs import GraphDecoder
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.models.decoders.operators import Nf4Joined
from specdemo.models.loading import LoadedModel
from specdemo.trace.events import ModelInfo

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1" and bool(gemlite.version())


def unrecorded(_work):
    raise RuntimeError("there is no GPU to record")


def matrix(out_features=96, in_features=128):
    generator = torch.Generator().manual_seed(2)
    return torch.randn(out_features, in_features, generator=generator).half()


def test_weights_on_the_grid_are_near_and_zeros_stay():
    weight = matrix()
    weight[:, ::5], weight[3, :64] = 0, 0
    weight[4, 64:].abs_()
    codes, scales, zeros = on_grid(weight, 64)
    assert codes.dtype == torch.uint8
    assert (codes.min(), codes.max()) == (0, 15)
    assert zeros.equal(zeros.round())
    product = GridProduct(weight, None, 64, kernel=False)
    error = (product.weight() - weight).float()
    assert product.weight()[weight == 0].abs().max() == 0
    assert error.abs().max() <= 1.01 * scales.max()
    assert 0.03 < error.norm() / weight.float().norm() < 0.15
    by_hand = (codes.view(96, 2, 64).half() - zeros[..., None]) * scales[..., None]
    assert by_hand.view(96, 128).equal(product.weight())


def test_a_matrix_in_nf4_is_given_as_it_was_loaded():
    layers = nf4_layers(2)
    joined = Nf4Joined(layers)
    x = torch.randn(3, 128).bfloat16()
    want = F.linear(x, joined.dequantised(), joined.bias)
    torch.testing.assert_close(joined(x), want, atol=0.1, rtol=0.02)
    assert joined.block == 64


class Loaded(Nf4Joined):
    """A matrix of 16-bit numbers that stands for one in NF4: the interpreter has no bfloat16."""

    def __init__(self, product, in_features):
        self.block, self.bias, self.in_features = 32, None, in_features
        self._weight = product(torch.eye(in_features).half()).t().contiguous()

    def dequantised(self):
        return self._weight

    def __call__(self, x):
        return F.linear(x, self._weight)


def loaded_model():
    lean = LeanDecoder(tiny("llama").half())
    for number, layer in enumerate(lean.layers):
        parts = {"qkv": 96, "output": 96, "gate_up": 96, "down": 128}
        fields = {name: Loaded(getattr(layer, name), size) for name, size in parts.items()}
        lean.layers[number] = type(layer)(
            layer.input_norm, fields["qkv"], fields["output"], layer.post_norm,
            fields["gate_up"], fields["down"], layer.query_key_norms,
        )  # fmt: skip
    return lean


def test_a_model_on_the_grid_is_another_model_and_nearly_the_same():
    lean = loaded_model()
    other = regridded(lean, kernel=False)
    assert not agrees(other, lean)
    assert all(isinstance(one, GridProduct) for layer in other.layers for one in layer.matrices())
    assert lean.layers[0].qkv is not other.layers[0].qkv


SAYS = {"standing": ([1, 2, 3], 0.004), "second": ([1, 2, 3], 0.002)}


@pytest.fixture
def card(monkeypatch, tmp_path):
    """A card with gemlite, and what both ways say. returns: (says, loads, choose)"""
    says, loads = dict(SAYS), []
    standing = GraphDecoder(LeanDecoder(tiny("llama")), unrecorded)
    second = standing.with_lean(standing.lean)

    def load(_standing, _tuning):
        loads.append("second")
        if isinstance(says["second"], Exception):
            raise says["second"]
        return second

    monkeypatch.setattr(gemlite, "version", lambda: "0.6")
    monkeypatch.setattr(gemlite, "on_gemlite", load)
    monkeypatch.setattr(ways, "choose_device", lambda *_: torch.device("cuda"))
    monkeypatch.setattr(ways, "card_name", lambda _: "a card")
    monkeypatch.setattr(ways, "_ids", lambda _: [7, 8])
    monkeypatch.setattr(
        ways, "_greedy", lambda one, _: says["second" if one is second else "standing"]
    )
    settings = AppSettings(cache_dir=tmp_path, device="cuda")
    kernel = "bitsandbytes NF4 on CUDA, bfloat16 compute, lean pass in CUDA graphs"
    info = ModelInfo("a-target", precision="nf4", kernel=kernel)
    loaded = LoadedModel(None, standing, info, torch.device("cpu"), 96)
    return SimpleNamespace(
        says=says, loads=loads, settings=settings, loaded=loaded, second=second,
        choose=lambda: ways.with_fastest_kernels(loaded, settings),
    )  # fmt: skip


def test_the_second_way_is_taken_where_it_says_the_same_and_is_faster(card):
    assert "measures gemlite too" in ways.kernels_told(card.settings)
    for _ in range(2):
        taken = card.choose()
        assert taken.decoder is card.second
        assert taken.info.kernel.startswith("gemlite 4-bit on CUDA, ")
    assert card.loads == ["second", "second"]  # each start packs it; the first one measured both
    told = ways.kernels_told(card.settings)
    assert told.startswith("gemlite for smollm2-135m-instruct, measured: bitsandbytes 4.0 ms")
    card.says["second"] = RuntimeError("the next start breaks")
    assert card.choose() is card.loaded


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (([1, 2, 4], 0.001), "gemlite says other words"),
        (([1, 2, 3], 0.009), "gemlite 9.0 ms a pass"),
        (RuntimeError("CUDA out of memory"), "gemlite is out: CUDA out of memory"),
        (KeyError("of its own"), "gemlite is out: 'of its own'"),
    ],
)
def test_the_second_way_is_left_where_it_differs_is_slower_or_breaks(card, second, why):
    card.says["second"] = second
    for _ in range(2):
        assert card.choose() is card.loaded
    assert card.loads == ["second"]  # what was found is kept
    assert ways.kernels_told(card.settings).endswith(why)


def test_without_the_package_a_card_or_nf4_nothing_is_tried(card, monkeypatch):
    bf16 = AppSettings(cache_dir=card.settings.cache_dir, precision="bf16")
    assert ways.with_fastest_kernels(card.loaded, bf16) is card.loaded
    monkeypatch.setattr(ways, "choose_device", lambda *_: torch.device("cpu"))
    assert card.choose() is card.loaded
    assert "gemlite is for CUDA cards" in doctor._card_kernels(card.settings).value
    monkeypatch.setattr(gemlite, "version", lambda: "")
    assert card.choose() is card.loaded
    fact = doctor._card_kernels(card.settings)
    assert fact.ok
    assert "not installed, and nothing needs it" in fact.value
    assert not card.loads
    assert not (card.settings.cache_dir / "ways").exists()


class Driver:
    """What gemlite asks of a card when it is imported; each variant of a kernel takes as long as the next."""

    utils = SimpleNamespace(get_device_properties=lambda _: {"max_shared_mem": 1 << 17})

    def get_current_target(self):
        return SimpleNamespace(backend="cuda", arch=90, warp_size=32)

    def get_benchmarker(self):
        return lambda _call, **_options: [1.0, 1.0, 1.0]

    def get_device_interface(self):
        return torch.cuda


@pytest.fixture(scope="module")
def interpreter():
    """gemlite in Triton's interpreter."""
    if not INTERPRETED:
        pytest.skip("gemlite is not installed, or TRITON_INTERPRET is not 1")
    driver = pytest.importorskip("triton.runtime").driver
    card = SimpleNamespace(name="none", multi_processor_count=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
        patch.setattr(torch.cuda, "get_device_properties", lambda *_: card)
        driver.set_active(Driver())
        yield


@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9])
@pytest.mark.parametrize("in_features", [128, 192])
def test_the_kernel_computes_what_its_weights_say(rows, in_features):
    weight, bias = matrix(96, in_features), matrix(1, 96)[0]
    product = GridProduct(weight, bias, 64, kernel=True)
    assert product.weight().equal(GridProduct(weight, bias, 64, kernel=False).weight())
    x = matrix(rows, in_features)
    got, want = product(x), F.linear(x.float(), product.weight().float(), bias.float())
    assert got.dtype == x.dtype
    torch.testing.assert_close(got.float(), want, atol=0.03, rtol=2e-3)


@pytest.mark.usefixtures("interpreter")
def test_a_whole_model_goes_through_the_kernels(tmp_path):
    lean, tuning = loaded_model(), tmp_path / "ways" / "tuning.json"
    decoder = on_gemlite(GraphDecoder(lean, unrecorded), tuning)
    assert agrees(decoder, regridded(lean, kernel=False))
    kept = tuning.read_text(encoding="utf-8")
    assert all(f'"({rows}, 160, 96, 32, 8, ' in kept for rows in (1, 2, 4, 8))
    on_gemlite(GraphDecoder(lean, unrecorded), tuning)
    assert tuning.read_text(encoding="utf-8") == kept
