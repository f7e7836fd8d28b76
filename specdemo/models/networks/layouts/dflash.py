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

from functools import partial

import torch

from specdemo.config.errors import Phrase
from specdemo.config.strings import Json, JsonView
from specdemo.models.networks.dflash import (
    BlockForm,
    Convolution,
    DFlashDecoder,
    DFlashWeights,
    Scales,
    Windows,
)
from specdemo.models.networks.folders import TensorLoader
from specdemo.models.networks.layouts.family import (
    DrafterFiles,
    Reading,
    TargetFacts,
    layer_shapes,
)
from specdemo.models.networks.parts import Corrector, MarkovHead, Selector

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
LONGEST_BLOCK = 256  # rows; a pass has the logits of all of them at the same time


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


def read(files: DrafterFiles, target: TargetFacts) -> Reading:
    """Check a drafter against its own config and the target. Raises UserError."""
    load = partial(_weights, files, target)
    found = files.check_tensors(target, load)
    kinds = ("block",) if found.markov else ("block", "jet")
    return Reading(
        files, kinds, found.form.reads, lambda shared: DFlashDecoder(load(files.loader(shared)))
    )


def _weights(files: DrafterFiles, target: TargetFacts, loader: TensorLoader) -> DFlashWeights:
    """Read the config of either layout, and the tensors. Raises UserError."""
    form, sizes, vocabulary = _form(files, target), files.layer_sizes(), target.vocabulary
    hidden, count = form.config.hidden_size, files.layer_count(sizes)
    words = files.number(files.config, "draft_vocab_size", vocabulary, most=vocabulary)
    shapes = layer_shapes(form.config, files.number(sizes, "intermediate_size"))
    variant = variant_of(files.config)
    corrector: Corrector | None = None
    convolutions: tuple[tuple[Convolution, Convolution], ...] = ()
    if variant == "dflash2":
        if form.anchored or words != vocabulary:
            raise files.wrong("its selector speaks another vocabulary, or from the anchor")
        convolutions = _convolutions(files, loader, count, hidden)
        corrector = _selector(files, loader, vocabulary, hidden)
    if variant == "dspark":
        corrector = _markov(files, loader, vocabulary, words, form)
    return DFlashWeights(
        form=form,
        layers=tuple(loader.layer(f"layers.{one}.", shapes, norms=True) for one in range(count)),
        norm=loader.vector("norm.weight", hidden),
        embedding=loader.embedding(vocabulary, hidden),
        head=loader.head(words, hidden),
        words=files.offset_words(words, vocabulary),
        mix=loader.matrix("fc", hidden, len(form.reads) * hidden),
        mix_norm=loader.vector("hidden_norm.weight", hidden),
        markov=corrector,
        convolutions=convolutions,
    )


def _form(files: DrafterFiles, target: TargetFacts) -> BlockForm:
    """Read the form of blocks. Raises UserError for one that is not supported, and for a drafter of another target."""
    config, sizes, variant = files.config, files.layer_sizes(), variant_of(files.config)
    said = _facts(config)
    _check_variant(files, said, variant)
    count, vocabulary = files.layer_count(sizes), files.number(sizes, "vocab_size")
    windows = _windows(files, sizes, count=count, second=variant == "dflash2")
    layers = files.layer_config(sizes, windows=bool(windows.rows))
    width = files.number(said, "target_hidden_size", layers.hidden_size)
    if width != layers.hidden_size:
        raise files.refused("target_hidden_size", width, layers.hidden_size)
    files.check_sizes(target, hidden=layers.hidden_size, vocabulary=vocabulary)
    if (own := files.number(said, "num_target_layers", target.layers)) != target.layers:
        raise files.refuse(target, Phrase("drafter.target_layers", own=own, theirs=target.layers)
        )  # fmt: skip
    anchored = said.get("sample_from_anchor", variant == "dspark") or said.get("shift_label")
    return BlockForm(
        layers,
        _reads(files, said, target, count=count, nested=sizes is not config),
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


def _selector(files: DrafterFiles, loader: TensorLoader, vocabulary: int, hidden: int) -> Selector:
    """Return the selector of DFlash 2."""
    said, name = _facts(files.config), "candidate_selector."
    rank = files.number(said, "selector_rank")
    return Selector(
        before=loader.vector(f"{name}predecessor_codebook", vocabulary, rank),
        after=loader.vector(f"{name}successor_codebook", vocabulary, rank),
        project=loader.matrix(f"{name}hidden_projection", rank, hidden),
        most=files.number(said, "selector_top_k", most=vocabulary),
    )


def _convolutions(
    files: DrafterFiles, loader: TensorLoader, count: int, hidden: int
) -> tuple[tuple[Convolution, Convolution], ...]:
    """Return the convolutions of DFlash 2 around attention and gates of each layer."""
    said = _facts(files.config)
    taps = files.number(said, "conv_kernel_size", most=LONGEST_BLOCK)
    group = files.number(said, "conv_group_size")  # channels that share a kernel
    if hidden % group:
        raise files.refused("conv_group_size", group, Phrase("drafter.divisors", of=hidden))

    def convolution(name: str) -> Convolution:
        base = loader.vector(f"{name}.base_kernel", 2, taps, hidden)
        rows = 2 * taps * hidden // group
        return Convolution(base, loader.matrix(f"{name}.kernel_projection", rows, hidden))

    layers = [f"layers.{number}." for number in range(count)]
    return tuple(
        (convolution(f"{one}attention_conv"), convolution(f"{one}mlp_conv")) for one in layers
    )


def _markov(
    files: DrafterFiles, loader: TensorLoader, vocabulary: int, words: int, form: BlockForm
) -> MarkovHead | None:
    """Return the Markov head and the confidence head of DSpark; None without a Markov head."""
    said, hidden = _facts(files.config), form.config.hidden_size
    rank = files.number(said, "markov_rank", 0, least=0)
    is_sure = said.get("enable_confidence_head", False)
    if not rank:
        if is_sure:
            raise files.wrong("it has a confidence head and no Markov head, which is not read yet")
        return None
    files.choice(said, "markov_head_type", "vanilla")
    confidence, constant = None, torch.zeros(1)
    if is_sure:
        inputs = hidden + (rank if said.get("confidence_head_with_markov", False) else 0)
        confidence = torch.zeros(hidden + rank, device=loader.target.device)
        confidence[:inputs] = loader.vector("confidence_head.proj.weight", 1, inputs)[0]
        constant = loader.vector("confidence_head.proj.bias", 1)
    return MarkovHead(
        token=loader.vector("markov_head.markov_w1.weight", vocabulary, rank),
        bias=loader.wide(loader.vector("markov_head.markov_w2.weight", words, rank)),
        confidence=confidence,
        constant=constant,
        temperatures=(1.0,) * form.depth,
    )


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
