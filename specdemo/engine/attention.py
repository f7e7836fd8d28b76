"""transformers' modules as decoders, with attention that shares key/value heads and hides keys outside a sliding window."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from specdemo.config.errors import UserError
from specdemo.engine.passes import ForwardInput, ForwardOutput, chunk_rows

ATTENTION_NAME = "specdemo"


def shared_heads(
    _module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    s_aux: Tensor | None = None,
    **_options: object,
) -> tuple[Tensor, None]:
    """Grouped-query attention (Ainslie 2305.13245) with the signature of transformers.

    query: (1, heads, rows, head_dim); key, value: (1, kv_heads, keys, head_dim)
    attention_mask: additive for masks of this package; booleans for those of transformers, which include the window
    sliding_window: keys that each row looks back at, itself included (Longformer 2004.05150); None for all
    softcap, s_aux: see `written_out`
    returns: (1, rows, heads, head_dim)
    """
    if (
        sliding_window
        and attention_mask is not None
        and attention_mask.dtype != torch.bool
        and key.shape[2] > sliding_window
    ):
        hidden = ~forget(attention_mask == 0, sliding_window)
        attention_mask = attention_mask.masked_fill(hidden, torch.finfo(attention_mask.dtype).min)
    if softcap is not None or s_aux is not None:
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        attended = written_out(query * scale, key, value, attention_mask, softcap, s_aux)
        return attended.transpose(1, 2).contiguous(), None
    attended = scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attention_mask,
        scale=scaling,
        is_causal=attention_mask is None and query.shape[2] > 1,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return attended.transpose(1, 2).contiguous(), None


def written_out(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    softcap: float | None,
    sinks: Tensor | None,
) -> Tensor:
    """Attention step by step, with features that torch's own function lacks.

    query: (1, heads, rows, head_dim), scaled; key, value, mask: as of `shared_heads`
    softcap: scores stay between this and its negative, by tanh (Gemma 2 2408.00118)
    sinks: (heads,) — a score of no key that is part of the softmax (gpt-oss 2508.10925)
    returns: (1, heads, rows, head_dim)
    """
    _, heads, rows, size = query.shape
    shared = heads // key.shape[1]
    # Heads that share keys lie one after the other.
    grouped = query.reshape(1, -1, shared * rows, size)
    scores = (grouped @ key.transpose(2, 3)).view(1, heads, rows, -1)
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    if mask is None and rows > 1:
        mask = torch.ones(scores.shape[2:], dtype=torch.bool, device=scores.device)
        mask = mask.tril(scores.shape[3] - rows)
    if mask is not None:
        hidden = ~mask if mask.dtype == torch.bool else mask < 0
        scores = scores.masked_fill(hidden, torch.finfo(scores.dtype).min)
    if sinks is not None:
        column = sinks.to(scores.dtype).view(1, -1, 1, 1).expand(1, heads, rows, 1)
        scores = torch.cat([scores, column], dim=-1)
    weights = scores.softmax(dim=-1, dtype=torch.float32).to(value.dtype)[..., : key.shape[2]]
    attended = weights.reshape(1, -1, shared * rows, key.shape[2]) @ value
    return attended.view(1, heads, rows, -1)


def forget(seen: Tensor, window: int) -> Tensor:
    """Hide from each row all but the last `window` keys that it sees.

    Keys lie in the order of the text, and a node of a tree behind those that it descends from. So the last keys
    that a row sees are the last positions of its own path, wherever they lie.

    seen: (..., rows, keys) bool. Two siblings follow "the cat", window 2:

        key        the  cat  sat  ran          the  cat  sat  ran
        sat         1    1    1    .     ->     .    1    1    .
        ran         1    1    .    1            .    1    .    1
    """
    return seen & (seen.flip(-1).cumsum(-1).flip(-1) <= window)


def windowed(config: Any) -> bool:
    """Whether some layers of a transformers model use a sliding window. config: of its text model"""
    if kinds := getattr(config, "layer_types", None):
        return "sliding_attention" in kinds
    return bool(
        getattr(config, "sliding_window", None) and getattr(config, "use_sliding_window", True)
    )


def use_shared_heads(model: Any) -> None:
    """Let a transformers model attend this way; its masks stay those of `sdpa`.

    transformers' own path repeats the heads in a pass of several rows with a mask, and every pass over a draft is one.
    """
    from transformers import AttentionInterface, AttentionMaskInterface
    from transformers.masking_utils import sdpa_mask

    AttentionInterface.register(ATTENTION_NAME, shared_heads)
    AttentionMaskInterface.register(ATTENTION_NAME, sdpa_mask)
    model.set_attn_implementation(ATTENTION_NAME)


BASE_PARTS = ("embed_tokens", "layers", "rotary_emb", "norm")


class ModuleDecoder:
    """Runs a module of transformers without changes, one pass at a time."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.config = model.config.get_text_config()
        self._windowed = windowed(self.config)
        if self._windowed:
            use_shared_heads(model)  # which forgets along the paths of a tree
        self.chunk = chunk_of(self.config, model.device)

    @torch.inference_mode()
    def run(self, passes: Sequence[ForwardInput]) -> list[ForwardOutput]:
        answers = [self._run(one) for one in passes]
        finish(self.model.device)
        return answers

    def _run(self, one: ForwardInput) -> ForwardOutput:
        device = self.model.device
        inputs = {
            "input_ids": torch.tensor([list(one.token_ids)], device=device),
            "position_ids": torch.tensor([list(one.positions)], device=device),
            "attention_mask": self._mask(one),
            "past_key_values": one.cache,
            "use_cache": True,
        }
        if one.depth is not None:
            part = first_layers(self.model, one.depth)
            return ForwardOutput(torch.empty(0), part(**inputs).last_hidden_state[0])
        wanted = {"output_hidden_states": True} if one.reads else {}
        output = self.model(**inputs, logits_to_keep=one.answers, **wanted)
        if not one.reads:
            return ForwardOutput(output.logits[0])
        states = [output.hidden_states[layer][0] for layer in one.reads]
        return ForwardOutput(output.logits[0], torch.cat(states, dim=-1))

    def _mask(self, one: ForwardInput) -> Tensor | None:
        """Additive (1, 1, rows, keys), which every attention of transformers takes; None for plain causal ones."""
        rows, start, seen = len(one.token_ids), one.cache.start, one.seen
        if seen is None or (rows == 1 and bool(seen.all())):
            if not start or (rows == 1 and not self._windowed):
                return None
            # transformers would measure a window from the counted text, without the nodes that follow it.
            seen = causal(rows, start)
        least = torch.finfo(self.model.dtype).min
        mask = torch.zeros(seen.shape, dtype=self.model.dtype).masked_fill_(~seen, least)
        return mask[None, None].to(self.model.device)


def causal(rows: int, start: int = 0) -> Tensor:
    """Return the mask in which each row sees the keys up to its own: (rows, start + rows) bool. start: keys before the rows"""
    return torch.ones(rows, start + rows, dtype=torch.bool).tril_(start)


def chunk_of(config: Any, device: torch.device) -> int:
    """`chunk_rows` of a transformers model. config: of its text part"""
    inner = getattr(config, "intermediate_size", None) or 4 * config.hidden_size
    return chunk_rows(device.type, config.num_hidden_layers, config.hidden_size, inner)


def finish(device: torch.device) -> None:
    """Wait for the GPU: a pass ends, and is timed, when its results exist."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def first_layers(model: Any, count: int) -> Any:
    """The first `count` layers of a transformers model as a model without head and last norm; shares its weights.

    Raises UserError for a model of another build.
    """
    base: Any = getattr(model, "model", None)
    if not all(hasattr(base, part) for part in BASE_PARTS):
        raise UserError("exit.unsupported", kind=model.config.model_type)
    part = copy.copy(base)
    # A copy of the table of modules, not of the modules: the model itself stays as it is.
    part._modules = {**base._modules, "layers": base.layers[:count], "norm": nn.Identity()}
    return part
