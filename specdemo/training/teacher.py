"""The target as a teacher: it answers prompts; its hidden states over them are cached on disk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import DynamicCache, LlamaForCausalLM

from specdemo.errors import UserError
from specdemo.models.progress import Progress, ProgressCallback
from specdemo.models.quiet import import_bitsandbytes, quiet_transformers
from specdemo.training.data import Answer, Prompt, Row, batches, padded, save_answers

TEMPERATURES = (0.0, 0.7, 0.0, 1.0)  # half greedy, a quarter each
SHARD = 256
GENERATE_ROWS = 64
CACHE_TOKENS = 6144
HEAD_ROWS = 256
TOP = 8


def load_teacher(folder: Path, precision: str, device: torch.device) -> LlamaForCausalLM:
    """The target in bf16; for nf4 its matrices are quantised as the app's are, and restored."""
    with quiet_transformers():
        model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
    if precision == "nf4":
        import_bitsandbytes()
        from bitsandbytes import functional as bnb

        for module in model.model.modules():
            if isinstance(module, torch.nn.Linear):
                packed, state = bnb.quantize_4bit(
                    module.weight.data, quant_type="nf4", blocksize=64
                )
                weight = bnb.dequantize_4bit(packed, state)
                module.weight.data = weight.reshape(module.weight.shape)
    elif precision not in ("bf16", "fp32"):
        raise UserError(
            f"A draft cannot be trained for the precision {precision!r}.",
            advice="Choose nf4 or bf16; such a draft also works for the other precisions.",
        )
    return model.to(device=device, dtype=torch.bfloat16).eval().requires_grad_(requires_grad=False)


def answer_prompts(
    teacher: LlamaForCausalLM,
    tokenizer: Any,
    prompts: Sequence[Prompt],
    folder: Path,
    *,
    max_answer_tokens: int,
    seed: int,
    progress: ProgressCallback,
) -> list[Path]:
    """Write the target's answers in shards, keeping those that exist. returns: their paths"""
    folder.mkdir(parents=True, exist_ok=True)
    order = np.random.default_rng(seed).permutation(len(prompts))
    paths, limit = [], teacher.config.max_position_embeddings - max_answer_tokens
    for number, begin in enumerate(range(0, len(order), SHARD)):
        path = folder / f"answers-{number:03d}.npz"
        paths.append(path)
        done = begin / len(prompts)
        progress(Progress("answer", done, f"{begin} of {len(prompts)} prompts"))
        if path.is_file():
            continue
        texts = [
            (prompts[i], _chat(tokenizer, prompts[i].text)) for i in order[begin : begin + SHARD]
        ]
        texts = [text for text in texts if len(text[1]) <= limit]
        texts.sort(key=lambda text: len(text[1]))
        generator = torch.Generator(teacher.device).manual_seed(seed + number)
        answers: list[Answer] = []
        for first in range(0, len(texts), GENERATE_ROWS):
            group = texts[first : first + GENERATE_ROWS]
            answers += _generate(teacher, group, _stops(teacher), max_answer_tokens, generator)
        if not answers:
            raise UserError(
                "No prompt is short enough for the target's context.", advice="Use shorter prompts."
            )
        save_answers(path, answers, teacher.config.vocab_size)
    return paths


def _chat(tokenizer: Any, text: str) -> list[int]:
    """Token ids of one user turn, in the chat template where there is one."""
    if not tokenizer.chat_template:
        return tokenizer(text)["input_ids"]
    messages = [{"role": "user", "content": text}]
    shown = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    return tokenizer(shown, add_special_tokens=False)["input_ids"]


def _stops(teacher: LlamaForCausalLM) -> list[int]:
    stop = teacher.generation_config.eos_token_id
    return stop if isinstance(stop, list) else [] if stop is None else [stop]


@torch.inference_mode()
def _generate(
    teacher: LlamaForCausalLM,
    group: Sequence[tuple[Prompt, list[int]]],
    stop_ids: list[int],
    max_answer_tokens: int,
    generator: torch.Generator,
) -> list[Answer]:
    """Answer a batch of prompts, each row at its own temperature; texts are padded on the left."""
    device, rows, longest = teacher.device, len(group), max(len(ids) for _, ids in group)
    tokens = torch.zeros(rows, longest, dtype=torch.long, device=device)
    mask = torch.zeros(rows, longest, dtype=torch.long, device=device)
    for row, (_, ids) in enumerate(group):
        tokens[row, longest - len(ids) :] = torch.tensor(ids, device=device)
        mask[row, longest - len(ids) :] = 1
    cycle = [TEMPERATURES[row % len(TEMPERATURES)] for row in range(rows)]
    temperatures = torch.tensor(cycle, device=device)
    stops = torch.tensor(stop_ids, dtype=torch.long, device=device)
    where, cache = (mask.cumsum(-1) - 1).clamp(min=0), DynamicCache(config=teacher.config)
    lengths = torch.zeros(rows, dtype=torch.long, device=device)
    alive = torch.ones(rows, dtype=torch.bool, device=device)
    said, top_ids, top_probs = [], [], []
    for _ in range(max_answer_tokens):
        output = teacher(
            tokens, attention_mask=mask, position_ids=where, past_key_values=cache, logits_to_keep=1
        )
        logits = output.logits[:, -1].float()
        likely = logits.softmax(-1).topk(min(TOP, logits.shape[-1]))
        top_ids.append(likely.indices)
        top_probs.append(likely.values.half())
        warm = logits / temperatures[:, None].clamp(min=1e-3)
        drawn = torch.multinomial(warm.softmax(-1), 1, generator=generator)[:, 0]
        chosen = torch.where(temperatures > 0, drawn, likely.indices[:, 0])
        said.append(chosen)
        lengths += alive
        alive &= ~torch.isin(chosen, stops)
        if not alive.any():  # sync: one per token of the batch
            break
        tokens, where = chosen[:, None], where[:, -1:] + 1
        mask = torch.cat([mask, mask.new_ones(rows, 1)], dim=-1)
    answer_ids = torch.stack(said, 1).cpu().numpy()
    ids, probs = (torch.stack(x, 1).cpu().numpy() for x in (top_ids, top_probs))
    return [
        Answer(
            prompt.source, prompt.row_id, float(temperatures[row]), np.array(prompt_ids),
            answer_ids[row, :end], ids[row, :end], probs[row, :end],
        )
        for row, ((prompt, prompt_ids), end) in enumerate(zip(group, lengths.tolist(), strict=True))
    ]  # fmt: skip


