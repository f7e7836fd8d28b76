"""Interface strings and errors: each language has those of English, with the same names to fill in."""

import ast
import pickle
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import pytest
from programs import ROOT

from specdemo.config import strings
from specdemo.config.errors import Phrase, UserError
from specdemo.config.strings import flat, load
from specdemo.session.door import Changed
from specdemo.trace.events import ModelInfo
from specdemo.ui import words

# Prompts are for the model, which speaks English; identifiers are for the program. Another language may lack them.
SAME = re.compile(r"^/(TITLE|BATCH_EXAMPLES|EXPLAIN)(/|$)|/shares/|/papers/|^/run.reported")
# English strings of methods, recorded runs and examples; another language may lack them.
ENTRIES = re.compile(r"^/VIEW/(methods|card/kinds|runs)/|^/(RUNS|EXAMPLES)/")
# Strings of the command line, which is English.
COMMANDS = re.compile(
    r"^/(bench|cli|servers|space|training)\.|^/(audit|doctor|import_problems)/|"
    r"^/(policy\.not_offered|trace\.(too_large|foreign|empty)|disk\.while_(training|writing))"
)
LANGUAGES = pytest.mark.parametrize("language", strings.languages())
PARTS = pytest.mark.parametrize("part", [*strings.parts(), "runs"])


def names(text: str) -> set[str]:
    return set(re.findall(r"\{\w*\}", text))


@LANGUAGES
@PARTS
def test_a_language_has_the_strings_of_english_and_their_names(part: str, language: str) -> None:
    english, other = words.texts(part, "en"), words.texts(part, language)
    patterns = (ENTRIES, COMMANDS, SAME)
    optional = {path for path in english if any(one.search(path) for one in patterns)}
    assert set(other) - set(english) <= {path for path in other if ENTRIES.search(path)}
    assert set(english) - set(other) <= optional, f"{language}/{part} lacks these"
    other = {path: other.get(path, text) for path, text in english.items()}
    assert not {path for path, text in english.items() if names(text) != names(other[path])}
    assert not {path for path, text in english.items() if bool(text) != bool(other[path])}
    long = {path for path, text in english.items() if len(text) > 40 and text == other[path]}
    assert not long - optional


def test_every_folder_of_words_is_an_offered_language(tmp_path, monkeypatch) -> None:
    """A third one needs nothing else: it is offered as far as it goes."""
    for language in ("en", "de"):
        (tmp_path / language).symlink_to(strings.WORDS / language)
    (tmp_path / "fr").mkdir()
    (tmp_path / "fr" / "page.json").write_text('{"RUN": "Lancer"}\n', encoding="utf-8")
    monkeypatch.setattr(strings, "WORDS", tmp_path)
    assert strings.languages() == ["de", "fr"]
    assert words.translations("fr") == {words.RUN: "Lancer"}


@LANGUAGES
def test_translations_give_one_english_text_one_meaning(language: str) -> None:
    meanings: dict[str, set[str]] = {}
    for part in strings.parts(language):
        english, other = words.texts(part, "en"), words.texts(part, language)
        for path, text in english.items():
            if not SAME.search(path) and path in other:
                meanings.setdefault(text, set()).add(other[path])
    assert {text: found for text, found in meanings.items() if len(found) > 1} == {}


@LANGUAGES
def test_translations_contain_all_parts(language: str, monkeypatch) -> None:
    table = words.translations(language)
    assert words.VIEW["status"]["rejected"] in table
    assert "Lessons" in table
    assert all(text != meaning for text, meaning in table.items())
    monkeypatch.setitem(words.VIEW["methods"], "echo", "echoing the last word")
    table = words.translations(language)
    assert "echoing the last word" not in table
    assert table[words.VIEW["methods"]["draft_model"]]


