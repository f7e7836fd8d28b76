"""Settings of a run and of the program: types and defaults here, ranges, flags, widgets, links and variables in `settings.toml`."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_type_hints

from specdemo.config.errors import Phrase, UserError
from specdemo.config.strings import Json

ROWS: Mapping[str, Json] = tomllib.loads(
    Path(__file__).with_name("settings.toml").read_text(encoding="utf-8")
)
PRECISIONS, POLICIES = tuple(ROWS["precision"]["choices"]), tuple(ROWS["policy"]["choices"])
MAX_LOOKAHEAD: int = ROWS["lookahead"]["high"]
# Names of earlier versions, in links, saved settings and command lines, and the settings that replace them.
REPLACED: Mapping[tuple[str, object], Mapping[str, str]] = {
    ("method", "plain"): {"method": "nothing"},
    ("method", "composite"): {"method": "auto"},
    ("method", "medusa_static"): {"method": "medusa", "policy": "constant"},
    ("policy", "learned"): {"policy": "cost"},
}
RETIRED = {"stand_in"}  # settings of earlier versions without effect
OWN, RECOMMENDED, GREEDY = "own", "recommended", "greedy"
AUTHORS, PROJECT = "authors", "project"  # origin of recommended sampling
TOKEN, BLOCK, COUPLED = "token", "block", "coupled"  # rules of verification when sampling
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
    group: drafting, sampling, answer, model, files, page or visitors; order of a command's options and of the widgets
    help: one clause without a full stop, for `--help` and the documentation
    low, high: the range, both ends included; None where there is none
    least: values between the low end and this are refused; None if all are possible
    choices: the only values that are possible; empty for any
    public: the default on a page that others reach, see `AppSettings.public`; None where it is the same
    flag: on the command line, with `--no-...` for what is on by default; "" for none
    link: name in links to the page; "" if links do not contain it
    widget: None if the page has no component for it
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

    def check(self, value: object, name: str = "") -> None:
        """Raises UserError, naming the setting and its range, for a value that it cannot have.

        name: of a program's setting in the message; "" for its own
        """
        if self.kind in (int, float):
            kinds = (int,) if self.kind is int else (int, float)
            right = isinstance(value, kinds) and not isinstance(value, bool)
            if right and self.low is not None and self.high is not None:
                right = self.low <= value <= self.high  # type: ignore[operator]  # NaN fails both
                right = right and (self.least is None or not self.low < value < self.least)  # type: ignore[operator]
        else:
            right = isinstance(value, self.kind) and (not self.choices or value in self.choices)
        if right:
            return
        shown, known = _shown(value), self.range
        if self.group in RUN_GROUPS:
            label = Phrase(f"label.{self.name}")
            raise UserError("setting.wrong_for_run", label=label, value=shown, range=known)
        raise UserError("cli.wrong_setting", name=name or self.name, value=shown, range=known)

    def taken(self, value: object, name: str = "") -> Any:
        """Return a plain value as the setting's own type: 8.0 is 8 for a whole number. Raises UserError."""
        if self.kind is int and isinstance(value, float) and value.is_integer():
            value = int(value)
        self.check(value, name)
        return float(value) if self.kind is float else value  # type: ignore[arg-type]

    def read(self, text: str) -> Any:
        """Return the value of an environment variable's text. Raises UserError."""
        if self.kind is bool:
            return text != "0"
        if self.kind is Path:
            return Path(text)
        value: object = text
        if self.kind is int:
            with suppress(ValueError):  # `check` refuses the text
                value = int(text)
        return self.taken(value, self.variable)


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


@dataclass(frozen=True, slots=True)
class Sampling:
    """Settings of sampling from the target. Temperature 0 is greedy; top_k 0 and top_p 1 are off."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int = 0

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

    method: str = "auto"
    policy: str = "cost"
    lookahead: int = 8
    threshold: float = 0.4
    nodes: int = 12
    memory: bool = True
    fallback: bool = True
    baseline: bool = True
    exact: bool = False
    max_new_tokens: int = 128
    detail: int = 0
    preset: str = OWN
    verification: str = COUPLED
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
        """Return the value of a setting by its name, including those of `sampling`."""
        return getattr(self.sampling if name in _names(Sampling) else self, name)

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
        for name in set(flat) & RETIRED:
            del flat[name]
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

    target: str = "smollm2-135m-instruct"
    draft: str = "auto"
    store: str = "auto"
    trained: str = "auto"
    drafter: str = "none"
    precision: str = "auto"
    head: str = "auto"
    device: str = "auto"
    threads: int = 0
    cache_dir: Path = _CACHE
    host: str = "127.0.0.1"
    port: int = 7860
    replay: bool = False
    mcp: bool = False
    runs_at_once: int = 8
    runs_per_visitor: int = 8
    waiting_visitors: int = 32
    cache_mb: int = 1024
    idle_minutes: int = 60
    races_at_once: int = 1
    prompt_tokens: int = 0
    answer_tokens: int = 4096
    batch_prompts: int = 16
    upload_mb: int = 16
    runs_a_minute: int = 0
    allow_model_switch: str = "catalogue"
    allowed_hosts: str = ""

    cluster: str = ""
    replicas: int = 1
    most_replicas: int = 0

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
            usual: Json = {"flag": "--" + item.name.replace("_", "-")}
            if settings is AppSettings:
                usual["variable"] = f"SPECDEMO_{item.name.upper()}"
            else:
                usual["link"] = item.name
            known = {"name": item.name, "kind": kinds[item.name], "default": item.default}
            known |= usual | ROWS[item.name]
            if "widget" in known:
                known["widget"] = Widget(**known["widget"])
            rows.append(Setting(**known | {"choices": tuple(known.get("choices", ()))}))
    return tuple(rows)


@cache
def _names(settings: type) -> frozenset[str]:
    return frozenset(setting.name for setting in fields(settings))


def field(name: str, settings: type = RunSettings) -> Setting:
    """Return the row of one setting. Raises KeyError for another name."""
    for setting in fields(settings):
        if setting.name == name:
            return setting
    raise KeyError(name)


def widget_order() -> tuple[str, ...]:
    """Return the names of the settings on the page in their order: visible ones first, by group."""
    shown = [(setting, setting.widget) for setting in fields() if setting.widget]
    shown.sort(key=lambda pair: (pair[1].folded, GROUPS.index(pair[0].group)))
    return tuple(setting.name for setting, _ in shown)
