"""Folders of trained drafters: layers in 8 or 4 bits and the ids of the reduced vocabulary; the embedding is the target's.

A folder has config.json (a transformers Llama config with one more key, `specdemo`) and safetensors parts below 10 MB.
`export` writes a draft model as an ordinary transformers causal LM, `export_gguf` as a file of llama.cpp. `TensorLoader` reads the tensors of any drafter, also
of published ones, as weights that run next to a target.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from specdemo.config.errors import UserError
from specdemo.config.strings import Json
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.files.folder import trained_facts
from specdemo.files.packing import copy_description, group_by_size, safetensors_weights
from specdemo.files.quiet import import_bitsandbytes
from specdemo.models.decoders.blocks import part_of
from specdemo.models.decoders.layer import LlamaLayer
from specdemo.models.networks.chain import CompactWeights
from specdemo.models.networks.dflash import BlockForm, DFlashWeights
from specdemo.models.networks.four_bit import (
    STORED_PARTS,
    FourBit,
    Linear,
    dense,
    fits,
    pack_linear,
    stacked,
)
from specdemo.models.networks.parts import (
    CompactConfig,
    Injection,
    MarkovHead,
    MedusaWeights,
    MixedEmbedding,
)

if TYPE_CHECKING:
    from specdemo.models.loading import LoadedModel


HEAD_ROWS = 16_384  # rows of a head over the whole vocabulary that are packed at the same time


@dataclass(frozen=True, slots=True)
class TargetTensors:
    """Tensors of a loaded target that its drafters share, and how drafters compute next to it.

    embedding: (V, H); output: (V, H), the head if that is another matrix; None for the embedding
    four_bit: whether matrices have 4 bits where the processor's kernel supports their shape
    """

    embedding: Tensor
    device: torch.device
    dtype: torch.dtype = torch.bfloat16
    four_bit: bool = True
    output: Tensor | None = None

    @classmethod
    def of(
        cls, target: LoadedModel, dtype: torch.dtype = torch.bfloat16, *, four_bit: bool = True
    ) -> TargetTensors:
        """Return those of a loaded target."""
        embedding: Any = target.model.get_input_embeddings().weight
        head: Any = target.model.get_output_embeddings().weight
        output = None if head is embedding else head
        return cls(embedding, target.device, dtype, four_bit, output)

    def shared_embedding(self) -> Tensor:
        """Return the embedding, (V, H), on the device and in the dtype of the computation."""
        return self.embedding.to(self.device, self.dtype)

    def shared_head(self) -> Tensor:
        """Return the target's head, (V, H), on the device and in the dtype of the computation."""
        output = self.embedding if self.output is None else self.output
        return output.to(self.device, self.dtype)


Shape = tuple[int, ...]


