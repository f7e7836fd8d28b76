"""A peer in its own process: transformers or llama.cpp answers token ids.

No clock includes reading the prompt. The pass that reads it also gives the first tokens, so the clock starts
after that pass, and only later tokens are counted: the rate is the same.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from specdemo.config.settings import Sampling
from specdemo.config.strings import Json

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    import torch
    from transformers import PreTrainedModel

LOOKUP_TOKENS = 10  # draft tokens: example of transformers' documentation


@dataclass(frozen=True, slots=True)
class PeerSpec:
    """Options that a peer is started with.

    folder, draft: models in Hugging Face layout; gguf: the file that `folder` was converted from; "" if not needed.
        For a program that reads GGUF files, `draft` is one too
    threads: processor threads; context: longest text in tokens; stop_ids: tokens that end an answer
    repack: let llama.cpp use weight layouts for this processor, as it does by default
    """

    lane: str
    folder: str = ""
    draft: str = ""
    gguf: str = ""
    precision: str = "nf4"
    device: str = "cpu"
    threads: int = 1
    context: int = 2048
    stop_ids: tuple[int, ...] = ()
    repack: bool = True


@dataclass(frozen=True, slots=True)
class Spoken:
    """One answer of a peer.

    tokens, seconds: counted by the clock; passes, rows: the target's passes in that time, and the tokens that they read
    """

    ids: tuple[int, ...]
    tokens: int
    seconds: float
    passes: int
    rows: int


class Speaker(Protocol):
    """A loaded peer. `facts`: versions and settings for the report."""

    def facts(self) -> dict[str, str]: ...

    def speak(
        self, prompt_ids: Sequence[int], max_new_tokens: int, sampling: Sampling
    ) -> Spoken: ...


class TransformersSpeaker:
    """transformers' own `generate` with its attention and caches, on our weights and precision."""

    def __init__(self, spec: PeerSpec) -> None:
        import torch

        torch.set_num_threads(spec.threads)
        self._spec, (_, _, way) = spec, spec.lane.partition(":")
        self._model = load_plain(spec.folder, spec)
        self._target, self._options, self._extra = Watch(self._model), {}, {}
        if way == "assisted":
            self._extra = {"assistant_model": load_plain(spec.draft, spec)}
        elif way == "lookup":
            self._options = {"prompt_lookup_num_tokens": LOOKUP_TOKENS}

    def facts(self) -> dict[str, str]:
        facts = versions("transformers", "torch", "bitsandbytes")
        # With scikit-learn, transformers adapts the assistant's threshold.
        return facts | (versions("scikit-learn") if self._extra else {})

    def speak(self, prompt_ids: Sequence[int], max_new_tokens: int, sampling: Sampling) -> Spoken:
        import torch
        from transformers import GenerationConfig, StoppingCriteriaList

        torch.manual_seed(sampling.seed)
        config = GenerationConfig(
            max_new_tokens=max_new_tokens,
            eos_token_id=list(self._spec.stop_ids) or None,
            pad_token_id=(*self._spec.stop_ids, 0)[0],
            **_sampling_options(sampling),
            **self._options,
        )
        prompt: torch.Tensor = torch.tensor([list(prompt_ids)], device=self._model.device)
        clock = _FirstPass(self._model.device, self._target)
        with torch.inference_mode():
            output = self._model.generate(  # type: ignore[operator]  # transformers types it as a tensor
                prompt,
                attention_mask=torch.ones_like(prompt),
                generation_config=config,
                stopping_criteria=StoppingCriteriaList([clock]),
                **self._extra,
            )
        seconds = _now(self._model.device) - clock.begun
        ids, tokens = tuple(output[0, len(prompt_ids) :].tolist()), output.shape[1] - clock.length
        return Spoken(ids, tokens, seconds, self._target.passes, self._target.rows)


def load_plain(folder: str, spec: PeerSpec) -> PreTrainedModel:
    """Load a model for transformers' own generation, in the precision of specdemo's runs."""
    from transformers import AutoModelForCausalLM, GenerationConfig

    from specdemo.files.quiet import quiet_transformers
    from specdemo.models import devices, loading

    device = devices.choose_device(spec.device, spec.precision)
    options = loading.loading_options(Path(folder), spec.precision, device)
    with quiet_transformers():
        model = AutoModelForCausalLM.from_pretrained(folder, **options)
    model.eval().requires_grad_(False)
    loading.prepare_kernels(model, spec.precision, device)
    loading.warm_up(model)
    model.generation_config = (
        GenerationConfig()
    )  # requests have all options; an assistant uses the defaults
    return model


class Watch:
    """Counter of a module's passes and the tokens that they read."""

    def __init__(self, model: PreTrainedModel) -> None:
        self.reset()
        model.register_forward_pre_hook(self._before, with_kwargs=True)

    def reset(self) -> None:
        self.passes, self.rows = 0, 0

    def _before(self, _module: object, args: tuple[torch.Tensor, ...], options: Json) -> None:
        ids = args[0] if args else options["input_ids"]
        self.passes += 1
        self.rows += ids.shape[1]


