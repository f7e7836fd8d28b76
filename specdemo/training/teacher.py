"""The target as a teacher: it answers prompts; its hidden states over them are cached on disk."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import LlamaForCausalLM

from specdemo.config.errors import UserError
from specdemo.engine.attention import use_shared_heads
from specdemo.engine.cache import RollbackCache
from specdemo.files.progress import Progress, ProgressCallback
from specdemo.models.quiet import import_bitsandbytes, quiet_transformers
from specdemo.training.data import Answer, Prompt, Row, batches, padded, save_answers

TEMPERATURES = (0.0, 0.7, 0.0, 1.0)  # half greedy, a quarter each
SHARD = 512
GENERATE_ROWS = 128
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
        raise UserError("training.precision", precision=precision)
    use_shared_heads(model)
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
            raise UserError("training.long_prompts")
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
    """Answer a batch of prompts, each row at its own temperature; texts are padded on the left.

    Rows that have ended are dropped from the batch when they are a quarter of it.
    """
    device, longest = teacher.device, max(len(ids) for _, ids in group)
    tokens = torch.zeros(len(group), longest, dtype=torch.long, device=device)
    mask = torch.zeros(len(group), longest, dtype=torch.bool, device=device)
    for row, (_, ids) in enumerate(group):
        tokens[row, longest - len(ids) :] = torch.tensor(ids, device=device)
        mask[row, longest - len(ids) :] = True
    rows = torch.arange(len(group), device=device)  # of `group`, that are still answered
    temperatures = torch.tensor(TEMPERATURES, device=device).repeat(len(group))[: len(group)]
    where, cache = (mask.cumsum(-1) - 1).clamp(min=0), RollbackCache(len(teacher.model.layers))
    said: list[list[tuple[int, Tensor, Tensor]]] = [[] for _ in group]
    for _ in range(max_answer_tokens):
        states = teacher.model(
            tokens, attention_mask=mask, position_ids=where, past_key_values=cache, use_cache=True
        ).last_hidden_state[:, -1]
        cache.gather(range(tokens.shape[1]))
        logits = teacher.lm_head(states).float()
        likely = logits.topk(min(TOP, logits.shape[-1]))
        chosen, total = likely.indices[:, 0].clone(), logits.logsumexp(-1, keepdim=True)
        warm = temperatures[rows] > 0
        if warm.any():
            chosen[warm] = _draw(logits[warm], temperatures[rows[warm]], generator)
        top_probs = (likely.values - total).exp().half().cpu()
        top_ids, ids = likely.indices.cpu(), chosen.tolist()  # sync: one per token of the batch
        for place, row in enumerate(rows.tolist()):
            if len(said[row]) == 0 or said[row][-1][0] not in stop_ids:
                said[row].append((ids[place], top_ids[place], top_probs[place]))
        tokens, where = chosen[:, None], where[:, -1:] + 1
        mask = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=-1)
        going = torch.tensor([said[row][-1][0] not in stop_ids for row in rows.tolist()])
        if not going.any():
            break
        if going.sum() <= len(going) * 3 // 4:
            left = going.nonzero()[:, 0].to(device)
            cache.keep_rows(left)
            rows, tokens, where, mask = rows[left], tokens[left], where[left], mask[left]
    return [
        Answer(
            prompt.source, prompt.row_id, float(temperatures[row]), np.array(prompt_ids),
            np.array([token for token, _, _ in words]),
            np.stack([ids.numpy() for _, ids, _ in words]),
            np.stack([probs.numpy() for _, _, probs in words]),
        )
        for row, ((prompt, prompt_ids), words) in enumerate(zip(group, said, strict=True))
    ]  # fmt: skip


def _draw(logits: Tensor, temperatures: Tensor, generator: torch.Generator) -> Tensor:
    """One token a row by inverting the cumulative distribution. logits: (n, V); returns: (n,) int64"""
    sums = (logits / temperatures[:, None]).softmax(-1).cumsum(-1)
    draws = torch.rand(len(sums), 1, generator=generator, device=sums.device) * sums[:, -1:]
    return torch.searchsorted(sums, draws, right=True)[:, 0].clamp(max=sums.shape[-1] - 1)


@dataclass(frozen=True, slots=True)
class HiddenStates:
    """The target's states over all rows, memory-mapped; bf16 bits kept as int16.

    arrays: by hidden state, as transformers counts them (0 = embedding, the last = after the final norm): (N, H)
    word_mass: (V,) float64 — the target's probability of each word, summed over the answers
    """

    arrays: Mapping[int, Any]
    word_mass: np.ndarray

    @property
    def layers(self) -> tuple[int, ...]:
        """Which states there are, ascending."""
        return tuple(sorted(self.arrays))

    def rows(self, layer: int, where: np.ndarray, device: torch.device) -> Tensor:
        """States at some places. where: (n,) int64. returns: (n, H) bf16"""
        return torch.from_numpy(self.arrays[layer][where]).view(torch.bfloat16).to(device)

    def final(self, where: np.ndarray, device: torch.device) -> Tensor:
        """The last state, from which the target's head makes its distribution."""
        return self.rows(self.layers[-1], where, device)

    def texts(
        self, batch: Sequence[Row], layers: Sequence[int], device: torch.device, *, shift: int = 0
    ) -> Tensor:
        """(B, L, layers x H) bf16: each token's states, or those of the token `shift` places before; else zeros."""
        length = max(len(row.token_ids) for row in batch)
        width = next(iter(self.arrays.values())).shape[1]
        table = np.zeros((len(batch), length, len(layers) * width), np.int16)
        for line, row in zip(table, batch, strict=True):
            count = len(row.token_ids) - shift
            for place, layer in enumerate(layers):
                states = self.arrays[layer][row.start : row.start + count]
                line[shift : shift + count, place * width : (place + 1) * width] = states
        return torch.from_numpy(table).view(torch.bfloat16).to(device)

    @staticmethod
    def bytes_per_position(hidden_size: int, layers: Sequence[int]) -> int:
        """Disk that one position takes."""
        return 2 * hidden_size * len(layers)


