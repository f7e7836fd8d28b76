"""Every error that a visitor may read has German words, whatever values are filled in."""

from __future__ import annotations

import ast
import itertools
import json
import re
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tiny_eagle3 import make, write_speculators

from specdemo.config.errors import UserError
from specdemo.config.settings import RunSettings
from specdemo.drafters.methods import METHODS, no_exact
from specdemo.files.store import check_space
from specdemo.models.networks.layouts.eagle3 import EAGLE3
from specdemo.models.networks.layouts.family import TargetFacts
from specdemo.models.networks.layouts.source import drafter_files
from specdemo.session.remote.engine import find_work
from specdemo.ui import words

ROOT = Path(__file__).parents[2]
ROOMS = ("session", "scenarios", "engine", "drafters", "ui", "trace", "cluster", "models")
# Errors of these are read in a terminal: there is no page yet, or none at all.
OUTSIDE = (
    "models/drafts/published/",
    "cluster/deployment.py",
    "drafters/memory/visit.py",
    "ui/serving.py",
    "ui/site.py",
    "ui/words/",
)
PARTS = ("message", "unharmed", "advice")
DATA = "\u27e6\u27e7"  # stands for a value that is filled in
MOST, DEPTH = 64, 6  # readings of one text; names that are followed, one behind the other

Scope = tuple[str, str]
"""A file and a function in it; "" for the file itself."""


class Errors:
    """The texts of all errors, read from the source.

    files: text by name
    values: what a name may stand for in a scope: what is assigned, what a function returns, and what it is called with
    """

    def __init__(self, files: dict[str, str]) -> None:
        self.kinds = {"UserError", "RunFailed"}
        self.calls: list[tuple[str, ast.Call, Scope]] = []
        self.parameters: dict[str, list[tuple[Scope, list[str]]]] = defaultdict(list)
        self.values: dict[tuple[Scope, str], list[tuple[ast.expr, Scope]]] = defaultdict(list)
        for name, text in files.items():
            self._read(ast.parse(text), (name, ""), "")
        for called, call, scope in self.calls:
            for inside, names in self.parameters[called]:
                passed = [*zip(names, call.args, strict=False)]
                passed += [(word.arg or "", word.value) for word in call.keywords]
                for name, value in passed:
                    self.values[inside, name].append((value, scope))

    def _read(self, node: ast.AST, scope: Scope, kind: str) -> None:
        """Note what a node and those below it say. kind: of error, within its class"""
        match node:
            case ast.ClassDef(name=name, bases=bases):
                kind = name if any(_name(base) == "UserError" for base in bases) else ""
                self.kinds |= {kind} - {""}
            case ast.FunctionDef(name=name, args=arguments):
                scope = (scope[0], name)
                names = [one.arg for one in (*arguments.args, *arguments.kwonlyargs)]
                self.parameters[name].append((scope, [one for one in names if one != "self"]))
            case ast.Return(value=ast.expr() as value):
                self.values[(scope[0], ""), scope[1]].append((value, scope))
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                for one, value in zip(names, values, strict=False):
                    self.values[scope, _name(one)].append((value, scope))
            case (
                ast.Assign(targets=[target], value=value)
                | ast.AnnAssign(target=target, value=ast.expr() as value)
            ):
                self.values[scope, _name(target)].append((value, scope))
            case ast.Call(func=func):
                own = kind if _name(func) == "__init__" else ""  # super().__init__
                self.calls.append((own or _name(func), node, scope))
        for child in ast.iter_child_nodes(node):
            self._read(child, scope, kind)

    def texts(self) -> Iterator[tuple[str, str]]:
        """(where, text) of each message, of what is unharmed and of each advice."""
        for kind, call, scope in self.calls:
            if kind in self.kinds:
                parts = call.args[1:] if kind == "RunFailed" else call.args[:1]
                parts += [word.value for word in call.keywords if word.arg in PARTS]
                for part in parts:
                    for text in self.readings(part, scope, DEPTH):
                        yield f"{scope[0]}:{call.lineno}", text

    def readings(self, node: ast.AST, scope: Scope, depth: int) -> list[str]:
        """How an expression may read; DATA for what the source does not tell."""
        match node:
            case ast.Constant(value=str(text)):
                return [text]
            case ast.JoinedStr(values=parts):
                ways = itertools.product(*(self.readings(one, scope, depth) for one in parts))
                return ["".join(way) for way in itertools.islice(ways, MOST)]
            case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
                found = self.readings(value, scope, depth)
                if not any(" " in text for text in found):
                    return [DATA]
                return [text if " " in text or not text else DATA for text in found]
            case ast.IfExp(body=one, orelse=other):
                return [*self.readings(one, scope, depth), *self.readings(other, scope, depth)]
            case ast.Name(id=name) | ast.Call(func=ast.Name(id=name)) if depth:
                values = self.values[scope, name] or self.values[(scope[0], ""), name]
                ways = [self.readings(value, at, depth - 1) for value, at in values]
                return list(dict.fromkeys(itertools.chain(*ways))) or [DATA]
        return [DATA]


