"""DFlash (2602.06036) as z-lab, SpecForge and speculators write it, and JetSpec (2606.18394), which is the same with a causal block.

Embedding and head are the target's. A mask stands for each place that is guessed.

    z-lab, SpecForge    sizes at the top; states counted by the layer that gives them; the rest in `dflash_config`
    speculators         sizes of the layers in `transformer_layer_config`; states counted as transformers does
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdemo.config.errors import Phrase
from specdemo.models.networks.compact_weights import CompactConfig
from specdemo.models.networks.dflash import DFlashDecoder, DFlashWeights, Scales, Windows
from specdemo.models.networks.layouts.family import (
    TIED,
    Family,
    Loader,
    Reading,
    TargetFacts,
    check_layers,
    check_sizes,
    check_tensors,
    layer_config,
    layer_extras,
    layer_shapes,
    offset_words,
    refuse,
)
from specdemo.models.networks.layouts.source import DrafterFiles
from specdemo.models.networks.registry import TargetTensors

ARCHITECTURES = (
    "dflashdraftmodel", "dflashspeculator", "dflash2draftmodel", "dflash2speculator", "qwen3dsparkmodel",
    "dsparkdraftmodel",
)  # fmt: skip
# Of `dflash_config`: what is read here; `num_anchors` and `loss_decay_gamma` are of training alone.
KNOWN = frozenset({
    "attention_mode", "block_size", "causal", "causal_head", "final_logit_softcapping", "input_embedding_scale",
    "loss_decay_gamma", "mask_token", "mask_token_id", "num_anchors", "num_target_layers", "output_multiplier",
    "projector_type", "sample_from_anchor", "shift_label", "target_hidden_size", "target_layer_ids",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class DFlashConfig:
    """What a config says, whichever layout it has.

    layers: their sizes; inner: of their gates; count: how many
    reads: the target's hidden states, as transformers counts them
    rows, mask, anchored, causal, scales, windows: as of `DFlashWeights`
    words: that the head speaks, of `vocabulary`
    """

    layers: CompactConfig
    inner: int
    count: int
    reads: tuple[int, ...]
    rows: int
    mask: int
    anchored: bool
    causal: bool
    scales: Scales
    windows: Windows
    words: int
    vocabulary: int


def takes(config: Mapping[str, Any], name: str = "dflash") -> bool:
    """Whether a config has this layout, JetSpec's included. name: of the family"""
    if "speculators_model_type" in config:
        return bool(config["speculators_model_type"] == name)
    if own_facts(config).get("projector_type") == "dspark":
        return name == "dspark"
    if "dflash" in kind_of(config) and is_second(config):
        return name == "dflash2"
    return name in kind_of(config)


def is_second(config: Mapping[str, Any]) -> bool:
    """Whether a config is one of DFlash 2, which some servers want to be named DFlash."""
    return "dflash2" in kind_of(config) or bool(facts_of(config).get("selector_rank"))


def is_causal(config: Mapping[str, Any], *, otherwise: bool = False) -> bool:
    """Whether rows of a block see only those before them. otherwise: where nothing is said"""
    own = own_facts(config)
    said = (own.get("causal"), own.get("causal_head"), config.get("is_causal"))
    return bool(next((one for one in said if one is not None), otherwise))


