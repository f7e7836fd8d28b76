"""The common reader of published drafters: their files, their families, the checks against a target, and their tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from safetensors.torch import save_file
from torch import Tensor

from specdemo.config.errors import Phrase, UserError
from specdemo.config.strings import JsonView
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.files.catalogue import find_drafter
from specdemo.files.folder import broken_files, read_config, weight_files
from specdemo.files.hub import PICKLES, fetch
from specdemo.files.packing import SafetensorsWeight, safetensors_weights
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.files.store import file_sha256, made_once
from specdemo.models.decoders.layer import HeadSizes
from specdemo.models.loading import check_room
from specdemo.models.memory import BYTES_PER_WEIGHT
from specdemo.models.networks.folders import Shape, TargetTensors, TensorLoader
from specdemo.models.networks.parts import CompactConfig
from specdemo.models.networks.registry import Draft, DraftNetwork
from specdemo.models.outlook import licence_of
from specdemo.trace.events import ModelInfo

if TYPE_CHECKING:
    from specdemo.models.loading import LoadedModel

Weights = TypeVar("Weights")

LARGEST_SIZE = 1 << 24  # of any size in a config: larger ones would only fill the memory


@dataclass(frozen=True, slots=True)
class DrafterFiles:
    """A published drafter on this disk, its weights unread.

    name: hub id, or the folder's; revision: commit, "" for a folder
    licence: as its card names it, "" where it names none
    tensors: by name
    """

    folder: Path
    name: str
    revision: str
    licence: str
    config: JsonView
    tensors: Mapping[str, SafetensorsWeight]

    def tensor(self, name: str, shape: Shape) -> Tensor:
        """Return a tensor. Raises UserError for a missing one, and for another shape."""
        self._check_shape(name, shape)
        return self.tensors[name].read()

    def _check_shape(self, name: str, shape: Shape) -> None:
        if name not in self.tensors:
            raise self.wrong(f"it has no tensor {name}")
        if (own := self.tensors[name].shape) != shape:
            raise self.wrong(f"its tensor {name} has the shape {own} in place of {shape}")

    def number(
        self,
        config: JsonView,
        key: str,
        default: int | None = None,
        *,
        least: int = 1,
        most: int = LARGEST_SIZE,
    ) -> int:
        """Return a whole number of a config. Raises UserError for a missing one and outside of the range."""
        value = config.get(key)
        value = default if value is None else value
        if value is None:
            raise self.wrong(f"its config.json has no {key}")
        if type(value) is not int or not least <= value <= most:
            raise self.refused(key, value, _between(least, most))
        return value

    def real(
        self, config: JsonView, key: str, default: float, *, least: float = 0.0, most: float = 1e4
    ) -> float:
        """Return a number of a config. Raises UserError outside of the range."""
        value = config.get(key)
        value = default if value is None else value
        if type(value) not in (int, float) or not least <= value <= most:
            raise self.refused(key, value, _between(least, most))
        return float(value)

    def choice(self, config: JsonView, key: str, *allowed: object) -> object:
        """Return an entry of a config, the first allowed value if it has none. Raises UserError for other values."""
        value = config.get(key)
        value = allowed[0] if value is None else value
        if value not in allowed:
            raise self.refused(key, value, ", ".join(map(str, allowed)))
        return value

    def part(self, config: JsonView, key: str) -> JsonView:
        """Return a part of a config, empty if there is none. Raises UserError if it is not an object."""
        value = config.get(key) or {}
        if not isinstance(value, Mapping):
            raise self.refused(key, value, Phrase("drafter.object"))
        return value

    def check_finite(self, names: Container[str]) -> None:
        """Refuse weights that are not finite. names: of the tensors to check"""
        for name, stored in self.tensors.items():
            if name not in names or not stored.shape:
                continue
            tensor = stored.read()
            tensor = tensor.float() if tensor.element_size() == 1 else tensor
            # The extremes are not finite if any number is not, and need no memory.
            extremes = torch.stack(tensor.aminmax())
            if not extremes.isfinite().all():
                raise self.refused(name, extremes.tolist(), Phrase("drafter.finite"))

    def refused(self, field: str, value: object, allowed: object) -> UserError:
        """Return the error for a value that is not allowed."""
        return self.wrong(value_reason(field, value, allowed))

    def wrong(self, why: Phrase | str) -> UserError:
        """Return the error for files that cannot be read as a drafter."""
        return UserError("drafter.unusable", drafter=self.name, reason=why)

    def refuse(self, target: TargetFacts, reason: Phrase) -> UserError:
        """Return the error for a drafter of another target."""
        verifier = self.part(self.part(self.config, "speculators_config"), "verifier")
        made_for = verifier.get("name_or_path") or self.config.get("base_model_name_or_path")
        known = {"drafter": self.name, "target": target.name, "reason": reason}
        if made_for:
            return UserError("drafter.for_another", **known, origin=made_for)
        return UserError("drafter.not_for_target", **known)

    def layer_sizes(self) -> JsonView:
        """Return the part of a config with the sizes of layers. Raises UserError if it is missing."""
        if "speculators_model_type" not in self.config:
            return self.config
        sizes = self.part(self.config, "transformer_layer_config")
        if not sizes:
            raise self.wrong("its config.json has no transformer_layer_config")
        return sizes

    def check_sizes(self, target: TargetFacts, *, hidden: int, vocabulary: int) -> None:
        """Refuse a drafter of a target with other sizes. hidden, vocabulary: sizes that it expects"""
        for code, own, theirs in (
            ("drafter.states", hidden, target.hidden_size),
            ("drafter.vocabulary", vocabulary, target.vocabulary),
        ):
            if own != theirs:
                raise self.refuse(target, Phrase(code, own=f"{own:,}", theirs=f"{theirs:,}"))

    def states_read(
        self, target: TargetFacts, key: str, named: object, *, by_layer: bool
    ) -> tuple[int, ...]:
        """Return the target's hidden states that a drafter reads, as transformers counts them. Raises UserError.

        named: the value of `key`, by the layer whose output a state is, or as transformers counts
        """
        if named is None:
            raise self.wrong(f"its config.json has no {key}")
        last = target.layers - by_layer
        numbers = named if isinstance(named, list) else []
        inside = all(type(one) is int and 0 <= one <= last for one in numbers)
        if not numbers or not inside or len(set(numbers)) < len(numbers):
            reason = value_reason(key, named, Phrase("drafter.layers", last=last))
            raise self.refuse(target, reason)
        return tuple(one + by_layer for one in numbers)

    def check_tensors(
        self, target: TargetFacts, load: Callable[[TensorLoader], Weights]
    ) -> Weights:
        """Refuse files with a missing tensor, one of another shape, an unknown one, or numbers that are not finite.

        load: reads config and tensors of the drafter
        returns: its weights on torch's device `meta`, where tensors have a shape and no numbers
        """
        known: set[str] = set()

        def read(name: str, shape: Shape) -> Tensor:
            self._check_shape(name, shape)
            known.add(name)
            return torch.empty(shape, device="meta")

        embedding = torch.empty(target.vocabulary, target.hidden_size, device="meta")
        weights = load(TensorLoader(read, self.tensors, TargetTensors(embedding, embedding.device)))
        for name in self.tensors:
            if name not in known and not name.endswith(UNREAD):
                raise self.wrong(f"nothing is known of its tensor {name}")
        self.check_finite(known)
        return weights

    def loader(self, target: TargetTensors) -> TensorLoader:
        return TensorLoader(self.tensor, self.tensors, target)

    def offset_words(self, words: int, vocabulary: int) -> ReducedVocabulary:
        """Return the token of each row of a head: `d2t` is its distance from the row's number. Raises UserError."""
        rows = ids = torch.arange(words)
        if "d2t" in self.tensors or words < vocabulary:
            offsets = self.tensor("d2t", (words,)).long()
            ids = rows + offsets
            for row in ((ids < 0) | (ids >= vocabulary)).nonzero().flatten()[:1].tolist():
                allowed = Phrase("drafter.between", least=-row, most=vocabulary - 1 - row)
                raise self.refused(f"d2t[{row}]", int(offsets[row]), allowed)
        if len(ids.unique()) < len(ids):
            raise self.wrong("its d2t does not name different tokens of the target")
        if "t2d" in self.tensors:
            known = self.tensor("t2d", (vocabulary,)).bool().nonzero().flatten()
            if not ids.sort().values.equal(known):
                raise self.wrong("its d2t and its t2d name different tokens")
        return ReducedVocabulary(ids, vocabulary)

    def layer_count(self, config: JsonView) -> int:
        """Return the number of a drafter's layers."""
        return self.number(config, "num_hidden_layers", 1, most=max(1, len(self.tensors)))

    def layer_config(self, config: JsonView, *, windows: bool = False) -> CompactConfig:
        """Return the sizes of a drafter's layers. Raises UserError for unsupported layers.

        windows: layers with a sliding window are supported
        """
        hidden = self.number(config, "hidden_size")
        heads = self.number(config, "num_attention_heads", most=hidden)
        keys = self.number(config, "num_key_value_heads", heads, most=heads)
        size = self.number(config, "head_dim", hidden // heads, least=2)
        if heads % keys:
            allowed = Phrase("drafter.divisors", of=f"num_attention_heads ({heads})")
            raise self.refused("num_key_value_heads", keys, allowed)
        if size % 2:
            raise self.refused("head_dim", size, Phrase("drafter.even"))
        self.choice(config, "hidden_act", "silu")
        kinds = set(config.get("layer_types") or ())
        sliding = config.get("sliding_window") and config.get("use_sliding_window", True)
        if not windows and ("sliding_attention" in kinds or (sliding and not kinds)):
            raise self.wrong("its layers forget what is far back, which is not computed here")
        epsilon = self.real(config, "rms_norm_eps", 1e-6, most=1.0)
        sizes = HeadSizes(heads, keys, size, size**-0.5, epsilon)
        return CompactConfig(hidden, sizes, *self._rope(config, size))

    def _rope(self, config: JsonView, head_dim: int) -> tuple[Tensor, float]:
        """Return frequencies and scale of a config's rotary embedding, as transformers computes them. Raises UserError for an unsupported one."""
        from transformers import LlamaConfig
        from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

        key = "rope_parameters" if config.get("rope_parameters") else "rope_scaling"
        facts = self.part(config, key)
        known = {**config, **facts}
        theta = self.real(known, "rope_theta", 10_000.0, least=1.0, most=1e12)
        self.choice(known, "partial_rotary_factor", 1)
        field = "rope_type" if facts.get("rope_type") else "type"
        kind = self.choice(facts, field, "default", "linear", "llama3", "yarn")
        try:
            embedding: Any = LlamaRotaryEmbedding(
                LlamaConfig(
                    head_dim=head_dim,
                    max_position_embeddings=self.number(config, "max_position_embeddings", 2048),
                    rope_parameters={**facts, "rope_type": kind, "rope_theta": theta},
                )
            )
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            raise self.wrong(f"its {key} lacks a number") from error
        scale = float(embedding.attention_scaling)
        frequencies: Tensor = embedding.inv_freq
        if not torch.cat([frequencies, torch.tensor([scale])]).isfinite().all():
            raise self.refused(key, dict(facts), Phrase("drafter.finite"))
        return frequencies, scale


def value_reason(field: str, value: object, allowed: object) -> Phrase:
    """Return the part of a sentence that names a field, its value, shortened, and the allowed ones."""
    return Phrase("drafter.value", field=field, value=f"{value!s:.60}", allowed=allowed)


def _between(least: float, most: float) -> Phrase:
    return Phrase("drafter.between", least=f"{least:,}", most=f"{most:,}")


def drafter_files(name: str, cache_dir: Path, progress: ProgressCallback = silent) -> DrafterFiles:
    """Return the files of a drafter. Raises UserError for one that is missing or damaged.

    name: a folder, or a hub id, with `@` and a revision where it is not the catalogue's
    """
    path = Path(name).expanduser()
    if path.is_dir():
        folder, title, revision = path, path.name, ""
    else:
        title, _, wanted = name.partition("@")
        known = find_drafter(title)
        pinned = wanted or (known.revision if known else None)
        folder, revision = fetch(title, pinned, progress, drafter=True)
    config = read_config(folder, title)
    stored = _converted(folder, title, cache_dir, progress)
    if broken := broken_files(weight_files(stored, title)):
        raise UserError("drafter.incomplete", drafter=title, file=broken[0].name)
    tensors = safetensors_weights(stored, title)
    return DrafterFiles(folder, title, revision, licence_of(folder), config, tensors)


def _converted(folder: Path, name: str, cache_dir: Path, progress: ProgressCallback) -> Path:
    """Return the folder of a drafter's safetensors files; if it has none, that of its converted pickle."""
    if any(folder.glob("*.safetensors")):
        return folder
    pickled = next((folder / one for one in PICKLES if (folder / one).is_file()), None)
    if pickled is None:
        raise UserError("drafter.empty", drafter=name)
    recipe = f"safetensors of {file_sha256(pickled, progress, pickled.name)}"
    made = cache_dir / "drafters" / recipe[-16:]

    def fill(content: Path) -> None:
        progress(Progress("convert", None, f"{name}: {pickled.name} to safetensors"))
        save_file(_unpickled(pickled, name), content / "model.safetensors")

    made_once(made, recipe, Phrase("disk.while_converting", name=name), fill)
    return made


def _unpickled(path: Path, name: str) -> dict[str, Tensor]:
    """Return the tensors of a pickle, read by a loader that makes tensors and nothing else."""
    try:
        raw = torch.load(path, map_location="cpu", weights_only=True)
        return {str(key): one.contiguous().clone() for key, one in raw.items()}
    except Exception as error:  # the loader raises errors of many kinds for unsupported content
        raise UserError("drafter.pickled", file=path.name, drafter=name) from error


# Ends of names that no network reads: lists of tokens, see `offset_words`; the target's own tensors, only used in training.
UNREAD = (
    "d2t", "t2d", "verifier_norm.weight", "verifier_lm_head.weight", "rotary_emb.inv_freq", "num_batches_tracked",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class TargetFacts:
    """Sizes in a target's config.json.

    vocabulary: rows of its output head; layers: number of layers; context: longest text, in tokens
    """

    name: str
    hidden_size: int
    vocabulary: int
    layers: int
    context: int = 2048


@dataclass(frozen=True, slots=True)
class Reading:
    """A drafter that suits the target, before its weights are loaded.

    kinds: of the methods that draft with it; reads: hidden states of the target that it reads
    """

    files: DrafterFiles
    kinds: tuple[str, ...]
    reads: tuple[int, ...]
    load: Callable[[TargetTensors], DraftNetwork]

    def draft(self, target: LoadedModel) -> Draft:
        """Return the drafter of a loaded target; its weights are read at first use."""
        four_bit = target.info.precision in ("nf4", "file") and target.device.type == "cpu"
        whole = target.info.precision == "fp32"
        precision = "int4" if four_bit else "fp32" if whole else "bf16"
        dtype = torch.float32 if whole else torch.bfloat16
        shared = TargetTensors.of(target, dtype, four_bit=four_bit)
        parameters = sum(math.prod(one.shape) for one in self.files.tensors.values())
        needed = int(parameters * BYTES_PER_WEIGHT[precision])
        check_room(self.files.name, precision, needed, target.device)
        info = ModelInfo(self.files.name, self.files.revision, precision, "", parameters)
        return Draft(info, partial(self.load, shared), self.reads)


def layer_shapes(config: CompactConfig, inner: int, *, doubled: bool = False) -> dict[str, Shape]:
    """Return the shapes of a Llama layer's tensors, see `TensorLoader.layer`.

    inner: of its gates; doubled: its attention reads embedding and state side by side
    """
    hidden, size = config.hidden_size, config.sizes.head_dim
    queries, keys = config.sizes.heads * size, config.sizes.kv_heads * size
    width = 2 * hidden if doubled else hidden
    return {
        "input_layernorm": (hidden,),
        "self_attn.q_proj": (queries, width),
        "self_attn.k_proj": (keys, width),
        "self_attn.v_proj": (keys, width),
        "self_attn.o_proj": (hidden, queries),
        "self_attn.q_norm": (size,),
        "self_attn.k_norm": (size,),
        "post_attention_layernorm": (hidden,),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
