"""Layers for multi-token prediction (DeepSeek-V3 2412.19437) in a target's own files: one more layer after its last.

It reads the target's state of a token with the token after it. "sat" is pending:

    token        cat   sat
    state of     the   cat      of the target, after its last norm; its own state if the target has not read so far
    predicts     sat   on

    DeepSeek, GLM    `model.layers.N.`, N the target's number of layers: `enorm`, `hnorm`, `eh_proj`, the layer, `shared_head.norm`
    Mellum           `mtp.`: `pre_fc_norm_embedding`, `pre_fc_norm_hidden`, `fc`, `layers.0.`, `norm`

The layer is one of the target's own kind, experts included, so transformers computes it. Embedding and head are the
target's; some files repeat them. The drafter's own state has passed the last norm, as the target's states have.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from specdemo.config.errors import Phrase
from specdemo.config.strings import JsonView
from specdemo.engine.attention import additive, finish, use_shared_heads
from specdemo.engine.passes import ForwardOutput
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.files.folder import MTP_COUNTS
from specdemo.files.quiet import quiet_transformers
from specdemo.models.networks.chain import CompactDecoder, CompactWeights, DraftInput
from specdemo.models.networks.folders import TargetTensors, read_tensors
from specdemo.models.networks.layouts.family import (
    DrafterFamily,
    DrafterFiles,
    Reading,
    TargetFacts,
    check_sizes,
    loader_of,
    refuse,
)
from specdemo.models.networks.parts import CompactConfig, Injection

# targets whose MTP layers transformers computes
MTP_MODEL_TYPES = ("deepseek_v3", "glm4_moe", "mellum")
WHOLE_TENSORS = (
    ".weight",
    ".bias",
    "_bias",
    "_proj",
)  # ends of names of tensors as they were trained
SHARED = ("embed_tokens.weight", "shared_head.head.weight")  # the target's, repeated


Fuse = Callable[[Tensor, Tensor], Tensor]
"""Embeddings and states, (rows, H) each, to the layer's input, (rows, H)."""


class MtpDecoder(CompactDecoder):
    """Implements `Decoder`, one conversation after the other.

    weights: embedding and head, without layers; the head's input is the output of the layer
    block: a transformers model of that one layer and the norm after it, without head
    """

    def __init__(self, weights: CompactWeights, fuse: Fuse, block: Any) -> None:
        super().__init__(weights, compiled=False)
        self.config = SimpleNamespace(num_hidden_layers=1, vocab_size=len(weights.embedding))
        self.fuse, self.block = fuse, block

    def normed(self, final: Tensor) -> Tensor:
        """Return the head's input: the states have already passed the norm."""
        return final

    def _run_torch(self, inputs: Sequence[DraftInput], x: Tensor) -> list[ForwardOutput]:
        rows = self.fuse(x, self._states(inputs, x)).split([len(one.token_ids) for one in inputs])
        finals = [self._final(one, part) for one, part in zip(inputs, rows, strict=True)]
        finish(x.device)
        return [
            ForwardOutput(self._logits(one, final), (final,))
            for one, final in zip(inputs, finals, strict=True)
        ]

    def _final(self, one: DraftInput, rows: Tensor) -> Tensor:
        """(answers, H): output of the layer."""
        assert one.seen is not None
        output = self.block(
            inputs_embeds=rows[None],
            position_ids=torch.tensor([list(one.positions)], device=rows.device),
            attention_mask=additive(one.seen, rows.dtype, rows.device),
            past_key_values=one.cache,
            use_cache=True,
        )
        final: Tensor = output.last_hidden_state[0, -one.answers :]
        return final


@dataclass(frozen=True, slots=True)
class Layout:
    """Names of tensors.

    begin: of all of them; layer: of those of the layer
    embedding, state, norm: of norms; fuse: of the matrix over both
    """

    begin: str
    layer: str
    embedding: str
    state: str
    fuse: str
    norm: str


def takes(config: JsonView) -> bool:
    """Whether a config is a target's that comes with such layers."""
    return "speculators_model_type" not in config and _count(config) > 0


def read(files: DrafterFiles, target: TargetFacts) -> Reading:
    """Check a target's own layer against the target. Raises UserError."""
    config = files.config
    kind, count = config.get("model_type"), _count(config)
    if kind not in MTP_MODEL_TYPES:
        raise files.wrong(f"the MTP layers of {kind} are not computed here")
    if count > 1:
        raise files.wrong(f"it has {count} MTP layers, one for each place, and only one is read")
    hidden = files.number(config, "hidden_size")
    check_sizes(files, target, hidden=hidden, vocabulary=files.number(config, "vocab_size"))
    layers = files.number(config, "num_hidden_layers")
    if layers != target.layers:
        raise refuse(
            files, target, Phrase("drafter.behind_layers", own=layers, theirs=target.layers)
        )  # fmt: skip
    layout = _layout(files, layers)
    row: tuple[int, ...] = (hidden,)
    needed = dict.fromkeys((layout.embedding, layout.state, layout.norm), row)
    needed[layout.fuse] = (hidden, 2 * hidden)
    for name, shape in needed.items():
        if files.shapes.get(layout.begin + name) != shape:
            raise files.wrong(f"it has no tensor {layout.begin}{name} of the shape {shape}")
    own = {name: shape for name, shape in files.shapes.items() if _is_own(name, layout)}
    files.check_finite(own)
    odd = next((name for name in own if not name.endswith(WHOLE_TENSORS)), "")
    if odd or config.get("quantization_config"):
        raise files.wrong("its MTP layer is quantised, which is not read here")
    return Reading(
        ("feature",),
        (target.layers,),
        True,
        lambda shared: load(files, layout, shared),
        sum(torch.Size(shape).numel() for shape in own.values()),
    )


