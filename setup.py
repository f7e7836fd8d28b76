"""The wheel's packages and its description; everything else is declared in pyproject.toml."""

from __future__ import annotations

import re
from pathlib import Path

from setuptools import find_packages, setup


def description() -> str:
    """Return the README for readers who do not have its files: without front matter, picture and links to files."""
    text = Path(__file__).with_name("README.md").read_text(encoding="utf-8")
    text = text.partition("\n---\n")[2]
    text = re.sub(r"!\[[^]]*\]\([^)]*\)\n+\*[^*]*\*\n", "", text)
    text = re.sub(r"<!--.*?-->\n?", "", text)
    text = re.sub(r"\[([^]]*)\]\((?!https?:)([^)#]*)[^)]*\)", r"\1 (`\2`)", text)
    note = "Files named here, `app.py` among them, are in the source distribution.\n\n## Start"
    return text.replace("## Start", note, 1).lstrip()


setup(
    # assets/ stands beside the packages and goes inside
    packages=[*find_packages(include=["specdemo", "specdemo.*"]), "specdemo.assets"],
    package_dir={"specdemo.assets": "assets"},
    exclude_package_data={"specdemo.assets": ["screenshots/*"]},
    long_description=description(),
    long_description_content_type="text/markdown",
)
