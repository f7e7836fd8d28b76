"""Frozen settings of a run and of the program; limits, defaults and the SPECDEMO_* environment."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from specdemo.errors import UserError

PRECISIONS = ("nf4", "int8", "bf16", "fp32")
POLICIES = ("constant", "heuristic", "confidence", "learned", "cost")
MAX_LOOKAHEAD = 32
MAX_NODES = 64
MAX_DETAIL = 20
MAX_NEW_TOKENS = 4096


@dataclass(frozen=True, slots=True)
class Sampling:
    """How the target's next token is drawn. Temperature 0 is greedy; top_k 0 and top_p 1 are off."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0

    @property
    def greedy(self) -> bool:
        """Whether the likeliest token is always taken."""
        return self.temperature == 0


@dataclass(frozen=True, slots=True)
class RunSettings:
    """Everything that a visitor can choose for one run.

    lookahead: tokens drafted a step (constant), at first (heuristic) or at most (the others); depth of a tree
    threshold: `confidence` stops after a drafted token less likely than this
    nodes: most drafted tokens in one tree
    memory: learn from the target's verdicts and from this visitor's earlier texts
    fallback: stop drafting while it measurably loses against plain decoding, and probe again
    detail: alternatives of both models to record at each place that a step reaches; 0 records none
    baseline: also run plain decoding of the same prompt, for a measured speedup
    """

    method: str = "auto"
    policy: str = "cost"
    lookahead: int = 8
    threshold: float = 0.4
    nodes: int = 12
    memory: bool = True
    fallback: bool = True
    baseline: bool = True
    max_new_tokens: int = 128
    detail: int = 0
    sampling: Sampling = Sampling()

    def checked(self) -> RunSettings:
        """Return self, or raise UserError naming the value that is out of range and its range."""
        _check("lookahead", self.lookahead, 1, MAX_LOOKAHEAD)
        _check("confidence threshold", self.threshold, 0, 1)
        _check("tree nodes", self.nodes, 1, MAX_NODES)
        _check("maximum tokens", self.max_new_tokens, 1, MAX_NEW_TOKENS)
        _check("detail", self.detail, 0, MAX_DETAIL)
        _check("temperature", self.sampling.temperature, 0, 5)
        _check("top-k", self.sampling.top_k, 0, 1_000_000)
        _check("top-p", self.sampling.top_p, 0.01, 1)
        _check("repetition penalty", self.sampling.repetition_penalty, 0.5, 3)
        _check("seed", self.sampling.seed, 0, 2**63 - 1)
        if self.policy not in POLICIES:
            raise UserError(
                f"There is no lookahead policy {self.policy!r}.",
                advice=f"Choose one of {', '.join(POLICIES)}.",
            )
        return self

    def to_dict(self) -> dict[str, object]:
        """Plain values, as they stand in a trace header."""
        return asdict(self)


def _check(name: str, value: float, low: float, high: float) -> None:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not low <= value <= high:  # a NaN fails both comparisons
        raise UserError(
            f"The {name} is {value!r}; it must lie between {low} and {high}.",
            advice="Change it and run again.",
        )


@dataclass(frozen=True, slots=True)
class AppSettings:
    """What the program is started with. `target` and `draft` are catalogue names, hub ids, folders or GGUF files.

    draft "auto" is the catalogue's partner of the target; device "auto" takes CUDA when there is one.
    store: folder of the datastore that `retrieval` reads; "auto" is the one shipped for the target
    trained: folder with a folder for each kind of trained drafter; "auto" is what is shipped for the target
    replay: load no model; recorded runs alone are shown
    """

    target: str = "smollm2-135m-instruct"
    draft: str = "auto"
    precision: str = "nf4"
    device: str = "auto"
    threads: int = 0  # 0: every core
    cache_dir: Path = Path.home() / ".cache" / "specdemo"
    host: str = "127.0.0.1"
    port: int = 7860
    store: str = "auto"
    trained: str = "auto"
    replay: bool = False

    @classmethod
    def from_environment(cls, **overrides: object) -> AppSettings:
        """Defaults, then SPECDEMO_TARGET, _DRAFT, _STORE, _TRAINED, _PRECISION, _DEVICE, _THREADS, _CACHE, _HOST, _PORT, _REPLAY, then overrides."""
        env = os.environ
        settings = cls()
        texts = {
            name: env[f"SPECDEMO_{name.upper()}"]
            for name in ("target", "draft", "store", "trained", "precision", "device", "host")
            if env.get(f"SPECDEMO_{name.upper()}")
        }
        numbers = {}
        for name in ("threads", "port"):
            if text := env.get(f"SPECDEMO_{name.upper()}"):
                if not text.isdigit():
                    raise UserError(
                        f"SPECDEMO_{name.upper()} is {text!r}; it must be a whole number."
                    )
                numbers[name] = int(text)
        paths = {"cache_dir": Path(env["SPECDEMO_CACHE"])} if env.get("SPECDEMO_CACHE") else {}
        switches = {"replay": True} if env.get("SPECDEMO_REPLAY", "0") not in ("", "0") else {}
        if "host" not in texts and env.get("SPACE_ID"):
            texts["host"] = "0.0.0.0"  # noqa: S104 - a Space serves its container's port
        given = {name: value for name, value in overrides.items() if value is not None}
        settings = replace(settings, **{**texts, **numbers, **paths, **switches, **given})
        if settings.precision not in PRECISIONS:
            raise UserError(
                f"There is no precision {settings.precision!r}.",
                advice=f"Choose one of {', '.join(PRECISIONS)}.",
            )
        return settings
