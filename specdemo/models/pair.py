"""A target and its draft, loaded together: weights shared by every conversation, nothing of any visitor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, Recommended
from specdemo.config.strings import Json, JsonView
from specdemo.engine.cost import CostProfile
from specdemo.engine.target import CachedModel
from specdemo.engine.types import LanguageModel
from specdemo.files.catalogue import DEFAULT_TARGET, draft_of, recommended
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.files.sources import PACKING_RECIPES, ModelFiles, resolve
from specdemo.kernels import cpu_features
from specdemo.models.devices import AUTO, BYTES_PER_WEIGHT, FILE, FOUR_BIT, choose_device
from specdemo.models.loading import LoadedModel, pack_as, place_model, warm
from specdemo.models.measurements import PairPasses, card_name
from specdemo.models.networks.chain import CompactDecoder, CompactModel
from specdemo.models.networks.copy import QuantisedCopy, no_copy_why
from specdemo.models.networks.folders import (
    TargetTensors,
    is_compact,
    load_compact,
    read_config,
    read_tensor,
)
from specdemo.models.networks.layouts.families import find_published
from specdemo.models.networks.layouts.family import drafter_files
from specdemo.models.networks.registry import OpenedNetwork, Trained, find_trained, stands_alone
from specdemo.models.tokenizers import (
    check_pair,
    check_vocabulary,
    load_tokenizer,
    same_tokenizer,
    stop_ids,
)
from specdemo.trace.events import ModelInfo

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """Everything that a run needs of models.

    open_draft: makes a draft with an empty cache; None when the target has no draft
    copy: the target's quantised self, made at first use; None when the target is quantised already
    no_draft_why: the reason why it is missing, a sentence
    costs: measured costs of these models' passes on this machine
    trained: drafters that were trained for this target, by kind
    recommended: sampling settings that the target's authors recommend
    """

    target: LoadedModel
    tokenizer: PreTrainedTokenizerBase
    draft_info: ModelInfo | None
    open_draft: Callable[[], LanguageModel] | None
    no_draft_why: str = ""
    copy: QuantisedCopy | None = None
    costs: CostProfile = field(default_factory=CostProfile)
    trained: Mapping[str, Trained] = field(default_factory=dict)
    recommended: Recommended = field(default_factory=Recommended)

    def memory_bytes(self, need: str) -> int:
        """Bytes that a `draft` or a `copy` needs besides the target, by its number of weights; 0 if it does not exist."""
        info = self.trained[need].info if need in self.trained else None
        if need == "draft":
            info = self.draft_info
        if info:
            return int(info.parameters * BYTES_PER_WEIGHT[info.precision])
        return self.copy.memory_bytes() if need == "copy" and self.copy else 0

    def missing(self, need: str, what: str) -> str:
        """Return the reason why a method that needs a `draft`, a `copy` or a kind of trained drafter cannot run, or "" if it can.

        what: the need in words, with its article
        """
        if need == "draft" and self.open_draft is None:
            return self.no_draft_why or "The target has no draft model."
        if need == "copy" and self.copy is None:
            return no_copy_why(self.target.info.precision)
        if need not in ("draft", "copy", *self.trained):
            name = self.target.info.name
            return (
                f"Nobody has trained {what} for {name} yet: python -m specdemo train {need} "
                f"--target {name} makes one."
            )
        return ""

    @property
    def reads(self) -> tuple[int, ...]:
        """The target's hidden states that its trained drafters read, by layer."""
        return tuple(sorted({layer for one in self.trained.values() for layer in one.reads}))

    def card(self, need: str) -> JsonView | None:
        """Return the record of a draft model's or a trained drafter's training; None if there is none."""
        if need == "draft" and isinstance(self.open_draft, CompactDraft):
            card: JsonView | None = self.open_draft.config["specdemo"].get("card")
            return card
        return self.trained[need].card or None if need in self.trained else None

    def open_target(self) -> CachedModel:
        """Open the target with an empty cache, which stores the states that its drafters read."""
        return CachedModel(self.target.decoder, self.reads)

    def open_trained(self, kind: str, target: CachedModel) -> OpenedNetwork:
        """Open a trained drafter for one conversation. Raises UserError for damaged files."""
        return self.trained[kind].network().open(target)

    @property
    def vocabulary_size(self) -> int:
        """Columns of the target's logits."""
        return self.target.vocabulary_size

    @property
    def context(self) -> int:
        """Longest text that the target can read, in tokens."""
        return int(self.target.model.config.get_text_config().max_position_embeddings)

    def stop_ids(self) -> frozenset[int]:
        """Tokens that end an answer; empty when the model names none."""
        return stop_ids(self.target.model, self.tokenizer)