@dataclass(frozen=True, slots=True)
class HiddenStates:
    """The target's states over all rows, memory-mapped; bf16 bits kept as int16.

    final: (N, H), after the last norm; mid: (N, H), after one layer in the middle
    word_mass: (V,) float64 — the target's probability of each word, summed over the answers
    """

    final: np.ndarray
    mid: np.ndarray
    word_mass: np.ndarray

    @staticmethod
    def bytes_per_position(hidden_size: int) -> int:
        """Disk that one position takes."""
        return 2 * 2 * hidden_size


def read_states(array: np.ndarray, where: np.ndarray, device: torch.device) -> Tensor:
    """Rows of a cached array. where: (n,) int64. returns: (n, H) bf16"""
    return torch.from_numpy(array[where]).view(torch.bfloat16).to(device)


def cache_hidden(
    teacher: LlamaForCausalLM,
    rows: Sequence[Row],
    mid_layer: int,
    folder: Path,
    progress: ProgressCallback,
) -> HiddenStates:
    """Run the target once over all rows. What an earlier, interrupted call did is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    positions, hidden = sum(len(row.token_ids) for row in rows), teacher.config.hidden_size
    done, mass = _resume(folder, teacher.config.vocab_size)
    arrays = {
        name: np.lib.format.open_memmap(
            folder / f"{name}.npy", "r+" if done else "w+", np.int16, (positions, hidden)
        )
        for name in ("final", "mid")
    }
    plan = batches(rows, CACHE_TOKENS)
    for number, batch in enumerate(plan[done:], start=done):
        for row, states, likely in _states(teacher, batch, mid_layer):
            for name, state in states.items():
                arrays[name][row.start : row.start + len(row.token_ids)] = state
            mass += likely
        if number % 20 == 19 or number == len(plan) - 1:
            for array in arrays.values():
                array.flush()
            _checkpoint(folder, number + 1, mass)
        progress(Progress("read answers", (number + 1) / len(plan), f"{positions:,} positions"))
    return HiddenStates(arrays["final"], arrays["mid"], mass)


@torch.inference_mode()
def _states(
    teacher: LlamaForCausalLM, batch: Sequence[Row], mid_layer: int
) -> Iterator[tuple[Row, dict[str, np.ndarray], np.ndarray]]:
    """Each row's final and middle states as bf16 bits, and its words' summed probabilities."""
    kept: list[Tensor] = []

    def keep(_module: Any, _inputs: Any, output: Any) -> None:
        kept.append(output[0] if isinstance(output, tuple) else output)

    handle = teacher.model.layers[mid_layer].register_forward_hook(keep)
    try:
        token_ids = torch.from_numpy(padded(batch)).to(teacher.device)
        final = teacher.model(token_ids, use_cache=False).last_hidden_state
    finally:
        handle.remove()
    for index, row in enumerate(batch):
        end = len(row.token_ids)
        mass = torch.zeros(teacher.config.vocab_size, dtype=torch.float64, device=teacher.device)
        for piece in final[index, row.first : end].split(HEAD_ROWS):
            mass += F.linear(piece, teacher.lm_head.weight).float().softmax(-1).sum(0)
        states = {
            name: state[index, :end].view(torch.int16).cpu().numpy()
            for name, state in (("final", final), ("mid", kept[0]))
        }
        yield row, states, mass.cpu().numpy()


def _resume(folder: Path, vocabulary_size: int) -> tuple[int, np.ndarray]:
    """Batches that are done, and the words' mass so far."""
    state, mass = folder / "state.json", folder / "word_mass.npy"
    if not state.is_file() or not mass.is_file():
        return 0, np.zeros(vocabulary_size)
    return int(json.loads(state.read_text(encoding="utf-8"))["batches"]), np.load(mass)


def _checkpoint(folder: Path, done: int, mass: np.ndarray) -> None:
    """The mass first: a crash in between counts some answers twice, which hardly moves words."""
    with (folder / "word_mass.part").open("wb") as stream:
        np.save(stream, mass)
    (folder / "word_mass.part").replace(folder / "word_mass.npy")
    (folder / "state.part").write_text(json.dumps({"batches": done}), encoding="utf-8")
    (folder / "state.part").replace(folder / "state.json")