def read_config(
    files: DrafterFiles,
    target: TargetFacts,
    *,
    corrector: str = "dflash",
    known: frozenset[str] = KNOWN,
    anchored: bool = False,
) -> DFlashConfig:
    """The config of either layout. Raises UserError for what is not computed here.

    target: for the states that are read where none are named
    corrector: the `projector_type` that is read; known: keys of `dflash_config`
    anchored: where the config does not say
    """
    config = files.config
    nested = "speculators_model_type" in config
    sizes = config.get("transformer_layer_config") if nested else config
    if not isinstance(sizes, Mapping):
        raise files.wrong("its config.json has no transformer_layer_config")
    said = facts_of(config)
    _check_variant(files, said, corrector, known)
    count = files.number(sizes, "num_hidden_layers")
    windows = _windows(files, sizes, nested=nested, count=count, second=corrector == "dflash2")
    layers = layer_config(files, sizes, windows=bool(windows.rows))
    vocabulary = files.number(sizes, "vocab_size")
    rows = files.number(said, "block_size")
    anchored = bool(said.get("sample_from_anchor", anchored) or said.get("shift_label"))
    if rows < 2 and not anchored:
        raise files.wrong("its block guesses nothing")
    if files.number(said, "target_hidden_size", layers.hidden_size) != layers.hidden_size:
        raise files.wrong("its layers are of another width than the target's")
    if files.number(said, "num_target_layers", target.layers) != target.layers:
        raise refuse(
            files, target,
            Phrase("drafter.target_layers", own=said["num_target_layers"], theirs=target.layers),
        )  # fmt: skip
    mask = said.get("mask_token_id")
    if type(mask) is not int or not 0 <= mask < vocabulary:
        raise files.wrong("its config.json has no mask_token_id")
    return DFlashConfig(
        layers=layers,
        inner=files.number(sizes, "intermediate_size"),
        count=count,
        reads=_reads(files, said, target, count=count, nested=nested),
        rows=rows,
        mask=mask,
        anchored=anchored,
        causal=is_causal(config),
        scales=Scales(
            _scale(files, said, "input_embedding_scale", 1.0),
            _scale(files, said, "output_multiplier", 1.0),
            _scale(files, said, "final_logit_softcapping", 0.0),
        ),
        windows=windows,
        words=files.number(config, "draft_vocab_size", vocabulary),
        vocabulary=vocabulary,
    )


def read(files: DrafterFiles, target: TargetFacts) -> Reading:
    """Check a drafter against its own config and the target. Raises UserError."""
    config = read_config(files, target)
    check_target(files, target, config)
    check_tensors(files, *shapes(files, config))
    return Reading(
        ("block", "jet"),
        config.reads,
        False,
        lambda shared: DFlashDecoder(load(files, config, shared)),
    )


def check_target(files: DrafterFiles, target: TargetFacts, config: DFlashConfig) -> None:
    """Refuse a drafter of another target."""
    hidden, count = config.layers.hidden_size, len(config.reads)
    check_sizes(files, target, hidden=hidden, vocabulary=config.vocabulary)
    check_layers(files, target, config.reads)
    mixes = files.shapes.get("fc.weight", (0, count * hidden))[-1]
    if mixes != count * hidden:
        raise refuse(
            files, target,
            Phrase("drafter.mixes", own=f"{mixes:,}", count=count, theirs=f"{count * hidden:,}"),
        )  # fmt: skip


