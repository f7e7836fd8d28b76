"""GGUF files of common families: each gives the logits that transformers gives for the same weights, or is refused."""

import pytest
import torch
from gguf import GGUFWriter, RopeScalingType, get_tensor_name_map
from gguf.constants import MODEL_ARCH_NAMES
from passes import ROPE
from tiny_files import make_tiny_tokenizer
from tiny_gguf import add_tokenizer, finish
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from specdemo.config.errors import UserError
from specdemo.files.folder import find_family
from specdemo.files.packing import gguf_weights
from specdemo.files.sources import resolve
from specdemo.models.loading import load_model
from specdemo.models.tokenizers import load_tokenizer, same_tokenizer

WINDOW = 6  # far shorter than the text
IDS = torch.arange(3, 40)[None]
LLAMA3 = {**ROPE, "original_max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}
LONG = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.25, 1.5, 2.0],
    "long_factor": [1.0, 2.0, 4.0, 8.0],
    "original_max_position_embeddings": 16,
    "attention_factor": 1.25,
}
GEMMA = {"head_dim": 8, "sliding_window": WINDOW, "tie_word_embeddings": True}
NEAR = {"attention.sliding_window": WINDOW}
GEMMA_KEYS = {"attention.key_length": 8, **NEAR}
CAPS = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 10.0}
EXPERTS = {
    "num_experts": 4, "num_experts_per_tok": 2, "norm_topk_prob": True, "head_dim": 8,
    "moe_intermediate_size": 16,
}  # fmt: skip
EXPERT_KEYS = {
    "attention.key_length": 8, "expert_count": 4, "expert_used_count": 2, "expert_feed_forward_length": 16,
}  # fmt: skip
# Keys of llama.cpp's converter for each family, in addition to those for all.
FAMILIES = {
    "llama": ("llama", {}, {}),
    "llama 3": ("llama", {"rope_parameters": {**LLAMA3, "rope_theta": 5e5}}, {}),
    "mistral": ("mistral", {"sliding_window": None}, {}),
    "qwen2 with yarn": (
        "qwen2",
        {"rope_parameters": {**YARN, "rope_theta": 1e6}},
        {"rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16},
    ),
    "qwen3": ("qwen3", {"head_dim": 16}, {"attention.key_length": 16}),
    "qwen3 of experts": ("qwen3_moe", EXPERTS, EXPERT_KEYS),
    "gemma2": ("gemma2", {**GEMMA, **CAPS}, {**GEMMA_KEYS, **CAPS}),
    "gemma3": ("gemma3_text", GEMMA, GEMMA_KEYS),
    "phi3": ("phi3", {"sliding_window": WINDOW, "pad_token_id": 0}, NEAR),
    "phi3 with long positions": (
        "phi3",
        {"sliding_window": None, "pad_token_id": 0, "rope_parameters": {**LONG, "rope_theta": 1e4}},
        {
            "rope.scaling.original_context_length": 16,
            "rope.scaling.attn_factor": LONG["attention_factor"],
            "rope_factors_short.weight": torch.tensor(LONG["short_factor"]),
            "rope_factors_long.weight": torch.tensor(LONG["long_factor"]),
        },
    ),
    "gpt2": ("gpt2", {"n_inner": 64}, {"attention.layer_norm_epsilon": 1e-5}),
    # The fourth layer is the first without positions.
    "smollm3": ("smollm3", {"num_hidden_layers": 4, "pad_token_id": 0}, {}),
}
ARCHITECTURES = {"mistral": "llama", "gemma3_text": "gemma3", "qwen3_moe": "qwen3moe"}
PERMUTED = ("llama", "smollm3")
REFUSED = {
    "no reader": (("olmo2", {"pad_token_id": 0}, {}), "olmo2"),
    "llama with biases": (("llama", {"attention_bias": True}, {}), "attn_k.bias.* has no place"),
    "phi3 with a part of long positions": (
        ("phi3", {"pad_token_id": 0}, {"rope_factors_long.weight": torch.ones(4)}),
        "rope_factors_long has no place",
    ),
    "other long positions": (("qwen2", {}, {"rope.scaling.type": "longrope"}), "longrope"),
    "other frequencies": (
        ("llama", {}, {"rope_freqs.weight": torch.tensor([1.0, 2.0, 9.0, 8.0])}),
        "not Llama 3's",
    ),
}


def made(folder, family):
    """A random model of a family, and the GGUF file that llama.cpp would make of it."""
    torch.manual_seed(0)
    tokenizer = make_tiny_tokenizer()
    kind, options, keys = family
    config = AutoConfig.for_model(
        kind, vocab_size=len(tokenizer), hidden_size=32, intermediate_size=64,
        num_attention_heads=4, num_key_value_heads=2, initializer_range=0.3,
        max_position_embeddings=64, bos_token_id=1, eos_token_id=2,
        **{"num_hidden_layers": 2, **options},
    )  # fmt: skip
    model = AutoModelForCausalLM.from_config(config).eval()
    for name, weight in model.named_parameters():
        if weight.ndim == 1:
            torch.nn.init.normal_(weight, 0.0 if "bias" in name else 1.0, 0.1)
    return model, write(folder / "tiny.gguf", model, tokenizer, keys)


def write(path, model, tokenizer, keys):
    """Write the same keys as llama.cpp's converter. keys: of the family, tensors among them"""
    config = model.config
    kind = ARCHITECTURES.get(config.model_type, config.model_type)
    writer = GGUFWriter(path, kind)
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(64)
    writer.add_head_count(4)
    writer.add_vocab_size(len(tokenizer))
    rope = getattr(config, "rope_parameters", None)
    if rope:
        writer.add_head_count_kv(2)
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
        writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if kind in PERMUTED:
        writer.add_rope_dimension_count(8)
    if "rope.scaling.factor" in keys:
        writer.add_rope_scaling_type(RopeScalingType.YARN)
    add_tokenizer(writer, tokenizer)
    adds = {str: writer.add_string, int: writer.add_uint32, float: writer.add_float32}
    for key, value in keys.items():
        if isinstance(value, torch.Tensor):
            writer.add_tensor(key, value.numpy())
        else:
            adds[type(value)](f"{kind}.{key}", value)
    if rope and rope.get("rope_type") == "llama3":
        frequencies, _ = ROPE_INIT_FUNCTIONS["llama3"](config, None)
        plain = rope["rope_theta"] ** -(torch.arange(0, 8, 2) / 8)
        writer.add_tensor("rope_freqs.weight", (plain / frequencies).numpy())
    architecture = next(key for key, value in MODEL_ARCH_NAMES.items() if value == kind)
    known = get_tensor_name_map(architecture, config.num_hidden_layers)
    for name, weight in model.named_parameters():
        for stem, part in stored(kind, name, weight.detach()):
            suffix = "bias" if name.endswith("bias") else "weight"
            stem = known.get_name(stem) or stem
            writer.add_tensor(f"{stem}.{suffix}", part.contiguous().numpy())
    finish(writer)
    return path


def stored(kind, name, weight):
    """A weight as llama.cpp stores it, under one name or two.

    Rotary halves lie alternately, norms have their one, Conv1D lies the other way around, experts are apart.
    """
    stem = name.removesuffix(".weight").removesuffix(".bias")
    part = stem.rpartition(".")[2]
    if part == "gate_up_proj" and weight.ndim == 3:
        layer = stem.split(".")[2]
        halves = weight.chunk(2, dim=1)
        return [
            (f"blk.{layer}.ffn_{part}_exps", half)
            for part, half in zip(("gate", "up"), halves, strict=True)
        ]
    if kind in PERMUTED and part in ("q_proj", "k_proj"):
        halves = weight.reshape(4 if part == "q_proj" else 2, 2, 4, -1)
        weight = halves.transpose(1, 2).reshape(weight.shape)
    if kind.startswith("gemma") and weight.ndim == 1:
        weight = weight + 1
    if kind == "gpt2" and part.startswith("c_") and weight.ndim == 2:
        weight = weight.T
    return [(stem, weight)]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_gguf_file_computes_what_its_weights_do_in_transformers(tmp_path, family):
    model, gguf = made(tmp_path, FAMILIES[family])
    loaded = load_model(resolve(gguf, tmp_path / "cache"), "fp32", "cpu")
    torch.testing.assert_close(loaded.model(IDS).logits, model(IDS).logits, atol=1e-4, rtol=1e-4)


PACKED = {
    name: family
    for name, family in FAMILIES.items()
    if find_family(model_type=family[0]).packs or name == "mistral"
}


@pytest.mark.parametrize("family", PACKED)
def test_a_family_that_packs_is_read_tensor_by_tensor(tmp_path, family):
    model, gguf = made(tmp_path, FAMILIES[family])
    wanted = dict(model.named_parameters())
    found = gguf_weights(gguf, {name: tuple(weight.shape) for name, weight in wanted.items()})
    assert found.keys() == wanted.keys()
    for name, weight in wanted.items():
        torch.testing.assert_close(found[name].read(slice(None)), weight.detach())


def test_a_gguf_file_brings_its_tokenizer(tmp_path):
    files = resolve(made(tmp_path, FAMILIES["llama"])[1], tmp_path / "cache")
    assert same_tokenizer(load_tokenizer(files), make_tiny_tokenizer())


@pytest.mark.parametrize("family", REFUSED)
def test_a_gguf_file_that_would_be_misread_is_refused_before_it_is_converted(tmp_path, family):
    description, reason = REFUSED[family]
    with pytest.raises(UserError, match=reason):
        resolve(made(tmp_path, description)[1], tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.safetensors"))


@pytest.mark.parametrize(
    ("kind", "reason"), [("mamba", "rolled back"), ("t5", "not a causal language model")]
)
def test_a_model_that_no_draft_can_run_on_is_refused_from_the_header(tmp_path, kind, reason):
    writer = GGUFWriter(tmp_path / "tiny.gguf", kind)
    add_tokenizer(writer, make_tiny_tokenizer())
    finish(writer)
    with pytest.raises(UserError, match=reason):
        resolve(tmp_path / "tiny.gguf", tmp_path / "cache")
