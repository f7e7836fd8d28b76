"""DFlash (2602.06036) as z-lab, SpecForge and speculators write it, and its relatives.

Embedding and head are the target's. A mask marks each guessed position.

    z-lab, SpecForge    sizes at the top; states counted by their layer; the rest in `dflash_config`
    speculators         sizes of the layers in `transformer_layer_config`; states counted as transformers does

JetSpec (2606.18394) is DFlash with a causal block. DFlash 2 (Inco and Z Lab, 2026) adds convolutions along the block
around attention and gates of each layer, and a selector that chooses among the most likely tokens of a position by
the token before it. DSpark (DeepSeek-AI and Peking University, 2026) adds a Markov head, which corrects a position by
the token before it, and a confidence head; its pending token guesses too, so a block of seven rows guesses seven positions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specdemo.config.errors import Phrase
from specdemo.config.strings import Json, JsonView
from specdemo.models.networks.dflash import (
    Convolution,
    DFlashDecoder,
    DFlashWeights,
    Scales,
    Windows,
)
from specdemo.models.networks.layouts.family import (
    TIED,
    Family,
    Reading,
    TargetFacts,
    check_layers,
    check_sizes,
    check_tensors,
    layer_config,
    layer_extras,
    layer_shapes,
    loader_of,
    offset_words,
    refuse,
)
from specdemo.models.networks.layouts.source import DrafterFiles
from specdemo.models.networks.loader import TargetTensors
from specdemo.models.networks.parts import CompactConfig, MarkovHead, Selector

DFLASH_ARCHITECTURES = (
    "dflashdraftmodel", "dflashspeculator", "dflash2draftmodel", "dflash2speculator", "qwen3dsparkmodel",
    "dsparkdraftmodel",
)  # fmt: skip
# Supported keys of `dflash_config`; `num_anchors` and `loss_decay_gamma` are only used in training.
KNOWN = frozenset({
    "attention_mode", "block_size", "causal", "causal_head", "final_logit_softcapping", "input_embedding_scale",
    "loss_decay_gamma", "mask_token", "mask_token_id", "num_anchors", "num_target_layers", "output_multiplier",
    "projector_type", "sample_from_anchor", "shift_label", "target_hidden_size", "target_layer_ids",
})  # fmt: skip
SECOND_KNOWN = KNOWN | {
    "conv_group_size", "conv_kernel_size", "selector_rank", "selector_top_k",
}  # fmt: skip
DSPARK_KNOWN = KNOWN | {
    "confidence_head_alpha", "confidence_head_with_markov", "enable_confidence_head", "markov_head_type", "markov_rank",
}  # fmt: skip
CONVOLUTIONS = ("attention_conv", "mlp_conv")
CODEBOOKS = ("predecessor_codebook", "successor_codebook")


@dataclass(frozen=True, slots=True)
class DFlashConfig:
    """The config of a drafter, read from any layout.

    layers: their sizes; inner: width of their gates; count: number of layers
    reads: the target's hidden states, as transformers counts them
    rows, mask, anchored, causal, scales, windows: see `DFlashWeights`
    words: size of the head's vocabulary, of `vocabulary`
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


def takes(config: JsonView, name: str = "dflash") -> bool:
    """Whether a config has this layout, JetSpec's included. name: of the family"""
    if "speculators_model_type" in config:
        return bool(config["speculators_model_type"] == name)
    if own_facts(config).get("projector_type") == "dspark":
        return name == "dspark"
    if "dflash" in kind_of(config) and is_second(config):
        return name == "dflash2"
    return name in kind_of(config)


def is_second(config: JsonView) -> bool:
    """Whether a config is of DFlash 2; some servers need the name DFlash for it."""
    return "dflash2" in kind_of(config) or bool(facts_of(config).get("selector_rank"))


def is_causal(config: JsonView, *, otherwise: bool = False) -> bool:
    """Whether rows of a block see only those before them. otherwise: the default"""
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
    """Read the config of either layout. Raises UserError for one that is not supported.

    target: for the default of the states that are read
    corrector: the supported `projector_type`; known: keys of `dflash_config`; anchored: the default
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
        scales=_scales(files, said),
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
    """Return the shapes of required and of optional tensors."""
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
    """Load the weights. Raises UserError for token ids that are not the target's."""
    loader = loader_of(files, shared)
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


