"""Other programs as lanes: a process for each peer, on our weights, prompts, limits and threads."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdemo.bench.lanes import NAME, Answer, LaneLost, LaneResult
from specdemo.bench.peer import PeerSpec, Spoken, serve
from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings, Sampling
from specdemo.files.catalogue import DEFAULT_TARGET, find, partner
from specdemo.files.found import gguf_path
from specdemo.files.sources import fetch_catalogue_gguf
from specdemo.models.devices import FILE
from specdemo.models.networks.folders import export, export_gguf, is_compact, read_config
from specdemo.models.pair import model_files
from specdemo.session.text import Message, encode_prompt, with_answer
from specdemo.trace.metrics import Metrics

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from specdemo.session.studio import Studio

LLAMA_PACKAGE = "xllamacpp"  # contains llama.cpp's server
LLAMA_CONTEXT = 4096  # tokens; it reserves memory for all of them
KILL_SECONDS = 2.0  # seconds until a process that does not end is killed
EXPANDED = "bf16"  # other programs cannot read a file's own blocks as we store them; they get the same weights in this precision


class PeerProcess:
    """A peer in a child process. Raises LaneLost when it has failed."""

    def __init__(self, spec: PeerSpec, work: Callable[..., None] = serve) -> None:
        """Start it. work: the function of the process"""
        handle, name = tempfile.mkstemp()
        os.close(handle)
        self._errors = Path(name)
        spawn = multiprocessing.get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        self._child = spawn.Process(target=work, args=(spec, theirs, self._errors), daemon=True)
        self._child.start()
        theirs.close()
        try:
            self.facts: dict[str, str] = self._answer()
        except BaseException:
            self.close()
            raise

    def ask(self, prompt_ids: Sequence[int], max_new_tokens: int, sampling: Sampling) -> Spoken:
        with suppress(OSError):  # of a process that has ended no answer comes either
            self._connection.send((prompt_ids, max_new_tokens, sampling))
        spoken: Spoken = self._answer()
        return spoken

    def _answer(self) -> Any:
        try:
            found = self._connection.recv()
        except (EOFError, OSError):
            raise LaneLost(self._last_words()) from None
        except KeyboardInterrupt:  # it would finish its answer first
            self._child.kill()
            raise
        if isinstance(found, str):
            raise LaneLost(found)
        return found

    def _last_words(self) -> str:
        """Return its exit status and the last line that it wrote to standard error."""
        self._end()
        lines = self._errors.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        words = f": {lines[-1]}" if lines else ""
        return f"its process ended with status {self._child.exitcode}{words}"

    def _end(self) -> None:
        """Wait for the end of the process; after KILL_SECONDS seconds end it by force."""
        self._child.join(KILL_SECONDS)
        if self._child.exitcode is None:
            self._child.kill()
            self._child.join()

    def close(self) -> None:
        """End the process."""
        self._connection.close()
        self._end()
        self._errors.unlink(missing_ok=True)


@dataclass(frozen=True, slots=True)
class PeerLane:
    """A peer as a variant. context: limit of its text in tokens."""

    name: str
    process: PeerProcess
    tokenizer: PreTrainedTokenizerBase
    context: int
    settings: RunSettings
    system: str = ""

    @contextmanager
    def talk(self) -> Iterator[Answer]:
        """Open a conversation. A peer has no cache: each turn sends the whole conversation."""
        messages: list[Message] = []

        def answer(prompt: str) -> LaneResult:
            prompt_ids = encode_prompt(
                self.tokenizer, prompt, self.context, system=self.system, earlier=messages
            )
            most = min(self.settings.max_new_tokens, self.context - len(prompt_ids))
            said = self.process.ask(prompt_ids, most, self.settings.sampling)
            text = str(self.tokenizer.decode(list(said.ids), skip_special_tokens=True))
            messages[:] = with_answer(messages, prompt, text)
            return LaneResult(self.name, _metrics(said), said.ids)

        yield answer


def _metrics(spoken: Spoken) -> Metrics:
    """Return a peer's metrics: a pass reads the pending token and the draft, and adds one token of its own."""
    drafted, accepted = spoken.rows - spoken.passes, max(0, spoken.tokens - spoken.passes)
    # Peers report neither the steps that drafted nor the seconds of drafting and verification.
    return Metrics(spoken.passes, spoken.tokens, drafted, accepted, elapsed_seconds=spoken.seconds)


