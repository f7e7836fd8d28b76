"""EAGLE-3 (Li 2503.01840) as speculators, SafeAILab and SpecForge write it.

One or a few layers read a token's embedding next to a mix of three of the target's states before it, or next to the
drafter's own state if the target has not read that far. The head has a reduced vocabulary.

    speculators             sizes of the layers in `transformer_layer_config`; states counted as transformers does
    SafeAILab, SpecForge    sizes at the top; `midlayer`; states counted by their layer
"""

from __future__ import annotations

from functools import partial

import torch

from specdemo.config.strings import JsonView
from specdemo.files.catalogue import OWN_KIND
from specdemo.models.networks.chain import CompactDecoder, CompactWeights
from specdemo.models.networks.folders import TensorLoader
from specdemo.models.networks.four_bit import pack_linear
from specdemo.models.networks.layouts.family import (
    DrafterFiles,
    Reading,
    TargetFacts,
    layer_shapes,
)
from specdemo.models.networks.parts import CompactConfig, Injection

SPECULATORS = "eagle3"
# Any of these in a config means that its drafter guesses a block (P-EAGLE), which is not computed here.
MASK_TOKENS = ("mask_token_id", "pard_token", "ptd_token_id")
STATES = "eagle_aux_hidden_state_layer_ids"


def takes(config: JsonView) -> bool:
    """Whether a config is of this family. SafeAILab's first ones name a plain Llama with a draft vocabulary."""
    if "speculators_model_type" in config:
        return bool(config["speculators_model_type"] == SPECULATORS)
    kinds = " ".join(map(str, config.get("architectures") or ())).lower()
    plain = "llamaforcausallm" in kinds and "draft_vocab_size" in config
    masked = any(config.get(key) is not None for key in MASK_TOKENS)
    return ("eagle3" in kinds or plain) and not masked


def read(files: DrafterFiles, target: TargetFacts) -> Reading:
    """Check a drafter against its own config and the target. Raises UserError."""
    load = partial(_weights, files, target)
    reads = files.check_tensors(target, load).reads
    return Reading(
        files, (OWN_KIND,), reads, lambda shared: CompactDecoder(load(files.loader(shared)))
    )


def _weights(files: DrafterFiles, target: TargetFacts, loader: TensorLoader) -> CompactWeights:
    """Read the config of either layout, and the tensors. Raises UserError for a drafter of another target."""
    config, sizes = files.config, files.layer_sizes()
    layers, count = files.layer_config(sizes), files.layer_count(sizes)
    hidden, vocabulary = layers.hidden_size, files.number(sizes, "vocab_size")
    width = files.number(config, "target_hidden_size", hidden)  # of a state of the target
    files.check_sizes(target, hidden=width, vocabulary=vocabulary)
    words = files.number(config, "draft_vocab_size", vocabulary, most=vocabulary)
    reads, inner = _reads(files, target), files.number(sizes, "intermediate_size")
    norms = sizes.get("model_type") == "qwen3"  # of queries and keys
    middle = any(name.startswith("midlayer.") for name in files.tensors)
    names = ["midlayer."] if middle else [f"layers.{index}." for index in range(count)]
    embedding = loader.embedding(vocabulary, hidden)
    head = loader.vector("lm_head.weight", words, hidden)
    state_norm = loader.vector(f"{names[0]}hidden_norm.weight", hidden)
    return CompactWeights(
        config=layers,
        layers=tuple(
            loader.layer(name, layer_shapes(layers, inner, doubled=name == names[0]), norms=norms)
            for name in names
        ),
        norm=loader.vector("norm.weight", hidden),
        embedding=embedding,
        head=pack_linear(head, four_bit=loader.target.four_bit),
        words=files.offset_words(words, vocabulary),
        reads=reads,
        inject=_injection(loader, config, layers, len(reads), width),
        feedback=torch.ones(hidden, device=embedding.device, dtype=embedding.dtype),
        feeds_normed=config.get("norm_output") is True,  # EAGLE 3.1
        state_norm=state_norm,
        normed_residual=bool(config.get("norm_before_residual", False)),
        own_head=True,
    )


def _reads(files: DrafterFiles, target: TargetFacts) -> tuple[int, ...]:
    """Return the states that are read; if none are named, the second, the middle one and the last but three."""
    nested = files.layer_sizes() is not files.config
    named = (files.config if nested else files.part(files.config, "eagle_config")).get(STATES)
    if not named:
        named = [2, target.layers // 2, target.layers - 3]
        named = named if nested else [one - 1 for one in named]
    return files.states_read(target, STATES, named, by_layer=not nested)


def _injection(
    loader: TensorLoader, config: JsonView, layers: CompactConfig, count: int, width: int
) -> Injection:
    """Return the mix of states: unchanged, with a norm each (`fc_norm`), or with one over all (`norm_before_fc`)."""
    epsilon = layers.sizes.eps
    mix = loader.matrix("fc", layers.hidden_size, count * width)
    if config.get("fc_norm") or loader.has("fc_norm.0.weight"):
        parts = [loader.vector(f"fc_norm.{index}.weight", width) for index in range(count)]
        return Injection(torch.cat(parts), mix, epsilon=epsilon)
    if config.get("norm_before_fc") or loader.has("input_norm.weight"):
        gain = loader.vector("input_norm.weight", count * width)
        return Injection(gain, mix, joint=True, epsilon=epsilon)
    return Injection(None, mix)
