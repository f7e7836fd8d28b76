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

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specdemo.config.errors import Phrase
from specdemo.config.strings import Json, JsonView
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.models.networks.dflash import (
    BlockForm,
    Convolution,
    DFlashDecoder,
    DFlashWeights,
    Scales,
    Windows,
)
from specdemo.models.networks.folders import TargetTensors, TensorLoader
from specdemo.models.networks.layouts.family import (
    DrafterFamily,
    DrafterFiles,
    Reading,
    Shapes,
    TargetFacts,
    layer_shapes,
)
from specdemo.models.networks.parts import MarkovHead, Selector

ARCHITECTURES = (
    "dflashdraftmodel", "dflashspeculator", "dflash2draftmodel", "dflash2speculator", "qwen3dsparkmodel",
    "dsparkdraftmodel",
)  # fmt: skip
# Supported keys of `dflash_config`; `num_anchors` and `loss_decay_gamma` are only used in training.
KNOWN = frozenset({
    "attention_mode", "block_size", "causal", "causal_head", "final_logit_softcapping", "input_embedding_scale",
    "loss_decay_gamma", "mask_token", "mask_token_id", "num_anchors", "num_target_layers", "output_multiplier",
    "projector_type", "sample_from_anchor", "shift_label", "target_hidden_size", "target_layer_ids",
})  # fmt: skip
# Further keys of the variants that correct guesses.
VARIANT_KEYS = {
    "dflash": frozenset[str](),
    "dflash2": frozenset({"conv_group_size", "conv_kernel_size", "selector_rank", "selector_top_k"}),
    "dspark": frozenset({
        "confidence_head_alpha", "confidence_head_with_markov", "enable_confidence_head", "markov_head_type",
        "markov_rank",
    }),
}  # fmt: skip
CONVOLUTIONS = ("attention_conv", "mlp_conv")
CODEBOOKS = ("predecessor_codebook", "successor_codebook")
LONGEST_BLOCK = 256  # rows; a pass has the logits of all of them at the same time


@dataclass(frozen=True, slots=True)
class SelectorSizes:
    """Sizes of DFlash 2. taps: rows that a kernel reads; group: channels that share a kernel; rank, most: of the selector"""

    taps: int
    group: int
    rank: int
    most: int


@dataclass(frozen=True, slots=True)
class DFlashConfig:
    """The config of a drafter, read from any layout.

    inner: width between gate and down projection; count: number of layers
    words: tokens of the head's vocabulary; vocabulary: of the target's
    selector: sizes of DFlash 2's selector, None for another family
    rank: of DSpark's Markov head, 0 without one; sure: inputs of its confidence head, 0 without one
    """

    form: BlockForm
    inner: int
    count: int
    words: int
    vocabulary: int
    selector: SelectorSizes | None = None
    rank: int = 0
    sure: int = 0


def variant_of(config: JsonView) -> str:
    """Return which of `VARIANT_KEYS` a config is of, "" for none. Some servers need the name DFlash for DFlash 2."""
    kind = _architectures(config)
    if "speculators_model_type" in config:
        named = str(config["speculators_model_type"])
        return named if named in VARIANT_KEYS else ""
    if _own_facts(config).get("projector_type") == "dspark":
        return "dspark"
    if "dflash2" in kind or ("dflash" in kind and _facts(config).get("selector_rank")):
        return "dflash2"
    return next((name for name in ("dflash", "dspark") if name in kind), "")


def is_causal(config: JsonView, *, otherwise: bool = False) -> bool:
    """Whether rows of a block see only those before them. otherwise: the default"""
    own = _own_facts(config)
    said = (own.get("causal"), own.get("causal_head"), config.get("is_causal"))
    return bool(next((one for one in said if one is not None), otherwise))


def read_config(files: DrafterFiles, target: TargetFacts) -> DFlashConfig:
    """Read the config of either layout. Raises UserError for one that is not supported, and of another target."""
    config, sizes, variant = files.config, files.layer_sizes(), variant_of(files.config)
    nested, said = sizes is not config, _facts(config)
    _check_variant(files, said, variant)
    count = files.number(sizes, "num_hidden_layers", most=len(files.shapes))
    windows = _windows(files, sizes, count=count, second=variant == "dflash2")
    layers = files.layer_config(sizes, windows=bool(windows.rows))
    vocabulary = files.number(sizes, "vocab_size")
    width = files.number(said, "target_hidden_size", layers.hidden_size)
    if width != layers.hidden_size:
        raise files.refused("target_hidden_size", width, layers.hidden_size)
    files.check_sizes(target, hidden=layers.hidden_size, vocabulary=vocabulary)
    if (own := files.number(said, "num_target_layers", target.layers)) != target.layers:
        raise files.refuse(target, Phrase("drafter.target_layers", own=own, theirs=target.layers)
        )  # fmt: skip
    anchored = said.get("sample_from_anchor", variant == "dspark") or said.get("shift_label")
    form = BlockForm(
        layers,
        _reads(files, said, target, count=count, nested=nested),
        files.number(
            said, "block_size", least=1 if anchored else 2, most=min(LONGEST_BLOCK, target.context)
        ),
        files.number(said, "mask_token_id", least=0, most=vocabulary - 1),
        bool(anchored),
        is_causal(config),
        Scales(
            files.real(said, "input_embedding_scale", 1.0),
            files.real(said, "output_multiplier", 1.0),
            files.real(said, "final_logit_softcapping", 0.0),
        ),
        windows,
    )
    inner = files.number(sizes, "intermediate_size")
    words = files.number(config, "draft_vocab_size", vocabulary, most=vocabulary)
    found = DFlashConfig(form, inner, count, words, vocabulary)
    return _with_corrector(files, said, variant, found)


