"""A picture of a training: loss and held-out checks over steps, as an SVG that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from specdemo.training.card import Card

WIDTH, HEIGHT = 720, 340
LEFT, RIGHT, TOP, BOTTOM = 62, 684, 52, 288  # edges of the drawing inside the picture
FIGURES = (1, 1.5, 2, 3, 5, 7)  # of the axis of nats, times a power of ten
LEAST = 1e-3  # nats; a logarithm needs an end
# Both looks bring their own ground, so the picture is readable wherever it is shown.
STYLE = """
svg { font: 13px system-ui, sans-serif; --ground: #fff; --ink: #1c2126; --soft: #59626c;
  --line: #dcdcd6; --losses: #0072b2; --checks: #b8500a; }
@media (prefers-color-scheme: dark) { svg { --ground: #1b1f23; --ink: #e9e7e2; --soft: #a7b0b9;
  --line: #343a40; --losses: #56b4e9; --checks: #f08a4b; } }
.ground { fill: var(--ground); } .title { fill: var(--ink); font-weight: 700; } text { fill: var(--soft); }
.grid { stroke: var(--line); } polyline { fill: none; stroke-width: 2; }
.losses { stroke: var(--losses); } .checks { stroke: var(--checks); stroke-dasharray: 6 3; }
circle.checks { fill: var(--ground); stroke-width: 2; stroke-dasharray: none; }
"""

Pairs = Sequence[tuple[int, float]]


def write_plot(card: Card, path: Path) -> None:
    """Draw a card's losses and checks; a card without any gives empty axes."""
    path.write_text(draw(card), encoding="utf-8")


def draw(card: Card) -> str:
    """The SVG's text."""
    pairs = [*card.losses, *card.checks]
    steps = step_ticks(max((step for step, _ in pairs), default=1))
    nats = nat_ticks([value for _, value in pairs])

    def across(step: float) -> float:
        return LEFT + (RIGHT - LEFT) * step / steps[-1]

    def down(value: float) -> float:
        low, high = math.log(nats[0]), math.log(nats[-1])
        return BOTTOM - (BOTTOM - TOP) * (math.log(max(value, nats[0])) - low) / (high - low)

    def places(series: Pairs) -> list[tuple[float, float]]:
        return [(across(step), down(value)) for step, value in series]

    checks = places(card.checks)
    parts = [
        f'<rect class="ground" width="{WIDTH}" height="{HEIGHT}" rx="8"/>',
        _text(LEFT, 22, f"Training of the {card.kind} drafter for {card.target}", kind="title"),
        *(_level(down(value), f"{value:g}") for value in nats),
        *(_text(across(step), BOTTOM + 18, f"{step:,}", anchor="middle") for step in steps),
        _text(LEFT, 42, "loss, logarithmic"),
        _text((LEFT + RIGHT) / 2, BOTTOM + 38, "steps", anchor="middle"),
        _line("losses", places(card.losses)),
        _line("checks", checks),
        *(f'<circle class="checks" cx="{x:.1f}" cy="{y:.1f}" r="3.5"/>' for x, y in checks),
        *_key("losses", 430, "training"),
        *_key("checks", 560, "held out"),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="Training loss and held-out checks over steps"><style>{STYLE}</style>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def step_ticks(last: int) -> list[int]:
    """Round numbers from 0 to one not below `last`, about five of them."""
    rough = max(last, 1) / 5
    power = 10 ** math.floor(math.log10(rough))
    gap = max(1, round(next(figure * power for figure in (1, 2, 5, 10) if figure * power >= rough)))
    return list(range(0, last + gap, gap))


def nat_ticks(values: Sequence[float]) -> list[float]:
    """Round numbers on a logarithmic axis that enclose the values, at least two of them."""
    low, high = (max(LEAST, end(values, default=1.0)) for end in (min, max))
    powers = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    marks = [figure * 10.0**power for power in powers for figure in FIGURES]
    first = max(place for place, mark in enumerate(marks) if mark <= low)
    last = min(place for place, mark in enumerate(marks) if mark >= high)
    return marks[first : max(last, first + 1) + 1]


def _line(kind: str, places: Sequence[tuple[float, float]]) -> str:
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return f'<polyline class="{kind}" points="{points}"/>'


def _level(y: float, label: str) -> str:
    """A grid line and its label."""
    line = f'<line class="grid" x1="{LEFT}" x2="{RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return line + _text(LEFT - 8, y + 4, label, anchor="end")


def _key(kind: str, x: float, label: str) -> list[str]:
    return [
        f'<line class="{kind}" x1="{x}" x2="{x + 28}" y1="38" y2="38" stroke-width="2"/>',
        _text(x + 34, 42, label),
    ]


def _text(x: float, y: float, text: str, *, kind: str = "label", anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{kind}" {place}>{escape(text)}</text>'
