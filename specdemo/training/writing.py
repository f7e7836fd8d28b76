"""Writes a drafter that `train` made in a published layout, for other engines.

Other kinds and forms than these are refused:

    speculators    EAGLE-3: feature drafters of the form `eagle3`
    dflash         DFlash as z-lab writes it, and causal as JetSpec does: drafters of the form `dflash`; the head is the
                   target's, over the whole vocabulary
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from specdemo.config.errors import UserError
from specdemo.config.strings import Json, JsonView
from specdemo.files.catalogue import find
from specdemo.files.folder import read_config as read_model_config
from specdemo.files.sources import ModelFiles
from specdemo.models.networks.folders import (
    EMBEDDING,
    HEAD,
    is_compact,
    load_state,
    read_config,
    read_tensor,
)
from specdemo.models.networks.registry import NETWORKS, find_network
from specdemo.training.package import check_target, fill_card

SIZES = (
    "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "vocab_size",
)  # fmt: skip
SPECULATED = 3  # draft tokens that a config proposes


@dataclass(frozen=True, slots=True)
class Compact:
    """A drafter that `train` made, and its target.

    config: its config.json; state: its tensors, matrices in float32 with the values that the runtime computes with
    """

    folder: Path
    config: JsonView
    state: Mapping[str, Tensor]
    target: ModelFiles

    @property
    def facts(self) -> JsonView:
        """Our own part of its config.json."""
        facts: JsonView = self.config["specdemo"]
        return facts

    @property
    def made_for(self) -> str:
        """The target's hub id, if the catalogue contains it."""
        entry = find(self.target.name)
        return (entry.repo if entry else None) or self.target.name

    def target_config(self) -> JsonView:
        return read_model_config(self.target.folder, self.target.name)

    def output_matrix(self) -> Tensor:
        """(V, H) of the target: its head, or its embedding if they are the same."""
        tied = self.config["tie_word_embeddings"]
        return read_tensor(self.target.folder, EMBEDDING if tied else HEAD)


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
    compact = _opened(folder, target)
    if layout not in LAYOUTS:
        raise UserError("training.unknown_layout", layout=layout, names=", ".join(LAYOUTS))
    _check_layout(compact, layout)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError("training.folder_in_use", path=out)
    config, tensors = LAYOUTS[layout](compact)
    out.mkdir(parents=True, exist_ok=True)
    plain = {
        name: one.to(torch.bfloat16) if one.is_floating_point() else one
        for name, one in tensors.items()
    }
    save_file(
        {name: one.contiguous().clone() for name, one in plain.items()},
        out / "model.safetensors",
        metadata={"format": "pt"},
    )
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (out / "README.md").write_text(_card(compact, layout, licence), encoding="utf-8")
    return out


def trained_for(folder: Path) -> str:
    """Return the name of the target that a drafter was trained for. Raises UserError for another folder."""
    if not is_compact(folder):
        raise UserError("training.no_drafter", folder=folder)
    return str(read_config(folder)["specdemo"]["embedding_from"])


def _opened(folder: Path, target: ModelFiles) -> Compact:
    compact = Compact(folder, read_config(folder), load_state(folder), target)
    check_target(folder, target.name, compact.target_config())
    return compact


def _check_layout(compact: Compact, layout: str) -> None:
    """Refuse a drafter whose network the layout has no names for."""
    facts = compact.facts
    kind, form = facts.get("kind", compact.folder.name), facts.get("form", "own")
    network = find_network(kind, form, extends=bool(facts.get("extends")))
    if network is None or network.layout != layout:
        fits = next(row for row in NETWORKS if row.layout == layout)
        raise UserError(
            "training.unwritable", drafter=compact.folder.name, layout=layout, kind=kind, form=form,
            wanted=f"{fits.kind} --form {fits.form}",
        )  # fmt: skip


def _speculators(compact: Compact) -> Content:
    """EAGLE-3 as speculators writes it, with the norms of EAGLE 3.1."""
    facts, state = compact.facts, compact.state
    reads, hidden = list(facts["reads"]), compact.config["hidden_size"]
    layer = _layer_sizes(compact, 1) | {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "mlp_bias": False,
    }
    word_ids, vocabulary = state["word_ids"], compact.config["vocab_size"]
    config = {
        "architectures": ["Eagle3Speculator"],
        "speculators_model_type": "eagle3",
        "speculators_config": {
            "algorithm": "eagle3",
            "default_proposal_method": "greedy",
            "proposal_methods": [
                {
                    "proposal_type": "greedy",
                    "speculative_tokens": SPECULATED,
                    "verifier_accept_k": 1,
                    "accept_tolerance": 0.0,
                }
            ],
            "verifier": {
                "name_or_path": compact.made_for,
                "architectures": list(compact.target_config().get("architectures") or []),
            },
        },
        "transformer_layer_config": layer,
        "draft_vocab_size": len(word_ids),
        "target_hidden_size": hidden,
        "eagle_aux_hidden_state_layer_ids": reads,
        "norm_before_residual": False,
        "norm_before_fc": False,
        "fc_norm": True,
        "norm_output": True,
        "embed_requires_grad": False,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
    }
    tensors = {name: one for name, one in state.items() if name.startswith(("layers.", "norm."))}
    tensors["fc.weight"] = state["inject.project.weight"]
    gains = state["inject.gain"].split(hidden)
    tensors |= {f"fc_norm.{number}.weight": gain for number, gain in enumerate(gains)}
    tensors["lm_head.weight"] = compact.output_matrix()[word_ids]
    tensors["d2t"] = word_ids - torch.arange(len(word_ids))
    tensors["t2d"] = torch.zeros(vocabulary, dtype=torch.bool).index_fill(0, word_ids, 1)
    return config, tensors


def _dflash(compact: Compact) -> Content:
    """DFlash as z-lab writes it; JetSpec's is the same with a causal block. Embedding and head are the target's, so they are left out."""
    facts, state = compact.facts, compact.state
    numbers = [int(name.split(".")[1]) for name in state if name.startswith("layers.")]
    causal = {"causal_head": True} if facts["causal"] else {}
    config = {
        **_layer_sizes(compact, max(numbers) + 1),
        "architectures": ["DFlashDraftModel"],
        "model_type": "qwen3",
        "layer_types": ["full_attention"] * (max(numbers) + 1),
        "sliding_window": None,
        "use_sliding_window": False,
        "is_causal": bool(facts["causal"]),
        "num_target_layers": compact.target_config()["num_hidden_layers"],
        "block_size": int(facts["depth"]) + 1,
        "dflash_config": {
            "mask_token_id": int(facts["mask"]),
            "target_layer_ids": [layer - 1 for layer in facts["reads"]],
            **causal,
        },
        "base_model_name_or_path": compact.made_for,
        "torch_dtype": "bfloat16",
    }
    return config, {name: one for name, one in state.items() if name != "word_ids"}


def _layer_sizes(compact: Compact, count: int) -> Json:
    return {name: compact.config[name] for name in SIZES} | {
        "intermediate_size": len(compact.state["layers.0.mlp.up_proj.weight"]),
        "num_hidden_layers": count,
        "hidden_act": "silu",
        "attention_bias": False,
        "max_position_embeddings": compact.config.get("max_position_embeddings", 2048),
        "rope_theta": compact.config["rope_parameters"]["rope_theta"],
        "rope_scaling": None,
        "tie_word_embeddings": False,
    }


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
