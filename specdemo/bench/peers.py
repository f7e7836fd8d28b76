"""Other programs as lanes: transformers' own generation on our weights, and servers that already run.

No clock includes reading the prompt. The pass that reads it also gives the first tokens, so the clock starts
after that pass, and only later tokens are counted: the rate is the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from specdemo.attach.client import KEY_VARIABLE
from specdemo.attach.detection import attach
from specdemo.attach.servers import Request, whole_answer
from specdemo.bench.lanes import Answer, LaneLost, LaneResult
from specdemo.bench.results import versions
from specdemo.config.errors import UserError, first_line
from specdemo.config.settings import RunSettings, Sampling
from specdemo.config.strings import Json
from specdemo.files.catalogue import DEFAULT_TARGET, partner
from specdemo.files.quiet import quiet_transformers
from specdemo.models import devices, loading
from specdemo.models.devices import FILE
from specdemo.models.networks.folders import export, is_compact, read_config
from specdemo.models.pair import model_files
from specdemo.session.studio import Studio
from specdemo.session.text import Message, encode_prompt, with_answer
from specdemo.trace.metrics import Metrics

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LOOKUP_TOKENS = 10  # draft tokens: example of transformers' documentation
EXPANDED = "bf16"  # transformers cannot read a file's own blocks as we store them; it gets the same weights in this precision


class TransformersLane:
    """transformers' own `generate` with its attention and caches, on our weights and precision, in the engine's thread."""

    def __init__(
        self, studio: Studio, name: str, settings: RunSettings, system: str, work: Path
    ) -> None:
        """Load the models. Raises UserError if there is no draft to assist."""
        self._studio, self._name, self._settings, self._system = studio, name, settings, system
        _, _, way = name.partition(":")
        precision = studio.pair.target.info.precision
        precision = EXPANDED if precision == FILE else precision
        device = str(studio.pair.target.device)
        assistant = draft_folder(studio, precision, work) if way == "assisted" else None
        self._model = load_plain(target_folder(studio, precision), precision, device)
        self._clock = PassClock(self._model)
        self._lookup: Json = {"prompt_lookup_num_tokens": LOOKUP_TOKENS} if way == "lookup" else {}
        self._assistant: Json = {}
        if assistant:
            self._assistant = {"assistant_model": load_plain(assistant, precision, device)}
        # With scikit-learn, transformers adapts the assistant's threshold.
        more = ["scikit-learn"] if assistant else []
        self.facts = versions("transformers", "torch", "bitsandbytes", *more)

    @contextmanager
    def talk(self) -> Iterator[Answer]:
        """Open a conversation. There is no cache: each turn reads the whole conversation."""
        messages: list[Message] = []
        pair = self._studio.pair

        def answer(prompt: str) -> LaneResult:
            prompt_ids = encode_prompt(
                pair.tokenizer, prompt, pair.context, system=self._system, earlier=messages
            )
            most = min(self._settings.max_new_tokens, pair.context - len(prompt_ids))
            try:
                said = self._studio.runner.call(partial(self.generate, prompt_ids, most))
            except Exception as error:
                raise LaneLost(f"{type(error).__name__}: {first_line(error)}") from error
            text = str(pair.tokenizer.decode(list(said.ids), skip_special_tokens=True))
            messages[:] = with_answer(messages, prompt, text)
            return said

        yield answer

    def generate(self, prompt_ids: Sequence[int], most: int) -> LaneResult:
        """Answer token ids. most: new tokens, at most"""
        from transformers import GenerationConfig, StoppingCriteriaList

        sampling, stops = self._settings.sampling, sorted(self._studio.pair.stop_ids())
        torch.manual_seed(sampling.seed)
        config = GenerationConfig(
            max_new_tokens=most,
            eos_token_id=stops or None,
            pad_token_id=(*stops, 0)[0],
            **_sampling_options(sampling),
            **self._lookup,
        )
        prompt: torch.Tensor = torch.tensor([list(prompt_ids)], device=self._model.device)
        clock = self._clock
        clock.restart()
        with torch.inference_mode(), quiet_transformers():
            output = self._model.generate(  # type: ignore[operator]  # transformers types it as a tensor
                prompt,
                attention_mask=torch.ones_like(prompt),
                generation_config=config,
                stopping_criteria=StoppingCriteriaList([clock]),
                **self._assistant,
            )
        seconds = _now(self._model.device) - clock.begun
        tokens, passes = output.shape[1] - clock.length, clock.passes
        # A pass reads the pending token and the draft, and adds one token of its own.
        drafted, accepted = clock.rows - passes, max(0, tokens - passes)
        metrics = Metrics(passes, tokens, drafted, accepted, elapsed_seconds=seconds)
        return LaneResult(self._name, metrics, tuple(output[0, len(prompt_ids) :].tolist()))


def load_plain(folder: Path, precision: str, device: str) -> PreTrainedModel:
    """Load a model for transformers' own generation, in the precision of specdemo's runs."""
    from transformers import AutoModelForCausalLM, GenerationConfig

    chosen = devices.choose_device(device, precision)
    options = loading.loading_options(folder, precision, chosen)
    with quiet_transformers():
        model = AutoModelForCausalLM.from_pretrained(folder, **options)
    model.eval().requires_grad_(False)
    loading.prepare_kernels(model, precision, chosen)
    loading.warm_up(model)
    # Requests have all options; an assistant uses the defaults.
    model.generation_config = GenerationConfig()
    return model


class PassClock:
    """Counter of a model's passes and the tokens that they read, and clock; both start after the first pass of a run.

    `generate` calls it after each pass as a stopping criterion that stops nothing.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        self.restart()
        model.register_forward_pre_hook(self._count, with_kwargs=True)

    def restart(self) -> None:
        self.begun, self.length = 0.0, 0
        self.passes = self.rows = 0

    def _count(self, _module: object, args: tuple[torch.Tensor, ...], options: Json) -> None:
        ids = args[0] if args else options["input_ids"]
        self.passes += 1
        self.rows += ids.shape[1]

    def __call__(self, input_ids: torch.Tensor, *_: object, **__: object) -> torch.Tensor:
        if not self.length:
            self.restart()
            self.length, self.begun = input_ids.shape[1], _now(input_ids.device)
        return torch.zeros(len(input_ids), dtype=torch.bool, device=input_ids.device)