def load(files: DrafterFiles, layout: Layout, shared: TargetTensors) -> MtpDecoder:
    """Load the decoder. Raises UserError for unexpected and for missing tensors of the layer."""
    loader, block = loader_of(files, shared), _block(files, layout, shared)
    norms = [
        _norm(block, loader.vector(layout.begin + name))
        for name in (layout.embedding, layout.state)
    ]
    matrix = loader.matrix(layout.begin + layout.fuse.removesuffix(".weight"))

    def fuse(embeddings: Tensor, states: Tensor) -> Tensor:
        return matrix(torch.cat([norms[0](embeddings), norms[1](states)], dim=-1))

    embedding = shared.embedding.to(shared.device, shared.dtype)
    head = shared.embedding if shared.output is None else shared.output
    vocabulary, hidden = embedding.shape
    weights = CompactWeights(
        config=CompactConfig(hidden, 1, 1, hidden, block.config.rms_norm_eps, 1e4),
        layers=(),
        norm=loader.vector(layout.begin + layout.norm),
        embedding=embedding,
        head=loader.wide(head.to(shared.device, shared.dtype)),
        words=ReducedVocabulary(torch.arange(vocabulary), vocabulary),
        reads=(files.number(files.config, "num_hidden_layers"),),
        inject=Injection(None, lambda states: states),
        feedback=torch.ones(hidden, device=shared.device, dtype=shared.dtype),
        feeds_normed=False,
        skips_first=True,
        own_head=True,
    )
    return MtpDecoder(weights, fuse, block)


def _count(config: JsonView) -> int:
    """Number of such layers in a config."""
    return next((one for key in MTP_COUNTS if type(one := config.get(key)) is int), 0)


def _layout(files: DrafterFiles, layers: int) -> Layout:
    if "mtp.fc.weight" in files.shapes:
        return Layout(
            "mtp.", "layers.0.", "pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight", "fc.weight", "norm.weight",
        )  # fmt: skip
    return Layout(
        f"model.layers.{layers}.", "", "enorm.weight", "hnorm.weight", "eh_proj.weight", "shared_head.norm.weight",
    )  # fmt: skip


def _is_own(name: str, layout: Layout) -> bool:
    """Whether a tensor is of the MTP layer, and not one of the target's repeated there."""
    return name.startswith(layout.begin) and name.removeprefix(layout.begin) not in SHARED


def _block(files: DrafterFiles, layout: Layout, shared: TargetTensors) -> Any:
    """The layer and the norm behind it, as a transformers model of one layer. Its embedding is not used."""
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_MAPPING

    whole: Any = AutoConfig.from_pretrained(str(files.folder), trust_remote_code=False)
    config = whole.get_mtp_config()
    config.vocab_size, config.pad_token_id = 1, None
    front = (layout.embedding, layout.state, layout.fuse)
    tensors = {"embed_tokens.weight": torch.zeros(1, config.hidden_size)}
    for name, one in read_tensors(files.weights, lambda one: one.startswith(layout.begin)).items():
        rest = name.removeprefix(layout.begin)
        if rest == layout.norm:
            tensors["norm.weight"] = one
        elif _is_own(name, layout) and rest not in front:
            tensors[f"layers.0.{rest.removeprefix(layout.layer)}"] = one
    kind: Any = MODEL_MAPPING[type(config)]
    with quiet_transformers():
        block, found = kind.from_pretrained(
            None, config=config, state_dict=tensors, dtype=shared.dtype, output_loading_info=True
        )
    if odd := sorted(
        [*found["missing_keys"], *found["unexpected_keys"], *found["mismatched_keys"]]
    ):
        raise files.wrong(f"its MTP layer is not as its config.json says ({odd[0]})")
    use_shared_heads(block)
    return block.to(shared.device).eval().requires_grad_(False)


def _norm(block: Any, weight: Tensor) -> nn.Module:
    """A norm of the target's kind. weight: (H,)"""
    norm: nn.Module = type(block.norm)(len(weight), eps=block.config.rms_norm_eps)
    norm.weight = nn.Parameter(weight, requires_grad=False)
    return norm


MTP = DrafterFamily("MTP", takes, read)