@dataclass(frozen=True, slots=True)
class CompactDraft:
    """Makes a compact draft with an empty cache."""

    config: JsonView
    decoder: CompactDecoder

    def __call__(self) -> CompactModel:
        return CompactModel(self.decoder)


@dataclass(frozen=True, slots=True)
class ModuleDraft:
    """Opens a draft model of transformers with an empty cache."""

    model: LoadedModel

    def __call__(self) -> CachedModel:
        return CachedModel(self.model.decoder)


def place_pair(settings: AppSettings, progress: ProgressCallback = silent) -> LoadedPair:
    """Fetch, convert and quantise, without a pass: `warm_pair` makes it ready, in the process that runs it. Raises UserError.

    A draft "auto" that is missing leaves the target usable without it; a draft that was named must be there.
    """
    files = model_files(settings.target, settings, progress)
    tokenizer = load_tokenizer(files)
    published = find_published(settings.drafter, files, tokenizer, settings.cache_dir, progress)
    target = _placed(files, settings, progress)
    check_vocabulary(files, tokenizer, target.vocabulary_size)
    others = dict.fromkeys(published.kinds, published.trained(target)) if published else {}
    alone = stands_alone({**find_trained(target, None, settings.trained), **others})
    if alone and settings.draft == "auto":
        info, open_draft, why = None, None, "Its feature drafter works without a draft model."
    else:
        info, open_draft, why = _DraftLoader(settings, progress, files, target, tokenizer).find()
    below = open_draft.decoder.weights if isinstance(open_draft, CompactDraft) else None
    copy = None if no_copy_why(target.info.precision) else QuantisedCopy(target)
    return LoadedPair(
        target, tokenizer, info, open_draft, why, copy,
        trained={**find_trained(target, below, settings.trained), **others},
        recommended=recommended(files.folder, files.known or files.name),
    )  # fmt: skip


def warm_pair(
    placed: LoadedPair, settings: AppSettings, progress: ProgressCallback = silent
) -> LoadedPair:
    """Return a placed pair after its first passes: with the decoders that suit the device, and their costs. Raises UserError."""
    options: Json = {"head": settings.head, "cache_dir": settings.cache_dir}
    open_draft, info, why = placed.open_draft, placed.draft_info, placed.no_draft_why
    target = warm(placed.target, progress, **options)
    if isinstance(open_draft, ModuleDraft):
        try:
            open_draft = ModuleDraft(warm(open_draft.model, progress, **options))
            info = open_draft.model.info
        except UserError as error:
            if settings.draft != "auto":
                raise
            open_draft, info, why = None, None, str(error)
    copy = QuantisedCopy(target) if placed.copy else None
    pair = replace(
        placed, target=target, draft_info=info, open_draft=open_draft, no_draft_why=why, copy=copy
    )
    return _measured(pair, settings, progress)


def _measured(pair: LoadedPair, settings: AppSettings, progress: ProgressCallback) -> LoadedPair:
    """Return the same pair with the costs of its passes."""
    progress(Progress("warm up", None, "measuring what a pass costs"))
    target, open_draft, info = pair.target, pair.open_draft, pair.draft_info
    draft, drafts = (
        (open_draft(), info) if open_draft else _timed_instead(stands_alone(pair.trained))
    )
    passes = PairPasses(
        CachedModel(target.decoder), target.info, draft, drafts, card_name(target.device)
    )
    costs = passes.costs(settings.cache_dir)
    progress(Progress("warm up", 1.0, target.info.name))
    return replace(pair, costs=costs)