def _now(device: torch.device) -> float:
    """Return the time once the device has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter()


def _sampling_options(sampling: Sampling) -> Json:
    options = {name: value for name, value in asdict(sampling).items() if name != "seed"}
    if sampling.greedy:
        return {"do_sample": False, "repetition_penalty": sampling.repetition_penalty}
    return {"do_sample": True, **options}


class ServerLane:
    """A server of another program at an address, with its own weights, template and drafts, see `attach`."""

    def __init__(self, url: str, settings: RunSettings, system: str) -> None:
        """Find out which program answers. Raises UserError."""
        self._url, self._settings, self._system = url, settings, system
        self._server = attach(url, os.environ.get(KEY_VARIABLE, ""))
        about = self._server.about
        self.facts = {"server": f"{about.server} {about.version}".strip(), "model": about.model}

    @contextmanager
    def talk(self) -> Iterator[Answer]:
        """Open a conversation: each turn sends the whole one."""
        messages: list[Message] = []
        if self._system:
            messages.append({"role": "system", "content": self._system})

        def answer(prompt: str) -> LaneResult:
            asked = with_answer(messages, prompt, "")[:-1]
            request = Request(asked, self._settings.max_new_tokens, self._settings.sampling)
            try:
                said = whole_answer(self._server, request)
            except UserError as error:
                raise LaneLost(str(error)) from error
            messages[:] = with_answer(messages, prompt, said.text)
            later = (said.reported_tokens or said.tokens) - len(said.first)
            seconds = said.decode_seconds or sum(one.seconds or 0.0 for one in said.rounds)
            metrics = Metrics(
                len(said.rounds),
                later,
                said.drafted or 0,
                said.accepted or 0,
                elapsed_seconds=seconds,
            )
            ids = [piece.token_id for piece in said.pieces if piece.token_id is not None]
            return LaneResult(self._url, metrics, tuple(ids) if len(ids) == said.tokens else ())

        yield answer


def open_peer(
    studio: Studio, name: str, settings: RunSettings, system: str, work: Path
) -> TransformersLane | ServerLane:
    """Return a lane by its name in `PEERS` or its URL. work: folder for files of the draft. Raises UserError."""
    if "://" in name:
        return ServerLane(name, settings, system)
    return TransformersLane(studio, name, settings, system, work)


def target_folder(studio: Studio, precision: str) -> Path:
    """Return the folder of the loaded target in Hugging Face layout, for a precision."""
    wanted = studio.settings.target
    name = studio.pair.target.info.name if wanted == "auto" else wanted
    return model_files(name, replace(studio.settings, precision=precision)).folder


def draft_folder(studio: Studio, precision: str, work: Path) -> Path:
    """Return a folder with the loaded draft as an ordinary transformers model. Raises UserError if there is none."""
    if studio.pair.draft_info is None:
        raise UserError("bench.no_draft", why=studio.pair.no_draft_why)
    named = studio.settings.draft
    target = (partner(studio.pair.target.known) or "") if named == "auto" else named
    settings = replace(studio.settings, target=target, precision=precision)
    folder = Path(target).expanduser()
    folder = folder if is_compact(folder) else model_files(target, settings).folder
    if not is_compact(folder):
        return folder
    lender: str = read_config(folder)["specdemo"].get("embedding_from", DEFAULT_TARGET)
    out = work / "draft"
    if not out.is_dir():
        export(folder, model_files(lender, settings).folder, out)
    return out
