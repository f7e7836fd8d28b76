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
    """What holds for the compiled pass of some weights.

    agrees: with transformers' module; bits: of the head; divergence: measured where there was a choice
    seconds: of a pass of one row, and of the lean pass with bitsandbytes' fused kernel; None where that is no way
    """

    agrees: bool
    bits: int = 16
    divergence: Divergence | None = None
    seconds: tuple[float, float] | None = None

    @property
    def accepted(self) -> bool:
        """Whether the compiled pass is what runs."""
        return self.agrees and (self.seconds is None or self.seconds[0] <= self.seconds[1])


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
            compiled, fused = found["seconds"] or (0.0, 0.0)
            seconds = (float(compiled), float(fused)) if found["seconds"] else None
            return Verdict(bool(found["agrees"]), int(found["bits"]), divergence, seconds)
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
            of = {"of": self.weights}
            part.write_text(json.dumps({**asdict(verdict), **of}), encoding="utf-8")
            part.replace(file)
        except OSError:
            pass

    def _file(self, head: str) -> Path:
        code = runtime.digest(sorted(HERE.glob("*.py")))
        parts = [self.weights, head, code, *map(version, LIBRARIES)]
        name = hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]
        return self.folder / f"{name}.json"


def kept_seconds(folder: Path, name: str) -> tuple[float, float] | None:
    """What the newest verdict on the weights of this name says of both ways, see `Verdict`; None if there was only one."""
    found = []
    for file in folder.glob("*.json"):
        try:
            kept = json.loads(file.read_text(encoding="utf-8"))
            if kept["of"].split()[0] == name and kept["seconds"]:
                compiled, fused = map(float, kept["seconds"])
                found.append((file.stat().st_mtime, (compiled, fused)))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
            continue
    return max(found)[1] if found else None
