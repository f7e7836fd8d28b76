"""The device that `auto` chooses on each machine, and why. For a Mac only torch's answer is simulated."""

import pytest
import torch
from conftest import tiny_llama
from lanes import Watched

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.engine.attention import ModuleDecoder
from specdemo.kernels import cpu_features
from specdemo.models import devices, doctor, loading
from specdemo.models.decoders import choose
from specdemo.models.decoders.lean import LeanDecoder


@pytest.fixture
def mac(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(devices, "computes", lambda _device: True)


@pytest.mark.parametrize(
    ("precision", "compiles", "device", "why"),
    [
        ("nf4", True, "cpu", "compiled pass reads 4-bit weights"),
        ("nf4", False, "mps", "numba"),
        ("int8", True, "cpu", "no LLM.int8"),
        ("bf16", True, "mps", "Apple's GPU"),
        ("fp32", True, "mps", "Apple's GPU"),
    ],
)
@pytest.mark.usefixtures("mac")
def test_auto_on_a_mac(monkeypatch, precision, compiles, device, why):
    monkeypatch.setattr(cpu_features, "compiles", lambda: compiles)
    assert devices.choose_device("auto", precision) == torch.device(device)
    fact = doctor._device(AppSettings(precision=precision))
    assert fact.value.startswith(f"{device} for {precision}: ")
    assert why in fact.value


@pytest.mark.usefixtures("mac")
def test_a_given_device_is_taken(monkeypatch):
    assert devices.choose_device("MPS", "nf4").type == "mps"
    assert "settings" in doctor._device(AppSettings(device="mps")).value
    for newer, dtype in ((True, torch.bfloat16), (False, torch.float16)):
        monkeypatch.setattr(torch.backends.mps, "is_macos_or_newer", lambda *_, found=newer: found)
        assert loading.torch_dtype("bf16", torch.device("mps")) == dtype
    with pytest.raises(UserError, match="int8"):
        devices.choose_device("mps", "int8")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        *(("mps", "no GPU of Apple's"), ("cuda", "no such CUDA device")),
        *((name, "device") for name in ("teapot", "meta", "")),
    ],
)
def test_a_missing_device_is_refused(monkeypatch, name, said):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UserError, match=said):
        devices.choose_device(name)
    assert not doctor._device(AppSettings(device="mps")).ok


def test_a_gpu_that_does_not_compute_is_not_used(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert devices.computes(torch.device("cpu"))
    assert devices.has_mps() == devices.computes(torch.device("mps"))


@pytest.mark.usefixtures("mac")
def test_cuda_comes_before_all_and_the_processor_last(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert devices.best_device("nf4")[0] == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert devices.best_device("bf16")[0] == "cpu"


def test_of_two_passes_the_faster_is_taken_if_it_agrees(monkeypatch):
    model = tiny_llama(1)
    lean, module = LeanDecoder(model), ModuleDecoder(model)
    assert choose._pass_seconds(module) > 0
    for slower, faster in ((lean, module), (module, lean)):
        monkeypatch.setattr(choose, "_pass_seconds", lambda one, slow=slower: one is slow)
        assert choose.open_measured(lean, module)[0] is faster

    def fail(_passes):
        raise RuntimeError("not implemented for this device")

    for other in (Watched(lean, fail), LeanDecoder(tiny_llama(2))):  # faster than the module
        assert choose.open_measured(other, module) == (module, "transformers' own pass")
