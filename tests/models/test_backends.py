"""The fastest of several devices with equal output is chosen, measured once. Devices are only names here: this machine has one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from conftest import tiny_llama
from errors import reported

from specdemo.config.settings import AppSettings
from specdemo.kernels import cpu_features
from specdemo.models import backends, devices, doctor
from specdemo.models.backends import BackendChoice, Trial, fastest
from specdemo.models.decoders.lean import LeanDecoder

SAYS = {"cpu": ([1, 2, 3], 0.004), "mps": ([1, 2, 3], 0.002)}


@pytest.fixture
def mac(monkeypatch):
    """A Mac, and the output of a model on its devices. returns: (outputs, loads) — a test may change the first, the second is recorded"""
    says, loads = dict(SAYS), []

    def load(_files, _precision, device, _progress, **_options):
        loads.append(device)
        if isinstance(says[device], Exception):
            raise says[device]
        return SimpleNamespace(decoder=says[device])

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(devices, "computes", lambda _device: True)
    monkeypatch.setattr(cpu_features, "compiles", lambda: True)
    monkeypatch.setattr(backends, "load_model", load)
    monkeypatch.setattr(backends, "pack_as", lambda *_: None)
    monkeypatch.setattr(backends, "resolve", lambda *_: None)
    monkeypatch.setattr(backends, "load_tokenizer", lambda _: lambda _text: {"input_ids": [7, 8]})
    monkeypatch.setattr(backends, "_greedy", lambda decoder, _ids: decoder)
    return says, loads


def test_the_fastest_is_measured_once_and_told(mac, tmp_path):
    _, loads = mac
    settings = AppSettings(cache_dir=tmp_path)
    assert "the first start of smollm2-135m-instruct measures mps too" in backends.describe_choice(
        settings
    )
    for _ in range(2):
        assert backends.choose_by_measure(settings) == "mps"
    assert loads == ["cpu", "mps"]  # the rule's first; the second start has read it
    told = doctor._device(settings).value
    assert told.startswith("mps for smollm2-135m-instruct in nf4, measured: cpu 4.0 ms a pass")
    (file,) = (tmp_path / "ways").iterdir()
    file.write_text('{"chosen": "mps"}')
    assert backends.choose_by_measure(settings) == "mps"
    assert len(loads) == 4


@pytest.mark.parametrize(
    ("mps", "why"),
    [
        (([1, 2, 4], 0.001), "mps writes other tokens"),
        (reported("It needs more memory."), "mps is out: It needs more memory."),
        (RuntimeError("no kernel\nmore"), "mps is out: no kernel"),
        (([1, 2, 3], 0.009), "mps 9.0 ms a pass"),
    ],
)
def test_what_disagrees_does_not_fit_or_is_slower_is_left(mac, tmp_path, mps, why):
    says, _ = mac
    says["mps"] = mps
    settings = AppSettings(cache_dir=tmp_path)
    assert backends.choose_by_measure(settings) == "cpu"
    assert backends.describe_choice(settings).endswith(why)


def test_measuring_is_bounded_in_seconds():
    decoder = LeanDecoder(tiny_llama(1))
    found = fastest({"one": lambda: decoder, "other": lambda: decoder}, [3, 4, 5], limit=0.0)
    late = Trial("other", None, "was not tried: there was no time for it")
    assert found == BackendChoice("one", (Trial("one", found.trials[0].seconds), late))
    assert found.trials[0].seconds > 0


def test_one_way_costs_nothing(monkeypatch, mac, tmp_path):
    _, loads = mac
    settings = AppSettings(cache_dir=tmp_path)
    for one in ("cpu", "mps", "cuda"):
        named = AppSettings(cache_dir=tmp_path, device=one)
        assert backends.choose_by_measure(named) == one
    assert backends.choose_by_measure(AppSettings(cache_dir=tmp_path, precision="int8")) == "auto"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert backends.choose_by_measure(settings) == "auto"
    assert backends.describe_choice(settings) == ""
    assert not loads
    assert not (tmp_path / "ways").exists()
