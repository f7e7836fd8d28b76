"""Writes a drafter that `train` made in a published layout, for other engines. What a layout cannot say is refused.

Layouts:

    speculators    EAGLE-3: feature drafters of the form `eagle3`
    dflash         DFlash as z-lab writes it, and causal as JetSpec does: drafters of the form `dflash`; the head is the
                   target's, over all words
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors.torch import save_file
from torch import Tensor

from specdemo.config.errors import UserError
from specdemo.files.catalogue import find
from specdemo.files.folder import read_config as read_model_config
from specdemo.files.sources import ModelFiles
from specdemo.models.networks.compact_files import (
    EMBEDDING,
    HEAD,
    is_compact,
    load_state,
    read_config,
    read_tensor,
)

SIZES = (
    "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps", "vocab_size",
)  # fmt: skip
SPECULATED = 3  # tokens that a config proposes to draft


@dataclass(frozen=True, slots=True)
class Compact:
    """A drafter that `train` made, and its target.

    config: its config.json; state: its tensors, matrices in float32, as they run
    """

    folder: Path
    config: Mapping[str, Any]
    state: Mapping[str, Tensor]
    target: ModelFiles

    @property
    def facts(self) -> Mapping[str, Any]:
        """What the runtime knows of it."""
        facts: Mapping[str, Any] = self.config["specdemo"]
        return facts

    @property
    def made_for(self) -> str:
        """The target's hub id, where the catalogue knows it."""
        entry = find(self.target.name)
        return (entry.repo if entry else None) or self.target.name

    def target_config(self) -> Mapping[str, Any]:
        """The target's config.json."""
        return read_model_config(self.target.folder, self.target.name)

    def output_matrix(self) -> Tensor:
        """(V, H) of the target: its head, or its embedding where that is the same."""
        tied = self.config["tie_word_embeddings"]
        return read_tensor(self.target.folder, EMBEDDING if tied else HEAD)

    def cannot(self, layout: str, why: str, advice: str) -> NoReturn:
        """Refuse to write what the layout cannot say."""
        raise UserError(
            "training.unwritable",
            drafter=self.folder.name,
            layout=layout,
            reason=why,
            advice=advice,
        )


Content = tuple[dict[str, Any], dict[str, Tensor]]
"""A config.json, and tensors by name."""


def write_published(
    folder: Path, target: ModelFiles, out: Path, layout: str, licence: str = ""
) -> Path:
    """Write a drafter in a published layout, read back by `published.families`. returns: `out`

    folder: of the drafter, as `train` wrote it; layout: one of LAYOUTS
    licence: for the card; "" for that of the target where the catalogue knows it
    Raises UserError for a drafter that the layout cannot say, and for a target that it was not trained for.
    """
    compact = _opened(folder, target)
    if layout not in LAYOUTS:
        raise UserError("training.unknown_layout", layout=layout, names=", ".join(LAYOUTS))
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
    """The target of a drafter that `train` made, as it was named then. Raises UserError for another folder."""
    if not is_compact(folder):
        raise UserError("training.no_drafter", folder=folder)
    return str(read_config(folder)["specdemo"]["embedding_from"])


def _opened(folder: Path, target: ModelFiles) -> Compact:
    compact = Compact(folder, read_config(folder), load_state(folder), target)
    config = compact.target_config()
    for name in ("hidden_size", "vocab_size"):
        if config.get(name) != compact.config[name]:
            raise UserError(
                "training.other_target",
                folder=folder.name,
                target=target.name,
                name=name,
                own=f"{compact.config[name]:,}",
                theirs=f"{config.get(name):,}",
            )
    return compact


def _speculators(compact: Compact) -> Content:
    """EAGLE-3 as speculators writes it, with the norms of EAGLE 3.1."""
    layout, facts, state = "speculators", compact.facts, compact.state
    kind = facts.get("kind", compact.folder.name)
    if kind != "feature":
        compact.cannot(
            layout, f"it is of the kind {kind}, and the layout is of EAGLE-3, a feature drafter",
            "Train one: python -m specdemo train feature --form eagle3.",
        )  # fmt: skip
    if facts.get("extends"):
        compact.cannot(
            layout, "it stands on the layers of a draft model, and EAGLE-3 has none below",
            "Train one: python -m specdemo train feature --form eagle3.",
        )  # fmt: skip
    if facts.get("form") != "eagle3":
        compact.cannot(
            layout,
            "it adds the target's states to a mixed embedding and weighs what is fed back, and EAGLE-3 reads states "
            "beside the embedding",
            "Train one that does: python -m specdemo train feature --form eagle3.",
        )
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
    """DFlash as z-lab writes it; JetSpec's is the same with a causal block. Without embedding and head: they are the target's."""
    facts, state = compact.facts, compact.state
    kind = facts.get("kind", compact.folder.name)
    if kind not in ("block", "jet"):
        compact.cannot(
            "dflash", f"it is of the kind {kind}, and the layout is of drafters that guess a block",
            "Train one: python -m specdemo train block --form dflash.",
        )  # fmt: skip
    if facts.get("form") != "dflash":
        compact.cannot(
            "dflash",
            "it stands on the layers of a draft model, which read the text, and DFlash reads the target's states alone",
            "Train one that does: python -m specdemo train block --form dflash.",
        )
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


def _layer_sizes(compact: Compact, count: int) -> dict[str, Any]:
    """Sizes of the layers, as configs of transformers name them."""
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
    """README.md: what the hub reads of it in its first lines, and a sentence on what it is."""
    entry = find(compact.target.name)
    licence = licence or (entry.licence.lower() if entry else "")
    head = [f"license: {licence}"] if licence else []
    head += [f"base_model: {compact.made_for}", "tags:", "- speculative-decoding"]
    card, words = compact.facts.get("card", {}), len(compact.state["word_ids"])
    said = "named above" if licence else "not named: name one before it is published"
    lines = [
        "---", *head, "---", f"# A drafter for {compact.made_for}", "",
        f"A {compact.facts.get('kind', compact.folder.name)} drafter in the layout `{layout}`, trained and exported by "
        "specdemo. It drafts for the model above and for no other.", "",
        f"- licence: {said}",
        f"- target: {compact.made_for}, answering in {card.get('precision', 'unknown precision')}",
        f"- reduced vocabulary in training: {words:,} tokens",
        *(f"- {line}" for line in card.get("data", ())),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


LAYOUTS: dict[str, Callable[[Compact], Content]] = {
    "speculators": _speculators,
    "dflash": _dflash,
}
