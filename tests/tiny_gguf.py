"""GGUF files of tiny models, whose matrices are quantised in each way that the models of the catalogue use."""

import json
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from tiny_files import make_tiny_tokenizer

KINDS = ("llama", "qwen2", "smollm3")
QUANTISED = ("Q4_K", "Q5_0", "Q6_K", "Q8_0", "Q4_1")
HIDDEN, INNER, HEADS, KV_HEADS, LAYERS = 256, 256, 4, 2, 1


def tiny_gguf(
    path: Path, kind: str, tokenizer: Any = None, pre: str = "gpt-2", quantised: Any = QUANTISED
) -> Path:
    """Write a random model. llama: a head of its own; qwen2: biases, and the embedding is the head

    pre: how llama.cpp splits text for the tokenizer; quantised: kinds of the matrices, in turn; they leave vectors unchanged
    """
    from gguf import GGMLQuantizationType, GGUFWriter

    random, vectors = np.random.default_rng(7), np.random.default_rng(8)
    tokenizer = tokenizer or make_tiny_tokenizer()
    writer = GGUFWriter(path, kind)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(tokenizer))
    add_tokenizer(writer, tokenizer, pre)
    kinds = cycle(quantised)

    def matrix(name: str, rows: int, columns: int) -> None:
        stored = GGMLQuantizationType[next(kinds)]
        writer.add_tensor(name, random_blocks(random, rows, columns, stored), raw_dtype=stored)

    def vector(name: str, size: int) -> None:
        writer.add_tensor(name, vectors.normal(0, 0.1, size).astype(np.float32) + 1)

    head = HIDDEN // HEADS
    matrix("token_embd.weight", len(tokenizer), HIDDEN)
    if kind == "llama":
        matrix("output.weight", len(tokenizer), HIDDEN)
    vector("output_norm.weight", HIDDEN)
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        sizes = {"q": HIDDEN, "k": KV_HEADS * head, "v": KV_HEADS * head}
        for part, rows in sizes.items():
            matrix(f"{at}attn_{part}.weight", rows, HIDDEN)
            if kind == "qwen2":
                vector(f"{at}attn_{part}.bias", rows)
        matrix(f"{at}attn_output.weight", HIDDEN, HIDDEN)
        matrix(f"{at}ffn_gate.weight", INNER, HIDDEN)
        matrix(f"{at}ffn_up.weight", INNER, HIDDEN)
        matrix(f"{at}ffn_down.weight", HIDDEN, INNER)
        vector(f"{at}attn_norm.weight", HIDDEN)
        vector(f"{at}ffn_norm.weight", HIDDEN)
    finish(writer)
    return path


def finish(writer: Any) -> None:
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def random_blocks(random: Any, rows: int, columns: int, kind: Any) -> Any:
    """Bytes that mean a random matrix: any bytes do, but for the scales, which are float16. (rows, bytes) uint8"""
    from gguf.constants import GGML_QUANT_SIZES

    weights, size = GGML_QUANT_SIZES[kind]
    blocks = random.integers(0, 256, (rows, columns // weights, size), dtype=np.uint8)
    scale = np.array([0.01], np.float16).view(np.uint8)
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
