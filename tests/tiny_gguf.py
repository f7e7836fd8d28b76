"""GGUF files of tiny models, whose matrices are quantised in each way that the models of the catalogue use."""

import json
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from tiny_files import make_tiny_tokenizer

KINDS = ("llama", "qwen2", "smollm3")
QUANTISED = ("Q4_K", "Q5_0", "Q6_K", "Q8_0", "Q4_1")
HIDDEN, INNER, HEADS, KV_HEADS, LAYERS = 256, 256, 4, 2, 1
HEAD, WINDOW = HIDDEN // HEADS, 16


def tiny_gguf(
    path: Path, kind: str, tokenizer: Any = None, pre: str = "gpt-2", quantised: Any = QUANTISED,
    layers: int = LAYERS,
) -> Path:  # fmt: skip
    """Write a random model, see `tensors`.

    pre: how llama.cpp splits text for the tokenizer; quantised: kinds of the matrices, in turn; they leave vectors unchanged
    """
    from gguf import GGMLQuantizationType, GGUFWriter

    random, vectors = np.random.default_rng(7), np.random.default_rng(8)
    tokenizer = tokenizer or make_tiny_tokenizer()
    writer = GGUFWriter(path, kind)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokenizer))
    if kind in ("phi3", "gemma3"):
        writer.add_sliding_window(WINDOW)
        writer.add_key_length(HEAD)
    add_tokenizer(writer, tokenizer, pre)
    kinds = cycle(quantised)
    for name, shape in tensors(kind, len(tokenizer), layers):
        if len(shape) == 1:
            writer.add_tensor(name, vectors.normal(0, 0.1, shape).astype(np.float32) + 1)
            continue
        stored = GGMLQuantizationType[next(kinds)]
        writer.add_tensor(name, random_blocks(random, *shape, stored), raw_dtype=stored)
    finish(writer)
    return path


def finish(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def tensors(kind: str, words: int, layers: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield names and shapes.

    llama: a head of its own; qwen2: biases, and the embedding is the head; phi3: fused matrices and a head of its own;
    gemma3: norms before and after attention and MLP, and of queries and keys
    """
    yield "token_embd.weight", (words, HIDDEN)
    if kind in ("llama", "phi3"):
        yield "output.weight", (words, HIDDEN)
    yield "output_norm.weight", (HIDDEN,)
    rows = {"attn_q": HIDDEN, "attn_k": KV_HEADS * HEAD, "attn_v": KV_HEADS * HEAD}
    if kind == "phi3":
        rows = {"attn_qkv": sum(rows.values())}
    rows |= {"attn_output": HIDDEN}
    rows |= {"ffn_up": 2 * INNER} if kind == "phi3" else {"ffn_gate": INNER, "ffn_up": INNER}
    norms = {"attn_norm": HIDDEN, "ffn_norm": HIDDEN}
    if kind == "gemma3":
        norms |= {"post_attention_norm": HIDDEN, "post_ffw_norm": HIDDEN}
        norms |= {"attn_q_norm": HEAD, "attn_k_norm": HEAD}
    for layer in range(layers):
        at = f"blk.{layer}."
        for part, count in rows.items():
            yield f"{at}{part}.weight", (count, HIDDEN)
            if kind == "qwen2" and part in ("attn_q", "attn_k", "attn_v"):
                yield f"{at}{part}.bias", (count,)
        yield f"{at}ffn_down.weight", (HIDDEN, INNER)
        for part, count in norms.items():
            yield f"{at}{part}.weight", (count,)


def random_blocks(random: Any, rows: int, columns: int, kind: Any) -> Any:
    """Bytes that mean a random matrix: any bytes do, but for the scales, which are float16. (rows, bytes) uint8"""
    from gguf.constants import GGML_QUANT_SIZES

    weights, size = GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (rows, columns // weights, size), dtype=np.uint8)
    scale = np.array([0.0002], np.float16).view(np.uint8)  # attention stays far from ties
    both = ("Q4_1", "Q5_1", "Q4_K", "Q5_K")  # a scale and a minimum
    for place in (208,) if kind.name == "Q6_K" else (0, 2) if kind.name in both else (0,):
        blocks[..., place : place + 2] = scale
    return blocks.reshape(rows, -1)


def add_tokenizer(writer: Any, tokenizer: Any, pre: str = "gpt-2") -> None:
    tokens = sorted(tokenizer.get_vocab(), key=tokenizer.get_vocab().get)
    merges = json.loads(tokenizer.backend_tokenizer.to_str())["model"]["merges"]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([3] * 3 + [1] * (len(tokens) - 3))
    writer.add_token_merges([" ".join(rule) for rule in merges])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(0)
