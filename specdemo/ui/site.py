"""Recorded runs, lab, lessons and methods as static files, for a web server or a disk, without Gradio, Python or a model."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.config.strings import ASSETS, Json, JsonView
from specdemo.session.studio import Studio
from specdemo.ui.player import (
    REPLAY_POLICY,
    SCRIPTS,
    data_block,
    inline_page,
    modules,
    player_page,
    plotly_path,
    style_files,
)
from specdemo.ui.view import find_tabs

RUNS = ASSETS / "runs"
NOTEBOOK = ASSETS.parent / "notebooks" / "speculative_decoding.ipynb"
MARK = "specdemo-site"
PREVIEW = "icons/preview.png"  # the end of the opening run, saved from the dialog that shares it
# Over file:// a browser neither imports modules nor fetches: there the page that contains everything is opened.
OFFLINE = "offline.html"
TO_OFFLINE = f"if (location.protocol === 'file:') location.replace('{OFFLINE}' + location.search + location.hash)"
_DIGEST = base64.b64encode(hashlib.sha256(TO_OFFLINE.encode()).digest()).decode()
# No trace can load anything from another server; Plotly sets styles of its own.
SITE_POLICY = (
    f"default-src 'self'; script-src 'self' 'sha256-{_DIGEST}'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:"
)
README = """---
title: {title}
emoji: ⚡
colorFrom: blue
colorTo: gray
sdk: static
app_file: index.html
license: apache-2.0
short_description: Speculative decoding, recorded and explained.
---

# {title}

{subtitle}

Static files, written by `python -m specdemo export site`. Any web server can serve them
(for example `python -m http.server` in this folder), and so can a static Space. Opened from a disk, `index.html` continues
in `offline.html`, which contains everything but the charts' library. Nothing is loaded from elsewhere.
"""


def write_site(folder: Path, *, lms: str = "") -> None:
    """Write the site. Raises UserError for a folder with other things in it.

    lms: for a learning platform, to which it reports, in this language; "" for a site by itself
    """
    from specdemo.ui.words import VIEW, languages, translations

    if folder.exists() and any(folder.iterdir()) and not _is_site(folder):
        raise UserError("cli.site_folder_in_use", folder=folder)
    for name, source in (("view", SCRIPTS), ("runs", RUNS), ("icons", ASSETS / "icons")):
        shutil.rmtree(folder / name, ignore_errors=True)
        shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("*.d.ts"))
    shutil.copyfile(plotly_path(), folder / "plotly.min.js")
    (folder / "words").mkdir(exist_ok=True)
    for language in languages():
        table = json.dumps(translations(language), ensure_ascii=False)
        (folder / "words" / f"{language}.json").write_text(table, encoding="utf-8")
    words: Any = VIEW
    asked = {"lms": True, "language": lms} if lms else {}
    shown = {"words": VIEW, "parts": parts(), "languages": ["en", *languages()], **asked}
    page = words["export"]["page"]
    for name, text in {
        "index.html": index(page, shown),
        "player.html": player_page(VIEW),
        "README.md": README.format(title=page["title"], subtitle=page["subtitle"]),
        **({} if lms else {OFFLINE: offline_page(folder, shown)}),
    }.items():
        (folder / name).write_text(text, encoding="utf-8")


def lesson_package(language: str) -> bytes:
    """The site as a SCORM 1.2 package in a language."""
    from specdemo.ui.words import VIEW, translations

    words: Any = VIEW
    page = words["export"]["page"]
    known = {} if language == "en" else translations(language)
    title = f"{page['title']}: {known.get(page['subtitle'], page['subtitle'])}"
    with tempfile.TemporaryDirectory() as held:
        folder = Path(held) / "site"
        write_site(folder, lms=language)
        return scorm_package(folder, title)


def parts() -> dict[str, Json]:
    """Return the content of the tabs by name, see `Tab.site`."""
    studio = Studio(AppSettings(replay=True))
    contents = {tab.name: tab.site(studio, RUNS) for tab in find_tabs()}
    return {name: content for name, content in contents.items() if content}


def offline_page(folder: Path, data: JsonView) -> str:
    """Return the site as one file that opens from a disk, with the runs and translations of its folder."""
    paths = [*folder.glob("runs/*.json*"), *folder.glob("words/*.json")]
    files = {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in sorted(paths)}
    policy = REPLAY_POLICY.replace("data:", "data: file:")
    return inline_page(
        "site/site.js", policy, data_block("sd-data", data), data_block("sd-files", files)
    )


def index(page: Mapping[str, str], data: JsonView) -> str:
    """Return the site's one page. Its head names all files of the first view, so that they load in parallel."""
    first, *_ = data["parts"]["play"]["choices"][0]
    styles = [path.relative_to(SCRIPTS).as_posix() for path in style_files()]
    move = [] if data.get("lms") else [f"<script>{TO_OFFLINE}</script>"]
    head = [
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{SITE_POLICY}">',
        *move,
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f'<meta name="generator" content="{MARK}">',
        f"<title>{escape(page['title'])}</title>",
        preview_tags(page["title"], page["subtitle"], PREVIEW),
        '<link rel="icon" href="icons/favicon.svg">',
        *(f'<link rel="stylesheet" href="view/{name}">' for name in styles),
        *(
            f'<link rel="modulepreload" href="view/{name}">'
            for name in ("site/site.js", *modules("site/replay.js"))
            if name != "site/replay.js"
        ),
        f'<link rel="preload" href="runs/{first}.jsonl" as="fetch" crossorigin>',
    ]
    body = [
        "<main></main>",
        data_block("sd-data", data),
        '<script type="module" src="view/site/site.js"></script>',
    ]
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>',
            *head,
            "</head>\n<body>",
            *body,
            "</body>\n</html>\n",
        ]
    )


