"""Data that ships with the page: examples, recorded runs, script and style."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

ASSETS: Final = Path(__file__).resolve().parents[2] / "assets"
VIEW: Final = ASSETS / "view"
# Each after those it imports.
SCRIPTS: Final = (
    "dom", "symbols", "lines", "metrics", "reducer", "player",
    "text", "popover", "strip", "numbers", "charts", "status", "view",
)  # fmt: skip
_IMPORT: Final = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT: Final = re.compile(r"^export (async function|function|class|const) (\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Example:
    """A prompt to try. `temperature` None leaves the control as it is."""

    title: str
    prompt: str
    suits: str = ""
    temperature: float | None = None


@cache
def examples() -> tuple[Example, ...]:
    """The prompts of assets/examples.json, in order."""
    data = json.loads((ASSETS / "examples.json").read_text(encoding="utf-8"))
    return tuple(Example(**item) for item in data)


def recorded_run() -> str:
    """The first recorded run as JSON lines; empty when none was shipped."""
    files = sorted((ASSETS / "runs").glob("*.jsonl"))
    return files[0].read_text(encoding="utf-8") if files else ""


@cache
def script() -> str:
    """The modules of assets/view as one script that defines `modules`, by name."""
    parts = ["const modules = {};"]
    for name in SCRIPTS:
        source = (VIEW / f"{name}.js").read_text(encoding="utf-8")
        exported = [match[1] for match in _EXPORT.findall(source)]
        body = _EXPORT.sub(r"\1 \2", _IMPORT.sub(r"const \1 = modules.\2;", source))
        parts.append(f"modules.{name} = (() => {{\n{body}\nreturn {{ {', '.join(exported)} }};\n}})();")
    return "\n".join(parts)