class TensorLoader:
    """Reads a drafter's tensors.

    read: returns a tensor as it is stored, by its name, and refuses it if it has another shape than the given one; the
        shape is () for own folders, which are not checked
    names: of all tensors
    """

    def __init__(
        self,
        read: Callable[[str, Shape], Tensor | FourBit],
        names: Container[str],
        target: TargetTensors,
    ) -> None:
        self.read, self.names, self.target = read, names, target

    def has(self, name: str) -> bool:
        return name in self.names

    def vector(self, name: str, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        """Return a tensor, in the dtype of the computation by default."""
        return dense(self.read(name, shape)).to(self.target.device, dtype or self.target.dtype)

    def matrix(self, name: str, *shape: int, in_pass: bool = False) -> Linear:
        """Return a matrix by the name of its module, with the bias if there is one. in_pass: see `pack_linear`"""
        return self.joined({name: shape}, in_pass=in_pass)

    def joined(self, shapes: Mapping[str, Shape], *, in_pass: bool = False) -> Linear:
        """Return matrices as one. shapes: by the names of their modules; in_pass: see `pack_linear`"""
        parts = [self.read(f"{name}.weight", shape) for name, shape in shapes.items()]
        weight, bias = stacked(parts, self.target.device, self.target.dtype), None
        if any(self.has(f"{name}.bias") for name in shapes):
            biases = [self.vector(f"{name}.bias", *shape[:1]) for name, shape in shapes.items()]
            bias = torch.cat(biases)
        return pack_linear(weight, bias, four_bit=self.target.four_bit, in_pass=in_pass)

    def layer(
        self,
        prefix: str,
        shapes: Mapping[str, Shape] | None = None,
        *,
        norms: bool = False,
        in_pass: bool = False,
    ) -> LlamaLayer:
        """Return one layer, by the names of transformers' tensors after a prefix.

        shapes: by these names, see `layer_shapes`; norms: those of queries and keys are required
        in_pass: see `pack_linear`
        """
        known = shapes or {}

        def matrix(*names: str) -> Linear:
            parts = {f"{prefix}{name}": known.get(name, ()) for name in names}
            return self.joined(parts, in_pass=in_pass)

        def vector(name: str) -> Tensor:
            return self.vector(f"{prefix}{name}.weight", *known.get(name, ()))

        normed = norms or self.has(f"{prefix}self_attn.q_norm.weight")
        return LlamaLayer(
            input_norm=vector("input_layernorm"),
            qkv=matrix(*(f"self_attn.{part}_proj" for part in "qkv")),
            output=matrix("self_attn.o_proj"),
            post_norm=vector("post_attention_layernorm"),
            gate_up=matrix("mlp.gate_proj", "mlp.up_proj"),
            down=matrix("mlp.down_proj"),
            query_norm=vector("self_attn.q_norm") if normed else None,
            key_norm=vector("self_attn.k_norm") if normed else None,
        )

    def embedding(self, *shape: int) -> Tensor:
        """Return the drafter's own embedding if it differs from the target's, else that one. shape: (V, H)"""
        return self._own("embed_tokens.weight", self.target.shared_embedding(), shape)

    def head(self, *shape: int) -> Linear:
        """Return the drafter's own head if it differs from the target's, else that one. shape: (W, H)"""
        return self.wide(self._own("lm_head.weight", self.target.shared_head(), shape))

    def wide(self, weight: Tensor) -> Linear:
        """Pack a matrix with a row per token in parts: as a whole it would take several times its own memory."""
        if not self.target.four_bit:
            return pack_linear(weight, four_bit=False)
        parts = [pack_linear(part, four_bit=True) for part in weight.split(HEAD_ROWS)]
        return lambda x: torch.cat([part(x) for part in parts], dim=-1)

    def _own(self, name: str, shared: Tensor, shape: Shape) -> Tensor:
        if not self.has(name) and shared.shape == shape:
            return shared
        own = self.vector(name, *shape)
        return shared if not own.is_meta and own.equal(shared) else own


COMPACT_FORMAT = "compact-1"
PART_BYTES = 8_000_000  # of a file of a drafter
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
ROW_TABLES = ("mask", "markov.token.weight")  # tables whose rows are read one at a time


def is_compact(folder: Path) -> bool:
    """Return True if a folder contains a trained drafter."""
    return bool(trained_facts(folder))


def read_config(folder: Path) -> Json:
    """Return the content of config.json. Raises UserError for a format of another version."""
    config: Json = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config["specdemo"].get("format") != COMPACT_FORMAT:
        raise UserError(
            "draft.format",
            folder=folder.name,
            format=config["specdemo"].get("format"),
            known=COMPACT_FORMAT,
        )
    return config


def save_compact(
    folder: Path,
    config: dict[str, object],
    state: dict[str, Tensor],
    word_ids: Tensor,
    *,
    bits: int = 8,
) -> None:
    """Write a drafter. state: a Llama's tensors without its embedding; word_ids: (W,) int64

    In 8 bits matrices are int8 with one float scale per row; the error is far below that of 4 bits.
    In 4 bits they are exactly the matrices that run on a processor, see `four_bit`, in five eighths of the space.
    """
    tensors: dict[str, Tensor] = {"word_ids": word_ids.to(torch.int32)}
    for name, tensor in state.items():
        if tensor.ndim < 2:
            tensors[name] = tensor.to(torch.bfloat16)
            continue
        if bits == 4 and fits(tensor) and name not in ROW_TABLES:
            tensors |= {f"{name}{part}": one for part, one in FourBit.of(tensor).parts().items()}
            continue
        scale = tensor.float().abs().amax(dim=1).clamp(min=1e-8) / 127
        tensors[name] = (tensor.float() / scale[:, None]).round().to(torch.int8)
        tensors[f"{name}.scale"] = scale
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.safetensors"):
        old.unlink()
    sizes = {name: tensor.nbytes for name, tensor in tensors.items()}
    for number, names in enumerate(group_by_size(sizes, PART_BYTES), start=1):
        part = {name: tensors[name].contiguous() for name in names}
        save_file(part, folder / f"part-{number:02d}.safetensors")
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")


def load_state(folder: Path) -> dict[str, Tensor]:
    """Return every tensor of a draft by name: matrices in float32, and `word_ids` (W,) int64."""
    return {name: dense(tensor) for name, tensor in read_state(folder).items()}


def read_state(folder: Path) -> dict[str, Tensor | FourBit]:
    """Load tensors like `load_state`, but leave 4-bit matrices packed."""
    raw: dict[str, Tensor] = {}
    try:
        for path in sorted(folder.glob("*.safetensors")):
            raw |= load_file(path)
        state: dict[str, Tensor | FourBit] = {}
        for name, tensor in raw.items():
            if name.endswith(STORED_PARTS):
                continue
            state[name] = tensor
            if tensor.dtype == torch.uint8:
                state[name] = FourBit.stored(
                    {part: raw[f"{name}{part}"] for part in ("", *STORED_PARTS)}
                )
            if tensor.dtype == torch.int8:
                state[name] = tensor.float() * raw[f"{name}.scale"][:, None]
        state["word_ids"] = raw["word_ids"].long()
        numbers = [one.scale if isinstance(one, FourBit) else one for one in state.values()]
        if raw["word_ids"].min() < 0 or not all(one.isfinite().all() for one in numbers):
            raise ValueError("a token id or a number of a matrix is out of range")
    except Exception as error:  # safetensors raises its own errors for cut or corrupt files
        raise UserError("draft.damaged", folder=folder.name) from error
    return state


def read_tensor(model_folder: Path, name: str = EMBEDDING) -> Tensor:
    """Return one tensor of a model folder by its name; the embedding (V, H) by default. Raises UserError."""
    weights = safetensors_weights(model_folder, model_folder.name)
    if name not in weights:
        raise UserError("draft.no_tensor", name=model_folder.name, tensor=name)
    return weights[name].read()


def read_layer(model_folder: Path, index: int) -> dict[str, Tensor]:
    """Return the tensors of a layer of a model folder, in float32, by their names within the layer.

    Packed matrices, also blocks of a GGUF file, are unpacked.
    """
    begin = f"model.layers.{index}."
    weights = safetensors_weights(model_folder, model_folder.name)
    names = [name for name in weights if name.startswith(begin)]
    raw = {name.removeprefix(begin): weights[name].read() for name in names}
    found = {name: raw[name] for name in raw if name.endswith((".weight", ".bias"))}
    for name, tensor in found.items():
        facts = {
            key.removeprefix(f"{name}."): raw[key] for key in raw if key.startswith(f"{name}.")
        }
        found[name] = (_unpacked(tensor, facts) if facts else tensor).float()
    return found


def _unpacked(codes: Tensor, facts: dict[str, Tensor]) -> Tensor:
    """Unpack a matrix of bitsandbytes, or of a GGUF file's blocks. facts: tensors that describe the codes"""
    if "kind" in facts:
        part = part_of(codes, facts)
        return part.values(0, part.outputs)
    import_bitsandbytes()
    from bitsandbytes import functional as bnb

    state = bnb.QuantState.from_dict(facts, torch.device("cpu"))
    return bnb.dequantize_4bit(codes, state).reshape(state.shape)


class OpenedFolder:
    """A trained drafter's folder next to the target that it was trained with.

    facts: our own part of its config.json; word_ids: (W,) of the reduced vocabulary
    """

    def __init__(self, folder: Path, target: TargetTensors) -> None:
        self.config, self.target = read_config(folder), target
        state = read_state(folder)
        self.facts: Json = self.config["specdemo"]
        self.loader = TensorLoader(lambda name, _: state[name], state, target)
        self.embedding = target.shared_embedding()
        self.word_ids = self.loader.vector("word_ids", dtype=torch.int64)
        self.words = ReducedVocabulary(self.word_ids.cpu(), len(self.embedding))
        self.reads = tuple(self.facts.get("reads", ()))

    def layers(self, *, in_pass: bool = False) -> tuple[LlamaLayer, ...]:
        """Return the drafter's own layers. in_pass: see `pack_linear`"""
        numbers = range(self.config["num_hidden_layers"])
        return tuple(self.loader.layer(f"layers.{number}.", in_pass=in_pass) for number in numbers)

    def head(self, *, in_pass: bool = False) -> Linear:
        """Return the rows of the target's head for the reduced vocabulary. in_pass: see `pack_linear`"""
        rows = self.target.shared_head()[self.word_ids]
        return pack_linear(rows, four_bit=self.target.four_bit, in_pass=in_pass)


def load_compact(
    folder: Path, target: TargetTensors, base: CompactWeights | None = None
) -> CompactWeights:
    """Load weights ready to run. target: the model that the draft was trained with; base: the draft model below it"""
    opened = OpenedFolder(folder, target)
    facts, loader, shape = opened.facts, opened.loader, CompactConfig.of(opened.config)
    if (base is not None) != ("extends" in facts):
        raise UserError("draft.needs_base", folder=folder.name)
    state_norm = mixed = None
    if loader.has("layers.0.hidden_norm.weight"):
        state_norm = loader.vector("layers.0.hidden_norm.weight")
    in_pass = state_norm is None  # the compiled pass supports no concatenated state
    if loader.has("mix.weight"):
        mix = loader.vector("mix.weight", dtype=torch.float32)
        mixed = MixedEmbedding(opened.embedding, mix, opened.word_ids.tolist())
    inject, feedback = _state_inputs(loader, shape, state_norm)
    return CompactWeights(
        config=shape,
        layers=(*(base.layers if base else ()), *opened.layers(in_pass=in_pass)),
        norm=loader.vector("norm.weight"),
        embedding=opened.embedding,
        head=opened.head(in_pass=in_pass),
        words=opened.words,
        extends=len(base.layers) if base else 0,
        reads=opened.reads,
        inject=inject,
        mixed=mixed,
        feedback=feedback,
        state_norm=state_norm,
        output=None if target.output is None else target.shared_head(),
        mask=loader.vector("mask") if loader.has("mask") else None,
        depth=int(facts.get("depth", 1)),
        causal=bool(facts.get("causal", True)),
        markov=_markov(loader, opened.words),
    )


def _state_inputs(
    loader: TensorLoader, shape: CompactConfig, state_norm: Tensor | None
) -> tuple[Injection | None, Tensor | None]:
    """Return how the target's states go in, and the gains on the drafter's own."""
    feedback = loader.vector("feedback") if loader.has("feedback") else None
    if not loader.has("inject.gain"):
        return None, feedback
    inject = Injection(loader.vector("inject.gain"), loader.matrix("inject.project", in_pass=True))
    if state_norm is None:
        return inject, feedback
    return replace(inject, epsilon=shape.sizes.eps), torch.ones_like(state_norm)


def _markov(loader: TensorLoader, words: ReducedVocabulary) -> MarkovHead | None:
    if not loader.has("markov.token.weight"):
        return None
    return MarkovHead(
        token=loader.vector("markov.token.weight"),
        bias=loader.matrix("markov.bias"),
        confidence=loader.vector("markov.confidence.weight", dtype=torch.float32)[0],
        constant=loader.vector("markov.confidence.bias"),
        temperatures=tuple(loader.vector("temperatures").tolist()),
        words=words,
    )


def load_dflash(folder: Path, target: TargetTensors) -> DFlashWeights:
    opened = OpenedFolder(folder, target)
    facts, sizes = opened.facts, CompactConfig.of(opened.config)
    rows, mask = int(facts["depth"]) + 1, int(facts["mask"])
    return DFlashWeights(
        form=BlockForm(sizes, opened.reads, rows, mask, causal=bool(facts["causal"])),
        layers=opened.layers(),
        norm=opened.loader.vector("norm.weight"),
        embedding=opened.embedding,
        head=opened.head(),
        words=opened.words,
        mix=opened.loader.matrix("fc"),
        mix_norm=opened.loader.vector("hidden_norm.weight"),
    )


def load_medusa(folder: Path, target: TargetTensors) -> MedusaWeights:
    opened = OpenedFolder(folder, target)
    heads = range(int(opened.facts["depth"]))
    blocks = tuple(opened.loader.matrix(f"heads.{index}") for index in heads)
    return MedusaWeights(blocks, opened.head(), opened.words, opened.reads, target.dtype)


def export(folder: Path, target_folder: Path, out: Path) -> None:
    """Write a draft as an ordinary transformers causal LM, tokenizer included.

    Its head is the whole tied embedding, so its vocabulary is no longer reduced.
    """
    config, state = read_config(folder), load_state(folder)
    out.mkdir(parents=True, exist_ok=True)
    copy_description(target_folder, out)
    tensors = {
        f"model.{name}": tensor.to(torch.bfloat16).contiguous()
        for name, tensor in state.items()
        if name.startswith(("layers.", "norm."))
    }
    tensors[EMBEDDING] = read_tensor(target_folder).to(torch.bfloat16)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    plain = {key: value for key, value in config.items() if key != "specdemo"}
    (out / "config.json").write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")


def export_gguf(folder: Path, target: Path, out: Path) -> None:
    """Write a draft as a GGUF file. target: the target's GGUF file, from which metadata, tokenizer and embedding are copied

    Its matrices get 8 bits in llama.cpp's blocks (Q8_0), its head is the whole tied embedding.
    """
    from gguf import MODEL_ARCH, GGMLQuantizationType, GGUFReader, GGUFWriter, get_tensor_name_map
    from gguf.quants import quantize

    config, state, source = read_config(folder), load_state(folder), GGUFReader(target)
    kind = source.fields["general.architecture"].contents()
    layers = config["num_hidden_layers"]
    own = {f"{kind}.block_count": layers, "general.name": "draft"}
    writer = GGUFWriter(out, kind)
    for name, field in source.fields.items():
        if name.startswith("GGUF.") or name == "general.architecture":
            continue
        element = field.types[-1] if len(field.types) > 1 else None
        value = own.get(name, field.contents())
        writer.add_key_value(name, value, field.types[0], sub_type=element)
    embedding = next(one for one in source.tensors if one.name == "token_embd.weight")
    writer.add_tensor(embedding.name, embedding.data, raw_dtype=embedding.tensor_type)
    known = get_tensor_name_map(MODEL_ARCH.LLAMA, layers)
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    for name, tensor in state.items():
        if not name.startswith(("layers.", "norm.")):
            continue
        stem, _, suffix = name.rpartition(".")
        weight = tensor.float()
        if count := heads.get(stem.rpartition(".")[2]):
            # llama.cpp stores the two halves of a head's rotary pairs alternately.
            halves = weight.reshape(count, 2, -1, weight.shape[1])
            weight = halves.swapaxes(1, 2).reshape(weight.shape)
        stored = GGMLQuantizationType.F32 if weight.dim() == 1 else GGMLQuantizationType.Q8_0
        data = quantize(weight.numpy(), stored)
        writer.add_tensor(f"{known.get_name(f'model.{stem}')}.{suffix}", data, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
