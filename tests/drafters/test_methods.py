"""Every entry is listed once, names only existing options and needs, and gives reasons that have a text in each language."""

import importlib
import json
import pkgutil
import re
from dataclasses import fields
from pathlib import Path

import pytest

import specdemo.drafters
from specdemo import drafters
from specdemo.config.settings import RunSettings
from specdemo.config.strings import ASSETS, load
from specdemo.drafters.base import NEEDS, Method
from specdemo.drafters.methods import METHODS, NEEDED
from specdemo.models.networks.registry import NETWORKS
from specdemo.training.package import card_part

ENTRIES = pytest.mark.parametrize("method", METHODS.values(), ids=lambda method: method.name)


def test_every_entry_of_a_drafters_file_is_listed_once():
    found = {
        id(value): value.name
        for module in pkgutil.iter_modules(drafters.__path__, f"{drafters.__name__}.")
        for value in vars(importlib.import_module(module.name)).values()
        if isinstance(value, Method)
    }
    assert sorted(found.values()) == sorted(METHODS)
    assert {id(method) for method in METHODS.values()} == set(found)


@ENTRIES
def test_an_entry_names_only_existing_parts(method: Method):
    assert set(method.options) <= {field.name for field in fields(RunSettings)}
    assert set(method.uses) <= set(NEEDED)
    assert method.title
    assert method.summary.endswith(".")
    assert load("page")["VIEW"]["methods"][method.name]


@ENTRIES
def test_a_prior_is_a_chance(method: Method):
    for prior in (method.prior.greedy, method.prior.sampled):
        chances = [prior.first(tenth / 10) for tenth in range(11)]
        assert chances == sorted(chances)
        assert min(chances) >= 0


def test_every_kind_that_can_be_trained_is_needed_by_a_method_and_described():
    kinds = {row.kind for row in NETWORKS}
    assert kinds | set(NEEDS) == {need for one in METHODS.values() for need in one.needs}
    assert (
        kinds == set(load("page")["VIEW"]["card"]["kinds"]) == set(card_part("words", "drafters"))
    )


CALL = re.compile(r'(?:Reason|match_reason)\(\s*f?"(\w+)"(?: if \w+(?: == 1)? else "(\w+)")?')


@pytest.mark.parametrize("language", ["en", "de"])
def test_reasons_have_strings_in_each_language(language):
    page = json.loads((ASSETS / "words" / language / "page.json").read_text(encoding="utf-8"))
    known = page["VIEW"]["charts"]["reasons"]
    (folder,) = specdemo.drafters.__path__
    sources = [path.read_text(encoding="utf-8") for path in sorted(Path(folder).rglob("*.py"))]
    codes = {code for source in sources for found in CALL.findall(source) for code in found if code}
    assert len(codes) > 15
    assert codes <= set(known)
