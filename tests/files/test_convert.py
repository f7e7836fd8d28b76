"""A GGUF file becomes a folder whose model computes the same logits."""

import json

import pytest

from specdemo.files.sources import resolve
from specdemo.models.loading import load_model
from specdemo.models.tokenizers import load_tokenizer, same_tokenizer

torch = pytest.importorskip("torch")
gguf = pytest.importorskip("gguf")

NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def permuted(weight, heads):
    """The order in which llama.cpp stores the rows of q and k."""
    half = weight.reshape(heads, 2, weight.shape[0] // heads // 2, -1)
    return half.transpose(1, 2).reshape(weight.shape)


def write_gguf(path, files):
    """Write a model folder as an unquantised GGUF file."""
    model = load_model(files, "fp32", "cpu").model
    tokenizer, config = load_tokenizer(files), model.config
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(128)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_vocab_size(config.vocab_size)
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 3 + [1] * (len(tokens) - 3))
    writer.add_token_merges([" ".join(rule) for rule in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    for name, tensor in model.state_dict().items():
        stem = name.removeprefix("model.").removesuffix(".weight")
        if stem.startswith("layers."):
            _, layer, part = stem.split(".", 2)
            if part.endswith("q_proj"):
                tensor = permuted(tensor, config.num_attention_heads)
            if part.endswith("k_proj"):
                tensor = permuted(tensor, config.num_key_value_heads)
            stem = f"blk.{layer}.{NAMES[part]}"
        else:
            stem = {"embed_tokens": "token_embd", "norm": "output_norm"}.get(stem)
        if stem:
            writer.add_tensor(f"{stem}.weight", tensor.contiguous().numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def test_a_gguf_file_is_converted_once_and_computes_the_same(tiny_folder, tmp_path, monkeypatch):
    original = resolve(tiny_folder, tmp_path)
    write_gguf(tmp_path / "tiny.gguf", original)
    stages = []
    files = resolve(
        tmp_path / "tiny.gguf", tmp_path / "cache", lambda report: stages.append(report.stage)
    )
    assert (files.name, files.origin) == ("tiny", "gguf")
    assert set(stages) == {"check", "convert"}
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        wanted = load_model(original, "fp32", "cpu").model(ids).logits
        given = load_model(files, "fp32", "cpu").model(ids).logits
    assert torch.equal(wanted, given)
    assert same_tokenizer(load_tokenizer(original), load_tokenizer(files))
    monkeypatch.setattr(
        "specdemo.files.sources.convert_gguf", lambda *_: pytest.fail("converted twice")
    )
    assert resolve(tmp_path / "tiny.gguf", tmp_path / "cache") == files
