"""Settings of a run and of the program: one table of ranges, defaults, flags, widgets, links and variables."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from specdemo.config.errors import Phrase, UserError
from specdemo.config.strings import Json

PRECISIONS = ("nf4", "file", "int8", "bf16", "fp32")
HEADS = ("auto", "16")
SWITCHES = ("off", "catalogue", "any")
POLICIES = ("constant", "heuristic", "confidence", "cost")
# Names of earlier versions, in links, saved settings and command lines, and the settings that replace them.
REPLACED: Mapping[tuple[str, object], Mapping[str, str]] = {
    ("method", "plain"): {"method": "nothing"},
    ("method", "composite"): {"method": "auto"},
    ("method", "medusa_static"): {"method": "medusa", "policy": "constant"},
    ("policy", "learned"): {"policy": "cost"},
}
OWN, RECOMMENDED, GREEDY = "own", "recommended", "greedy"
PRESETS = (RECOMMENDED, GREEDY, OWN)
AUTHORS, PROJECT = "authors", "project"  # origin of recommended sampling
TOKEN, BLOCK, COUPLED = "token", "block", "coupled"
VERIFICATIONS = (TOKEN, BLOCK, COUPLED)  # rules of verification when sampling
MAX_LOOKAHEAD = 32
MAX_NODES = 64
MAX_DETAIL = 20
MAX_NEW_TOKENS = 4096
LEAST_TEMPERATURE = (
    0.01  # smallest non-zero temperature: below it logits overflow, and sampling equals argmax
)
_CACHE = Path.home() / ".cache" / "specdemo"
_DIGITS = 20  # digits of a wrong number in a message, at most
_SHOWN = 60  # characters of a wrong value in a message


@dataclass(frozen=True, slots=True)
class Widget:
    """Component of a setting on the page.

    kind: dropdown, radio, slider, number or checkbox
    low, high, step: of a slider, which may offer less than the setting's range
    folded: under "More settings"
    begins: initial value on the page; None for the setting's default
    """

    kind: str
    low: float = 0
    high: float = 0
    step: float = 1
    folded: bool = False
    begins: object = None


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table: all facts of one setting.

    name: of the dataclass field; its strings have the same name
    kind: bool, int, float, str or Path
    group: drafting, sampling, answer, model, files, page or visitors; options of a command and widgets stand in this order
    help: one clause without a full stop, for `--help` and the documentation
    low, high: the range, both ends included; None where there is none
    least: what lies between the low end and this is refused; None where nothing is
    choices: the only values that are possible; empty for any
    public: the default on a page that others reach, see `AppSettings.public`; None where it is the same
    flag: on the command line, with `--no-...` for what is on by default; "" for none
    link: name in links to the page; "" for what links do not hold
    widget: None for what the page does not ask for
    variable: of the environment; "" for none
    """

    name: str
    kind: type
    default: Any
    group: str
    help: str
    low: float | None = None
    high: float | None = None
    least: float | None = None
    choices: tuple[str, ...] = ()
    public: Any = None
    flag: str = ""
    link: str = ""
    widget: Widget | None = None
    variable: str = ""

    @property
    def range(self) -> Phrase:
        """The possible values."""
        if self.choices:
            return Phrase("setting.one_of", names=", ".join(self.choices))
        if self.kind is bool:
            return Phrase("setting.true_or_false")
        if self.low is None or self.high is None:
            return Phrase("setting.text")
        if self.least is not None:
            return Phrase("setting.zero_or_number", low=_plain(self.least), high=_plain(self.high))
        code = "setting.whole_number" if self.kind is int else "setting.number"
        return Phrase(code, low=_plain(self.low), high=_plain(self.high))

    def check(self, value: object) -> None:
        """Raises UserError, naming the setting and its range, for a value that it cannot have."""
        if self.kind in (int, float):
            kinds = (int,) if self.kind is int else (int, float)
            right = isinstance(value, kinds) and not isinstance(value, bool)
            if right and self.low is not None and self.high is not None:
                right = self.low <= value <= self.high  # type: ignore[operator]  # NaN fails both
                right = right and (self.least is None or not self.low < value < self.least)  # type: ignore[operator]
        else:
            right = isinstance(value, self.kind) and (not self.choices or value in self.choices)
        if not right:
            code = "setting.wrong_for_run" if self.group in RUN_GROUPS else "setting.wrong"
            label = Phrase(f"label.{self.name}")
            raise UserError(code, label=label, value=_shown(value), range=self.range)

    def taken(self, value: object) -> Any:
        """A plain value as the setting's own type: 8.0 is 8 for a whole number. Raises UserError."""
        if self.kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        self.check(value)
        return float(value) if self.kind is float else value  # type: ignore[arg-type]

    def read(self, text: str) -> Any:
        """The text of an environment variable as a value. Raises UserError."""
        if self.kind is bool:
            return text != "0"
        if self.kind is Path:
            return Path(text)
        value: object = text
        if self.kind is int:
            try:
                value = int(text)
            except ValueError:  # `check` refuses the text
                value = text
        try:
            return self.taken(value)
        except UserError:
            raise UserError(
                "setting.wrong_variable",
                variable=self.variable,
                value=_shown(text),
                range=self.range,
            ) from None


