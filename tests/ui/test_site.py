"""The static site: whole, relative, and never written over something else."""

import json
import re

import pytest
import yaml

from specdemo.cli import parser as cli
from specdemo.config.errors import UserError
from specdemo.ui import site
from specdemo.ui.view import find_tabs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site") / "out"
    assert cli.main(["export-site", str(folder)]) == 0
    return folder


def test_every_address_is_relative_and_exists(folder):
    page = (folder / "index.html").read_text(encoding="utf-8")
    addresses = re.findall(r'(?:href|src)="([^"]+)"', page)
    assert len(addresses) > 10
    for address in addresses:
        assert not address.startswith("/")
        assert (folder / address).is_file(), address
    assert "://" not in re.sub(r"<script type=.application/json.*?</script>", "", page)


def test_the_data_of_a_site_name_its_parts_and_existing_runs(folder):
    page = (folder / "index.html").read_text(encoding="utf-8")
    data = json.loads(re.search(r'id="sd-data">(.*?)</script>', page)[1])
    parts = data["parts"]
    assert list(parts) == ["play", "race", "proposals", "lab", "lessons", "methods"]
    named = [value for _, _, value in parts["play"]["choices"] + parts["race"]["choices"]]
    runs = {json.loads(line).get("run") for value in named for line in value.splitlines()}
    assert len(runs - {None, ""}) >= 4
    for run in runs - {None, ""}:
        assert (folder / "runs" / f"{run}.jsonl").is_file()
    assert json.loads(data["parts"]["lessons"]["value"])["live"] is False
    assert [part["label"] for part in parts.values()] == [tab.label for tab in find_tabs()]
    assert data["languages"] == ["en", "de"]
    table = json.loads((folder / "words" / "de.json").read_text(encoding="utf-8"))
    assert {"Lessons", parts["play"]["choices"][0][1]} <= set(table)


def test_the_readme_of_a_site_is_that_of_a_static_space(folder):
    matter = yaml.safe_load((folder / "README.md").read_text(encoding="utf-8").split("---\n")[1])
    assert matter["sdk"] == "static"
    assert (folder / matter["app_file"]).is_file()
    assert len(matter["short_description"]) <= 60
    assert all(path.stat().st_size < 10_000_000 for path in folder.rglob("*") if path.is_file())


def test_a_site_is_overwritten_and_other_folders_are_left_alone(tmp_path):
    site.write_site(tmp_path / "site")
    left_over = tmp_path / "site" / "runs" / "left-over.jsonl"
    left_over.write_text("")
    site.write_site(tmp_path / "site")
    assert not left_over.exists()
    other = tmp_path / "other"
    other.mkdir()
    (other / "index.html").write_text("mine")
    with pytest.raises(UserError, match="not part of a site"):
        site.write_site(other)
    assert [path.name for path in other.iterdir()] == ["index.html"]
