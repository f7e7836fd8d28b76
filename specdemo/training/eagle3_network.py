"""The network of a feature drafter in the form of published EAGLE-3 drafters (Li 2503.01840): states beside embeddings.

`export drafter` can write it for other engines.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from specdemo.training.feature_layer import BesideLayer, Norm, begun_norms, folded_norms
from specdemo.training.feature_network import FeatureNetwork
from specdemo.training.student import Inject


class Eagle3Network(FeatureNetwork):
    """The drafter in the form of EAGLE-3: attention reads embedding and state side by side, each behind a norm.

    What goes past attention is the state before its norm. A state that is fed back has passed the last norm, as in
    EAGLE 3.1 (`norm_output`), and each of the target's states a norm of its own (`fc_norm`). No scale is needed: an
    embedding goes through a norm alone.
    """

    skips_first = True

    def _make(self, num_states: int) -> None:
        hidden, epsilon = self.config.hidden_size, self.config.rms_norm_eps
        self.scale = 1.0
        self.layers = nn.ModuleList([BesideLayer(self.config)])
        self.norm = Norm(hidden, epsilon)
        self.inject = Inject(num_states, hidden, epsilon)

    @property
    def layer(self) -> BesideLayer:
        """Its only layer."""
        layer = self.layers[0]
        assert isinstance(layer, BesideLayer)
        return layer

    def _joined(self, token_ids: Tensor, states: Tensor) -> tuple[Tensor, Tensor]:
        layer = self.layer
        parts = [layer.input_layernorm(self.looked_up(token_ids)), layer.hidden_norm(states)]
        return states, torch.cat(parts, dim=-1)

    def _fed(self, x: Tensor) -> Tensor:
        normed: Tensor = self.norm(x)
        return normed

    def linear_inputs(self, states: Tensor, token_ids: Tensor) -> Tensor:
        """The states alone: an embedding is read by attention only."""
        return states

    @torch.no_grad()
    def begin_as(self, layer: Mapping[str, Tensor], norm: Tensor) -> None:
        """As of `FeatureNetwork`; embedding and state are read as the layer reads its one input, half each."""
        wide = {
            name: torch.cat([one, one], dim=1) / 2
            if name.endswith(("q_proj.weight", "k_proj.weight", "v_proj.weight"))
            else one
            for name, one in layer.items()
        }
        super().begin_as({**wide, "hidden_norm.weight": layer["input_layernorm.weight"]}, norm)

    @torch.no_grad()
    def begin_linear(self, found: Tensor) -> None:
        """See `FeatureNetwork`."""
        self._begin_linear(found)

    def folded(self) -> dict[str, Tensor]:
        """The tensors that the runtime and the published layout take."""
        return folded_norms(self.state_dict())

    def unfold(self, state: Mapping[str, Tensor]) -> None:
        """Go on from tensors that `folded` gave."""
        known, state = self.state_dict(), begun_norms(state)
        self.load_state_dict({name: one.float() for name, one in state.items() if name in known})