class _FirstPass:
    """Clock that starts after the first pass: `generate` calls it after each pass as a stopping criterion that stops nothing."""

    def __init__(self, device: torch.device, watch: Watch) -> None:
        self._device, self._watch = device, watch
        self.begun, self.length = 0.0, 0

    def __call__(self, input_ids: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        import torch

        if not self.length:
            self.length = input_ids.shape[1]
            self._watch.reset()
            self.begun = _now(self._device)
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def _now(device: torch.device) -> float:
    """Return the time once the device has finished its work."""
    if device.type == "cuda":
        import torch

        torch.cuda.synchronize(device)
    return time.perf_counter()


def _sampling_options(sampling: Sampling) -> Json:
    options = {name: value for name, value in asdict(sampling).items() if name != "seed"}
    if sampling.greedy:
        return {"do_sample": False, "repetition_penalty": sampling.repetition_penalty}
    return {"do_sample": True, **options}


class LlamaServerSpeaker:
    """llama.cpp's own server through xllamacpp, with its defaults except for threads.

    Its clock starts at the first token; only later tokens are counted.
    """

    def __init__(self, spec: PeerSpec) -> None:
        import xllamacpp

        options = xllamacpp.CommonParams()
        options.model.path, options.n_ctx, options.n_parallel = spec.gguf, spec.context, 1
        options.hostnames, options.port, options.verbosity = ["127.0.0.1"], 0, 0
        options.cpuparams.n_threads = options.cpuparams_batch.n_threads = spec.threads
        options.n_gpu_layers = 0 if spec.device == "cpu" else -1
        options.no_extra_bufts = not spec.repack
        kinds = xllamacpp.common_speculative_type
        if spec.lane.endswith(":lookup"):
            options.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE]
        if spec.draft:
            draft = options.speculative.draft
            options.speculative.types = [kinds.COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE]
            draft.mparams.path, draft.n_gpu_layers = spec.draft, options.n_gpu_layers
            draft.cpuparams.n_threads = draft.cpuparams_batch.n_threads = spec.threads
        self._spec, self._server = spec, xllamacpp.Server(options)

    def facts(self) -> dict[str, str]:
        weights = "laid out for the processor" if self._spec.repack else "as in the file"
        return {**versions("xllamacpp"), "weights": weights}

    def speak(self, prompt_ids: Sequence[int], max_new_tokens: int, sampling: Sampling) -> Spoken:
        answer = self._server.handle_completions(
            {
                "prompt": list(prompt_ids),
                "n_predict": max_new_tokens,
                "verbose": True,
                "return_tokens": True,
                "cache_prompt": False,
                "temperature": sampling.temperature,
                "top_k": sampling.top_k,
                "top_p": sampling.top_p,
                "min_p": 0.0,
                "repeat_penalty": sampling.repetition_penalty,
                "seed": sampling.seed,
            }
        )
        if "error" in answer:
            raise ValueError(str(answer["error"]))
        ids, timings = answer["__verbose"]["tokens"], answer["timings"]
        drafted, accepted = timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)
        later = int(timings["predicted_n"]) - 1
        passes = later - accepted
        seconds = timings["predicted_ms"] / 1000
        return Spoken(tuple(ids), later, seconds, passes, passes + drafted)


SPEAKERS: dict[str, Callable[[PeerSpec], Speaker]] = {
    "transformers": TransformersSpeaker,
    "llama-server": LlamaServerSpeaker,
}


def versions(*packages: str) -> dict[str, str]:
    """Return installed versions; "none" for packages that are not installed."""
    found = {}
    for package in packages:
        found[package] = "none"
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


def serve(spec: PeerSpec, parent: Connection, errors: Path) -> None:
    """Run a peer as a process of its own. errors: file for all that libraries print"""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupted parent ends this process itself
    with errors.open("wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    answer(spec, parent)


def answer(spec: PeerSpec, parent: Connection) -> None:
    """Load a peer and send its facts; then answer each request, the arguments of `Speaker.speak`. A failure is sent as a sentence."""
    try:
        speaker = SPEAKERS[spec.lane.partition(":")[0]](spec)
    except Exception as error:  # noqa: BLE001 - the parent gets the reason of any failure
        parent.send(_sentence(error))
        return
    parent.send(speaker.facts())
    with suppress(EOFError):  # the parent has closed the connection
        while True:
            request = parent.recv()
            try:
                parent.send(speaker.speak(*request))
            except Exception as error:  # noqa: BLE001 - as above
                parent.send(_sentence(error))


def _sentence(error: Exception) -> str:
    words = (str(error).strip().splitlines() or [""])[0]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__