def layers_to_read(depth: int) -> tuple[int, ...]:
    """The states that drafters of a target with so many layers read: a low, a high and the final one."""
    quarter = max(1, depth // 4)
    return tuple(sorted({quarter, min(3 * quarter, depth - 1), depth}))


def published_layers(depth: int) -> tuple[int, ...]:
    """The states that published EAGLE-3 drafters read, and the final one, which only training looks at.

    The final one has passed the target's last norm here; other engines hand it on before that norm, or not at all.
    """
    inner = {min(max(layer, 1), depth - 1) for layer in (2, depth // 2, depth - 3)}
    return (*sorted(inner), depth)


def cache_hidden(
    teacher: LlamaForCausalLM,
    rows: Sequence[Row],
    layers: Sequence[int],
    folder: Path,
    progress: ProgressCallback,
) -> HiddenStates:
    """Run the target once over all rows. What an earlier, interrupted call did is kept."""
    folder.mkdir(parents=True, exist_ok=True)
    positions, hidden = sum(len(row.token_ids) for row in rows), teacher.config.hidden_size
    done, mass = _resume(folder, teacher.config.vocab_size)
    arrays = {
        layer: np.lib.format.open_memmap(
            folder / f"state-{layer:03d}.npy", "r+" if done else "w+", np.int16, (positions, hidden)
        )
        for layer in layers
    }
    plan = batches(rows, CACHE_TOKENS)
    for number, batch in enumerate(plan[done:], start=done):
        for row, states, likely in _states(teacher, batch, layers):
            for layer, state in states.items():
                arrays[layer][row.start : row.start + len(row.token_ids)] = state
            mass += likely
        if number % 20 == 19 or number == len(plan) - 1:
            for array in arrays.values():
                array.flush()
            _checkpoint(folder, number + 1, mass)
        progress(Progress("read answers", (number + 1) / len(plan), f"{positions:,} positions"))
    return HiddenStates(arrays, mass)


@torch.inference_mode()
def _states(
    teacher: LlamaForCausalLM, batch: Sequence[Row], layers: Sequence[int]
) -> Iterator[tuple[Row, dict[int, np.ndarray], np.ndarray]]:
    """Each row's states as bf16 bits, and its words' summed probabilities."""
    token_ids = torch.from_numpy(padded(batch)).to(teacher.device)
    output = teacher.model(token_ids, use_cache=False, output_hidden_states=True)
    for index, row in enumerate(batch):
        end = len(row.token_ids)
        mass = torch.zeros(teacher.config.vocab_size, dtype=torch.float64, device=teacher.device)
        for piece in output.last_hidden_state[index, row.first : end].split(HEAD_ROWS):
            mass += F.linear(piece, teacher.lm_head.weight).float().softmax(-1).sum(0)
        states = {
            layer: output.hidden_states[layer][index, :end].view(torch.int16).cpu().numpy()
            for layer in layers
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
