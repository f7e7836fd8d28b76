"""How well a draft follows its target's whole distribution on prompts that it never saw."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from specdemo.training.data import Row, batches, padded, positions
from specdemo.training.teacher import HiddenStates, read_states

ROWS = 256


@torch.no_grad()
def evaluate(
    run: Callable[[Tensor], tuple[Tensor, Tensor]],
    rows: Sequence[Row],
    hidden: HiddenStates,
    embedding: Tensor,
    word_ids: Tensor,
    max_tokens: int,
) -> dict[str, float]:
    """Measures by name (see card.TITLES). embedding: (V, H) bf16; word_ids: (W,) int64, ascending

    A word outside the reduced vocabulary that the target likes best counts as a disagreement.
    """
    names = ("loss", "overlap", "coverage", "agree", "greedy", "greedy_tokens", "tokens")
    sums = dict.fromkeys(names, 0.0)
    for greedy in (True, False):
        chosen = [row for row in rows if (row.temperature == 0) == greedy]
        for batch in batches(chosen, max_tokens) if chosen else []:
            found = _compare(run, batch, hidden, embedding, word_ids)
            for name, value in found.items():
                sums[name] += value
            if greedy:
                sums["greedy"] += found["agree"]
                sums["greedy_tokens"] += found["tokens"]
    tokens = max(sums["tokens"], 1)
    results: dict[str, float] = {"loss": sums["loss"] / tokens}
    if sums["greedy_tokens"]:
        results["greedy_agreement"] = sums["greedy"] / sums["greedy_tokens"]
    results["greedy_agreement_all"] = sums["agree"] / tokens
    results |= {name: sums[name] / tokens for name in ("overlap", "coverage")}
    return results | {"tokens": int(sums["tokens"]), "prompts": len({row.key for row in rows})}


def _compare(
    run: Callable[[Tensor], tuple[Tensor, Tensor]],
    batch: Sequence[Row],
    hidden: HiddenStates,
    embedding: Tensor,
    word_ids: Tensor,
) -> dict[str, float]:
    """Sums over the answer positions of a batch."""
    device, head = embedding.device, embedding[word_ids]
    with torch.autocast(device.type, torch.bfloat16):
        final, _ = run(torch.from_numpy(padded(batch)).to(device))
    here, there = positions(batch, answers_only=True)
    states = final.flatten(0, 1)[torch.from_numpy(here).to(device)].to(torch.bfloat16)
    sums = dict.fromkeys(("loss", "overlap", "coverage", "agree"), 0.0)
    for mine, theirs in zip(
        states.split(ROWS), read_states(hidden.final, there, device).split(ROWS), strict=True
    ):
        draft_logs = F.linear(mine, head).float().log_softmax(-1)
        target_logits = F.linear(theirs, embedding).float()
        target_probs = target_logits.softmax(-1)[:, word_ids]
        wanted = target_logits[:, word_ids].log_softmax(-1)
        sums["loss"] += float((wanted.exp() * (wanted - draft_logs)).sum())
        sums["overlap"] += float(torch.minimum(target_probs, draft_logs.exp()).sum())
        sums["coverage"] += float(target_probs.sum())
        sums["agree"] += float((word_ids[draft_logs.argmax(-1)] == target_logits.argmax(-1)).sum())
    return sums | {"tokens": float(len(here))}
