"""A target and its draft, loaded together: weights shared by every conversation, nothing of any visitor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, Recommended
from specdemo.config.strings import Json
from specdemo.engine.cost import CostProfile
from specdemo.engine.target import CachedModel, PrefixReader
from specdemo.files.catalogue import (
    DEFAULT_TARGET,
    OWN_KIND,
    draft_of,
    has_shipped_draft,
    recommended,
)
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.files.sources import PACKING_RECIPES, ModelFiles, resolve
from specdemo.kernels import cpu_features
from specdemo.models.decoders.packed import suits_blocks
from specdemo.models.devices import AUTO, FILE, FOUR_BIT, choose_device
from specdemo.models.loading import LoadedModel, pack_as, place_model, warm
from specdemo.models.measurements import card_name, pair_costs
from specdemo.models.networks.chain import CompactDecoder
from specdemo.models.networks.copy import no_copy_why, quantised_copy
from specdemo.models.networks.folders import (
    TargetTensors,
    is_compact,
    load_compact,
    read_config,
    read_tensor,
)
from specdemo.models.networks.layouts.families import find_published
from specdemo.models.networks.layouts.family import drafter_files
from specdemo.models.networks.registry import Draft, OpenedNetwork, find_trained
from specdemo.models.tokenizers import (
    check_vocabulary,
    load_tokenizer,
    same_tokenizer,
    stop_ids,
)
from specdemo.trace.events import ModelInfo

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Finder = Callable[[str], ModelFiles]
"""Returns a model's files by its name, see `model_files`. Raises UserError."""

DRAFT, COPY = "draft", "copy"  # needs of methods besides the kinds of trained drafters


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """Everything that a run needs of models.

    drafts: the models that draft for it, by the need of methods that they meet: `draft` for a draft model, `copy` for the
        target's quantised self, and the kinds of drafters that were trained for it
    no_draft_why: the reason why there is no draft model, a sentence
    costs: measured costs of these models' passes on this machine
    recommended: sampling settings that the target's authors recommend
    """

    target: LoadedModel
    tokenizer: PreTrainedTokenizerBase
    drafts: Mapping[str, Draft] = field(default_factory=dict)
    no_draft_why: str = ""
    costs: CostProfile = field(default_factory=CostProfile)
    recommended: Recommended = field(default_factory=Recommended)

    @property
    def taken(self) -> str:
        """The need of the model with which `auto` and `copy_through` draft; "" if there is none.

        A feature drafter comes first: it has one layer, and reads the target's states.
        """
        return next((need for need in (OWN_KIND, DRAFT) if need in self.drafts), "")

    @property
    def draft_info(self) -> ModelInfo | None:
        """Facts about the draft model; None without one."""
        return self.drafts[DRAFT].info if DRAFT in self.drafts else None

    def missing(self, need: str, what: str) -> str:
        """Return the reason why a method that needs one of `drafts` cannot run, or "" if it can.

        what: the need in words, with its article
        """
        if need in self.drafts:
            return ""
        if need == DRAFT:
            return self.no_draft_why or "The target has no draft model."
        if need == COPY:
            return no_copy_why(self.target.info.precision)
        name = self.target.info.name
        return (
            f"Nobody has trained {what} for {name} yet: python -m specdemo train {need} "
            f"--target {name} makes one."
        )

    @property
    def reads(self) -> tuple[int, ...]:
        """The target's hidden states that its drafters read, by layer."""
        return tuple(sorted({layer for one in self.drafts.values() for layer in one.reads}))

    def open_target(self) -> CachedModel:
        """Open the target with an empty cache, which stores the states that its drafters read."""
        return CachedModel(self.target.decoder, self.reads)

    def open_draft(self, need: str, target: CachedModel) -> OpenedNetwork:
        """Open one of `drafts` for one conversation. Raises UserError for damaged files, and if there is no memory for a copy."""
        return self.drafts[need].network().open(target)

    @property
    def context(self) -> int:
        """Longest text that the target can read, in tokens."""
        return int(self.target.model.config.get_text_config().max_position_embeddings)

    def stop_ids(self) -> frozenset[int]:
        """Tokens that end an answer; empty when the model names none."""
        return stop_ids(self.target.model, self.tokenizer)


def place_pair(
    settings: AppSettings, found: Finder, progress: ProgressCallback = silent
) -> LoadedPair:
    """Fetch, convert and quantise, without a pass: `warm_pair` makes it ready, in the process that runs it. Raises UserError.

    A draft "auto" that is missing leaves the target usable without it; a draft that was named must be there.

    found: from `fetch_pair`, whose checks are not repeated
    """
    files = found(settings.target)
    tokenizer = load_tokenizer(files)
    published = find_published(settings.drafter, files, tokenizer, settings.cache_dir, progress)
    target = _placed(files, settings, progress)
    check_vocabulary(files, tokenizer, target.vocabulary_size)
    others = dict.fromkeys(published.kinds, published.draft(target)) if published else {}
    alone = OWN_KIND in {**find_trained(target, None, settings.trained), **others}
    draft, why = None, "Its feature drafter works without a draft model."
    if not alone or settings.draft != "auto" or has_shipped_draft(files.known):
        draft, why = _find_draft(settings, progress, found, target, tokenizer)
    network = draft.network() if draft else None
    below = network.weights if isinstance(network, CompactDecoder) else None
    drafts = {**find_trained(target, below, settings.trained), **others}
    if draft:
        drafts[DRAFT] = draft
    if not no_copy_why(target.info.precision):
        drafts[COPY] = quantised_copy(target)
    known = recommended(files.folder, files.known or files.name)
    return LoadedPair(target, tokenizer, drafts, why, recommended=known)