def open_peer(
    studio: Studio, name: str, settings: RunSettings, system: str, work: Path
) -> PeerLane:
    """Start a peer on the loaded pair's weights. work: folder for its files

    Raises UserError or LaneLost if it cannot run here.
    """
    import torch

    pair, (program, _, way) = studio.pair, name.partition(":")
    context = pair.context
    folder = draft = gguf = ""
    precision = pair.target.info.precision
    if precision == FILE:
        precision = EXPANDED
    if program == NAME:
        if find_spec(LLAMA_PACKAGE) is None:
            raise UserError("bench.no_peer", package=LLAMA_PACKAGE)
        gguf, context = str(gguf_file(studio.settings, work)), min(context, LLAMA_CONTEXT)
        draft = str(draft_gguf(studio, Path(gguf), work)) if way == "draft" else ""
    else:
        folder = str(target_folder(studio, precision))
        draft = str(draft_folder(studio, precision, work)) if way == "assisted" else ""
    spec = PeerSpec(
        lane=name,
        folder=folder,
        draft=draft,
        gguf=gguf,
        precision=precision,
        device=str(pair.target.device),
        threads=torch.get_num_threads(),
        context=context,
        stop_ids=tuple(sorted(pair.stop_ids())),
    )
    return PeerLane(name, _start(spec), pair.tokenizer, context, settings, system)


def _start(spec: PeerSpec) -> PeerProcess:
    """Start a peer; if llama.cpp breaks, start it again without weight layouts for the processor.

    Some builds crash in the processor's matrix unit (AMX), which only those layouts use.
    """
    try:
        return PeerProcess(spec)
    except LaneLost:
        if not spec.lane.startswith("llama"):
            raise
    return PeerProcess(replace(spec, repack=False))


def target_folder(studio: Studio, precision: str) -> Path:
    """Return the folder of the loaded target in Hugging Face layout, for a precision."""
    wanted = studio.settings.target
    name = studio.pair.target.info.name if wanted == "auto" else wanted
    return model_files(name, replace(studio.settings, precision=precision)).folder


def draft_folder(studio: Studio, precision: str, work: Path) -> Path:
    """Return a folder with the loaded draft as an ordinary transformers model."""
    settings, folder = _draft_files(studio, precision)
    if not is_compact(folder):
        return folder
    lender: str = read_config(folder)["specdemo"].get("embedding_from", DEFAULT_TARGET)
    out = work / "draft"
    if not out.is_dir():
        export(folder, model_files(lender, settings).folder, out)
    return out


def draft_gguf(studio: Studio, target: Path, work: Path) -> Path:
    """Return the loaded draft as a GGUF file. target: the target's"""
    settings, folder = _draft_files(studio, studio.settings.precision)
    if not is_compact(folder):
        return gguf_file(settings, work)
    export_gguf(folder, target, out := work / "draft.gguf")
    return out


def _draft_files(studio: Studio, precision: str) -> tuple[AppSettings, Path]:
    """Return settings whose target is the loaded draft model, and its folder. Raises UserError if there is none."""
    if studio.pair.draft_info is None:
        raise UserError("bench.no_draft", why=studio.pair.no_draft_why)
    named = studio.settings.draft
    own = partner(studio.pair.target.known) or ""
    target = own if named == "auto" else named
    settings = replace(studio.settings, target=target, precision=precision)
    folder = Path(settings.target).expanduser()
    return settings, folder if is_compact(folder) else model_files(settings.target, settings).folder


def gguf_file(settings: AppSettings, work: Path) -> Path:
    """Return the GGUF file that the target was converted from. Raises UserError if there is none."""
    if found := gguf_path(settings.target):
        return found
    entry = find(settings.target)
    if entry is None or not entry.gguf_sha256:
        raise UserError("bench.not_gguf", target=settings.target)
    return fetch_catalogue_gguf(entry, settings.cache_dir, work)
