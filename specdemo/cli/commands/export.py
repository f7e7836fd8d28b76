"""Write saved traces, the static site, material for teachers and models in other forms."""

from __future__ import annotations

import argparse
import base64
import mimetypes
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from specdemo.cli import console
from specdemo.cli.options import app_settings
from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.config.strings import ASSETS
from specdemo.files.store import write_file

if TYPE_CHECKING:
    from playwright.sync_api import Route

ORIGIN = "http://class-pack.invalid/"  # nothing is served: Chromium's requests are answered here
FLAGS = ["--no-sandbox", "--disable-background-networking"]
MAKE = ASSETS / "cards/class_pack.js.txt"  # makes the files in the page


def run(options: argparse.Namespace) -> int:
    from specdemo.trace.codec import dumps
    from specdemo.trace.replay import csv_table, read
    from specdemo.ui.player import player_page
    from specdemo.ui.words import VIEW

    if not (options.csv or options.html):
        raise UserError("cli.export_nothing")
    if options.csv and options.html and options.csv.resolve() == options.html.resolve():
        raise UserError("cli.export_one_file", path=options.csv)
    trace = dumps(read(options.file).trace.events)
    if options.csv:
        write_file(options.csv, "\ufeff" + csv_table(trace))
    if options.html:
        page = player_page(VIEW, {"title": options.file.stem, "trace": trace})
        write_file(options.html, page)
    return 0


def run_site(options: argparse.Namespace) -> int:
    from specdemo.ui.site import write_site

    folder = options.folder
    write_site(folder)
    console.note(
        f"Wrote {folder}. Open {folder / 'index.html'}, or serve it: python -m http.server -d {folder}"
    )
    return 0


def run_draft(options: argparse.Namespace) -> int:
    """Write a draft model in transformers' own layout, or as a file of llama.cpp."""
    from specdemo.files.catalogue import find, partner
    from specdemo.files.found import gguf_path
    from specdemo.files.hub import fetch_gguf
    from specdemo.files.sources import resolve
    from specdemo.models.networks.folders import export, export_gguf, is_compact

    settings = app_settings(options)
    name = settings.draft if settings.draft != "auto" else partner(settings.target) or ""
    folder = Path(name).expanduser()
    folder = folder if is_compact(folder) else resolve(name, settings.cache_dir).folder
    if not is_compact(folder):
        raise UserError("cli.not_a_draft", name=name)
    if options.out.suffix == ".gguf":
        gguf, entry = gguf_path(settings.target), find(settings.target)
        if not gguf:
            if not entry or not entry.gguf:
                raise UserError("cli.not_gguf", target=settings.target)
            with console.reporting() as report:
                gguf = fetch_gguf(entry.gguf, settings.cache_dir, report)
        export_gguf(folder, gguf, options.out)
        console.note(f"Wrote {options.out}, for llama-server's option -md.")
        return 0
    with console.reporting() as report:
        target = resolve(settings.target, settings.cache_dir, report)
    export(folder, target.folder, options.out)
    console.note(f"Wrote {options.out}; load it with AutoModelForCausalLM.from_pretrained.")
    return 0


def run_drafter(options: argparse.Namespace) -> int:
    """Write a drafter in a published layout."""
    from specdemo.files.sources import resolve
    from specdemo.training.package import trained_for, write_published

    name = trained_for(options.drafter) if options.target is None else options.target
    with console.reporting() as report:
        target = resolve(name, AppSettings.from_environment().cache_dir, report)
    write_published(options.drafter, target, options.out, options.layout, options.licence)
    console.note(f"Wrote {options.out}; it runs here with --drafter {options.out}.")
    return 0


def run_class_pack(options: argparse.Namespace) -> int:
    written = write_class_pack(options.folder, options.language)
    console.note(f"Wrote {written} files to {options.folder}.")
    return 0


def write_class_pack(folder: Path, language: str, *, png: bool = True) -> int:
    """Write material for teachers into a folder. png: figures as pixels too; returns: number of files

    The page's own scripts create it in Chromium without a window, so that sheets resemble the page. Raises UserError without Playwright or a Chromium.
    """
    from specdemo.ui.site import NOTEBOOK, lesson_package, write_site

    with tempfile.TemporaryDirectory() as held:
        site = Path(held) / "site"
        write_site(site)
        files = _printed(site, language, png=png)
    files["lessons-scorm-1.2.zip"] = lesson_package(language)
    if NOTEBOOK.is_file():  # a checkout has it, a wheel has not
        files[NOTEBOOK.name] = NOTEBOOK.read_bytes()
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return len(files)


def _printed(site: Path, language: str, *, png: bool) -> dict[str, bytes]:
    """Return the files that the page's scripts create from the lessons, by name, with the sheets as PDF too."""
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError as error:
        raise UserError("cli.no_playwright") from error
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")  # else Playwright's
    with sync_playwright() as play:
        try:
            browser = play.chromium.launch(executable_path=chromium, args=FLAGS)
        except Error as error:
            raise UserError("cli.no_chromium") from error
        page = browser.new_page(color_scheme="light")
        page.route(f"{ORIGIN}**", lambda route: _answer(route, site))
        page.goto(f"{ORIGIN}?lang={language}#lessons")
        made = page.evaluate(MAKE.read_text(encoding="utf-8"), [language, png])
        files = {
            name: content.encode()
            if isinstance(content, str)
            else base64.b64decode(content["base64"])
            for name, content in made
        }
        for name in ("worksheets", "answers"):
            page.set_content(files[f"{name}.html"].decode())
            files[f"{name}.pdf"] = page.pdf(prefer_css_page_size=True, tagged=True, outline=True)
        browser.close()
    return files


def _answer(route: Route, site: Path) -> None:
    """Send a file of the site, as a server would."""
    name = route.request.url.removeprefix(ORIGIN).partition("?")[0].partition("#")[0]
    path = (site / (name or "index.html")).resolve()
    if not path.is_file() or not path.is_relative_to(site.resolve()):
        route.fulfill(status=404)
        return
    kind = "text/javascript" if path.suffix == ".js" else mimetypes.guess_type(path.name)[0]
    route.fulfill(body=path.read_bytes(), content_type=kind or "application/octet-stream")
