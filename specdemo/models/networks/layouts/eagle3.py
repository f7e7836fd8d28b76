"""EAGLE-3 (Li 2503.01840) as speculators, SafeAILab and SpecForge write it.

One or a few layers read a token's embedding next to a mix of three of the target's states before it, or next to the
drafter's own state if the target has not read that far. The head has a reduced vocabulary.

    speculators             sizes of the layers in `transformer_layer_config`; states counted as transformers does
    SafeAILab, SpecForge    sizes at the top; `midlayer`; states counted by their layer
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from specdemo.config.strings import JsonView
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.models.networks.chain import CompactDecoder, CompactWeights
from specdemo.models.networks.folders import TargetTensors, TensorLoader
from specdemo.models.networks.four_bit import pack_linear
from specdemo.models.networks.layouts.family import (
    DrafterFamily,
    DrafterFiles,
    Reading,
    Shapes,
    TargetFacts,
    layer_shapes,
)
from specdemo.models.networks.parts import CompactConfig, ConcatInput, Injection

SPECULATORS = "eagle3"
# Any of these in a config means that its drafter guesses a block (P-EAGLE), which is not computed here.
MASK_TOKENS = ("mask_token_id", "pard_token", "ptd_token_id")
STATES = "eagle_aux_hidden_state_layer_ids"


@dataclass(frozen=True, slots=True)
class Eagle3Config:
    """The config of a drafter, read from either layout.

    layers: their sizes; inner: width of their gates; names: prefix of each layer's tensors
    reads: the target's hidden states, as transformers counts them
    words: size of the head's vocabulary; target_hidden: width of a state of the target
    normed_residual: the residual path of the first attention has passed the norm of states (`norm_before_residual`)
    normed_feedback: the drafter's own state has passed the last norm (`norm_output`, EAGLE 3.1)
    norms: of queries and keys, as in Qwen3
    """

    layers: CompactConfig
    inner: int
    names: tuple[str, ...]
    reads: tuple[int, ...]
    words: int
    vocabulary: int
    target_hidden: int
    normed_residual: bool
    normed_feedback: bool
    norms: bool


def takes(config: JsonView) -> bool:
    """Whether a config is of this family. SafeAILab's first ones name a plain Llama with a draft vocabulary."""
    if "speculators_model_type" in config:
        return bool(config["speculators_model_type"] == SPECULATORS)
    kinds = " ".join(map(str, config.get("architectures") or ())).lower()
    plain = "llamaforcausallm" in kinds and "draft_vocab_size" in config
    masked = any(config.get(key) is not None for key in MASK_TOKENS)
    return ("eagle3" in kinds or plain) and not masked


def read_config(files: DrafterFiles, target: TargetFacts) -> Eagle3Config:
    """Read the config of either layout. Raises UserError for a drafter of another target."""
    config, sizes = files.config, files.layer_sizes()
    nested = sizes is not config
    layers = files.layer_config(sizes)
    count = files.number(sizes, "num_hidden_layers", 1, most=max(1, len(files.shapes)))
    vocabulary = files.number(sizes, "vocab_size")
    target_hidden = files.number(config, "target_hidden_size", layers.hidden_size)
    files.check_sizes(target, hidden=target_hidden, vocabulary=vocabulary)
    named = (config if nested else files.part(config, "eagle_config")).get(STATES)
    if not named:
        named = [2, target.layers // 2, target.layers - 3]
        named = named if nested else [one - 1 for one in named]
    middle = any(name.startswith("midlayer.") for name in files.shapes)
    return Eagle3Config(
        layers=layers,
        inner=files.number(sizes, "intermediate_size"),
        names=("midlayer.",) if middle else tuple(f"layers.{index}." for index in range(count)),
        reads=files.states_read(target, STATES, named, by_layer=not nested),
        words=files.number(config, "draft_vocab_size", vocabulary, most=vocabulary),
        vocabulary=vocabulary,
        target_hidden=target_hidden,
        normed_residual=bool(config.get("norm_before_residual", False)),
        normed_feedback=config.get("norm_output") is True,
        norms=sizes.get("model_type") == "qwen3",
    )


def read(files: DrafterFiles, target: TargetFacts) -> Reading:
    """Check a drafter against its own config and the target. Raises UserError."""
    config = read_config(files, target)
    files.check_mix(target, len(config.reads))
    if (
        "embed_tokens.weight" not in files.shapes
        and config.layers.hidden_size != target.hidden_size
    ):
        raise files.wrong("it has no embedding of its own, and the target's is of another width")
    files.check_tensors(*shapes(files, config))
    words = files.offset_words(config.words, config.vocabulary)

    def decoder(shared: TargetTensors) -> CompactDecoder:
        return CompactDecoder(load(files, config, words, shared))

    return Reading(files, ("feature",), config.reads, True, decoder)


def shapes(files: DrafterFiles, config: Eagle3Config) -> tuple[Shapes, Shapes]:
    hidden, count, layers = config.layers.hidden_size, len(config.reads), config.layers
    needed: Shapes = {
        "fc.weight": (hidden, count * config.target_hidden),
        "norm.weight": (hidden,),
        "lm_head.weight": (config.words, hidden),
        f"{config.names[0]}hidden_norm.weight": (hidden,),
    }
    optional = files.shared_shapes(config.vocabulary, hidden) | {"fc.bias": (hidden,)}
    for number, name in enumerate(config.names):
        width = hidden if number else 2 * hidden
        own, extra = layer_shapes(name, layers, config.inner, width, norms=config.norms)
        needed, optional = needed | own, optional | extra
    (needed if config.words < config.vocabulary else optional)["d2t"] = (config.words,)
    each: Shapes = {f"fc_norm.{index}.weight": (config.target_hidden,) for index in range(count)}
    named = files.config.get("fc_norm") or any(name in files.shapes for name in each)
    (needed if named else optional).update(each)
    named = files.config.get("norm_before_fc")
    (needed if named else optional)["input_norm.weight"] = (count * config.target_hidden,)
    return needed, optional


def load(
    files: DrafterFiles, config: Eagle3Config, words: ReducedVocabulary, shared: TargetTensors
) -> CompactWeights:
    loader, first = files.loader(shared), config.names[0]
    embedding = loader.embedding()
    return CompactWeights(
        config=config.layers,
        layers=tuple(loader.layer(name) for name in config.names),
        norm=loader.vector("norm.weight"),
        embedding=embedding,
        head=pack_linear(loader.vector("lm_head.weight"), four_bit=shared.four_bit),
        words=words,
        reads=config.reads,
        inject=_injection(loader, config),
        feedback=torch.ones(
            config.layers.hidden_size, device=embedding.device, dtype=embedding.dtype
        ),
        feeds_normed=config.normed_feedback,
        concat=ConcatInput(loader.vector(f"{first}hidden_norm.weight"), config.normed_residual),
        own_head=True,
    )


def _injection(loader: TensorLoader, config: Eagle3Config) -> Injection:
    """Return the mix of states: unchanged, with a norm each (`fc_norm`), or with one over all (`norm_before_fc`)."""
    mix, epsilon = loader.matrix("fc"), config.layers.sizes.eps
    if loader.has("fc_norm.0.weight"):
        parts = [loader.vector(f"fc_norm.{index}.weight") for index in range(len(config.reads))]
        return Injection(torch.cat(parts), mix, epsilon=epsilon)
    if loader.has("input_norm.weight"):
        return Injection(loader.vector("input_norm.weight"), mix, joint=True, epsilon=epsilon)
    return Injection(None, mix)


EAGLE3 = DrafterFamily("EAGLE-3", takes, read)