RUN_GROUPS = ("drafting", "sampling", "answer")
GROUPS = (*RUN_GROUPS, "model", "files", "page", "visitors", "cluster")


def _plain(number: float) -> str:
    return f"{int(number):,}" if number == int(number) else str(number)


def _shown(value: object) -> str | Phrase:
    """Return a wrong value for an error message: short for any value."""
    if value is None:
        return Phrase("setting.empty")
    try:
        text = repr(value)
        if isinstance(value, int) and len(text) > _DIGITS:
            return Phrase("setting.digits", count=len(text))
    except (ValueError, RecursionError):  # a whole number of more digits than Python writes
        return Phrase("setting.far_out" if isinstance(value, int) else "setting.not_plain")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _row(default: object, group: str, about: str, **known: object) -> Any:
    """A dataclass field with a row of the table; name, type, flag and the name in links or of the variable follow from it."""
    row = {"group": group, "help": about, **known}
    return dataclasses.field(default=default, metadata={"row": row})


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings of sampling from the target. Temperature 0 is greedy; top_k 0 and top_p 1 are off."""

    temperature: float = _row(
        0.0, "sampling", "0 always takes the most likely token; higher is more varied",
        low=0, high=5, least=LEAST_TEMPERATURE, widget=Widget("slider", 0, 2, 0.05),
    )  # fmt: skip
    top_k: int = _row(
        0, "sampling", "draw from this many most likely tokens; 0 is off", low=0, high=1_000_000,
        widget=Widget("number", folded=True),
    )  # fmt: skip
    top_p: float = _row(
        1.0, "sampling", "draw from the most likely tokens that hold this probability together; 1 is off",
        low=0.01, high=1, widget=Widget("slider", 0.05, 1, 0.05, folded=True),
    )  # fmt: skip
    repetition_penalty: float = _row(
        1.0, "sampling", "make tokens that are already in the text less likely; 1 is off",
        low=0.5, high=3, link="penalty", widget=Widget("slider", 0.5, 2, 0.05, folded=True),
    )  # fmt: skip
    seed: int = _row(
        0, "sampling", "seed of the random numbers", low=0, high=2**63 - 1, widget=Widget("number", folded=True),
    )  # fmt: skip

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always chosen."""
        return self.temperature == 0


@dataclass(frozen=True, slots=True)
class Recommended:
    """Values of sampling for one model.

    origin: AUTHORS for those that its authors publish, PROJECT for those that this project chose, "" for none
    """

    sampling: Sampling = Sampling()
    origin: str = ""


# settings that a preset sets
PRESET_NAMES = ("temperature", "top_k", "top_p", "repetition_penalty")


