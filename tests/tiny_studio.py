"""A studio whose runs pass through the real loop on a tiny target."""

from types import SimpleNamespace

import torch
from conftest import PROFILE, decoder_of, open_target, steps_of
from letters import Letters

from specdemo.config.settings import AppSettings, Recommended
from specdemo.engine.runner import Runner
from specdemo.engine.sampling import Shaper
from specdemo.session.door import About, MethodInfo
from specdemo.session.meter import Meter
from specdemo.trace.events import ModelInfo, RunFailed


def encode(text):
    return Letters()(text)["input_ids"]


class TinyStudio:
    """drafters: by method, each made from a run's settings; absent: why other methods are not available.

    broken: methods whose runs fail; pair: values of the loaded pair
    """

    loaded, ready, whole = SimpleNamespace(store=None), False, False

    def __init__(self, weights, drafters, absent, **pair):
        self.drafters, self.broken = drafters, set()
        self.settings, self.runner = AppSettings(target="tiny", draft="none"), Runner()
        self.meter = Meter()
        self.shaper = Shaper.of
        self.infos = [MethodInfo(name, name.title(), "", (), True) for name in drafters]
        for name, why in absent.items():
            self.infos.append(MethodInfo(name, name.title(), "", (), False, why))
        target = SimpleNamespace(
            model=weights, decoder=decoder_of(weights), device=torch.device("cpu"),
            info=ModelInfo("tiny", precision="fp32", kernel="lean pass"),
        )  # fmt: skip
        loaded = {
            "target": target, "draft_info": None, "costs": PROFILE, "tokenizer": Letters(), "context": 512,
            "stop_ids": frozenset, "recommended": Recommended(), **pair,
        }  # fmt: skip
        self.pair = SimpleNamespace(**loaded)
        self.loaded_about = lambda: About(target.info, self.infos)

    def methods(self):
        return self.infos

    def open(self):
        nothing = lambda: None  # noqa: E731
        return SimpleNamespace(run=self.run, events=self.run, close=nothing, reset=nothing)

    def run(self, prompt, settings, **_options):
        if settings.method in self.broken:
            yield RunFailed("plain", "It broke.", "", "")
        target = open_target(self.pair.target.model)
        drafter = self.drafters[settings.method](settings)
        yield from steps_of(
            target, drafter, encode(prompt), settings.max_new_tokens, shaper=self.shaper(settings)
        )
