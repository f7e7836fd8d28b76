"""The folder of a trained drafter: weights, config.json with its card, and the card as a README.

It can also be written in a published layout, for other engines. Other kinds and forms than these are refused:

    speculators    EAGLE-3: feature drafters of the form `eagle3`
    dflash         DFlash as z-lab writes it, and causal as JetSpec does: drafters of the form `dflash`; the head is the
                   target's, over the whole vocabulary
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from specdemo.config.errors import UserError
from specdemo.config.strings import ASSETS, Json, JsonView, load
from specdemo.files.catalogue import find
from specdemo.files.folder import read_config as read_model_config
from specdemo.files.sources import ModelFiles
from specdemo.models.networks.folders import (
    COMPACT_FORMAT,
    EMBEDDING,
    HEAD,
    is_compact,
    load_state,
    read_config,
    read_tensor,
    save_compact,
)
from specdemo.models.networks.registry import NETWORKS, find_network

if TYPE_CHECKING:
    from transformers import LlamaConfig


CARDS = ASSETS / "cards"  # templates of READMEs and of published layouts, and the words in them
SIZES = (
    "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "num_hidden_layers",
    "vocab_size",
)  # fmt: skip
# Keys of a config.json that the runtime reads, whichever of them transformers would leave out as defaults.
RUNTIME_KEYS = (*SIZES, "rope_parameters", "tie_word_embeddings")


@dataclass(frozen=True, slots=True)
class Card:
    """Facts about one drafter.

    target: catalogue name or id of the model whose answers it was trained on, and whose embedding it uses
    precision: weights that the target answered with; layers: the target's layers that it started as
    data: a line for each source of answers; tokens_seen: prompt and answer tokens, every epoch counted
    results: measured on held-out prompts; `title` describes their names
    losses, checks: (step, loss of the recipe), the training's moving average and on held-out texts
    """

    target: str
    precision: str
    kind: str
    layers: tuple[int, ...]
    words: int
    data: tuple[str, ...]
    tokens_seen: int
    steps: int
    minutes: float
    seed: int
    results: Mapping[str, float] = field(default_factory=dict)
    recipe: Mapping[str, float | str] = field(default_factory=dict)
    losses: tuple[tuple[int, float], ...] = ()
    checks: tuple[tuple[int, float], ...] = ()
    machine: str = ""
    licence: str = "Apache-2.0"

    @property
    def bits(self) -> int:
        """Bits of its matrices on disk: a draft model needs 8, for drafters on top of it and for its export."""
        return 8 if self.kind == "draft" else 4


def card_part(file: str, part: str) -> Json:
    """Return a part of a JSON file in `assets/cards`.

    file: "words", texts of cards; or "layouts", entries of a layout's config.json that are the same for every drafter
    """
    parts: Json = json.loads((CARDS / f"{file}.json").read_text(encoding="utf-8"))[part]
    return parts


def title(name: str) -> str:
    """Return the page's name of a result; a number at the end of `name` is the position in the draft, from 1."""
    words = load("page")["VIEW"]["card"]
    measure, _, place = name.rpartition("_")
    if place.isdigit() and measure in words["names"]:
        return f"{words['names'][measure]}, {words['place'].format(place=place)}"
    return str(words["names"].get(name, name.replace("_", " ")))


def render(card: Card, parameters: int) -> str:
    """Return the README of a drafter's folder."""
    about = card_part("words", "drafters").get(card.kind, "A drafter for `{target}` ({kind}).")
    count = len(card.layers)
    layers = {0: "decoder layers", 1: "one decoder layer"}.get(count, f"{count} decoder layers")
    about = about.format(target=card.target, kind=card.kind, layers=layers, words=card.words)
    return fill_card("drafter", card=card, parameters=parameters, about=about, title=title)


def fill_card(name: str, **values: object) -> str:
    """Return the README of a template in `assets/cards`."""
    from jinja2 import Environment

    environment = Environment(trim_blocks=True, autoescape=False)  # noqa: S701 - it writes Markdown
    template = environment.from_string((CARDS / f"{name}.md").read_text(encoding="utf-8"))
    return template.render(**values).rstrip() + "\n"


def read_llama_config(target_folder: Path, *, own_layer: bool = False) -> LlamaConfig:
    """Return the target's config. Raises UserError if a drafter cannot be trained for such a model.

    own_layer: see `NetworkKind`. Qwen2 layers are Llama layers whose queries, keys and values have biases.
    """
    from transformers import AutoConfig

    config: Any = AutoConfig.from_pretrained(str(target_folder), trust_remote_code=False)
    why = ""
    if own_layer and config.model_type == "qwen2":
        config = _as_llama(config)
    if config.model_type != "llama":
        why = f"its architecture is {config.model_type}, and drafts are cut out of Llama models"
    elif not config.tie_word_embeddings and not own_layer:
        why = "its output head is not its embedding, which the draft would share"
    elif config.rope_parameters.get("rope_type", "default") != "default":
        why = "it stretches its positions, which the draft's runtime does not do"
    elif (
        (config.attention_bias and not own_layer) or config.mlp_bias or config.hidden_act != "silu"
    ):
        why = "its layers differ from plain Llama layers (biases or activation)"
    if why:
        raise UserError("training.unsupported_target", target=target_folder.name, reason=why)
    found: LlamaConfig = config
    return found


