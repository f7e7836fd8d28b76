"""Table of all methods, results of the last audit, and the training card of the chosen method."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import gradio as gr

from specdemo.config.strings import ASSETS, strings
from specdemo.session.door import EngineClient
from specdemo.trace.replay import RUNS, recorded_runs
from specdemo.ui import words
from specdemo.ui.run_tab import QUICK
from specdemo.ui.view import Tab, mounted, only

WORDS = {**strings("methods").WORDS, "lossy": words.LOSSY}

SHOWN_RUNS = 4  # recorded runs of a method that are shown
MEASURED = ASSETS.parent / "docs" / "measured"  # in a checkout only


@dataclass(frozen=True, slots=True)
class Methods:
    """Components of the tab for other parts of the page. table: its event `sent` leaves `race NAME`; card: the chosen method's"""

    table: gr.HTML
    card: gr.HTML


def create_methods(studio: EngineClient) -> Methods:
    """Create the tab's components, inside its tab."""
    gr.Markdown(words.METHODS_LEAD, elem_classes="sd-lead")
    table = mounted(
        methods_value(studio, RUNS),
        "methods/table.js",
        "mountMethods",
        "sd-methods",
        own_words=WORDS,
    )
    gr.HTML(f"<h2>{words.PROOF}</h2>", apply_default_css=False, elem_classes="sd-heading")
    own = only("audit")
    audit = mounted("null", "methods/audit.js", "mountAudit", "sd-audit", own_words=own)
    with gr.Accordion(words.TRAINING, open=False):
        card = mounted("{}", "methods/card.js", "mountCard", "sd-card", own_words=only("card"))
    gr.on(None, partial(last_audit, studio), None, audit, **QUICK)  # when the page is opened
    gr.on(None, partial(methods_value, studio, RUNS), None, table, **QUICK)
    return Methods(table, card)


def methods_value(studio: EngineClient, folder: Path) -> str:
    """Return the content of the table: every method, its availability and its recorded runs; and whether there is a model.

    A run names its target; targets are listed largest first.
    """
    runs: dict[str, list[dict[str, str]]] = {}
    sizes: dict[str, int] = {}
    for run in recorded_runs(folder):
        if run.settings.get("sampling") or run.settings.get("policy", "cost") != "cost":
            continue  # not typical of its method: sampled, or with a deliberately wrong lookahead
        with (folder / f"{run.name}.jsonl").open(encoding="utf-8") as lines:
            target = json.loads(next(lines)).get("target") or {}
        name = target.get("name", "")
        known = runs.setdefault(run.settings["method"], [])
        known.append({"name": run.name, "target": name})
        sizes[name] = target.get("parameters") or 0
    methods = [
        asdict(method) | {"runs": runs.get(method.name, [])[:SHOWN_RUNS]}
        for method in studio.methods()
    ]
    targets = sorted(sizes, key=lambda name: -sizes[name])
    return json.dumps(
        {
            "methods": methods,
            "targets": targets,
            "live": not studio.replay_only,
            "measured": measured_results(MEASURED),
        }
    )


def measured_results(folder: Path) -> list[dict[str, object]]:
    """Return the project's measured results of methods by target, machine, sampling and task, from every file of pairs there."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
    return [
        {
            "target": pair["target"],
            "machine": found["machine"],
            "date": found["date"],
            "sampling": pair["preset"],
            "task": row["task"],
            "method": row["lane"],
            "speedup": row["speedup"],
            "quartiles": row["speedup_quartiles"],
            "answers": row["answers"],
            "repeats": row["repeats"],
            "tokens_per_step": row["tokens_per_step"],
            "memory": row["memory_mb"],
        }
        for found in files
        for pair in found.get("pairs", [])
        for row in pair["rows"]
    ]


def last_audit(studio: EngineClient, folder: Path = MEASURED) -> str:
    """Return the value of the audit view: the last audit of this machine, else the recorded one, marked as such."""
    found = studio.last_audit()
    if found is None:
        for path in sorted(folder.glob("*-audit.json"))[-1:]:
            recorded = json.loads(path.read_text(encoding="utf-8"))
            return json.dumps({**recorded, "recorded": True})
    return json.dumps(found)


def _site(studio: EngineClient, runs: Path) -> dict[str, object]:
    return {"value": methods_value(studio, runs), "words": WORDS}


TAB = Tab(6, "methods", words.TAB_METHODS, create_methods, _site)
