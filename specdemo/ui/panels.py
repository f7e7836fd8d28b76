"""The parts of the page: one function a panel, which returns its components."""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Literal

import gradio as gr

from specdemo.errors import UserError
from specdemo.session.menu import MethodInfo
from specdemo.session.studio import Studio
from specdemo.settings import MAX_LOOKAHEAD, MAX_NODES, PRECISIONS, RunSettings
from specdemo.ui import present, words
from specdemo.ui.runs import create_runs
from specdemo.ui.teach import create_teach_buttons
from specdemo.ui.view import ASSETS, audit_view, batch_view, card_view, note_view, status_view

EXAMPLES = ASSETS / "examples.json"
# The settings of a run by their names in a link, in the order of `Controls.inputs`.
INPUTS = (
    "method",
    "policy",
    "lookahead",
    "threshold",
    "nodes",
    "memory",
    "fallback",
    "baseline",
    "tokens",
    "temperature",
    "top_k",
    "top_p",
    "penalty",
    "seed",
)
# Settings that some methods read and others do not, in the order of `Controls.menu`.
OPTIONS = ("policy", "lookahead", "nodes", "memory", "threshold", "fallback")
TOGGLE_THEME = "() => { document.body.classList.toggle('dark'); }"


@dataclass(frozen=True, slots=True)
class Ask:
    """The prompt and its buttons."""

    prompt: gr.Textbox
    run: gr.Button
    stop: gr.Button
    new: gr.Button
    runs: gr.HTML


@dataclass(frozen=True, slots=True)
class Batch:
    """Several prompts, their buttons and their answers."""

    prompts: gr.Textbox
    run: gr.Button
    stop: gr.Button
    answers: gr.HTML


@dataclass(frozen=True, slots=True)
class Controls:
    """Settings of a run; `inputs` in the order that `handlers.read_controls` takes them.

    menu: what depends on the method, in the order of `handlers.Handlers.menu`
    """

    inputs: list[Any]
    method: gr.Dropdown
    menu: list[Any]
    forget: gr.Button
    system: gr.Textbox
    pair: gr.Dropdown
    precision: gr.Dropdown
    load: gr.Button


def create_header() -> tuple[gr.HTML, gr.Button]:
    """Name, one sentence, the model's status and the page's own buttons. returns: status, Share"""
    with gr.Row(elem_id="sd-header"):
        gr.HTML(
            f'<div class="sd-title"><h1>{words.TITLE}</h1><p>{words.SUBTITLE}</p></div>',
            apply_default_css=False,
        )
        status = status_view()
        share = create_teach_buttons()
        theme = gr.Button(words.THEME, size="sm", scale=0, elem_id="sd-theme")
    theme.click(None, js=TOGGLE_THEME)
    return status, share


def create_replay_note(why: UserError) -> None:
    """Why there are no live runs here, for as long as there are none."""
    sentences = (why.message, why.unharmed, why.advice)
    text = " ".join(escape(sentence) for sentence in sentences)
    gr.HTML(f'<p class="sd-replay-note">{text}</p>', apply_default_css=False, padding=False)


def create_ask() -> Ask:
    """The prompt, Run, Stop and New; under them the recorded runs and the examples."""
    with gr.Row(elem_id="sd-ask"):
        prompt = gr.Textbox(
            label=words.PROMPT,
            show_label=False,
            container=False,
            placeholder=words.PROMPT_HINT,
            lines=1,
            max_lines=4,
            scale=8,
            elem_id="sd-prompt",
        )
        run = gr.Button(words.RUN, variant="primary", scale=1, elem_id="sd-run")
        stop = gr.Button(words.STOP, scale=1, elem_id="sd-stop")
        new = gr.Button(words.NEW, scale=1, elem_id="sd-new")
    with gr.Row(elem_id="sd-starts"):
        runs = create_runs()
        with gr.Row(elem_id="sd-examples"):
            for example in read_examples(EXAMPLES):
                button = gr.Button(example["title"], size="sm")
                button.click(None, None, prompt, js=f"() => {json.dumps(example['prompt'])}")
    return Ask(prompt, run, stop, new, runs)