def check_target(folder: Path, target: str, config: JsonView) -> None:
    """Refuse the folder of a drafter of another target. config: of the target"""
    own = read_config(folder)
    for name in ("hidden_size", "vocab_size"):
        if config.get(name) != own[name]:
            raise UserError(
                "training.other_target", folder=folder.name, target=target, name=name,
                own=own[name], theirs=config.get(name),
            )  # fmt: skip


def _as_llama(config: Any) -> LlamaConfig:
    """Return a Qwen2 config as that of the same layers in a Llama; `attention_bias` covers queries, keys and values."""
    from transformers import LlamaConfig

    names = (
        "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "hidden_act", "max_position_embeddings", "rms_norm_eps", "rope_parameters",
        "tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id",
    )  # fmt: skip
    return LlamaConfig(attention_bias=True, **{name: getattr(config, name) for name in names})


def draft_config(target: LlamaConfig, num_layers: int) -> LlamaConfig:
    """Return the config of a network with as many layers like the target's."""
    from transformers import LlamaConfig

    plain = target.to_dict()
    for key in (
        "_name_or_path", "_model_name_or_path", "layer_types", "transformers_version",
        "quantization_config",
    ):  # fmt: skip
        plain.pop(key, None)
    plain |= {
        "num_hidden_layers": num_layers,
        "architectures": ["LlamaForCausalLM"],
        "dtype": "bfloat16",
    }
    return LlamaConfig.from_dict(plain)


