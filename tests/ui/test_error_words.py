"""Every error that a visitor may read is found in the page's table of texts, with whatever it fills in."""

from __future__ import annotations

import ast
import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from specdemo.cluster.engine import find_work
from specdemo.errors import UserError
from specdemo.models.files.store import check_space
from specdemo.settings import RunSettings
from specdemo.ui import words

ROOT = Path(__file__).parents[2]
ROOMS = ("session", "scenarios", "engine", "drafters", "ui", "trace", "cluster", "models")
# What whoever starts the program reads in a terminal, before there is a page or without one.
OUTSIDE = (
    "models/drafts/published/",
    "cluster/deployment.py",
    "drafters/memory/visit.py",
    "ui/serving.py",
    "ui/site.py",
)
PARTS = ("message", "unharmed", "advice")
DATA = "\u27e6\u27e7"  # stands for what is filled in: no letter of it
MOST, DEPTH = 64, 6  # ways to fill in one text; functions that it passes through


class Module:
    """A file of the package, with what its names stand for.

    inside: the function around a call; calls: (name, call) of each, `super().__init__` by its class's kind
    """

    def __init__(self, path: Path) -> None:
        self.name = path.relative_to(ROOT / "specdemo").as_posix()
        self.tree = ast.parse(path.read_text(encoding="utf-8"))
        self.inside: dict[ast.Call, ast.FunctionDef | None] = {}
        self.calls: list[tuple[str, ast.Call]] = []
        self.kinds: set[str] = set()
        self._walk(self.tree, None, "")

    def _walk(self, node: ast.AST, function: ast.FunctionDef | None, kind: str) -> None:
        match node:
            case ast.FunctionDef():
                function = node
            case ast.ClassDef(name=name, bases=bases):
                kind = "UserError" if any(_name(base) == "UserError" for base in bases) else ""
                self.kinds |= {name} if kind else set()
            case ast.Call(func=func):
                name = _name(func)
                self.calls.append((kind if kind and name == "__init__" else name, node))
                self.inside[node] = function
        for child in ast.iter_child_nodes(node):
            self._walk(child, function, kind)

    def values(self, name: str, function: ast.FunctionDef | None) -> list[ast.expr]:
        """What a name is set to: within the function, else in the module."""
        within = [] if function is None else list(_set(ast.walk(function), name))
        return within or list(_set(self.tree.body, name))


def _name(node: ast.AST) -> str:
    return (
        node.id
        if isinstance(node, ast.Name)
        else node.attr
        if isinstance(node, ast.Attribute)
        else ""
    )


def _set(nodes: Iterator[ast.AST] | list[ast.stmt], name: str) -> Iterator[ast.expr]:
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and target.id == name:
                    yield node.value
                elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    for one, value in zip(target.elts, node.value.elts, strict=False):
                        if isinstance(one, ast.Name) and one.id == name:
                            yield value
        elif isinstance(node, ast.AnnAssign) and _name(node.target) == name and node.value:
            yield node.value


class Errors:
    """The texts of errors as they are written, with all that is known of what is filled in."""

    def __init__(self, modules: list[Module]) -> None:
        self.modules = modules
        self.called: dict[str, list[tuple[Module, ast.Call]]] = {}
        for module in modules:
            for name, call in module.calls:
                self.called.setdefault(name, []).append((module, call))
        self.kinds = {"UserError", "RunFailed"}.union(*(module.kinds for module in modules))

    def texts(self) -> Iterator[tuple[str, str]]:
        """(where, text)"""
        for kind in sorted(self.kinds):
            for module, call in self.called.get(kind, ()):
                first = call.args[1:] if kind == "RunFailed" else call.args[:1]
                parts = [*first, *(word.value for word in call.keywords if word.arg in PARTS)]
                for part in parts:
                    for text in self.says(part, module, module.inside[call], DEPTH):
                        yield f"{module.name}:{call.lineno}", text

    def says(
        self, node: ast.expr, module: Module, function: ast.FunctionDef | None, depth: int
    ) -> list[str]:
        """Ways in which an expression may read; DATA for what is not written in the program."""
        match node:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.JoinedStr(values=values):
                parts = [self._part(one, module, function, depth) for one in values]
                ways = itertools.islice(itertools.product(*parts), MOST)
                return ["".join(way) for way in ways]
            case ast.IfExp(body=body, orelse=other):
                return [
                    text
                    for one in (body, other)
                    for text in self.says(one, module, function, depth)
                ]
            case ast.Name(id=name) if depth:
                return self._named(name, module, function, depth - 1)
            case ast.Call(func=ast.Name(id=name)) if depth:
                return [
                    text
                    for made in module.tree.body
                    if isinstance(made, ast.FunctionDef) and made.name == name
                    for end in made.body[-1:]
                    if isinstance(end, ast.Return) and isinstance(end.value, ast.JoinedStr)
                    for text in self.says(end.value, module, made, depth - 1)
                ] or [DATA]
        return [DATA]

    def _part(
        self, node: ast.expr, module: Module, function: ast.FunctionDef | None, depth: int
    ) -> list[str]:
        match node:
            case ast.FormattedValue(value=ast.Name(id=name)) if name.isupper():
                return [DATA]
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                says = self.says(value, module, function, depth)
                return [text if " " in text or not text else DATA for text in says]
            case ast.Constant():
                return [str(node.value)]
        return [DATA]

    def _named(
        self, name: str, module: Module, function: ast.FunctionDef | None, depth: int
    ) -> list[str]:
        found = [
            text
            for value in module.values(name, function)
            for text in self.says(value, module, function, depth)
        ]
        if not found and function and name in (given := [one.arg for one in function.args.args]):
            for where, call in self.called.get(function.name, ()):
                own = given.index(name) - (given[0] == "self")
                passed = {word.arg: word.value for word in call.keywords}
                value = call.args[own] if own < len(call.args) else passed.get(name)
                if value is not None:
                    found += self.says(value, where, where.inside[call], depth)
        return list(dict.fromkeys(found)) or [DATA]


