"""The folder of a trained drafter: weights, config.json with its card, and the card as a README."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdemo.config.errors import UserError
from specdemo.config.strings import ASSETS, Json, JsonView
from specdemo.drafters.methods import TRAINED
from specdemo.models.networks.folders import COMPACT_FORMAT, read_config, save_compact

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import LlamaConfig


CARDS = ASSETS / "cards"  # templates of READMEs, and the words in them
# Keys of a config.json that the runtime reads, whichever of them transformers would leave out as defaults.
RUNTIME_KEYS = (
    "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "rms_norm_eps",
    "num_hidden_layers", "rope_parameters", "tie_word_embeddings", "vocab_size",
)  # fmt: skip


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

    def to_dict(self) -> dict[str, object]:
        plain = asdict(self)
        plain["layers"], plain["data"] = list(self.layers), list(self.data)
        return plain


def card_words(part: str) -> Json:
    words: Json = json.loads((CARDS / "words.json").read_text(encoding="utf-8"))[part]
    return words


def title(name: str) -> str:
    """Describe a result; a number at the end of its name is the position in the draft, from 1."""
    measure, _, place = name.rpartition("_")
    placed = card_words("placed")
    if place.isdigit() and measure in placed:
        return str(placed[measure]).format(place=place)
    return str(card_words("measures").get(name, name.replace("_", " ")))


def render(card: Card, parameters: int) -> str:
    """The README of a drafter's folder."""
    known = TRAINED.get(card.kind)
    about = known.card if known else "A drafter for `{target}` ({kind})."
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
        "card": card.to_dict(),
    }
    save_compact(out, plain, state, word_ids, bits=card.bits)
    (out / "README.md").write_text(render(card, parameters), encoding="utf-8")
