"""What was found out about the compiled pass of some weights, kept between starts: whether it agrees, and which head it has."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

from specdemo.kernels import runtime
from specdemo.models.decoders.heads import Divergence

HERE = Path(__file__).resolve().parent
LIBRARIES = ("torch", "transformers", "bitsandbytes")


@dataclass(frozen=True, slots=True)
class Verdict:
    """agrees: with transformers' module; bits: of the head; divergence: measured where there was a choice"""

    agrees: bool
    bits: int = 16
    divergence: Divergence | None = None


@dataclass(frozen=True, slots=True)
class Verdicts:
    """One file for each set of weights, wanted head, code and processor.

    weights: names the weights by their content; "" keeps nothing
    """

    folder: Path
    weights: str

    def read(self, head: str) -> Verdict | None:
        """None for what nobody has found out, and for a file that says nothing usable."""
        if not self.weights:
            return None
        try:
            found = json.loads(self._file(head).read_text(encoding="utf-8"))
            measured = found["divergence"]
            divergence = None if measured is None else Divergence(**measured)
            return Verdict(bool(found["agrees"]), int(found["bits"]), divergence)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write(self, head: str, verdict: Verdict) -> None:
        """Keep a verdict. A cache that cannot be written costs the same check at the next start."""
        if not self.weights:
            return
        file = self._file(head)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            part = file.with_suffix(".part")
            part.write_text(json.dumps(asdict(verdict)), encoding="utf-8")
            part.replace(file)
        except OSError:
            pass

    def _file(self, head: str) -> Path:
        code = runtime.digest(sorted(HERE.glob("*.py")))
        parts = [self.weights, head, code, *map(version, LIBRARIES)]
        name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
        return self.folder / f"{name}.json"
