"""The card of a trained draft: what it was made from and how, how well it does, as values and as a README."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

TITLES = {
    "loss": "KL divergence from the target, nats a token",
    "greedy_agreement": "same likeliest word as the target, after greedy text",
    "greedy_agreement_all": "same likeliest word as the target, after any text",
    "overlap": "overlap with the target's distribution at temperature 1 (one minus total variation)",
    "coverage": "share of the target's probability that lies in the reduced vocabulary",
    "tokens": "held-out answer tokens",
    "prompts": "held-out prompts",
}


@dataclass(frozen=True, slots=True)
class Card:
    """Facts about one draft.

    target: the catalogue name or id of the model whose answers it learnt, and whose embedding it borrows
    precision: weights that the target answered with; layers: the target's layers that it began as
    data: a line for each source of answers; tokens_seen: prompt and answer tokens, every epoch counted
    results: measured on held-out prompts, keys as in TITLES
    losses, checks: (step, divergence in nats), the training's moving average and on held-out texts
    """

    target: str
    precision: str
    kind: str
    layers: tuple[int, ...]
    words: int
    data: tuple[str, ...]
    tokens_seen: int
    steps: int
    minutes: float
    seed: int
    results: Mapping[str, float] = field(default_factory=dict)
    recipe: Mapping[str, float | str] = field(default_factory=dict)
    losses: tuple[tuple[int, float], ...] = ()
    checks: tuple[tuple[int, float], ...] = ()
    machine: str = ""
    licence: str = "Apache-2.0"

    def to_dict(self) -> dict[str, object]:
        """Plain values, as they stand in config.json."""
        plain = asdict(self)
        plain["layers"], plain["data"] = list(self.layers), list(self.data)
        return plain


def describe_machine(device: str = "cpu") -> str:
    """The processor, or the graphics card, in words."""
    import torch

    if device.startswith("cuda"):
        return torch.cuda.get_device_name(device)
    name = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
    return f"{name}, {os.cpu_count()} logical cores"


def render(card: Card, parameters: int) -> str:
    """The README of a draft's folder."""
    title = f"Draft for {card.target}"
    lines = [
        "---", "license: apache-2.0", "library_name: specdemo", "---", "",
        f"# {title}", "",
        f"A small language model that drafts for `{card.target}` in speculative decoding: "
        f"{len(card.layers)} decoder layers ({parameters / 1e6:.1f} million parameters), the target's own "
        f"embedding, and an output head over the {card.words:,} words that the target says most. "
        "It is not meant to be used alone: the target checks every token.", "",
        "## Results on held-out prompts", "",
    ]  # fmt: skip
    if card.results:
        lines += ["| measure | value |", "|---|---:|"]
        lines += [
            f"| {TITLES.get(key, key)} | {_number(value)} |" for key, value in card.results.items()
        ]
    else:
        lines.append("Not measured.")
    lines += ["", "## Data", "", f"Answers of `{card.target}` ({card.precision} weights) to:", ""]
    lines += [f"- {line}" for line in card.data] or ["- not recorded"]
    lines += [
        "",
        "## Recipe",
        "",
        f"- started as layers {', '.join(map(str, card.layers))} of the target",
    ]
    lines += [f"- {key}: {value}" for key, value in card.recipe.items()]
    lines += [
        f"- {card.tokens_seen:,} tokens seen in {card.steps:,} steps, {card.minutes:.0f} minutes, seed {card.seed}",
        f"- machine: {card.machine or 'not recorded'}", "",
        "## Files", "",
        "`config.json` is a Llama configuration with one more key; the safetensors parts hold 8-bit matrices with a "
        "scale a row, and the ids of the output words. The embedding is read from the target.", "",
        "## Licence", "", f"{card.licence}.", "",
    ]  # fmt: skip
    return "\n".join(lines)


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