def package(
    state: dict[str, Tensor],
    word_ids: Tensor,
    target_folder: Path,
    out: Path,
    card: Card,
    facts: Mapping[str, object] | None = None,
) -> None:
    """Write a drafter's folder: weights, config.json and its card.

    state: a Llama's tensors without its embedding ("layers.0.self_attn.q_proj.weight", ..., "norm.weight")
    word_ids: (W,) int64 — token id of each row of the head, ascending
    facts: entries of its config.json in addition to those of every drafter
    """
    numbers = [int(name.split(".")[1]) for name in state if name.startswith("layers.")]
    num_layers = 1 + max(numbers, default=-1)
    config = draft_config(read_llama_config(target_folder, own_layer=True), num_layers)
    if num_layers > 0:
        config.intermediate_size = len(state["layers.0.mlp.up_proj.weight"])
    parameters = sum(tensor.numel() for tensor in state.values())
    plain = json.loads(config.to_json_string(use_diff=True))
    plain |= {key: getattr(config, key) for key in RUNTIME_KEYS}
    plain["specdemo"] = {
        "format": COMPACT_FORMAT,
        "kind": card.kind,
        "embedding_from": card.target,
        "parameters": parameters,
        **(facts or {}),
        "card": asdict(card),
    }
    save_compact(out, plain, state, word_ids, bits=card.bits)
    (out / "README.md").write_text(render(card, parameters), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Compact:
    """A drafter that `train` made, and its target.

    config: its config.json; state: its tensors, matrices in float32 with the values that the runtime computes with
    target_config: the target's config.json
    """

    folder: Path
    config: JsonView
    state: Mapping[str, Tensor]
    target: ModelFiles
    target_config: JsonView

    @property
    def facts(self) -> JsonView:
        """Return specdemo's own entries of its config.json."""
        facts: JsonView = self.config["specdemo"]
        return facts

    @property
    def made_for(self) -> str:
        """The target's hub id, if the catalogue contains it."""
        entry = find(self.target.name)
        return (entry.repo if entry else None) or self.target.name


Content = tuple[Json, dict[str, Tensor]]
"""A config.json, and tensors by name."""


def write_published(
    folder: Path, target: ModelFiles, out: Path, layout: str, licence: str = ""
) -> Path:
    """Write a drafter in a published layout, which `layouts.families` reads back. returns: `out`

    folder: of the drafter, as `train` wrote it; layout: one of LAYOUTS
    licence: for the card; "" for that of the target in the catalogue
    Raises UserError for a drafter that the layout has no names for, and for a target that it was not trained for.
    """
    target_config = read_model_config(target.folder, target.name)
    check_target(folder, target.name, target_config)
    compact = Compact(folder, read_config(folder), load_state(folder), target, target_config)
    if layout not in LAYOUTS:
        raise UserError("training.unknown_layout", layout=layout, names=", ".join(LAYOUTS))
    _check_layout(compact, layout)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError("training.folder_in_use", path=out)
    config, tensors = LAYOUTS[layout](compact)
    out.mkdir(parents=True, exist_ok=True)
    for name, one in tensors.items():
        plain = one.to(torch.bfloat16) if one.is_floating_point() else one
        tensors[name] = plain.contiguous().clone()
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (out / "README.md").write_text(_card(compact, layout, licence), encoding="utf-8")
    return out


def trained_for(folder: Path) -> str:
    """Return the name of the target that a drafter was trained for. Raises UserError for another folder."""
    if not is_compact(folder):
        raise UserError("training.no_drafter", folder=folder)
    return str(read_config(folder)["specdemo"]["embedding_from"])


def _check_layout(compact: Compact, layout: str) -> None:
    """Refuse a drafter whose network the layout has no names for."""
    facts = compact.facts
    kind, form = facts.get("kind", compact.folder.name), facts.get("form", "own")
    network = find_network(kind, form)
    if network is None or network.layout != layout:
        fits = next(row for row in NETWORKS if row.layout == layout)
        raise UserError(
            "training.unwritable", drafter=compact.folder.name, layout=layout, kind=kind, form=form,
            wanted=f"{fits.kind} --form {fits.form}",
        )  # fmt: skip


def _speculators(compact: Compact) -> Content:
    """Return EAGLE-3 as speculators writes it, with the norms of EAGLE 3.1."""
    state, hidden = compact.state, compact.config["hidden_size"]
    word_ids, config = state["word_ids"], card_part("layouts", "speculators")
    config["speculators_config"]["verifier"] = {
        "name_or_path": compact.made_for,
        "architectures": list(compact.target_config.get("architectures") or []),
    }
    config["transformer_layer_config"] |= _layer_sizes(compact)
    config |= {
        "draft_vocab_size": len(word_ids),
        "target_hidden_size": hidden,
        "eagle_aux_hidden_state_layer_ids": list(compact.facts["reads"]),
    }
    tensors = {name: one for name, one in state.items() if name.startswith(("layers.", "norm."))}
    tensors["fc.weight"] = state["inject.project.weight"]
    gains = state["inject.gain"].split(hidden)
    tensors |= {f"fc_norm.{number}.weight": gain for number, gain in enumerate(gains)}
    head = EMBEDDING if compact.config["tie_word_embeddings"] else HEAD
    tensors["lm_head.weight"] = read_tensor(compact.target.folder, head)[word_ids]
    tensors["d2t"] = word_ids - torch.arange(len(word_ids))
    tensors["t2d"] = torch.zeros(compact.config["vocab_size"], dtype=torch.bool).index_fill(
        0, word_ids, 1
    )
    return config, tensors


def _dflash(compact: Compact) -> Content:
    """Return DFlash as z-lab writes it, or JetSpec, whose block is causal. Embedding and head are the target's and left out."""
    facts, state, config = compact.facts, compact.state, card_part("layouts", "dflash")
    causal = bool(facts["causal"])
    config["dflash_config"] = {
        "mask_token_id": int(facts["mask"]),
        "target_layer_ids": [layer - 1 for layer in facts["reads"]],
        **({"causal_head": True} if causal else {}),
    }
    config |= _layer_sizes(compact) | {
        "layer_types": ["full_attention"] * compact.config["num_hidden_layers"],
        "is_causal": causal,
        "num_target_layers": compact.target_config["num_hidden_layers"],
        "block_size": int(facts["depth"]) + 1,
        "base_model_name_or_path": compact.made_for,
    }
    return config, {name: one for name, one in state.items() if name != "word_ids"}


def _layer_sizes(compact: Compact) -> Json:
    return (
        card_part("layouts", "layer")
        | {name: compact.config[name] for name in SIZES}
        | {
            "intermediate_size": len(compact.state["layers.0.mlp.up_proj.weight"]),
            "max_position_embeddings": compact.config.get("max_position_embeddings", 2048),
            "rope_theta": compact.config["rope_parameters"]["rope_theta"],
        }
    )


def _card(compact: Compact, layout: str, licence: str) -> str:
    entry = find(compact.target.name)
    return fill_card(
        "published",
        licence=licence or (entry.licence.lower() if entry else ""),
        made_for=compact.made_for,
        kind=compact.facts.get("kind", compact.folder.name),
        layout=layout,
        card=compact.facts.get("card", {}),
        words=len(compact.state["word_ids"]),
    )


LAYOUTS: dict[str, Callable[[Compact], Content]] = {
    "speculators": _speculators,
    "dflash": _dflash,
}