def kind_of(config: JsonView) -> str:
    """Its architectures, in small letters."""
    return " ".join(map(str, config.get("architectures") or ())).lower()


def own_facts(config: JsonView) -> JsonView:
    """Return the layout's own part of a config."""
    own = config.get("dflash_config")
    return own if isinstance(own, Mapping) else {}


def facts_of(config: JsonView) -> Json:
    """Return the values at the top of a config, replaced by those of `dflash_config`."""
    own = own_facts(config)
    return {**config, **{key: one for key, one in own.items() if one is not None}}


def _check_variant(
    files: DrafterFiles, said: JsonView, corrector: str, known: frozenset[str]
) -> None:
    """Refuse relatives that compute something else. said: at the top or in `dflash_config`"""
    kind = said.get("projector_type") or corrector
    if kind != corrector:
        raise files.wrong(f"it corrects its guesses by {kind}, which is not read yet")
    named = kind_of(said)
    if named not in ("", *DFLASH_ARCHITECTURES) or said.get("rope_is_neox_style") is False:
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
    files: DrafterFiles, said: JsonView, target: TargetFacts, *, count: int, nested: bool
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
    files: DrafterFiles, sizes: JsonView, *, nested: bool, count: int, second: bool
) -> Windows:
    """Return the layers with a sliding window. Raises UserError if they are not named one by one.

    second: DFlash 2, where such a layer of speculators sees all of the block by default
    """
    kinds = sizes.get("layer_types") or ()
    if "sliding_attention" not in kinds:
        return Windows()
    if len(kinds) != count or not set(kinds) <= {"sliding_attention", "full_attention"}:
        raise files.wrong("its layers forget what is far back, and are not named one by one")
    if nested:
        said = files.config.get("sliding_window_non_causal")
        causal = not (second if said is None else said)
    else:  # such layers are causal by default
        causal = is_causal(files.config, otherwise=True)
    near = tuple(one == "sliding_attention" for one in kinds)
    return Windows(near, files.number(sizes, "sliding_window"), causal)


def _scales(files: DrafterFiles, said: JsonView) -> Scales:
    return Scales(
        _scale(files, said, "input_embedding_scale", 1.0),
        _scale(files, said, "output_multiplier", 1.0),
        _scale(files, said, "final_logit_softcapping", 0.0),
    )


def _scale(files: DrafterFiles, said: JsonView, key: str, default: float) -> float:
    value = said.get(key)
    if value is None:
        return default
    if type(value) not in (int, float) or not 0 <= value < float("inf"):
        raise files.wrong(f"its {key} is no number")
    return float(value)


@dataclass(frozen=True, slots=True)
class SecondSizes:
    """Sizes of DFlash 2. taps: rows that a kernel reads; group: channels that share a kernel; rank, most: of the selector"""

    taps: int
    group: int
    rank: int
    most: int


def read_second(files: DrafterFiles, target: TargetFacts) -> Reading:
    """Check a drafter against its own config and the target. Raises UserError."""
    config = read_config(files, target, corrector="dflash2", known=SECOND_KNOWN)
    added = _added(files, config)
    check_target(files, target, config)
    needed, optional = shapes(files, config)
    hidden = config.layers.hidden_size
    for layer in range(config.count):
        for part in CONVOLUTIONS:
            begin = f"layers.{layer}.{part}."
            needed[f"{begin}base_kernel"] = (2, added.taps, hidden)
            rows = 2 * added.taps * hidden // added.group
            needed[f"{begin}kernel_projection.weight"] = (rows, hidden)
    needed["candidate_selector.hidden_projection.weight"] = (added.rank, hidden)
    for name in CODEBOOKS:
        needed[f"candidate_selector.{name}"] = (config.vocabulary, added.rank)
    check_tensors(files, needed, optional)
    return Reading(
        ("block",),
        config.reads,
        False,
        lambda shared: DFlashDecoder(load_second(files, config, added, shared)),
    )


def load_second(
    files: DrafterFiles, config: DFlashConfig, added: SecondSizes, shared: TargetTensors
) -> DFlashWeights:
    """Load the weights."""
    loader = loader_of(files, shared)

    def convolution(name: str) -> Convolution:
        base = loader.vector(f"{name}.base_kernel")
        return Convolution(base, loader.matrix(f"{name}.kernel_projection"))

    before, after = (loader.vector(f"candidate_selector.{name}") for name in CODEBOOKS)
    project = loader.matrix("candidate_selector.hidden_projection")
    return replace(
        load(files, config, shared),
        markov=Selector(before, after, project, added.most),
        convolutions=tuple(
            (
                convolution(f"layers.{layer}.attention_conv"),
                convolution(f"layers.{layer}.mlp_conv"),
            )
            for layer in range(config.count)
        ),
    )