def _architectures(config: JsonView) -> str:
    """Return its architectures, in small letters."""
    return " ".join(map(str, config.get("architectures") or ())).lower()


def _own_facts(config: JsonView) -> JsonView:
    """Return the layout's own part of a config."""
    own = config.get("dflash_config")
    return own if isinstance(own, dict) else {}


def _facts(config: JsonView) -> Json:
    """Return the values at the top of a config, replaced by those of `dflash_config`."""
    return {**config, **{key: one for key, one in _own_facts(config).items() if one is not None}}


def _check_variant(files: DrafterFiles, said: JsonView, variant: str) -> None:
    """Refuse relatives that compute something else. said: at the top or in `dflash_config`"""
    files.choice(said, "projector_type", variant)
    files.choice(said, "attention_mode", "gqa")
    files.choice(said, "rope_is_neox_style", True)
    if _architectures(said) not in ("", *ARCHITECTURES):
        raise files.refused("architectures", said["architectures"], ", ".join(ARCHITECTURES))
    for key, value in _own_facts(files.config).items():
        if key not in KNOWN | VARIANT_KEYS[variant] and value not in (None, False):
            raise files.wrong(f"nothing is known of {key} in its dflash_config")


def _reads(
    files: DrafterFiles, said: JsonView, target: TargetFacts, *, count: int, nested: bool
) -> tuple[int, ...]:
    """Return the states that are read; if none are named, they are spread from the second layer to the last but three."""
    key = "aux_hidden_state_layer_ids" if nested else "target_layer_ids"
    named = said.get(key)
    if named is None and not nested:
        span = target.layers - 4
        spread = [round(1 + number * span / (count - 1)) for number in range(count) if count > 1]
        named = spread or [target.layers // 2]
    return files.states_read(target, key, named, by_layer=not nested)


def _windows(files: DrafterFiles, sizes: JsonView, *, count: int, second: bool) -> Windows:
    """Return the layers with a sliding window. Raises UserError if they are not named one by one.

    second: DFlash 2, where such a layer of speculators sees all of the block by default
    """
    kinds = sizes.get("layer_types") or ()
    if "sliding_attention" not in kinds:
        return Windows()
    if len(kinds) != count or not set(kinds) <= {"sliding_attention", "full_attention"}:
        raise files.wrong("its layers forget what is far back, and are not named one by one")
    if sizes is not files.config:
        said = files.config.get("sliding_window_non_causal")
        causal = not (second if said is None else said)
    else:  # such layers are causal by default
        causal = is_causal(files.config, otherwise=True)
    near = tuple(one == "sliding_attention" for one in kinds)
    return Windows(near, files.number(sizes, "sliding_window"), causal)


def _with_corrector(
    files: DrafterFiles, said: JsonView, variant: str, config: DFlashConfig
) -> DFlashConfig:
    """Add the sizes of the parts that correct guesses. Raises UserError for unsupported ones."""
    hidden, vocabulary = config.form.config.hidden_size, config.vocabulary
    if variant == "dflash2":
        taps = files.number(said, "conv_kernel_size", most=LONGEST_BLOCK)
        group = files.number(said, "conv_group_size")
        if hidden % group:
            raise files.refused("conv_group_size", group, Phrase("drafter.divisors", of=hidden))
        if config.form.anchored or config.words != vocabulary:
            raise files.wrong("its selector speaks another vocabulary, or from the anchor")
        selector = SelectorSizes(
            taps,
            group,
            files.number(said, "selector_rank"),
            files.number(said, "selector_top_k", most=vocabulary),
        )
        return replace(config, selector=selector)
    if variant != "dspark":
        return config
    rank = files.number(said, "markov_rank", 0, least=0)
    if rank:
        files.choice(said, "markov_head_type", "vanilla")
    if not said.get("enable_confidence_head", False):
        return replace(config, rank=rank)
    if not rank:
        raise files.wrong("it has a confidence head and no Markov head, which is not read yet")
    with_markov = said.get("confidence_head_with_markov", False)
    return replace(config, rank=rank, sure=hidden + (rank if with_markov else 0))


def read(files: DrafterFiles, target: TargetFacts) -> Reading:
    """Check a drafter against its own config and the target. Raises UserError."""
    config = read_config(files, target)
    files.check_mix(target, len(config.form.reads))
    files.check_tensors(*shapes(files, config))
    words = files.offset_words(config.words, config.vocabulary)
    kinds = ("block",) if config.selector or config.rank else ("block", "jet")
    return Reading(
        files,
        kinds,
        config.form.reads,
        False,
        lambda shared: DFlashDecoder(load(files, config, words, shared)),
    )


def shapes(files: DrafterFiles, config: DFlashConfig) -> tuple[Shapes, Shapes]:
    hidden, vocabulary, added = config.form.config.hidden_size, config.vocabulary, config.selector
    needed: Shapes = {
        "fc.weight": (hidden, len(config.form.reads) * hidden),
        "hidden_norm.weight": (hidden,),
        "norm.weight": (hidden,),
    }
    optional = files.shared_shapes(vocabulary, hidden)
    for number in range(config.count):
        own, extra = layer_shapes(
            f"layers.{number}.", config.form.config, config.inner, hidden, norms=True
        )
        needed, optional = needed | own, optional | extra
        for part in CONVOLUTIONS if added else ():
            begin, taps = f"layers.{number}.{part}.", added.taps if added else 0
            rows = 2 * taps * hidden // (added.group if added else 1)
            needed[f"{begin}base_kernel"] = (2, taps, hidden)
            needed[f"{begin}kernel_projection.weight"] = (rows, hidden)
    head: Shapes = {"lm_head.weight": (config.words, hidden), "d2t": (config.words,)}
    (needed if config.words < vocabulary else optional).update(head)
    if added:
        needed["candidate_selector.hidden_projection.weight"] = (added.rank, hidden)
        needed |= {f"candidate_selector.{name}": (vocabulary, added.rank) for name in CODEBOOKS}
    if config.rank:
        needed["markov_head.markov_w1.weight"] = (vocabulary, config.rank)
        needed["markov_head.markov_w2.weight"] = (config.words, config.rank)
    if config.sure:
        needed["confidence_head.proj.weight"] = (1, config.sure)
        needed["confidence_head.proj.bias"] = (1,)
    return needed, optional


def load(
    files: DrafterFiles, config: DFlashConfig, words: ReducedVocabulary, shared: TargetTensors
) -> DFlashWeights:
    loader = files.loader(shared)
    weights = DFlashWeights(
        form=config.form,
        layers=tuple(loader.layer(f"layers.{number}.") for number in range(config.count)),
        norm=loader.vector("norm.weight"),
        embedding=loader.embedding(),
        head=loader.head(),
        words=words,
        mix=loader.matrix("fc"),
        mix_norm=loader.vector("hidden_norm.weight"),
    )
    if config.selector:
        return _with_selector(loader, config, config.selector, weights)
    return (
        replace(weights, markov=_markov(loader, config, weights.depth)) if config.rank else weights
    )


def _with_selector(
    loader: TensorLoader, config: DFlashConfig, added: SelectorSizes, weights: DFlashWeights
) -> DFlashWeights:
    def convolution(name: str) -> Convolution:
        base = loader.vector(f"{name}.base_kernel")
        return Convolution(base, loader.matrix(f"{name}.kernel_projection"))

    before, after = (loader.vector(f"candidate_selector.{name}") for name in CODEBOOKS)
    project = loader.matrix("candidate_selector.hidden_projection")
    attention, gates = (
        [convolution(f"layers.{layer}.{part}") for layer in range(config.count)]
        for part in CONVOLUTIONS
    )
    return replace(
        weights,
        markov=Selector(before, after, project, added.most),
        convolutions=tuple(zip(attention, gates, strict=True)),
    )


def _markov(loader: TensorLoader, config: DFlashConfig, depth: int) -> MarkovHead:
    confidence: Tensor | None = None
    constant = 0.0
    if config.sure:
        constant = float(loader.vector("confidence_head.proj.bias"))
        size = config.form.config.hidden_size + config.rank
        confidence = torch.zeros(size, device=loader.target.device)
        confidence[: config.sure] = loader.vector("confidence_head.proj.weight")[0]
    return MarkovHead(
        token=loader.vector("markov_head.markov_w1.weight"),
        bias=loader.wide(loader.vector("markov_head.markov_w2.weight")),
        confidence=confidence,
        constant=constant,
        temperatures=(1.0,) * depth,
        by_token=True,
    )


BLOCK_FAMILIES = (
    DrafterFamily("DFlash", lambda one: variant_of(one) == "dflash" and not is_causal(one), read),
    DrafterFamily("JetSpec", lambda one: variant_of(one) == "dflash" and is_causal(one), read),
    DrafterFamily("DFlash 2", lambda one: variant_of(one) == "dflash2", read),
    DrafterFamily("DSpark", lambda one: variant_of(one) == "dspark", read),
)
