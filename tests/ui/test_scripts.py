"""Imports of the page's scripts: folders import one way, and the lowest one imports no page."""

import re
from graphlib import TopologicalSorter

from specdemo.ui.player import IMPORT, SCRIPTS, imported

# A folder may import those of the lines above its own, and itself.
FLOORS = (
    ("core",),
    ("parts",),
    ("charts",),
    ("play",),
    ("race", "lab", "lessons", "proposals", "methods"),
    ("page",),
    ("site",),
)
FLOOR = {folder: floor for floor, folders in enumerate(FLOORS) for folder in folders}
FILES = {path.relative_to(SCRIPTS).as_posix(): path for path in SCRIPTS.rglob("*.js")}
IMPORTS = {
    name: [imported(found[3], name) for found in IMPORT.finditer(path.read_text("utf-8"))]
    for name, path in FILES.items()
}


def test_each_script_lies_in_a_folder_with_a_floor():
    assert len(FILES) > 50
    assert {name.split("/")[0] for name in FILES} == set(FLOOR)
    assert {path.parent.name for path in SCRIPTS.rglob("*.css")} == {"css"}


def test_folders_import_one_way():
    for name, others in IMPORTS.items():
        own = name.split("/")[0]
        for other in others:
            assert other in FILES, f"{name} imports {other}, which is not there"
            folder = other.split("/")[0]
            assert folder == own or FLOOR[folder] < FLOOR[own], f"{name} imports {other}"


def test_no_script_imports_itself_by_way_of_others():
    TopologicalSorter(IMPORTS).prepare()


def test_the_core_touches_no_page():
    for name in FILES:
        if name.startswith("core/"):
            code = re.sub(
                r"^\s*(//|/?\*).*$", "", FILES[name].read_text("utf-8"), flags=re.MULTILINE
            )
            assert not re.search(r"\b(document|window|localStorage|location)\b", code), name


def test_each_script_says_in_its_first_line_what_it_is():
    for name, path in FILES.items():
        first = path.read_text("utf-8").splitlines()[0]
        assert re.match(r"// \w.{15,}", first), name