def _added(files: DrafterFiles, config: DFlashConfig) -> SecondSizes:
    """Return the sizes. Raises UserError for unsupported ones."""
    said = facts_of(files.config)
    added = SecondSizes(
        files.number(said, "conv_kernel_size"),
        files.number(said, "conv_group_size"),
        files.number(said, "selector_rank"),
        files.number(said, "selector_top_k"),
    )
    if config.layers.hidden_size % added.group:
        raise files.wrong(f"its rows do not divide into groups of {added.group}")
    if config.anchored or config.words != config.vocabulary or added.most > config.vocabulary:
        raise files.wrong("its selector speaks another vocabulary, or from the anchor")
    return added


@dataclass(frozen=True, slots=True)
class DSparkHeads:
    """Sizes of DSpark's heads. rank: of the Markov head, 0 for none; sure: inputs of the confidence head, 0 for none"""

    rank: int
    sure: int


def read_dspark(files: DrafterFiles, target: TargetFacts) -> Reading:
    """Check a drafter against its own config and the target. Raises UserError."""
    config = read_config(files, target, corrector="dspark", known=DSPARK_KNOWN, anchored=True)
    check_target(files, target, config)
    heads = _heads(files, config)
    needed, optional = shapes(files, config)
    if heads.rank:
        needed["markov_head.markov_w1.weight"] = (config.vocabulary, heads.rank)
        needed["markov_head.markov_w2.weight"] = (config.words, heads.rank)
    if heads.sure:
        needed["confidence_head.proj.weight"] = (1, heads.sure)
        needed["confidence_head.proj.bias"] = (1,)
    check_tensors(files, needed, optional)
    kinds = ("block",) if heads.rank else ("block", "jet")
    return Reading(
        kinds,
        config.reads,
        False,
        lambda shared: DFlashDecoder(load_dspark(files, config, heads, shared)),
    )


def load_dspark(
    files: DrafterFiles, config: DFlashConfig, heads: DSparkHeads, shared: TargetTensors
) -> DFlashWeights:
    """Load the weights. Raises UserError for token ids that are not the target's."""
    weights, loader = load(files, config, shared), loader_of(files, shared)
    if not heads.rank:
        return weights
    confidence: Tensor | None = None
    constant = 0.0
    if heads.sure:
        constant = float(loader.vector("confidence_head.proj.bias"))
        confidence = torch.zeros(config.layers.hidden_size + heads.rank, device=shared.device)
        confidence[: heads.sure] = loader.vector("confidence_head.proj.weight")[0]
    markov = MarkovHead(
        token=loader.vector("markov_head.markov_w1.weight"),
        bias=loader.wide(loader.vector("markov_head.markov_w2.weight")),
        confidence=confidence,
        constant=constant,
        temperatures=(1.0,) * weights.depth,
        by_token=True,
    )
    return replace(weights, markov=markov)


def _heads(files: DrafterFiles, config: DFlashConfig) -> DSparkHeads:
    """Return the sizes of the heads. Raises UserError for unsupported ones."""
    said = facts_of(files.config)
    rank = said.get("markov_rank", 0)
    if type(rank) is not int or rank < 0:
        raise files.wrong("its markov_rank is no number")
    kind = said.get("markov_head_type") or "vanilla"
    if rank and kind != "vanilla":
        raise files.wrong(f"its Markov head is {kind}, which is not read yet")
    if not said.get("enable_confidence_head", False):
        return DSparkHeads(rank, 0)
    if not rank:
        raise files.wrong("it has a confidence head and no Markov head, which is not read yet")
    with_markov = said.get("confidence_head_with_markov", False)
    return DSparkHeads(rank, config.layers.hidden_size + (rank if with_markov else 0))


DFLASH = Family("DFlash", lambda config: takes(config) and not is_causal(config), read)
JETSPEC = Family("JetSpec", lambda config: takes(config) and is_causal(config), read)
DFLASH2 = Family("DFlash 2", lambda config: takes(config, "dflash2"), read_second)
DSPARK = Family("DSpark", lambda config: takes(config, "dspark"), read_dspark)