@dataclass(frozen=True, slots=True)
class RunSettings:
    """All settings of one run; `help` of each row describes it."""

    method: str = _row(
        "auto", "drafting", "how tokens are drafted; `specdemo methods` lists them all", widget=Widget("dropdown"),
    )  # fmt: skip
    policy: str = _row(
        "cost", "drafting", "decides how many tokens a step drafts", choices=POLICIES, widget=Widget("dropdown"),
    )  # fmt: skip
    lookahead: int = _row(
        8, "drafting",
        "tokens drafted per step: always (constant), at first (heuristic) or at most (other policies); the depth of a tree",
        low=1, high=MAX_LOOKAHEAD, widget=Widget("slider", 1, MAX_LOOKAHEAD),
    )  # fmt: skip
    threshold: float = _row(
        0.4, "drafting", "the confidence policy stops after a drafted token less likely than this",
        low=0, high=1, widget=Widget("slider", 0, 1, 0.05, folded=True),
    )  # fmt: skip
    nodes: int = _row(
        12, "drafting", "drafted tokens in one tree, at most", low=1, high=MAX_NODES,
        widget=Widget("slider", 1, MAX_NODES),
    )  # fmt: skip
    memory: bool = _row(
        True, "drafting", "learn from earlier runs of the same visit", widget=Widget("checkbox"),
    )  # fmt: skip
    fallback: bool = _row(
        True, "drafting", "stop drafting while it is slower than plain decoding, and try again from time to time",
        widget=Widget("checkbox", folded=True),
    )  # fmt: skip
    baseline: bool = _row(
        True, "drafting", "run plain decoding beside it, for a measured speedup", widget=Widget("checkbox", folded=True),
    )  # fmt: skip
    stand_in: bool = _row(
        True, "drafting", "while others wait, compare with a recent plain run of another prompt",
        widget=Widget("checkbox", folded=True), flag="",
    )  # fmt: skip
    exact: bool = _row(
        False, "drafting",
        "greedy text is plain decoding's bit by bit: on a graphics card chains of so few tokens as loading has found exact, in the compiled pass any draft",
        widget=Widget("checkbox", folded=True),
    )  # fmt: skip
    max_new_tokens: int = _row(
        128, "answer", "length of the answer, at most", low=1, high=MAX_NEW_TOKENS, link="tokens",
        widget=Widget("slider", 8, 1024, 8),
    )  # fmt: skip
    detail: int = _row(
        0, "answer", "alternatives of both models that the trace records for each token",
        low=0, high=MAX_DETAIL, flag="", link="",
    )  # fmt: skip
    preset: str = _row(
        OWN, "sampling",
        "as the target's authors recommend, always the most likely token, or by the values below, which are greedy unless they are named",
        choices=PRESETS, link="sampling", flag="--sampling", widget=Widget("radio", begins=RECOMMENDED),
    )  # fmt: skip
    verification: str = _row(
        COUPLED, "sampling",
        "`coupled`: target and drafter draw with the same noise, so a seed gives the same text under every method; or judge a drafted chain token by token by rejection sampling, or as a block, which keeps at least as many tokens on average",
        choices=VERIFICATIONS, widget=Widget("radio"),
    )  # fmt: skip
    sampling: Sampling = Sampling()

    def checked(self) -> RunSettings:
        """Return self, or raise UserError naming the value that is out of range and its range."""
        for setting in fields(RunSettings):
            setting.check(self.value(setting.name))
        return self

    def drawn(self, recommended: Sampling) -> RunSettings:
        """Return settings with the preset's values. The seed stays. recommended: for the target"""
        if self.preset == OWN:
            return self
        values = recommended if self.preset == RECOMMENDED else Sampling()
        return replace(self, sampling=replace(values, seed=self.sampling.seed))

    def value(self, name: str) -> Any:
        """The value of a setting by its name, those of `sampling` included."""
        return getattr(self.sampling if name in _names(Sampling) else self, name)

    def values(self) -> Json:
        """Return plain values by name, including those of `sampling`: the input of `from_values`."""
        return {setting.name: self.value(setting.name) for setting in fields(RunSettings)}

    @classmethod
    def from_values(cls, values: Mapping[str, object]) -> RunSettings:
        """Return settings from plain values by name; the others have their defaults.

        values: unchecked, from the page, a link or a file. The values of `sampling` may be next to the others, or in a mapping
            of their own as `to_dict` writes them
        Raises UserError for the first impossible name or value.
        """
        flat = dict(values)
        nested = flat.pop("sampling", {})
        if not isinstance(nested, Mapping):
            raise UserError("setting.not_a_group", value=_shown(nested), names=_known_names())
        flat |= nested
        for name in list(flat):
            flat |= replacement(name, flat[name])
            if name not in _names(RunSettings):
                raise UserError("setting.unknown", name=_shown(name), names=_known_names())
        taken = {name: field(name).taken(value) for name, value in flat.items()}
        drawn = {name: taken.pop(name) for name in _names(Sampling) if name in taken}
        return cls(**taken, sampling=Sampling(**drawn))

    def to_dict(self) -> dict[str, object]:
        """Return plain values, as in a trace header."""
        return dataclasses.asdict(self)


