"""The real page over HTTP with a tiny model, for requests of any kind of visitor."""

import json
import uuid
from contextlib import contextmanager
from dataclasses import replace

import httpx
import pytest
from gradio_client.utils import apply_diff
from letters import tiny_pair
from programs import free_port

from specdemo.config.settings import AppSettings
from specdemo.session import studio as studio_module
from specdemo.session.loaded import Loaded
from specdemo.session.studio import Studio
from specdemo.ui.app import create_app, launch_options

API = "/gradio_api"


def load_tiny(settings, *_):
    """Any target is a tiny one under that name."""
    pair = tiny_pair(seed=len(settings.target))
    info = replace(pair.target.info, name=settings.target, precision=settings.precision)
    return Loaded(settings, replace(pair, target=replace(pair.target, info=info)))


@contextmanager
def launched(studio):
    """The page of a studio, for tests in a browser. yields: its address"""
    page = create_app(studio)
    _, url, _ = page.launch(
        server_port=free_port(), prevent_thread_lock=True, **launch_options(studio)
    )
    try:
        yield url
    finally:
        page.close()


@contextmanager
def served(**settings):
    """A page, its client and its studio. settings: of the program; the rest as on a server without variables"""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(studio_module, "fetch", lambda *_: None)
        patch.setattr(studio_module, "load", load_tiny)
        studio = Studio(AppSettings.from_environment(**settings))
        studio.load()
        with launched(studio) as url, httpx.Client(base_url=url.rstrip("/"), timeout=60) as client:
            client.studio = studio
            client.config = client.get("/config").json()
            yield client


class Visitor:
    """One open page, without a browser."""

    def __init__(self, client):
        self.client, self.session = client, uuid.uuid4().hex
        self.calls = {call["api_name"]: call for call in client.config["dependencies"]}
        self.kinds = {part["id"]: part for part in client.config["components"]}

    def inputs(self, name):
        return [self.kinds[part] for part in self.calls[name]["inputs"]]

    def body(self, name, data):
        call = {"fn_index": self.calls[name]["id"], "session_hash": self.session}
        return json.dumps({"data": data, **call})

    def send(self, name, data):
        """Send any values to a call. returns: the error, or ""; the last values"""
        sent = {"content": self.body(name, data), "headers": {"content-type": "application/json"}}
        if not self.calls[name]["queue"]:
            told = self.client.post(f"{API}/run/{name}", **sent).json()
            return (told["error"], None) if "error" in told else ("", told["data"])
        joined = self.client.post(f"{API}/queue/join", **sent)
        if joined.status_code != 200:
            return joined.json()["detail"], None
        values = None
        sent = self.client.get(f"{API}/queue/data", params={"session_hash": self.session}).text
        for line in filter(None, sent.splitlines()):
            message = json.loads(line.removeprefix("data: "))
            if message["msg"] == "process_generating":
                new = message["output"]["data"]
                both = zip(values or new, new, strict=True)
                values = [apply_diff(old, one) for old, one in both] if values else new
            if message["msg"] == "process_completed" and not message["success"]:
                return message["output"]["error"], None
        return "", values

    def values(self, name, **changes):
        """The values with which a call is made on the page, by label or element; some of them changed."""
        data = []
        for part in self.inputs(name):
            props = part["props"]
            known = [props.get("elem_id"), props.get("label")]
            named = next((key for key in changes if key in known), None)
            data.append(changes[named] if named else props.get("value"))
        return data

    def ask(self, prompt="abcabc", *, continues=False, **changes):
        """Run as the page does. continues: the conversation; returns: the error before the run, or ""; the lines of the stream"""
        begun = {"sd-prompt": prompt, "sd-continue": continues}
        self.send("begin_answer", self.values("begin_answer", **begun))
        wrong, value = self.send(
            "show_answer",
            self.values("show_answer", **{"sd-prompt": prompt, "sd-max_new_tokens": 8, **changes}),
        )
        return wrong, value and value[0]