def create_controls(studio: Studio) -> Controls:
    """What can be chosen: the first minute's settings in sight, the rest folded away."""
    run = RunSettings()
    sampling = run.sampling
    methods = studio.methods()
    chosen = next((method for method in methods if method.name == run.method), methods[0])
    seen = {option: shown(chosen, option) for option in OPTIONS}
    policies = [(title, name) for name, title in words.POLICIES.items()]
    with gr.Column(scale=1, min_width=250, elem_id="sd-controls"):
        method = gr.Dropdown(
            present.method_choices(methods),
            value=chosen.name,
            label=words.METHOD,
            elem_id="sd-method",
        )
        note = note_view(present.method_note(chosen))
        policy = gr.Dropdown(
            policies,
            value=run.policy,
            label=words.POLICY,
            visible=seen["policy"],
            elem_id="sd-policy",
        )
        lookahead = gr.Slider(
            1,
            MAX_LOOKAHEAD,
            run.lookahead,
            step=1,
            label=words.LOOKAHEAD,
            visible=seen["lookahead"],
            elem_id="sd-lookahead",
        )
        nodes = gr.Slider(
            1,
            MAX_NODES,
            run.nodes,
            step=1,
            label=words.NODES,
            visible=seen["nodes"],
            elem_id="sd-nodes",
        )
        with gr.Row(visible=seen["memory"], elem_id="sd-memory") as learning:
            memory = gr.Checkbox(run.memory, label=words.MEMORY, min_width=100)
            forget = gr.Button(words.FORGET, size="sm", scale=0)
        temperature = gr.Slider(0, 2, sampling.temperature, step=0.05, label=words.TEMPERATURE)
        tokens = gr.Slider(8, 1024, run.max_new_tokens, step=8, label=words.MAX_TOKENS)
        with gr.Accordion(words.MORE, open=False):
            threshold = gr.Slider(
                0,
                1,
                run.threshold,
                step=0.05,
                label=words.THRESHOLD,
                visible=seen["threshold"],
                elem_id="sd-threshold",
            )
            fallback = gr.Checkbox(
                run.fallback,
                label=words.FALLBACK,
                visible=seen["fallback"],
                elem_id="sd-fallback",
            )
            baseline = gr.Checkbox(run.baseline, label=words.BASELINE)
            top_k = gr.Number(sampling.top_k, precision=0, minimum=0, label=words.TOP_K)
            top_p = gr.Slider(0.05, 1, sampling.top_p, step=0.05, label=words.TOP_P)
            penalty = gr.Slider(0.5, 2, sampling.repetition_penalty, step=0.05, label=words.PENALTY)
            seed = gr.Number(
                sampling.seed, precision=0, minimum=0, label=words.SEED, info=words.SEED_HINT
            )
            system = gr.Textbox(label=words.SYSTEM, lines=2)
        with gr.Accordion(words.MODEL, open=False):
            choices = [(pair.title, pair.target) for pair in studio.pairs()]
            pair = gr.Dropdown(
                choices, value=studio.settings.target, label=words.PAIR, allow_custom_value=True
            )
            precision = gr.Dropdown(
                list(PRECISIONS), value=studio.settings.precision, label=words.PRECISION
            )
            load = gr.Button(words.LOAD, size="sm")
    first = [method, policy, lookahead, threshold, nodes, memory, fallback, baseline, tokens]
    inputs = [*first, temperature, top_k, top_p, penalty, seed]
    menu = [method, note, policy, lookahead, nodes, learning, threshold, fallback]
    return Controls(inputs, method, menu, forget, system, pair, precision, load)


def shown(method: MethodInfo, option: str) -> bool | Literal["hidden"]:
    """Visibility of a setting: one that the method does not read keeps its value out of sight."""
    return True if option in method.options else "hidden"


def create_batch(most: int) -> Batch:
    """Several prompts at once, folded away. most: how many"""
    with gr.Accordion(words.BATCH, open=False, elem_id="sd-batch-box"):
        prompts = gr.Textbox(
            "\n".join(words.BATCH_EXAMPLES),
            label=words.BATCH_PROMPTS,
            info=words.BATCH_HINT.format(most=most),
            lines=4,
            max_lines=most,
            elem_id="sd-batch-prompts",
        )
        with gr.Row(elem_id="sd-batch-buttons"):
            run = gr.Button(words.BATCH_RUN, variant="primary", scale=0)
            stop = gr.Button(words.BATCH_STOP, scale=0)
        return Batch(prompts, run, stop, batch_view())


def create_proof() -> gr.HTML:
    """What the last audit proved, folded away."""
    with gr.Accordion(words.PROOF, open=False):
        return audit_view()


def create_training() -> gr.HTML:
    """The training card of the chosen method's weights, folded away."""
    with gr.Accordion(words.TRAINING, open=False):
        return card_view()


def read_examples(path: Path) -> list[dict[str, str]]:
    """The bundled examples: title, task and prompt each."""
    return json.loads(path.read_text(encoding="utf-8"))["examples"]