def replacement(name: str, value: object) -> Mapping[str, str]:
    """Return the settings that replace a value of an earlier version; empty for every other value."""
    return REPLACED.get((name, value), {}) if isinstance(value, str) else {}


def _known_names() -> str:
    return ", ".join(setting.name for setting in fields(RunSettings))


@dataclass(frozen=True, slots=True)
class AppSettings:
    """Settings of the program; `help` of each row describes it. Those of visitors are wider on a page that is not public."""

    target: str = _row(
        "smollm2-135m-instruct", "model",
        "the model that decides: a catalogue name, a hub id, a local folder or a GGUF file; `auto` takes the largest of the catalogue that is on this disk, fits and answers at 15 tokens a second or more, as `app` does without a target",
    )  # fmt: skip
    draft: str = _row(
        "auto", "model",
        "the draft model, named in the same ways; `auto` is the catalogue's partner of the target, `none` is none",
    )  # fmt: skip
    store: str = _row(
        "auto", "model", "folder of the datastore that `retrieval` reads; `auto` is the shipped one, `none` is none",
    )  # fmt: skip
    trained: str = _row(
        "auto", "model",
        "folder with one subfolder per kind of trained drafter; `auto` is the shipped one, `none` is none",
    )  # fmt: skip
    drafter: str = _row(
        "none", "model",
        "a drafter that others have published for the target: a hub id, with @ and a revision if need be, or a local folder; `none` is none",
    )  # fmt: skip
    precision: str = _row(
        "nf4", "model", "precision of the target's weights; `file` computes with the blocks of a GGUF file as they are", choices=PRECISIONS,
    )  # fmt: skip
    head: str = _row(
        "auto", "model",
        "bits of the output head; `auto` uses 8 for a large head in the compiled pass if a measurement finds nearly the same distributions, else 16",
        choices=HEADS,
    )  # fmt: skip
    device: str = _row(
        "auto", "model", "`cpu`, `cuda` or `mps`; `auto` takes CUDA when there is one, and `mps` on a Mac for weights of 16 or 32 bits",
    )  # fmt: skip
    threads: int = _row(
        0, "model", "processor threads; 0 uses every core", low=0, high=4096,
    )  # fmt: skip
    cache_dir: Path = _row(  # noqa: RUF009 - it returns a dataclass field
        _CACHE, "files", "folder where downloaded and converted models are kept", variable="SPECDEMO_CACHE", flag="",
    )  # fmt: skip
    host: str = _row(
        "127.0.0.1", "page", "address to serve the page on; 0.0.0.0 lets other machines reach it",
    )  # fmt: skip
    port: int = _row(
        7860, "page", "port to serve the page on", low=0, high=65_535,
    )  # fmt: skip
    replay: bool = _row(
        False, "page", "load no model and show recorded runs only",
    )  # fmt: skip
    mcp: bool = _row(
        False, "page", "also offer the call `answer` to agents, as a tool of an MCP server; needs requirements-mcp.txt",
    )  # fmt: skip
    runs_at_once: int = _row(
        8, "visitors", "runs that share the model; further ones wait", low=1, high=256,
    )  # fmt: skip
    runs_per_visitor: int = _row(
        8, "visitors", "runs of one visitor at the same time while others wait",
        low=1, high=256, public=2,
    )  # fmt: skip
    waiting_visitors: int = _row(
        32, "visitors", "visitors who wait at the same time; further ones are asked to come back",
        low=1, high=10_000,
    )  # fmt: skip
    cache_mb: int = _row(
        1024, "visitors", "memory of all visitors' caches; those that were not used for longest are given back first",
        low=16, high=1_000_000,
    )  # fmt: skip
    idle_minutes: int = _row(
        60, "visitors", "a visitor's caches are given back after so long without a run",
        low=1, high=10_000, public=15,
    )  # fmt: skip
    races_at_once: int = _row(
        1, "visitors",
        "races, experiments and drafts side by side that go on at the same time; more than one disturbs what is timed",
        low=1, high=64,
    )  # fmt: skip
    prompt_tokens: int = _row(
        0, "visitors", "tokens of a prompt with its conversation; 0 is what the model can read",
        low=0, high=1_000_000, public=2048,
    )  # fmt: skip
    answer_tokens: int = _row(
        MAX_NEW_TOKENS, "visitors", "tokens of an answer, at most",
        low=1, high=MAX_NEW_TOKENS, public=1024,
    )  # fmt: skip
    batch_prompts: int = _row(
        16, "visitors", "prompts that are answered together, at most", low=1, high=256, public=8,
    )  # fmt: skip
    upload_mb: int = _row(
        16, "visitors", "size of a saved run that the page opens, and of anything that is sent to the server",
        low=1, high=1024,
    )  # fmt: skip
    runs_a_minute: int = _row(
        0, "visitors", "runs that one visitor may begin in a minute; 0 is no limit",
        low=0, high=10_000, public=20,
    )  # fmt: skip
    allow_model_switch: str = _row(
        "catalogue", "visitors",
        "what a visitor may load for everybody: nothing, a pair of the catalogue, or, where nobody else reaches the page, any model",
        choices=SWITCHES, public="off",
    )  # fmt: skip
    allowed_hosts: str = _row(
        "", "visitors",
        "names by which visitors call this page, separated by commas; addresses and this machine's own names need none, `*` is any name",
    )  # fmt: skip

    cluster: str = _row(
        "", "cluster",
        "run the engines as Ray Serve replicas: `local` starts Ray here, HOST:PORT or `auto` joins one that runs",
    )  # fmt: skip
    replicas: int = _row(
        1, "cluster", "engines on the cluster, at least", low=1, high=10_000,
    )  # fmt: skip
    most_replicas: int = _row(
        0, "cluster", "engines on the cluster when many visitors run, at most; 0 is as many as always",
        low=0, high=10_000,
    )  # fmt: skip

    @property
    def public(self) -> bool:
        """Whether others reach the page: it is served beyond this machine, under another name, or in a Space."""
        names = (name.strip() for name in self.allowed_hosts.split(","))
        elsewhere = not loopback(self.host) or any(name and not loopback(name) for name in names)
        return elsewhere or bool(os.environ.get("SPACE_ID"))

    @classmethod
    def from_environment(cls, **overrides: object) -> AppSettings:
        """Return settings from defaults, then environment variables, then overrides that are not None. Raises UserError.

        On a public page all other settings have their public defaults.
        """
        values: Json = {
            setting.name: setting.read(text)
            for setting in fields(AppSettings)
            if (text := os.environ.get(setting.variable))
        }
        if "host" not in values and os.environ.get("SPACE_ID"):
            values["host"] = "0.0.0.0"  # noqa: S104 - a Space serves its container's port
        given = {name: value for name, value in overrides.items() if value is not None}
        values |= given
        settings = replace(cls(), **values)
        if settings.public:
            limits = {row.name: row.public for row in fields(AppSettings) if row.public is not None}
            settings = replace(settings, **{**limits, **values})
        for setting in fields(AppSettings):
            setting.check(getattr(settings, setting.name))
        return settings