def model_files(
    name: str, settings: AppSettings, progress: ProgressCallback = silent
) -> ModelFiles:
    """A model's files, in the form that is loaded in the precision of the settings."""
    precision, device = settings.precision, settings.device
    forms = [precision] if precision in PACKING_RECIPES else []
    if precision == AUTO:
        compiled = choose_device(device, AUTO).type == "cpu" and cpu_features.compiles()
        forms = [FILE, FOUR_BIT] if compiled else [FOUR_BIT]
    return resolve(name, settings.cache_dir, progress, pack_as(precision, device), forms)


def _placed(files: ModelFiles, settings: AppSettings, progress: ProgressCallback) -> LoadedModel:
    return place_model(files, settings.precision, settings.device, progress, head=settings.head)


def _timed_instead(alone: Trained | None) -> tuple[LanguageModel | None, ModelInfo | None]:
    """Return the model to time if there is no draft model: a drafter that works without one. Damaged files are reported at use."""
    try:
        network = alone.network() if alone else None
    except UserError:
        return None, None
    if alone is None or not isinstance(network, CompactDecoder):
        return None, None
    return CompactModel(network), alone.info


def fetch_pair(settings: AppSettings, progress: ProgressCallback = silent) -> None:
    """Download the files of a pair to this machine, so that loading it needs no network. Raises UserError.

    If a draft "auto" cannot be downloaded, `place_pair` continues without it.
    """
    files = model_files(settings.target, settings, progress)
    if settings.drafter not in ("", "none"):
        drafter_files(settings.drafter, settings.cache_dir, progress)
    wanted = draft_of(files.known or settings.target, settings.draft, settings.trained)
    if wanted is None or is_compact(Path(wanted).expanduser()):
        return
    try:
        model_files(wanted, settings, progress)
    except UserError:
        if settings.draft != "auto":
            raise


@dataclass(frozen=True, slots=True)
class _DraftLoader:
    """Loads the draft model for a target. files, target, tokenizer: of the target"""

    settings: AppSettings
    progress: ProgressCallback
    files: ModelFiles
    target: LoadedModel
    tokenizer: PreTrainedTokenizerBase

    def find(self) -> tuple[ModelInfo | None, Callable[[], LanguageModel] | None, str]:
        """Return the draft that the settings name, or the target's partner; without one, a sentence why."""
        settings = self.settings
        wanted = draft_of(self.target.known, settings.draft, settings.trained)
        if wanted is None:
            return None, None, "No draft is known for this target."
        try:
            return *self._load(wanted), ""
        except UserError as error:
            if settings.draft != "auto":
                raise
            return None, None, str(error)

    def _load(self, wanted: str) -> tuple[ModelInfo, Callable[[], LanguageModel]]:
        path = Path(wanted).expanduser()
        if is_compact(path):
            return self._compact(ModelFiles(path, path.name, ""))
        files = model_files(wanted, self.settings, self.progress)
        if is_compact(files.folder):
            return self._compact(files)
        draft = _placed(files, self.settings, self.progress)
        check_pair(
            self.files, self.tokenizer, self.target.vocabulary_size,
            files, load_tokenizer(files), draft.vocabulary_size,
        )  # fmt: skip
        return draft.info, ModuleDraft(draft)

    def _compact(self, files: ModelFiles) -> tuple[ModelInfo, Callable[[], LanguageModel]]:
        """A compact draft borrows the embedding of the model it was trained with: the target's own when it is the same."""
        config, device = read_config(files.folder), self.target.device
        lender = config["specdemo"].get("embedding_from", DEFAULT_TARGET)
        embedding: Any = self.target.model.get_input_embeddings().weight
        if self.target.known != lender:
            lent = model_files(lender, self.settings, self.progress)
            if not same_tokenizer(self.tokenizer, load_tokenizer(lent)):
                raise UserError(
                    "draft.other_words", draft=files.name, lender=lender, target=self.files.name
                )
            embedding = read_tensor(lent.folder)
        weights = load_compact(files.folder, TargetTensors(embedding, device))
        on_cpu = device.type == "cpu"
        kernel = "4-bit int4pack on CPU" if on_cpu else f"bf16 on {device.type.upper()}"
        parameters = int(config["specdemo"].get("parameters", 0))
        info = ModelInfo(files.name, files.revision, "int4", kernel, parameters)
        return info, CompactDraft(config, CompactDecoder(weights))
