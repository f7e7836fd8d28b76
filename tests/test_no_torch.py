"""The page without torch: recorded runs, lab and lessons work, and a message explains live runs."""

import json
import subprocess
import sys
import threading

import gradio as gr
import pytest
from programs import ROOT

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings
from specdemo.session.studio import Studio
from specdemo.ui import words
from specdemo.ui.app import create_app
from specdemo.ui.model import ModelHandlers
from specdemo.ui.tabs.play import PlayHandlers

HIDE = """
import sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers", "bitsandbytes"):
            raise ModuleNotFoundError(f"{name} is hidden", name=name)

sys.meta_path.insert(0, Hidden())
"""
COMMANDS = {
    ("methods",): 0,
    ("models",): 0,
    ("doctor",): 1,
    ("replay", "assets/runs/01-guess-and-check.jsonl"): 0,
    ("run", "Hello."): 1,
    ("audit", "counterexample"): 1,
    ("export", "draft", "no-torch.gguf"): 1,
}
PAGE = f"""
import app
from specdemo.cli.parser import main
from specdemo.drafters.methods import METHODS
from specdemo.session.studio import Studio
from specdemo.config.settings import AppSettings

studio = Studio(AppSettings())
studio.start()
assert app.demo.blocks
assert [method.name for method in studio.methods()] == list(METHODS)
assert "torch" in str(studio.error) and "pip install -r requirements.txt" in str(studio.error)
for words, status in {COMMANDS!r}.items():
    assert main(words) == status, words
"""


def test_the_page_and_commands_without_a_model_work_and_others_name_the_missing_package():
    done = subprocess.run(
        [sys.executable, "-c", HIDE + PAGE], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert "Live runs need torch and transformers" in done.stderr


def test_a_studio_that_only_replays_loads_nothing_and_explains_each_run():
    studio = Studio(AppSettings(replay=True))
    studio.start()
    studio.load()
    assert not studio.ready
    assert studio.progress() is None
    assert all(method.available for method in studio.methods())
    with pytest.raises(UserError, match="switched off"):
        next(studio.open().run("Hello.", RunSettings(), cancel=threading.Event()))
    with pytest.raises(UserError, match="switched off"):
        next(studio.switch("smollm2-135m-instruct", "nf4"))


def test_run_leaves_the_shown_run_with_a_reason():
    studio = Studio(AppSettings(replay=True))
    handlers = PlayHandlers(studio)
    visitor, shown = handlers.begin(None)
    assert shown == gr.skip()
    assert list(handlers.run(visitor, "Hello.", "", {})) == [gr.skip()]
    status = json.loads(ModelHandlers(studio).status())
    assert (status["state"], status["text"]) == ("replay", words.REPLAY_ONLY)
    page = create_app(studio).get_config_file()
    texts = [str(part["props"].get("value")) for part in page["components"]]
    assert any("Live runs are switched off here." in text for text in texts)
    live = {
        part["props"].get("elem_id"): part["props"]["interactive"]
        for part in page["components"]
        if part["type"] == "button" and part["props"].get("variant") == "primary"
    }
    assert {"sd-run", "sd-race-start", "sd-proposals-write"} <= set(live)
    assert not any(live.values())
