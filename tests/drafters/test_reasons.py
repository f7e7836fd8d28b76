"""Each reason that a drafter gives has a text in each language."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import specdemo.drafters
from specdemo.config.strings import ASSETS

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