@LANGUAGES
def test_translations_contain_why_a_method_is_missing(language: str) -> None:
    """The sentences are made where models are loaded; the table has their very words."""
    from specdemo.models.networks.copy import no_copy_why
    from specdemo.models.pair import LoadedPair
    from specdemo.session.loaded import Loaded

    target = SimpleNamespace(info=SimpleNamespace(name="a-target"))
    pair = SimpleNamespace(drafts={}, no_draft_why="", target=target)
    found = [
        LoadedPair.missing(pair, "draft", "a draft model"),
        LoadedPair.missing(pair, "feature", "a feature drafter"),
        no_copy_why("4 bits"),
        Loaded.missing(SimpleNamespace(store=None), "store"),
    ]
    table = words.translations(language)
    shapes = [re.sub(r"\\\{\w+\\\}", ".+", re.escape(text)) for text in table]
    for sentence in found:
        assert any(re.fullmatch(shape, sentence) for shape in shapes), sentence


def test_gradios_own_controls_are_named_in_the_pages_language() -> None:
    source = Path(gr.__file__).parent / "templates" / "frontend" / "assets"
    scripts = "".join(path.read_text("utf-8", "replace") for path in source.glob("Index-*.js"))
    for text in words.GRADIO[:2]:
        assert text.removesuffix("{label}") in scripts
        assert text in words.translations("de")


def test_a_link_that_cannot_be_followed_says_what_to_do() -> None:
    """A class's link hides the controls: visitors can only request another."""
    assert "Ask whoever sent the link" in load("teach")["WORDS"]["unknown_value"]


def raised(tree: ast.AST) -> Iterator[tuple[str, set[str]]]:
    """Yield each code of an error or a phrase in a module, with the names of its values; {"*"} for unknown ones."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call) or not node.args:
            continue
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        if name in ("UserError", "Phrase", "Unreachable", "__init__", "told"):
            given = {word.arg or "*" for word in node.keywords}
            code = node.args[0]
            if isinstance(code, ast.JoinedStr) and isinstance(code.values[0], ast.Constant):
                yield f"{code.values[0].value}*", given
            elif isinstance(code, ast.Constant) and re.fullmatch(r"\w+(\.\w+)+", str(code.value)):
                yield str(code.value), given


def test_each_code_that_is_raised_has_sentences_with_its_values() -> None:
    known = load("errors")
    unused = set(known)
    for path in sorted((ROOT / "specdemo").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        for code, given in (
            raised(ast.parse(text)) if "UserError" in text or "Phrase" in text else ()
        ):
            found = [one for one in known if re.fullmatch(code.replace("*", ".+"), one)]
            assert found, f"{path.name} raises {code}, which errors.json lacks"
            unused -= set(found)
            for one in found:
                wanted = {name[1:-1] for _, part in flat(known[one]) for name in names(part)}
                assert "*" in {*given, code[-1]} or wanted == given, (path.name, one, wanted, given)
        unused -= {code for code in unused if f'"{code}"' in text}
    assert not unused, "nothing raises these"


# Errors whose first sentence already names the remedy, or which their user cannot change.
WITHOUT_ADVICE = {
    *("bench.out_of_time", "bench.too_slow", "bench.cuda_only", "page.not_begun", "page.no_switch"),
    *("page.wrong_value", "proposals.no_position", "race.lanes"),
    "run.not_recorded",
}


def test_each_error_has_advice() -> None:
    errors = {code: parts for code, parts in load("errors").items() if "message" in parts}
    assert {code for code, parts in errors.items() if not parts.get("advice")} == WITHOUT_ADVICE


def test_an_error_reaches_another_process_as_code_and_values() -> None:
    limit = Phrase("setting.number", low="1", high="2")
    error = UserError("setting.wrong_for_run", label=Phrase("label.seed"), value="9", range=limit)
    assert str(error) == (
        "The seed is 9; it must be a number between 1 and 2. Nothing was run. Change it and run again."
    )
    failed = UserError("run.failed", error=ValueError(threading.Lock()))  # which cannot be pickled
    for one in (error, failed, Changed(ModelInfo("a", precision="fp32"))):
        copy: UserError = pickle.loads(pickle.dumps(one))
        assert (type(copy), copy.code, copy.sentences) == (UserError, one.code, one.sentences)
        assert all(isinstance(value, Phrase | str) for value in copy.values.values())
