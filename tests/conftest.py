"""Tiny real models and the helpers that every test of the engine uses."""

import atexit
import gc
import importlib
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Generator, Sequence
from functools import cache, lru_cache
from pathlib import Path

import pytest
import torch
from tiny_trained import READS, TextFeatures, tiny_trained
from transformers import LlamaConfig, LlamaForCausalLM
from xdist.plugin import pytest_xdist_auto_num_workers as auto_num_workers

from specdemo.config.settings import RunSettings, Sampling
from specdemo.drafters.base import DraftingContext
from specdemo.drafters.memory.datastore import Datastore
from specdemo.drafters.memory.visit import Memory
from specdemo.drafters.methods import METHODS, make_drafter
from specdemo.engine.cost import CostProfile
from specdemo.engine.loop import generate
from specdemo.engine.sampling import Shaper
from specdemo.engine.target import CachedModel, PrefixReader
from specdemo.engine.types import Drafter, Limits
from specdemo.kernels import runtime
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.trace.events import Event, ModelInfo, RunStarted
from specdemo.training.datastore import build_datastore

pytest_plugins = ["model_fixtures"]

VOCABULARY = 64
PROMPT = [5, 6, 7, 5, 6, 7, 5, 6, 11, 30, 2, 17]
# As on a small machine: five rows cost a fifth more than one, a draft step a tenth of a target's.
PROFILE = CostProfile(((1, 0.020), (5, 0.024), (32, 0.060)), 0.002)
ALL_METHODS = sorted(METHODS)
LOOKED = pytest.StashKey[Path]()  # the file whose tests run

# Models this small are slower with several threads, and each worker has a core of its own.
torch.set_num_threads(1)
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the programs that tests start


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One worker more than there are cores: a third of the time, a test waits for a browser, a server or a process."""
    return auto_num_workers(config) + 1


@pytest.hookimpl(tryfirst=True)  # before the plugin that reads the marks
def pytest_collection_modifyitems(items: list[pytest.Function]) -> None:
    """Tests that share an expensive resource go to one worker; any other test goes to the next free one."""
    for item in items:
        group = group_of(item)
        if group and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(group))


def group_of(item: pytest.Function) -> str:
    """Return the name of the resource that a test shares: the embedded model, its file's browser, real servers or fixtures of its file."""
    if item.get_closest_marker("real"):
        return "real"
    if item.get_closest_marker("browser"):
        return item.path.name
    if "real_server" in item.fixturenames:
        return "real_server"
    found = item._fixtureinfo.name2fixturedefs
    shared = [name for name, known in found.items() if known[-1].scope == "module"]
    indices = item.callspec.indices if hasattr(item, "callspec") else {}
    parameters = [str(indices[name]) for name in shared if name in indices]
    return " ".join([item.nodeid.split("::")[0], *parameters]) if shared else ""


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Collect garbage once per test file, and exempt the imported libraries from later collections.

    With all libraries a collection takes 0.2 s, and every loaded pair triggers one.
    """
    if item.path != item.session.stash.get(LOOKED, None):
        item.session.stash[LOOKED] = item.path
        gc.collect()
        gc.freeze()


class Clock:
    """A clock that a test sets, in seconds."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def tiny_llama(seed: int) -> LlamaForCausalLM:
    """A random two-layer Llama, fp32, whose distributions are so sharp that they are worth guessing."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=512,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
    )
    model = LlamaForCausalLM(config).eval().requires_grad_(False)
    model.lm_head.weight.mul_(3 / model.lm_head.weight.std() / 32**0.5)
    return model


@pytest.fixture(scope="session")
def target_weights() -> LlamaForCausalLM:
    """The model that decides."""
    return tiny_llama(0)


@pytest.fixture(scope="session")
def draft_weights() -> LlamaForCausalLM:
    """A draft model that agrees often, and not always."""
    return disturbed_target(0.15)


def disturbed_target(noise: float) -> LlamaForCausalLM:
    """Return a copy of the target with noise in its weights, as a part of their standard deviation."""
    draft = tiny_llama(0)
    torch.manual_seed(5)
    for parameter in draft.parameters():
        parameter.add_(torch.randn_like(parameter) * parameter.std() * noise)
    return draft


@pytest.fixture(scope="session")
def compiled_pass() -> None:
    """Skip tests of the compiled pass where it does not run."""
    if not runtime.runs_here():
        pytest.skip("the compiled pass does not run on this processor or system")


@pytest.fixture(params=["numpy", "compiled"])
def code(request, monkeypatch):
    """Both codes that draw: numpy's, and the compiled one that replaces it where the compiled pass is loaded."""
    if request.param == "numpy":
        monkeypatch.setattr(runtime, "loaded", lambda _: None)
    else:
        request.getfixturevalue("compiled_pass")
        importlib.import_module("specdemo.kernels.draft_loop")