def _hands_on(function: ast.FunctionDef, call: ast.Call) -> bool:
    """Whether a function puts a text that it is given into a call."""
    given = {
        one.arg for one in function.args.args if one.annotation and _name(one.annotation) == "str"
    }
    return any(_name(node) in given for node in ast.walk(call) if isinstance(node, ast.Name))


def _modules() -> list[Module]:
    """The files that make errors, and those that hand texts to them."""
    package = ROOT / "specdemo"
    paths = [package / "settings.py"]
    paths += sorted(path for room in ROOMS for path in (package / room).rglob("*.py"))
    names = {path: path.relative_to(package).as_posix() for path in paths}
    texts = {
        path: path.read_text(encoding="utf-8")
        for path, name in names.items()
        if not name.startswith((*OUTSIDE, "ui/words/"))
    }
    found = {path: Module(path) for path, text in texts.items() if "UserError" in text}
    makers = {"UserError"}
    for _ in range(
        2
    ):  # those who make errors of a text that they are given, and those who hand it on
        makers |= {
            function.name
            for module in found.values()
            for name, call in module.calls
            if name in makers and (function := module.inside[call]) and _hands_on(function, call)
        }
    handed = re.compile(rf"\b(?:{'|'.join(makers)}|RunFailed)\(")
    return [
        found.get(path) or Module(path)
        for path, text in texts.items()
        if path in found or handed.search(text)
    ]


SCRIPT = """
import { text } from "node:stream/consumers";
import { translator } from "./assets/view/page/language.js";
const { table, asked } = JSON.parse(await text(process.stdin));
console.log(JSON.stringify(asked.map(translator(table).sentence)));
"""


def said(table: dict[str, str], asked: list[str]) -> list[str]:
    """Texts as the page shows them with a table."""
    done = subprocess.run(
        ["node", "--input-type=module", "-e", SCRIPT],
        input=json.dumps({"table": table, "asked": asked}),
        cwd=ROOT,
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    return list(json.loads(done.stdout))


@pytest.mark.skipif(not shutil.which("node"), reason="no node")
def test_every_error_is_in_the_words() -> None:
    found = [(where, text) for where, text in Errors(_modules()).texts() if re.search(r"\w", text)]
    assert len(found) > 150  # else they are no longer found
    english = [text for part in words.parts() for text in words.texts(part, "en").values()]
    only_filled_in = {text: "".join(re.findall(r"\{\w+\}", text)) for text in english}
    left = said(only_filled_in, [text for _, text in found])
    forgotten = {
        f"{where}: {text}"
        for (where, text), rest in zip(found, left, strict=True)
        if re.search(r"[A-Za-z]", rest)
    }
    assert not forgotten, "no pattern in ui/words/en/errors.py for\n" + "\n".join(sorted(forgotten))


@pytest.mark.skipif(not shutil.which("node"), reason="no node")
def test_errors_are_german_with_their_values(tmp_path: Path) -> None:
    """As they are raised, and joined as in a message that pops up."""

    def raised(get: Callable[[], object]) -> str:
        with pytest.raises(UserError) as error:
            get()
        return str(error.value)

    asked = [
        raised(lambda: RunSettings.from_values({"temperature": 9})),
        raised(lambda: RunSettings.from_values({"lookahead": 1 << 9999})),
        raised(lambda: find_work("os:system")),
        raised(lambda: check_space(tmp_path, 1 << 62, "Downloading owner/name")),
    ]
    wrong, long, work, full = said(words.translations("de"), asked)
    assert wrong == (
        "Der Wert von „Temperatur“ ist 9; er muss 0 oder eine Zahl zwischen 0.01 und 5 sein. "
        "Nichts ist gelaufen. Den Wert ändern und noch einmal starten."
    )
    assert "„Vorausschau“ ist eine Zahl mit 3010 Ziffern; er muss eine ganze Zahl zwischen" in long
    assert work == (
        "Dieser Rechner kennt die Arbeit nicht, die von ihm verlangt wird. "
        "Die Seite und ihre Rechner müssen dieselbe Version haben."
    )
    assert full.startswith("Der Download von owner/name braucht ")
    assert "Nichts Halbfertiges ist zurückgeblieben. Platz schaffen" in full


@pytest.mark.skipif(not shutil.which("node"), reason="no node")
@pytest.mark.parametrize("language", words.languages())
def test_no_text_is_taken_for_another(language: str) -> None:
    """Whatever is filled in, a text is known by its own words."""
    table = words.translations(language)
    named = {text: dict.fromkeys(re.findall(r"\{(\w+)\}", text)) for text in table}
    known = [text for text, names in named.items() if names and len(_own(text)) > 4]
    filled = [{name: f"\u27e6{n}\u27e7" for n, name in enumerate(named[text])} for text in known]
    shown = said(table, [_filled(text, values) for text, values in zip(known, filled, strict=True)])
    meant = [_filled(table[text], values) for text, values in zip(known, filled, strict=True)]
    wrong = {
        text: one for text, one, other in zip(known, shown, meant, strict=True) if one != other
    }
    assert not wrong


def _own(text: str) -> str:
    return re.sub(r"\{\w+\}|\W", "", text, flags=re.ASCII)


def _filled(text: str, values: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda name: values[name[1]], text)
