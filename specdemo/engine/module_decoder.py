"""A transformers module as it comes, as a decoder."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from specdemo.config.errors import UserError
from specdemo.engine.attention import use_shared_heads, windowed
from specdemo.engine.passes import ForwardInput, ForwardOutput, chunk_rows

BASE_PARTS = ("embed_tokens", "layers", "rotary_emb", "norm")


class ModuleDecoder:
    """A transformers module as it comes, one pass after the other."""

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
            return ForwardOutput(torch.empty(0), (part(**inputs).last_hidden_state[0],))
        wanted = {"output_hidden_states": True} if one.reads else {}
        output = self.model(**inputs, logits_to_keep=one.answers, **wanted)
        states = tuple(output.hidden_states[layer][0] for layer in one.reads)
        return ForwardOutput(output.logits[0], states)

    def _mask(self, one: ForwardInput) -> Tensor | None:
        """Additive (1, 1, rows, keys), which every attention of transformers takes; None for plain causal ones."""
        seen = one.seen
        if len(one.token_ids) == 1 and (seen is None or bool(seen.all())):
            if not self._windowed:
                return None
            # transformers would measure the window from the counted text, without the nodes that follow it.
            seen = torch.ones((1, one.cache.start + 1), dtype=torch.bool)
        if seen is None:
            return None
        return additive(seen, self.model.dtype, self.model.device)


def additive(seen: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
    """(1, 1, rows, keys), which every attention of transformers takes. seen: (rows, keys) bool"""
    mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, torch.finfo(dtype).min)
    return mask[None, None].to(device)


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
