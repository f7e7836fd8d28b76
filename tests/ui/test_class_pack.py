"""Files for teachers: the lessons' own questions in the formats of platforms and printers."""

import base64
import csv
import io
import json
import re
import tomllib
import zipfile
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, fromstring

import pytest
from programs import needs_node, node

from specdemo.cli.commands import export
from specdemo.config.errors import UserError
from specdemo.config.strings import load
from specdemo.ui import words
from specdemo.ui.site import ASSETS, scorm_package
from specdemo.ui.tabs.lessons import WORDS

CONTENT = "http://www.imsproject.org/xsd/imscp_rootv1p1p2"
ADL = "http://www.adlnet.org/xsd/adlcp_rootv1p2"
pytestmark = pytest.mark.xdist_group("pack")  # one process of node a language
LANGUAGES = pytest.mark.parametrize("language", ["en", "de"])


# The elements of each format: content, attributes that must be there, and others.
MODELS = tomllib.loads(Path(__file__).with_name("models.toml").read_text(encoding="utf-8"))
NAME = re.compile(r"[A-Za-z_][\w.-]*")


@cache
def pack(language: str) -> dict[str, Any]:
    """Return the files that the script makes without a browser."""
    script = Path(__file__).with_name("pack.test.mjs")
    given = {"table": words.translations(language), "lessons": {**WORDS, "view": words.VIEW}}
    return json.loads(node(script, language, text=json.dumps(given)))


def checked(text: str, space: str, model: dict[str, list[str]]) -> Element:
    """The root of a document all of whose elements are as the model has them."""
    root = fromstring(text)
    for element in root.iter():
        assert element.tag.startswith(f"{{{space}}}"), element.tag
        content, must, may = model[local(element)]
        children = " ".join(local(child) for child in element)
        own = "#" if not children and (element.text or "").strip() else children
        assert re.fullmatch(content, own), f"{local(element)}: {own}"
        attributes = {name.rpartition("}")[2] for name in element.attrib} - {"schemaLocation"}
        assert set(must.split()) <= attributes <= {*must.split(), *may.split()}, local(element)
    return root


def local(element: Element) -> str:
    return element.tag.rpartition("}")[2]


def asked(language: str) -> list[dict[str, Any]]:
    return [question for quiz in pack(language)["quizzes"] for question in quiz["questions"]]


@needs_node
@LANGUAGES
def test_the_questions_and_their_table_are_those_of_the_lessons(language: str) -> None:
    lessons = load("lessons", language)["WORDS"]["lessons"]
    own = {
        f"{lesson}-{name}": question
        for lesson, texts in lessons.items()
        for name, question in texts["questions"].items()
    }
    assert [question["id"] for question in asked(language)] == list(own)
    for question in asked(language):
        assert question["ask"] == own[question["id"]]["ask"]
        options = {option["id"]: option["text"] for option in question["options"]}
        assert options == own[question["id"]].get("options", {})
        if question["range"]:
            assert question["range"]["low"] <= question["range"]["value"]
            assert question["range"]["value"] <= question["range"]["high"]
        else:
            assert question["told"] == options[question["answer"]]
        # Names in sentences that are not filled; test_lessons checks the values of the others.
        assert not re.search(r"\{\w+\}|undefined|NaN", json.dumps(question))
    table = list(csv.DictReader(io.StringIO(pack(language)["files"]["questions.csv"], newline="")))
    assert [row["id"] for row in table] == [question["id"] for question in asked(language)]
    assert {row["lesson"] for row in table} == set("12345678")
    assert all(row["answer"] and row["evidence"] for row in table)


@needs_node
@LANGUAGES
def test_qti_2_1_follows_its_model_and_scores_the_answer(language: str) -> None:
    files = dict(pack(language)["packages"]["qti-2.1"])
    space = "http://www.imsglobal.org/xsd/imsqti_v2p1"
    packaging = "http://www.imsglobal.org/xsd/imscp_v1p1"
    manifest = checked(files["imsmanifest.xml"], packaging, MODELS["manifest"])
    resources = {
        each.get("identifier"): each for each in manifest.iter() if local(each) == "resource"
    }
    assert {each.get("href") for each in resources.values()} == {*files} - {"imsmanifest.xml"}
    assert {
        each.get("identifierref") for each in resources["test"] if local(each) == "dependency"
    } == {*resources} - {"test"}
    test = checked(files["test.xml"], space, MODELS["qti21"])
    named = [each.get("identifier") for each in test.iter()]
    assert len(named) == len(set(named))
    assert [each.get("href") for each in test.iter() if local(each) == "assessmentItemRef"] == [
        f"items/{question['id']}.xml" for question in asked(language)
    ]
    for question in asked(language):
        item = checked(files[f"items/{question['id']}.xml"], space, MODELS["qti21"])
        assert item.get("{http://www.w3.org/XML/1998/namespace}lang") == language
        for element in item.iter():
            assert NAME.fullmatch(element.get("identifier", "x"))
        right = next(element for element in item.iter() if local(element) == "correctResponse")
        choices = [each.get("identifier") for each in item.iter() if local(each) == "simpleChoice"]
        if question["range"]:
            assert float(right[0].text or "") == question["range"]["value"]
            bounds = [each.text for each in item.iter() if local(each) == "baseValue"][:2]
            assert list(map(float, filter(None, bounds))) == [
                question["range"]["low"],
                question["range"]["high"],
            ]
        else:
            assert right[0].text == f"option-{question['answer']}"
            assert right[0].text in choices


