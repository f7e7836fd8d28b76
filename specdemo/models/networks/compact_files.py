"""The files of a compact draft: 8-bit or 4-bit layers and a word list; the embedding is the target's and is not shipped.

A folder holds config.json (a transformers Llama config with one more key, `specdemo`) and safetensors
parts below 10 MB. `export` writes the same model as an ordinary transformers causal LM.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from specdemo.config.errors import UserError
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.models.decoders.layer import LlamaLayer
from specdemo.models.networks.compact_weights import (
    Beside,
    CompactConfig,
    CompactWeights,
    Injection,
    MarkovHead,
    MixedEmbedding,
)
from specdemo.models.networks.four_bit import (
    PARTS,
    FourBit,
    Linear,
    dense,
    fits,
    pack_linear,
    stacked,
)
from specdemo.models.quiet import import_bitsandbytes

FORMAT = "compact-1"
PART_BYTES = 8_000_000
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"
ROWS = ("mask", "markov.token.weight")  # whose rows are read one by one: none is a linear map


def is_compact(folder: Path) -> bool:
    """Whether a folder holds a draft of this kind."""
    config = folder / "config.json"
    return config.is_file() and "specdemo" in json.loads(config.read_text(encoding="utf-8"))


def read_config(folder: Path) -> dict[str, Any]:
    """config.json; raises UserError for a format of another version."""
    config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    if config["specdemo"].get("format") != FORMAT:
        raise UserError(
            "draft.format",
            folder=folder.name,
            format=config["specdemo"].get("format"),
            known=FORMAT,
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
    """Write a draft. state: a Llama's tensors without its embedding; word_ids: (W,) int64.

    In 8 bits matrices are int8 with one float scale a row; the error is far below that of 4-bit.
    In 4 bits they are exactly what runs on a processor, see `four_bit`, in five eighths of the space.
    """
    tensors: dict[str, Tensor] = {"word_ids": word_ids.to(torch.int32)}
    for name, tensor in state.items():
        if tensor.ndim < 2:
            tensors[name] = tensor.to(torch.bfloat16)
            continue
        if bits == 4 and fits(tensor) and name not in ROWS:
            tensors |= {f"{name}{part}": one for part, one in FourBit.of(tensor).parts().items()}
            continue
        scale = tensor.float().abs().amax(dim=1).clamp(min=1e-8) / 127
        tensors[name] = (tensor.float() / scale[:, None]).round().to(torch.int8)
        tensors[f"{name}.scale"] = scale
    folder.mkdir(parents=True, exist_ok=True)
    for old in folder.glob("*.safetensors"):
        old.unlink()
    for number, part in enumerate(_parts(tensors), start=1):
        save_file(part, folder / f"part-{number:02d}.safetensors")
    text = json.dumps(config, indent=2, ensure_ascii=False) + "\n"
    (folder / "config.json").write_text(text, encoding="utf-8")


def load_state(folder: Path) -> dict[str, Tensor]:
    """Every tensor of a draft, matrices in float32, and `word_ids` (W,) int64."""
    return {name: dense(tensor) for name, tensor in read_state(folder).items()}


def read_state(folder: Path) -> dict[str, Tensor | FourBit]:
    """As `load_state`, but matrices of 4 bits are left as they are."""
    raw: dict[str, Tensor] = {}
    try:
        for path in sorted(folder.glob("*.safetensors")):
            raw |= load_file(path)
        state: dict[str, Tensor | FourBit] = {}
        for name, tensor in raw.items():
            if name.endswith(PARTS):
                continue
            state[name] = tensor
            if tensor.dtype == torch.uint8:
                state[name] = FourBit.stored({part: raw[f"{name}{part}"] for part in ("", *PARTS)})
            if tensor.dtype == torch.int8:
                state[name] = tensor.float() * raw[f"{name}.scale"][:, None]
        state["word_ids"] = raw["word_ids"].long()
    except Exception as error:  # safetensors raises its own errors for cut or corrupt files
        raise UserError("draft.damaged", folder=folder.name) from error
    return state


def read_embedding(model_folder: Path) -> Tensor:
    """The embedding matrix (V, H) of a model folder, without loading the rest of it."""
    return read_tensor(model_folder, EMBEDDING)


def read_tensor(model_folder: Path, name: str) -> Tensor:
    """One tensor of a model folder, by its name."""
    for path in sorted(model_folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            if name in file.keys():  # noqa: SIM118 - safe_open is not a dict
                found: Tensor = file.get_tensor(name)
                return found
    raise UserError("draft.no_tensor", name=model_folder.name, tensor=name)


def read_layer(model_folder: Path, index: int) -> dict[str, Tensor]:
    """A layer of a model folder, in float32, by the names that its tensors have within the layer.

    Matrices that bitsandbytes has packed are unpacked.
    """
    begin = f"model.layers.{index}."
    raw: dict[str, Tensor] = {}
    for path in sorted(model_folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - safe_open is not a dict
                if name.startswith(begin):
                    raw[name.removeprefix(begin)] = file.get_tensor(name)
    found = {name: raw[name] for name in raw if name.endswith((".weight", ".bias"))}
    for name, tensor in found.items():
        facts = {
            key.removeprefix(f"{name}."): raw[key] for key in raw if key.startswith(f"{name}.")
        }
        found[name] = (_unpacked(tensor, facts) if facts else tensor).float()
    return found


def _unpacked(codes: Tensor, facts: dict[str, Tensor]) -> Tensor:
    """A matrix that bitsandbytes has packed. facts: what it keeps beside the codes"""
    import_bitsandbytes()
    from bitsandbytes import functional as bnb

    state = bnb.QuantState.from_dict(facts, torch.device("cpu"))
    return bnb.dequantize_4bit(codes, state).reshape(state.shape)


def load_compact(
    folder: Path,
    embedding: Tensor,
    *,
    device: torch.device,
    base: CompactWeights | None = None,
    output: Tensor | None = None,
    four_bit: bool = True,
) -> CompactWeights:
    """Weights ready to run.

    embedding: (V, H), of the model that the draft was trained with; base: the draft model that it was trained on top
    of; output: (V, H), that model's head where it is another matrix; all are shared, not copied
    """
    config, state = read_config(folder), read_state(folder)
    if (base is not None) != ("extends" in config["specdemo"]):
        raise UserError("draft.needs_base", folder=folder.name)
    embedding = embedding.to(device=device, dtype=torch.bfloat16)
    output = None if output is None else output.to(device=device, dtype=torch.bfloat16)
    rows = embedding if output is None else output
    shape = CompactConfig.of(config)

    def matrix(*names: str, in_pass: bool = False) -> Linear:
        weight = stacked([state[f"{name}.weight"] for name in names], device)
        biases = [vector(f"{name}.bias") for name in names if f"{name}.bias" in state]
        bias = torch.cat(biases) if biases else None
        return pack_linear(weight, bias, four_bit=four_bit, in_pass=in_pass)

    def vector(name: str, dtype: torch.dtype = torch.bfloat16) -> Tensor:
        return dense(state[name]).to(device, dtype)

    # The compiled pass reads no state beside an embedding.
    beside = None
    if "layers.0.hidden_norm.weight" in state:
        beside = Beside(vector("layers.0.hidden_norm.weight"), normed=False)

    fused = partial(matrix, in_pass=beside is None)
    word_ids, facts = vector("word_ids", torch.int64), config["specdemo"]

    inject = markov = None
    if "inject.gain" in state:
        inject = Injection(vector("inject.gain"), matrix("inject.project"))
    feedback = vector("feedback") if "feedback" in state else None
    if beside and inject:
        inject = replace(inject, epsilon=shape.rms_norm_eps)
        feedback = torch.ones_like(beside.norm)
    if "markov.token.weight" in state:
        markov = MarkovHead(
            token=vector("markov.token.weight"),
            bias=matrix("markov.bias"),
            confidence=vector("markov.confidence.weight", torch.float32)[0],
            constant=float(vector("markov.confidence.bias")),
            temperatures=tuple(vector("temperatures").tolist()),
        )
    mixed = None
    if "mix.weight" in state:
        mixed = MixedEmbedding(embedding, vector("mix.weight", torch.float32), word_ids.cpu())
    return CompactWeights(
        config=shape,
        layers=(
            *(base.layers if base else ()),
            *(
                LlamaLayer.read(f"layers.{index}.", fused, vector)
                for index in range(config["num_hidden_layers"])
            ),
        ),
        norm=vector("norm.weight"),
        embedding=embedding,
        head=pack_linear(rows[word_ids], four_bit=four_bit, in_pass=beside is None),
        words=ReducedVocabulary(word_ids.cpu(), embedding.shape[0]),
        extends=len(base.layers) if base else 0,
        reads=tuple(facts.get("reads", ())),
        inject=inject,
        mixed=mixed,
        feedback=feedback,
        beside=beside,
        skips_first=beside is not None,
        output=output,
        mask=vector("mask") if "mask" in state else None,
        depth=int(facts.get("depth", 1)),
        causal=bool(facts.get("causal", True)),
        markov=markov,
    )


def export(folder: Path, target_folder: Path, out: Path) -> None:
    """Write a draft as an ordinary transformers causal LM, tokenizer included.

    Its head is the whole tied embedding, so it may also say words outside the reduced vocabulary.
    """
    config, state = read_config(folder), load_state(folder)
    state = {
        name: tensor for name, tensor in state.items() if name.startswith(("layers.", "norm."))
    }
    out.mkdir(parents=True, exist_ok=True)
    tensors = {
        f"model.{name}": tensor.to(torch.bfloat16).contiguous() for name, tensor in state.items()
    }
    tensors[EMBEDDING] = read_embedding(target_folder).to(torch.bfloat16)
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    plain = {key: value for key, value in config.items() if key != "specdemo"}
    (out / "config.json").write_text(json.dumps(plain, indent=2) + "\n", encoding="utf-8")
    for name in (
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "generation_config.json",
    ):
        if (target_folder / name).is_file():
            shutil.copyfile(target_folder / name, out / name)


def _parts(tensors: dict[str, Tensor]) -> list[dict[str, Tensor]]:
    parts: list[dict[str, Tensor]] = [{}]
    size = 0
    for name, tensor in tensors.items():
        if size and size + tensor.nbytes > PART_BYTES:
            parts.append({})
            size = 0
        parts[-1][name] = tensor.contiguous()
        size += tensor.nbytes
    return parts