def _name(node: ast.AST) -> str:
    return getattr(node, "id", getattr(node, "attr", ""))


def sources() -> dict[str, str]:
    """The files whose errors the page shows, by name."""
    package = ROOT / "specdemo"
    paths = [
        package / "settings.py",
        *(one for room in ROOMS for one in (package / room).rglob("*.py")),
    ]
    names = {path.relative_to(package).as_posix(): path for path in sorted(paths)}
    return {
        name: path.read_text(encoding="utf-8")
        for name, path in names.items()
        if not name.startswith(OUTSIDE)
    }


SCRIPT = """
import { text } from "node:stream/consumers";
import { translator } from "./assets/view/page/language.js";
const { table, asked } = JSON.parse(await text(process.stdin));
console.log(JSON.stringify(asked.map(translator(table).sentence)));
"""


def said(table: dict[str, str], asked: list[str]) -> list[str]:
    """Texts as the page translates them with a table."""
    done = subprocess.run(
        ["node", "--input-type=module", "-e", SCRIPT],
        input=json.dumps({"table": table, "asked": asked}),
        cwd=ROOT,
        capture_output=True,
        check=True,
        encoding="utf-8",
    )
    return list(json.loads(done.stdout))


def test_an_error_is_found_however_its_text_is_made() -> None:
    here = """
REST = "Choose another."
class Full(UserError):
    def __init__(self, name):
        super().__init__(f"{name} is full.", advice=REST)
def check(ok, what):
    why = "it is too large" if ok else f"it has {ok} parts"
    raise UserError(f"No {what}, as {why}.", unharmed=rest(what))
def rest(what):
    return f"All but {what} works."
"""
    there = 'check(1, "word of 4 letters")'
    what = "word of 4 letters"
    assert [text for _, text in Errors({"here.py": here, "there.py": there}).texts()] == [
        f"{DATA} is full.",
        "Choose another.",
        f"No {what}, as it is too large.",
        f"No {what}, as it has {DATA} parts.",
        f"All but {what} works.",
    ]


@pytest.mark.skipif(not shutil.which("node"), reason="no node")
def test_every_error_is_in_the_words() -> None:
    found = [(where, text) for where, text in Errors(sources()).texts() if re.search(r"\w", text)]
    assert len(found) > 200  # else they are no longer found
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
    """Values are filled in, and several sentences of an error stand in one text."""

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
def test_why_a_method_is_not_exact_is_german_with_its_title() -> None:
    asked = [str(no_exact(METHODS[name], rows)) for name, rows in (("tree", 3), ("ngram", 1))]
    assert asked[0].startswith("Tree has no exact mode on this graphics card: ")
    tree, chain = said(words.translations("de"), asked)
    assert tree.startswith("Baum hat auf dieser Grafikkarte keinen bitgenauen Modus: ")
    assert tree.endswith("Ein Verfahren wählen, das Ketten entwirft, oder den Modus weglassen.")
    assert chain.startswith("Auf dieser Grafikkarte gibt es keinen bitgenauen Modus: Ein Durchlauf")


@pytest.mark.skipif(not shutil.which("node"), reason="no node")
@pytest.mark.parametrize("language", words.languages())
def test_no_text_is_taken_for_another(language: str) -> None:
    """A text is recognised by its own words, whatever values are filled in."""
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


@pytest.mark.skipif(not shutil.which("node"), reason="no node")
def test_a_drafter_of_another_target_is_refused_in_german(tmp_path: Path) -> None:
    """With the reason, and with what it was made for."""
    folder = write_speculators(tmp_path / "eagle", make())
    refused = []
    for target in (TargetFacts("tiny", 99, 64, 8), TargetFacts("tiny", 32, 65, 8)):
        with pytest.raises(UserError) as error:
            EAGLE3.read(drafter_files(str(folder), tmp_path), target)
        refused.append(str(error.value))
    states, words_said = said(words.translations("de"), refused)
    assert states.startswith(
        "Der Entwerfer eagle ist nicht für tiny: er liest Zustände aus 32 Zahlen, und die dieses Zielmodells haben 99."
    )
    assert "Er wurde für owner/made-for-this gemacht. Es wurden keine Gewichte gelesen." in states
    assert "er spricht ein Vokabular von 64 Token, und dieses Zielmodell hat 65." in words_said
