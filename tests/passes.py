"""Models and inputs that every decoder is tested with: a text in chunks, a tree, the path that is kept, the first layers alone."""

import pytest
import torch
from conftest import VOCABULARY
from transformers import AutoConfig, AutoModelForCausalLM

from specdemo.engine.passes import RunStack, run_together
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.models import loading
from specdemo.models.networks.copy import _quantised, matrices

TEXT = [3, 14, 15, 9, 26, 5, 35, 8]
TREE = Proposal(token_ids=(7, 8, 9, 10, 11, 12), parents=(-1, -1, 0, 0, 2, 1))
ROPE = {
    "rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
    "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
}  # fmt: skip

WINDOW = 6  # shorter than the texts
PARTLY = {
    "sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
}  # fmt: skip
PARTIAL = {
    "rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75, "factor": 4.0,
    "original_max_position_embeddings": 4096, "short_factor": [1.1] * 6, "long_factor": [3.0] * 6,
}  # fmt: skip


SIZES = {
    "vocab_size": VOCABULARY, "hidden_size": 96, "intermediate_size": 128, "num_hidden_layers": 3,
    "num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 16,
}  # fmt: skip


def tiny(kind: str, dtype: torch.dtype = torch.float32, **options: object):
    """Create a random model of a family. options: of its config, which lacks those that are None"""
    torch.manual_seed(3)
    given = {name: one for name, one in (SIZES | options).items() if one is not None}
    config = AutoConfig.for_model(kind, **given)
    model = AutoModelForCausalLM.from_config(config, dtype=dtype).eval().requires_grad_(False)
    for name, parameter in model.named_parameters():
        if "bias" in name or "norm" in name:
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


BUILDS = {
    "llama": {"tie_word_embeddings": True},
    "llama3-rope": {"rope_parameters": ROPE, "attention_bias": True},
    "qwen2": {},
    "qwen3": {},
    "mistral": {"sliding_window": WINDOW},
    "smollm3": {"no_rope_layers": [1, 0, 1], "pad_token_id": 0},
    "phi3": {"sliding_window": WINDOW, "pad_token_id": 0, "rope_parameters": PARTIAL},
    "granite": {
        "embedding_multiplier": 3.0, "residual_multiplier": 0.4, "logits_scaling": 5.0, "attention_multiplier": 0.3,
    },
    "olmo2": {},
    "gemma3_text": {"query_pre_attn_scalar": 24, **PARTLY},
}  # fmt: skip


WORDS = -(-VOCABULARY // 32) * 32
ALSO_PARTIAL = PARTIAL | {"short_factor": [1.1] * 24, "long_factor": [3.0] * 24}
COMPILED_BUILDS = {
    "llama": {"tie_word_embeddings": True},
    "llama3-rope": {"rope_parameters": ROPE},
    "qwen2": {"head_dim": None},  # hidden size over heads
    "qwen3": {"head_dim": 128},
    **{name: BUILDS[name] for name in ("smollm3", "olmo2")},
    "mistral": BUILDS["mistral"] | {"head_dim": 96},
    "phi3": BUILDS["phi3"] | {"rope_parameters": ALSO_PARTIAL},
    # The last block of the head is not full.
    "granite": BUILDS["granite"] | {"vocab_size": WORDS + 3, "attention_multiplier": 0.1},
    "gemma3_text": BUILDS["gemma3_text"] | {"head_dim": 256},
}


def tiny_nf4(name: str):
    """Create a random NF4 model of a family, as it is before the compiled pass packs it."""
    pytest.importorskip("bitsandbytes")
    sizes = {"vocab_size": WORDS, "hidden_size": 256, "intermediate_size": 192, "head_dim": 64}
    options = sizes | {"num_attention_heads": 4} | COMPILED_BUILDS[name]
    model = tiny(name.removesuffix("3-rope"), torch.bfloat16, **options)
    for part, parameter in model.named_parameters():
        if not any(kind in part for kind in ("bias", "norm", "embed")):
            parameter.mul_(4)  # so that the layers have an effect
    for path in matrices(model):
        model.set_submodule(path, _quantised(model.get_submodule(path)))
    loading.prepare_kernels(model, "nf4", torch.device("cpu"), fuse=False)
    return model


def nf4_layers(count: int, *, nested: bool = False):
    """Layers as bitsandbytes stores them."""
    pytest.importorskip("bitsandbytes")
    from bitsandbytes.nn import Linear4bit

    torch.manual_seed(1)
    layers = []
    for _ in range(count):
        layer = Linear4bit(
            128, 64, compute_dtype=torch.bfloat16, compress_statistics=nested, quant_type="nf4"
        )
        for parameter in layer.parameters():
            torch.nn.init.normal_(parameter)
        layer.bfloat16().to("cpu")
        layer.support_avx512bf16_for_cpu = False
        layer.eval().requires_grad_(False)(torch.zeros(1, 128, dtype=torch.bfloat16))
        layers.append(layer)
    return layers


def on_one_worker(names):
    """Parameters of a fixture of a module: the tests of each go to one worker, which makes it once."""
    return [pytest.param(one, marks=pytest.mark.xdist_group(f"made of {one}")) for one in names]


def passes_of(decoder):
    """Return logits and states of four inputs: a text in chunks, a tree, the kept path, and a chain after it."""
    target = CachedModel(decoder, reads=(0, 2, 3))
    target.record(wanted=True)
    found = [target.read(TEXT[:5]), target.read(TEXT[5:-1])]
    found += target.forward(TEXT[-1], TREE).logits
    target.keep([0, 2, 4])
    found += target.forward(20, Proposal.chain([1, 2])).logits
    target.keep([0, 1])
    found += target.grow([4, 5, 6], [-1, -1, 0])
    states = target.features.read(0, target.length, (0, 2, 3))
    lower = target.lower(2, [9, 8], [-1, 0], [])
    return torch.stack(found), states, lower


class Paused(RunStack):
    """Work that waits for its first pass. result: of the work, once it has ended"""

    def __init__(self, work):
        super().__init__(self._work)
        self.work, self.result = work, None
        self.resume()

    def _work(self):
        self.result = self.work()


def in_one_pass(works):
    """Results of functions that each need one pass, which they share."""
    stacks = [Paused(work) for work in works]
    run_together([stack.request for stack in stacks])
    assert not any(stack.resume() for stack in stacks)
    return [stack.result for stack in stacks]


def driven(work):
    """A run's events and its requests, each before its pass runs. work: events, or a function"""
    items = []

    def run():
        for event in work() or () if callable(work) else work:
            items.append(event)

    stack = RunStack(run)
    try:
        while stack.resume():
            yield from items
            items.clear()
            yield stack.request
            run_together([stack.request])
        yield from items
    finally:
        stack.close()


def error(found, wanted) -> float:
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())