def header(method: str = "test") -> RunStarted:
    return RunStarted("speculative", method, "", {}, ModelInfo("tiny"))


def steps_of(
    target: CachedModel,
    drafter: Drafter,
    prompt_ids: Sequence[int],
    max_new_tokens: int = 40,
    *,
    sampling: Sampling | None = None,
    stop_ids: frozenset[int] = frozenset(),
    shaper: Shaper | None = None,
    **options: object,
) -> Generator[Event, None, None]:
    """Return the events of a run, which are computed as they are consumed. options: of `generate`"""
    return generate(
        target, drafter, prompt_ids, shaper=shaper or Shaper(sampling or Sampling()),
        limits=Limits(max_new_tokens, stop_ids), started=header(), **options,
    )  # fmt: skip


def run_lane(
    model: LlamaForCausalLM,
    drafter: Drafter,
    prompt_ids: Sequence[int],
    *,
    target: CachedModel | None = None,
    **options: object,
) -> list[Event]:
    """Run one variant and return all events. options: of `steps_of`"""
    target = target or bound_target(drafter) or CachedModel(decoder_of(model))
    target.record(wanted=True)
    return list(steps_of(target, drafter, prompt_ids, **options))


def reference_greedy(
    model: LlamaForCausalLM, prompt_ids: Sequence[int], max_new_tokens: int, **options: object
) -> list[int]:
    """transformers' own greedy decoding: an independent reference."""
    return list(_reference(model, tuple(prompt_ids), max_new_tokens, tuple(options.items())))


@cache
def _reference(
    model: LlamaForCausalLM,
    prompt_ids: tuple[int, ...],
    max_new_tokens: int,
    options: tuple[tuple[str, object], ...],
) -> tuple[int, ...]:
    output = model.generate(
        torch.tensor([prompt_ids]),
        attention_mask=torch.ones(1, len(prompt_ids), dtype=torch.long),
        do_sample=False,
        max_new_tokens=max_new_tokens,
        **dict(options),
    )
    return tuple(output[0, len(prompt_ids) :].tolist())


@torch.inference_mode()
def reference_logits(model: LlamaForCausalLM, token_ids: Sequence[int]) -> torch.Tensor:
    """(V,): transformers' own logits after a text."""
    return model(torch.tensor([token_ids])).logits[0, -1]