def warm_pair(
    placed: LoadedPair, settings: AppSettings, progress: ProgressCallback = silent
) -> LoadedPair:
    """Return a placed pair after its first passes: with the decoders that suit the device, and their costs. Raises UserError."""
    options: Json = {"head": settings.head, "cache_dir": settings.cache_dir}
    drafts, why = dict(placed.drafts), placed.no_draft_why
    target = warm(placed.target, progress, **options)
    draft = drafts[DRAFT].network() if DRAFT in drafts else None
    if isinstance(draft, LoadedModel):
        try:
            warmed = warm(draft, progress, **options)
            drafts[DRAFT] = Draft(warmed.info, lambda: warmed)
        except UserError as error:
            if settings.draft != "auto":
                raise
            del drafts[DRAFT]
            why = str(error)
    if COPY in drafts:
        drafts[COPY] = quantised_copy(target)
    pair = replace(placed, target=target, drafts=drafts, no_draft_why=why)
    progress(Progress("warm up", None, "measuring what a pass costs"))
    models = CachedModel(target.decoder), target.info, *_timed_draft(pair)
    costs = pair_costs(settings.cache_dir, *models, card_name(target.device))
    progress(Progress("warm up", 1.0, target.info.name))
    return replace(pair, costs=costs)


def model_files(
    name: str, settings: AppSettings, progress: ProgressCallback = silent
) -> ModelFiles:
    """Return a model's files, in the form that is loaded in the precision of the settings. Raises UserError."""
    precision, device = settings.precision, settings.device
    forms = [precision] if precision in PACKING_RECIPES else []
    if precision == AUTO:
        compiled = choose_device(device, AUTO).type == "cpu" and cpu_features.compiles()
        forms = [FILE, FOUR_BIT] if compiled else [FOUR_BIT]
    suits = suits_blocks if precision == AUTO else None
    return resolve(name, settings.cache_dir, progress, pack_as(precision, device), forms, suits)


def _placed(files: ModelFiles, settings: AppSettings, progress: ProgressCallback) -> LoadedModel:
    return place_model(files, settings.precision, settings.device, progress, head=settings.head)


def _timed_draft(pair: LoadedPair) -> tuple[CachedModel | None, ModelInfo | None]:
    """Return the model whose draft steps are timed, see `LoadedPair.taken`.

    Damaged files are reported at use.
    """
    draft = pair.drafts.get(pair.taken)
    with suppress(UserError):
        reader = draft.network().open(pair.open_target()) if draft else None
        if draft and isinstance(reader, PrefixReader):
            return reader.model, draft.info
    return None, None


def fetch_pair(settings: AppSettings, progress: ProgressCallback = silent) -> Finder:
    """Download and convert the files of a pair, so that loading it needs no network; return them. Raises UserError.

    If a draft "auto" cannot be downloaded, `place_pair` continues without it.
    """
    # Each model is found once: to check a large file and its copy costs seconds.
    found = cache(lambda name: model_files(name, settings, progress))
    files = found(settings.target)
    if settings.drafter not in ("", "none"):
        drafter_files(settings.drafter, settings.cache_dir, progress)
    wanted = draft_of(files.known or settings.target, settings.draft, settings.trained)
    if wanted is None or is_compact(Path(wanted).expanduser()):
        return found
    try:
        found(wanted)
    except UserError:
        if settings.draft != "auto":
            raise
    return found


def _find_draft(
    settings: AppSettings,
    progress: ProgressCallback,
    found: Finder,
    target: LoadedModel,
    tokenizer: PreTrainedTokenizerBase,
) -> tuple[Draft | None, str]:
    """Load the draft that the settings name, or the target's partner; without one, return a sentence why.

    tokenizer: the target's
    """
    wanted = draft_of(target.known, settings.draft, settings.trained)
    if wanted is None:
        return None, "No draft is known for this target."
    path = Path(wanted).expanduser()
    try:
        files = ModelFiles(path, path.name, "") if is_compact(path) else found(wanted)
        if is_compact(files.folder):
            return _compact_draft(files, found, target, tokenizer), ""
        own = load_tokenizer(files)
        if not same_tokenizer(tokenizer, own):
            raise UserError("draft.other_tokenizer", target=target.info.name, draft=files.name)
        draft = _placed(files, settings, progress)
        check_vocabulary(files, own, draft.vocabulary_size)
    except UserError as error:
        if settings.draft != "auto":
            raise
        return None, str(error)
    return Draft(draft.info, lambda: draft), ""


def _compact_draft(
    files: ModelFiles, found: Finder, target: LoadedModel, tokenizer: PreTrainedTokenizerBase
) -> Draft:
    """Load a compact draft. It borrows the embedding of the model it was trained with: the target's own when it is the same."""
    config, device = read_config(files.folder), target.device
    lender = config["specdemo"].get("embedding_from", DEFAULT_TARGET)
    embedding = TargetTensors.of(target).embedding
    if target.known != lender:
        lent = found(lender)
        if not same_tokenizer(tokenizer, load_tokenizer(lent)):
            name = target.info.name
            raise UserError("draft.other_words", draft=files.name, lender=lender, target=name)
        embedding = read_tensor(lent.folder)
    decoder = CompactDecoder(load_compact(files.folder, TargetTensors(embedding, device)))
    on_cpu = device.type == "cpu"
    kernel = "4-bit int4pack on CPU" if on_cpu else f"bf16 on {device.type.upper()}"
    parameters = int(config["specdemo"].get("parameters", 0))
    info = ModelInfo(files.name, files.revision, "int4", kernel, parameters)
    return Draft(info, lambda: decoder, card=config["specdemo"].get("card", {}))