def loopback(host: str) -> bool:
    """Whether a host name or address is this machine's own."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@cache
def fields(settings: type = RunSettings) -> tuple[Setting, ...]:
    """Return the table of a settings class, in the order of its fields, with the rows of `sampling` in their position."""
    kinds = get_type_hints(settings)
    rows: list[Setting] = []
    for item in dataclasses.fields(settings):
        if item.name == "sampling":
            rows += fields(Sampling)
        else:
            usual = {"flag": "--" + item.name.replace("_", "-")}
            if settings is AppSettings:
                usual["variable"] = f"SPECDEMO_{item.name.upper()}"
            else:
                usual["link"] = item.name
            known = usual | item.metadata["row"]
            rows.append(
                Setting(name=item.name, kind=kinds[item.name], default=item.default, **known)
            )
    return tuple(rows)


@cache
def _names(settings: type) -> frozenset[str]:
    return frozenset(setting.name for setting in fields(settings))


def field(name: str, settings: type = RunSettings) -> Setting:
    """The row of one setting. Raises KeyError."""
    for setting in fields(settings):
        if setting.name == name:
            return setting
    raise KeyError(name)


def widget_order() -> tuple[str, ...]:
    """Return the names of the settings on the page in their order: visible ones first, by group."""
    shown = [(setting, setting.widget) for setting in fields() if setting.widget]
    shown.sort(key=lambda pair: (pair[1].folded, GROUPS.index(pair[0].group)))
    return tuple(setting.name for setting, _ in shown)