def preview_tags(title: str, sentence: str, picture: str) -> str:
    """Return the tags of a page's head from which other programs make the preview of a link. picture: its address"""
    named = {
        "og:title": title,
        "og:description": sentence,
        "og:type": "website",
        "og:image": picture,
    }
    tags = [f'<meta property="{name}" content="{escape(text)}">' for name, text in named.items()]
    tags.append('<meta name="twitter:card" content="summary_large_image">')
    return "".join([*tags, f'<meta name="description" content="{escape(sentence)}">'])


def _is_site(folder: Path) -> bool:
    page = folder / "index.html"
    return page.is_file() and MARK in page.read_text(encoding="utf-8", errors="replace")


CONTENT = "http://www.imsproject.org/xsd/imscp_rootv1p1p2"
ADL = "http://www.adlnet.org/xsd/adlcp_rootv1p2"
SCHEMAS = f"{CONTENT} imscp_rootv1p1p2.xsd {ADL} adlcp_rootv1p2.xsd"
START = "index.html"
_DATE = (1980, 1, 1, 0, 0, 0)  # the same site gives the same package


def scorm_package(folder: Path, title: str) -> bytes:
    """A folder with a site, and the manifest that a platform reads, as a zip archive."""
    names = sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as package:
        package.writestr(zipfile.ZipInfo("imsmanifest.xml", _DATE), manifest(title, names))
        for name in names:
            info = zipfile.ZipInfo(name, _DATE)
            info.compress_type = zipfile.ZIP_DEFLATED
            package.writestr(info, (folder / name).read_bytes())
    return out.getvalue()


def manifest(title: str, names: list[str]) -> bytes:
    """`imsmanifest.xml` of a package with one activity, which consists of these files (SCORM 1.2, content aggregation)."""
    spaces = {
        "xmlns": CONTENT,
        "xmlns:adlcp": ADL,
        "xmlns:xsi": "http://www.w3.org/2001/XMLSchema-instance",
        "xsi:schemaLocation": SCHEMAS,
    }
    root = Element("manifest", {"identifier": "specdemo", "version": "1.2", **spaces})
    about = SubElement(root, "metadata")
    SubElement(about, "schema").text = "ADL SCORM"
    SubElement(about, "schemaversion").text = "1.2"
    organizations = SubElement(root, "organizations", {"default": "course"})
    course = SubElement(organizations, "organization", {"identifier": "course"})
    SubElement(course, "title").text = title
    item = SubElement(course, "item", {"identifier": "lessons", "identifierref": "site"})
    SubElement(item, "title").text = title
    resources = SubElement(root, "resources")
    site = SubElement(
        resources,
        "resource",
        {"identifier": "site", "type": "webcontent", "adlcp:scormtype": "sco", "href": START},
    )
    for name in names:
        SubElement(site, "file", {"href": name})
    whole: bytes = tostring(root, encoding="utf-8", xml_declaration=True)
    return whole