class Sheet(HTMLParser):
    """Return the text of a page and of its open parts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text, self.tags = "", []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "path"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data


@needs_node
@LANGUAGES
def test_worksheets_hold_the_questions_and_only_the_key_holds_the_answers(language: str) -> None:
    files = pack(language)["files"]
    sheet, answers = Sheet(files["worksheets.html"]), Sheet(files["answers.html"])
    assert sheet.open == answers.open == []
    assert sheet.tags.count("section") == answers.tags.count("section") == 8
    assert sheet.tags.count("svg") == 7  # plain decoding has no chart of drafts
    for question in asked(language):
        assert question["ask"] in sheet.text
        assert question["evidence"] in answers.text
        assert question["evidence"] not in sheet.text
        assert all(option["text"] in sheet.text for option in question["options"])
    assert "☒" not in sheet.text
    assert answers.text.count("☒") == sum(not question["range"] for question in asked(language))
    for name in ("worksheets.html", "answers.html"):
        page = files[name]
        assert f'<html lang="{language}">' in page
        assert not re.search(r"""(src|href)=|url\(|<script""", page)  # nothing from elsewhere
        for colour in re.findall(r"#[0-9a-f]{3,6}\b", page.split("</style>")[0]):
            assert len(set(colour[1:])) == 1, f"{colour} is not grey"
    for status in ("accepted", "rejected", "unreached", "correction", "bonus"):
        rule = re.findall(rf"\.{status}\b[^{{]*\{{([^}}]*)\}}", files["worksheets.html"])
        assert any(re.search("text-decoration|border", found) for found in rule), status


@needs_node
def test_other_programs_read_an_archive_of_the_script() -> None:
    archive = zipfile.ZipFile(io.BytesIO(base64.b64decode(pack("de")["archive"])))
    assert archive.testzip() is None
    files = dict(pack("de")["packages"]["qti-2.1"])
    assert {name: archive.read(name).decode() for name in files} == files
    assert archive.read("ü.bin") == bytes([0, 255, 10])


def test_a_scorm_package_names_its_files_and_its_one_activity(tmp_path: Path) -> None:
    (tmp_path / "view").mkdir()
    (tmp_path / "index.html").write_text("<p>", encoding="utf-8")
    (tmp_path / "view" / "a b.js").write_text("1", encoding="utf-8")
    package = scorm_package(tmp_path, 'A "title" & more')
    assert package == scorm_package(tmp_path, 'A "title" & more')
    archive = zipfile.ZipFile(io.BytesIO(package))
    assert archive.namelist() == ["imsmanifest.xml", "index.html", "view/a b.js"]
    root = fromstring(archive.read("imsmanifest.xml"))
    spaces = {"c": CONTENT}
    assert [local(child) for child in root] == ["metadata", "organizations", "resources"]
    assert root.findtext("c:metadata/c:schema", "", spaces) == "ADL SCORM"
    assert root.findtext("c:metadata/c:schemaversion", "", spaces) == "1.2"
    course = root.find("c:organizations/c:organization", spaces)
    assert course is not None
    assert root[1].get("default") == course.get("identifier")
    assert course.findtext("c:item/c:title", "", spaces) == 'A "title" & more'
    resource = root.find("c:resources/c:resource", spaces)
    assert resource is not None
    item = course.find("c:item", spaces)
    assert item is not None
    assert item.get("identifierref") == resource.get("identifier")
    assert resource.get(f"{{{ADL}}}scormtype") == "sco"
    assert resource.get("href") == "index.html"
    assert [file.get("href") for file in resource] == ["index.html", "view/a b.js"]


def test_without_playwright_the_command_names_the_requirements(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "playwright.sync_api", None)
    with pytest.raises(UserError) as raised:
        export._printed(tmp_path, "en", png=False)
    assert "requirements-class-pack.txt" in raised.value.advice
    assert (ASSETS.parent / "requirements-class-pack.txt").is_file()


@pytest.mark.browser
def test_the_command_prints_what_the_page_shows(tmp_path: Path) -> None:
    pytest.importorskip("playwright.sync_api")
    folder = tmp_path / "pack"
    count = export.write_class_pack(folder, "de", png=False)
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert len(files) == count
    assert {
        *("worksheets.pdf", "answers.pdf", "questions.csv", "lessons-scorm-1.2.zip"),
        *("questions-qti-2.1.zip", "speculative_decoding.ipynb"),
    } <= files
    for name in ("worksheets.pdf", "answers.pdf"):
        pdf = (folder / name).read_bytes()
        assert pdf.startswith(b"%PDF-")
        assert b"/StructTreeRoot" in pdf  # tagged: a screen reader finds headings and lists
    figures = [name for name in files if name.startswith("figures/")]
    assert {name[8] for name in figures} == set("12345678")
    assert all((folder / name).read_text(encoding="utf-8").startswith("<svg") for name in figures)
    sheet = (folder / "worksheets.html").read_text(encoding="utf-8")
    assert "Warum Decodieren langsam ist" in sheet
    assert sheet.count("<svg") >= 7
    lessons = zipfile.ZipFile(folder / "lessons-scorm-1.2.zip")
    page = lessons.read("index.html").decode()
    assert '"lms": true, "language": "de"' in page
    assert {"imsmanifest.xml", "view/site/scorm.js", "words/de.json"} <= set(lessons.namelist())
