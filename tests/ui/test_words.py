"""Every language says everything that English says, with the same names to fill in, and one meaning for one text."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import gradio as gr
import pytest

from specdemo.config.errors import UserError
from specdemo.ui import words

# Prompts are for the model, which speaks English; identifiers are for the program.
SAME = re.compile(r"^/(TITLE|BATCH_EXAMPLES|EXPLAIN|POEM|PRESETS)(/|$)|/shares/|/papers/")
# What a method's own entry, a recorded run or an example says in English; another language may leave it so.
ENTRIES = re.compile(r"^/VIEW/(methods|card/kinds|runs)/|^/(RUNS|EXAMPLES)/")
LANGUAGES = pytest.mark.parametrize("language", words.languages())
PARTS = pytest.mark.parametrize("part", words.parts())


def names(text: str) -> list[str]:
    return sorted(re.findall(r"\{\w*\}", text))


@LANGUAGES
@PARTS
def test_a_language_has_the_texts_of_english_and_their_names(part: str, language: str) -> None:
    english, other = words.texts(part, "en"), words.texts(part, language)
    entries = {path for path in english if ENTRIES.search(path)}
    assert set(other) - set(english) <= {path for path in other if ENTRIES.search(path)}
    assert set(english) - set(other) <= entries, f"{language}{part} does not say these"
    other = {path: other.get(path, text) for path, text in english.items()}
    wrong = {path for path, text in english.items() if set(names(text)) != set(names(other[path]))}
    assert not wrong
    empty = {path for path, text in english.items() if bool(text) != bool(other[path])}
    assert not empty
    long = {path for path, text in english.items() if len(text) > 40 and text == other[path]}
    assert not {path for path in long if not SAME.search(path)}


@LANGUAGES
def test_what_a_language_may_leave_in_english_is_named(language: str) -> None:
    left = sorted(words.missing(language))
    if left:
        pytest.skip(f"{language} leaves {len(left)} texts in English: {', '.join(left)}")


def test_a_folder_is_a_language(tmp_path, monkeypatch) -> None:
    """A third one needs nothing else: it is offered as far as it goes."""
    (tmp_path / "fr").mkdir()
    (tmp_path / "fr" / "__init__.py").write_text('RUN = "Lancer"\n', encoding="utf-8")
    monkeypatch.setattr(words, "__path__", [*words.__path__, str(tmp_path)])
    assert words.languages() == ["de", "fr"]
    assert words.translations("fr") == {words.RUN: "Lancer"}
    left = words.missing("fr")
    assert "/STOP" in left
    assert any(path.startswith("lab/") for path in left)
    assert "/RUN" not in left


@LANGUAGES
def test_one_english_text_means_one_thing(language: str) -> None:
    meanings: dict[str, set[str]] = {}
    for part in words.parts():
        english, other = words.texts(part, "en"), words.texts(part, language)
        for path, text in english.items():
            if not SAME.search(path) and path in other:
                meanings.setdefault(text, set()).add(other[path])
    assert {text: found for text, found in meanings.items() if len(found) > 1} == {}


@LANGUAGES
def test_the_table_is_made_of_all_parts(language: str) -> None:
    table = words.translations(language)
    assert words.VIEW["status"]["rejected"] in table
    assert "Lessons" in table
    assert all(text != meaning for text, meaning in table.items())


@LANGUAGES
def test_a_method_without_a_translation_keeps_its_english_name(language: str, monkeypatch) -> None:
    monkeypatch.setitem(words.en.VIEW["methods"], "echo", "echoing the last word")
    table = words.translations(language)
    assert "echoing the last word" not in table
    assert table[words.VIEW["methods"]["draft_model"]]


@LANGUAGES
def test_why_a_method_is_missing_is_translated(language: str) -> None:
    """The sentences are made where models are loaded; the table has their very words."""
    from specdemo.models.networks.copy import no_copy_why
    from specdemo.models.pair import LoadedPair
    from specdemo.session.studio import Studio

    target = SimpleNamespace(info=SimpleNamespace(name="a-target"))
    pair = SimpleNamespace(open_draft=None, no_draft_why="", trained={}, target=target)
    found = [
        LoadedPair.missing(pair, "draft", "a draft model"),
        LoadedPair.missing(pair, "feature", "a feature drafter"),
        no_copy_why("4 bits"),
        Studio._missing(
            SimpleNamespace(_loaded=pair, shipped=SimpleNamespace(store=None)), "store"
        ),
    ]
    table = words.translations(language)
    shapes = [re.sub(r"\\\{\w+\\\}", ".+", re.escape(text)) for text in table]
    for sentence in found:
        assert any(re.fullmatch(shape, sentence) for shape in shapes), sentence


@LANGUAGES
def test_what_ends_a_run_or_keeps_it_from_beginning_is_translated(language: str) -> None:
    """The sentences are made by the engine, the line and the door; the table has their very words."""
    from specdemo.config.settings import AppSettings
    from specdemo.session.admission import Full
    from specdemo.session.caches import _failed, failure
    from specdemo.session.door import Changed
    from specdemo.session.remote.link import gone
    from specdemo.session.remote.remote import RemoteStudio
    from specdemo.session.studio import Studio
    from specdemo.trace.events import ModelInfo

    def loading(get) -> UserError:
        with pytest.raises(UserError) as raised:
            get()
        return raised.value

    found = [
        Full(),
        Changed(ModelInfo("a-target", precision="nf4")),
        gone(),
        failure(_failed("plain", MemoryError())),
        failure(_failed("plain", ValueError("odd"))),
        loading(lambda: Studio(AppSettings()).loaded),
        loading(lambda: RemoteStudio(AppSettings(), lambda _: None).link),
    ]
    table = words.translations(language)
    shapes = [re.sub(r"\\\{\w+\\\}", ".+", re.escape(text)) for text in table]
    for error in found:
        for sentence in filter(None, (error.message, error.unharmed, error.advice)):
            assert any(re.fullmatch(shape, sentence) for shape in shapes), sentence


def test_gradios_own_controls_are_named_in_the_pages_language() -> None:
    source = Path(gr.__file__).parent / "templates" / "frontend" / "assets"
    scripts = "".join(path.read_text("utf-8", "replace") for path in source.glob("Index-*.js"))
    for text in words.GRADIO[:2]:
        assert text.removesuffix("{label}") in scripts
        assert text in words.translations("de")


def test_a_link_that_cannot_be_followed_says_what_to_do() -> None:
    """A class's link hides the controls: a visitor can only ask for another."""
    assert "Ask whoever sent the link" in words.texts(".teach", "en")["/WORDS/unknown_value"]