def drafter_for(
    method: str,
    draft: CachedModel,
    *,
    vocabulary: int = VOCABULARY,
    sampling: Sampling | None = None,
    store: Datastore | None = None,
    memory: Memory | None = None,
    target: CachedModel | None = None,
    toy_text: Callable[[], Sequence[int]] | None = None,
    published: Callable[..., dict[str, Callable[[], object]]] | None = None,
    profile: CostProfile = PROFILE,
    **changes: object,
) -> Drafter:
    """Create a registered method as a session does, with every input that it may need.

    draft: the draft model, which also replaces the quantised copy; store: a datastore of random texts by default
    target: the model whose states the trained drafters read; a new one by default, see `bound_target`
    toy_text: returns the tokens that a toy target has cached, in place of a target
    published: creates openers of published drafters, in place of trained ones of the same kind
    """
    if toy_text is None:
        target = target or open_target(_same_llama())
        features = target.features
        trained = tiny_trained(vocabulary, features, target)
        if published:
            trained |= published(vocabulary, features)
    else:
        features, trained = _of_toy_text(toy_text, vocabulary, draft, published)
    settings = RunSettings(
        method=method, sampling=sampling or Sampling(), **{"fallback": False, **changes}
    )
    reader = PrefixReader(draft)
    context = DraftingContext(
        settings,
        Shaper.of(settings),
        vocabulary,
        profile=profile,
        memory=memory or Memory(),
        models=trained | dict.fromkeys(("draft", "copy"), lambda: reader),
        features=features,
        store=store or nonsense_store(vocabulary),
    )
    drafter = make_drafter(context)
    if METHODS[method].states:
        drafter.bound = target
    return drafter


@cache
def decoder_of(model: LlamaForCausalLM) -> LeanDecoder:
    """Return the decoder that a session uses for this model; its passes take half as long as the module's."""
    return LeanDecoder(model)


@lru_cache(maxsize=1)
def _of_toy_text(
    toy_text: Callable[[], Sequence[int]],
    vocabulary: int,
    draft: CachedModel,
    published: Callable[..., dict[str, Callable[[], object]]] | None,
) -> tuple[TextFeatures, dict[str, Callable[[], object]]]:
    """The states of a toy target and the drafters that read them: those of one conversation, for all of its runs."""
    features = TextFeatures(toy_text, vocabulary)
    trained = tiny_trained(vocabulary, features, None, draft)
    return features, trained | (published(vocabulary, features) if published else {})


@cache
def _same_llama() -> LlamaForCausalLM:
    """Return one model for all tests that do not change it."""
    return tiny_llama(0)


def open_draft(model: LlamaForCausalLM) -> CachedModel:
    return CachedModel(decoder_of(model))


def open_target(model: LlamaForCausalLM) -> CachedModel:
    """Return a target that records the states that trained drafters read."""
    target = CachedModel(decoder_of(model), READS)
    target.record(wanted=True)
    return target


class TinyPair:
    """The tiny target, its draft, and methods that draft for it."""

    def __init__(self, target: LlamaForCausalLM, draft: LlamaForCausalLM) -> None:
        self.target, self.draft = target, draft

    def drafter(self, method: str, **options: object) -> Drafter:
        return drafter_for(method, open_draft(self.draft), **options)

    def run(
        self, drafter: Drafter, prompt: Sequence[int] = PROMPT, **options: object
    ) -> list[Event]:
        return run_lane(self.target, drafter, prompt, **options)

    def greedy(
        self, prompt: Sequence[int] = PROMPT, most: int = 40, **options: object
    ) -> list[int]:
        return reference_greedy(self.target, prompt, most, **options)


@pytest.fixture(scope="session")
def pair(target_weights: LlamaForCausalLM, draft_weights: LlamaForCausalLM) -> TinyPair:
    return TinyPair(target_weights, draft_weights)


def bound_target(drafter: Drafter) -> CachedModel | None:
    """The target whose states a drafter of `drafter_for` reads, for those that read any."""
    return getattr(drafter, "bound", None)


@lru_cache
def nonsense_store(vocabulary: int) -> Datastore:
    """A datastore of random texts: it matches often, and is mostly wrong."""
    rng = random.Random(7)
    texts = [[rng.randrange(vocabulary) for _ in range(60)] for _ in range(20)]
    folder = Path(tempfile.mkdtemp(prefix="specdemo-store-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    card = {"vocabulary_size": vocabulary, "tokenizer": "nonsense"}
    return Datastore.open(build_datastore(texts, folder / "store", card))


def innermost(drafter: Drafter) -> Drafter:
    """The drafter inside the wrappers that every method has."""
    while hasattr(drafter, "drafter"):
        drafter = drafter.drafter
    return drafter