def shapes(
    files: DrafterFiles, config: DFlashConfig
) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """What must be there, and what may be."""
    hidden, layers = config.layers.hidden_size, config.layers
    needed: dict[str, tuple[int, ...]] = {
        "fc.weight": (hidden, len(config.reads) * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    optional: dict[str, tuple[int, ...]] = {
        "embed_tokens.weight": (config.vocabulary, hidden),
        "t2d": (config.vocabulary,),
    }
    optional |= {name: files.shapes[name] for name in TIED if name in files.shapes}
    for number in range(config.count):
        needed |= layer_shapes(f"layers.{number}.", layers, config.inner, hidden)
        needed |= layer_extras(f"layers.{number}.", layers, norms=True, biases=False)
        optional |= layer_extras(f"layers.{number}.", layers, norms=False, biases=True)
    head = {"lm_head.weight": (config.words, hidden), "d2t": (config.words,)}
    (needed if config.words < config.vocabulary else optional).update(head)
    return needed, optional


def load(files: DrafterFiles, config: DFlashConfig, shared: TargetTensors) -> DFlashWeights:
    """What runs. Raises UserError for words that are not the target's."""
    loader = Loader(files, shared)
    return DFlashWeights(
        config=config.layers,
        layers=tuple(loader.layer(f"layers.{number}.") for number in range(config.count)),
        norm=loader.vector("norm.weight"),
        embedding=loader.embedding(),
        head=loader.head(),
        words=offset_words(files, config.words, config.vocabulary),
        reads=config.reads,
        mix=loader.matrix("fc"),
        mix_norm=loader.vector("hidden_norm.weight"),
        rows=config.rows,
        mask=config.mask,
        anchored=config.anchored,
        causal=config.causal,
        scales=config.scales,
        windows=config.windows,
    )


def kind_of(config: Mapping[str, Any]) -> str:
    """Its architectures, in small letters."""
    return " ".join(map(str, config.get("architectures") or ())).lower()


def own_facts(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the layout adds to a config."""
    own = config.get("dflash_config")
    return own if isinstance(own, Mapping) else {}


def facts_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """What is said at the top, and before that what is said in `dflash_config`."""
    own = own_facts(config)
    return {**config, **{key: one for key, one in own.items() if one is not None}}


def _check_variant(
    files: DrafterFiles, said: Mapping[str, Any], corrector: str, known: frozenset[str]
) -> None:
    """Refuse relatives that compute something else. said: at the top or in `dflash_config`"""
    kind = said.get("projector_type") or corrector
    if kind != corrector:
        raise files.wrong(f"it corrects its guesses by {kind}, which is not read yet")
    named = kind_of(said)
    if named not in ("", *ARCHITECTURES) or said.get("rope_is_neox_style") is False:
        raise files.wrong(
            f"its layers are those of {said['architectures'][0]}, which are not computed here"
        )
    if said.get("attention_mode", "gqa") != "gqa":
        raise files.wrong(
            f"its attention is of the kind {said['attention_mode']}, which is not computed here"
        )
    for key, value in own_facts(files.config).items():
        if key not in known and value not in (None, False):
            raise files.wrong(f"nothing is known of {key} in its dflash_config")


def _reads(
    files: DrafterFiles, said: Mapping[str, Any], target: TargetFacts, *, count: int, nested: bool
) -> tuple[int, ...]:
    """The states that go in; where none are named, spread from the second layer to the last but three."""
    key = "aux_hidden_state_layer_ids" if nested else "target_layer_ids"
    named = said.get(key)
    if named is None and not nested:
        span = target.layers - 4
        spread = [round(1 + number * span / (count - 1)) for number in range(count) if count > 1]
        named = spread or [target.layers // 2]
    if not (named and isinstance(named, list) and all(type(one) is int for one in named)):
        raise files.wrong(f"its {key} are no numbers of layers")
    return tuple(named if nested else [one + 1 for one in named])


def _windows(
    files: DrafterFiles, sizes: Mapping[str, Any], *, nested: bool, count: int, second: bool
) -> Windows:
    """Layers that forget what is far back. Raises UserError where they are named otherwise than one by one.

    second: of DFlash 2, where such a layer of speculators sees all of the block if nothing is said
    """
    kinds = sizes.get("layer_types") or ()
    if "sliding_attention" not in kinds:
        return Windows()
    if len(kinds) != count or not set(kinds) <= {"sliding_attention", "full_attention"}:
        raise files.wrong("its layers forget what is far back, and are not named one by one")
    if nested:
        said = files.config.get("sliding_window_non_causal")
        causal = not (second if said is None else said)
    else:  # such layers are causal where nothing else is said
        causal = is_causal(files.config, otherwise=True)
    near = tuple(one == "sliding_attention" for one in kinds)
    return Windows(near, files.number(sizes, "sliding_window"), causal)


def _scale(files: DrafterFiles, said: Mapping[str, Any], key: str, default: float) -> float:
    value = said.get(key)
    if value is None:
        return default
    if type(value) not in (int, float) or not 0 <= value < float("inf"):
        raise files.wrong(f"its {key} is no number")
    return float(value)


DFLASH = Family("DFlash", lambda config: takes(config) and not is_causal(config), read)
JETSPEC = Family("JetSpec", lambda config: takes(config) and is_causal(config), read)
