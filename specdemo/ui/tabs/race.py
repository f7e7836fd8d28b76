"""Two to four runs of the same prompt, one after the other, replayed on one clock."""

from __future__ import annotations

import uuid
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, TypeAlias

import gradio as gr
from gradio.components import Component

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings
from specdemo.config.strings import Json, strings
from specdemo.session.admission import TIMED
from specdemo.session.door import EngineClient, MethodInfo
from specdemo.session.work.race import LEAST, MOST, RecordedRace, recorded_races, run_race
from specdemo.trace.codec import encode
from specdemo.trace.replay import RUNS
from specdemo.ui import present
from specdemo.ui import words as page
from specdemo.ui.checks import asked_settings, asked_text
from specdemo.ui.run_tab import (
    QUICK,
    YIELD_SECONDS,
    Follow,
    Lines,
    RunTab,
    TabState,
    create_ask,
    create_state,
)
from specdemo.ui.settings_panel import create_widget
from specdemo.ui.view import Tab, mounted
from specdemo.ui.visits import check_run

words = strings("race")

TOKENS = 96
LANE_SETTINGS = ("method", "policy", "lookahead")  # settings of each single run
# Prompt, temperature and seed of a set-up, and the LANE_SETTINGS of each of its runs.
Preset: TypeAlias = tuple[str, float, int, Sequence[tuple[str, str, int]]]
PLAIN_LANE, DRAFT_LANE = ("nothing", "cost", 8), ("draft_model", "cost", 8)
POEM = "Write a surreal poem about a clock that dreams of the sea, with unusual words."
# Set-ups by the names of their titles, in the order of their buttons.
PRESETS: Mapping[str, Preset] = {
    "plain": (words.EXPLAIN, 0.0, 0, [PLAIN_LANE, DRAFT_LANE]),
    "tree": (words.EXPLAIN, 0.0, 0, [PLAIN_LANE, ("draft_model", "cost", 6), ("tree", "cost", 6)]),
    "policies": (
        words.EXPLAIN,
        0.0,
        0,
        [PLAIN_LANE, ("draft_model", "constant", 4), ("draft_model", "confidence", 8), DRAFT_LANE],
    ),
    "bad_draft": (POEM, 1.0, 3, [PLAIN_LANE, DRAFT_LANE, ("draft_model", "constant", 16)]),
}


@dataclass(frozen=True, slots=True)
class Race:
    """Components of the tab for other parts of the page.

    setup: the outputs of `against_plain`
    follow: (handler, inputs, outputs) of each event after another model was loaded
    """

    setup: list[Component]
    follow: Sequence[Follow]


class RaceHandlers(RunTab[TabState]):
    """Handlers of the race; each visitor has one at a time."""

    words = words
    kind: ClassVar[str | None] = TIMED
    recorded: Sequence[RecordedRace]

    def __init__(self, studio: EngineClient, folder: Path = RUNS) -> None:
        super().__init__(studio)
        self.recorded = recorded_races(folder)

    def title(self, index: int) -> str:
        race = self.recorded[index]
        if race.precisions:
            names = " / ".join(dict.fromkeys(lane.run.precision for lane in race.lanes))
            return str(words.RECORDED_PRECISIONS.format(precisions=names, prompt=race.prompt))
        return str(words.RECORDED.format(lanes=len(race.lanes), prompt=race.prompt))

    def recording(self, index: int) -> str:
        return recorded_lines(self.recorded[index], self.studio.methods())

    def watch_loading(self, *methods: str) -> tuple[object, ...]:
        """Poll until loading has ended. returns: the timer, and the menus of methods"""
        choices = present.method_choices(self.studio.methods())
        return gr.Timer(active=self.studio.progress() is not None), *(
            gr.update(choices=choices) for _ in methods
        )

    def offered(self, *asked: str) -> tuple[object, ...]:
        """Handle the choice of a method. asked: method and policy of each run. returns: updates of policy and lookahead"""
        methods = {method.name: method for method in self.studio.methods()}
        return tuple(
            gr.update(**present.option_update(methods[name], option, policy))
            for name, policy in zip(asked[::2], asked[1::2], strict=True)
            for option in ("policy", "lookahead")
        )

    def opening(self, visitor: TabState, waiting: str, *asked: object) -> str:
        return present.open_line("live", uuid.uuid4().hex, waiting=waiting)

    def work(
        self,
        visitor: TabState,
        lines: Lines,
        prompt: str | None,
        count: int,
        values: Mapping[str, object],
    ) -> Generator[None, None, None]:
        """Run the race. count: of runs; values: see `read_lanes`"""
        lines.restart(present.open_line("live", uuid.uuid4().hex, title=prompt or ""))
        lanes, prompt = read_lanes(values, self.studio.settings)[:count], asked_text(prompt)
        if not prompt.strip():
            raise UserError("race.no_prompt")
        methods = self.studio.methods()
        named = [lane_title(methods, lane.method, lane.to_dict()) for lane in lanes]
        lines.add(*(lane_line(index, title) for index, title in enumerate(named)))
        race = run_race(self.studio, prompt, lanes, cancel=lines.task.cancel, every=YIELD_SECONDS)
        with closing(race):
            for index, event in race:
                if event is None:
                    check_run(self.studio)
                lines.add(lane_line(index, named[index]) if event is None else encode(event) + "\n")
                yield
        lines.add(RACED)


def read_lanes(values: Mapping[str, object], limits: AppSettings) -> list[RunSettings]:
    """Return the settings of all runs. Raises UserError.

    values: common settings by name, and a run's own with its number, as `method 1`
    """
    shared = {name: value for name, value in values.items() if " " not in name}
    numbers = sorted({name.split()[1] for name in values if " " in name})
    return [
        asked_settings(
            {
                **shared,
                **{name: values[f"{name} {number}"] for name in LANE_SETTINGS},
                "fallback": False,
            },
            limits,
        )
        for number in numbers
    ]


def create_race(studio: EngineClient) -> Race:
    """Create the tab's components and their events. Call it inside the tab."""
    handlers = RaceHandlers(studio)
    task = create_state()
    prompt, start, stop, presets, recorded = create_ask(
        handlers, "race", ("start", words.START), [words.PRESETS[name] for name in PRESETS]
    )
    count, fields, lanes = _create_setup(handlers)
    view = mounted(
        handlers.recording(0) if handlers.recorded else present.open_line("live", "empty"),
        "race/race.js",
        "mountRace",
        "sd-race-view",
        own_words={"view": page.VIEW, **words.WORDS},
    )
    preset_of = [fields["temperature"], fields["seed"], count]
    preset_of += [component for _, lane in lanes for component in lane.values()]
    methods = [lane["method"] for _, lane in lanes]

    count.change(
        lambda count: [gr.update(visible=index < count) for index in range(MOST)],
        count,
        [column for column, _ in lanes],
        **QUICK,
    )
    pressed = [start.click, prompt.submit]
    handlers.connect(pressed, stop, task, view, [prompt, count], fields)
    recorded.input(handlers.replay, [task, recorded], view, **QUICK)
    for button, preset in zip(presets, PRESETS.values(), strict=True):
        button.click(
            lambda preset=preset: _preset(preset),
            None,
            [prompt, *preset_of],
            **QUICK,
        )
    timer = gr.Timer(1)
    asked = [lane[name] for _, lane in lanes for name in ("method", "policy")]
    depends = [lane[name] for _, lane in lanes for name in ("policy", "lookahead")]
    known = (handlers.watch_loading, methods, [timer, *methods])
    offered = (handlers.offered, asked, depends)
    timer.tick(*known, **QUICK).then(*offered, **QUICK)
    return Race([prompt, *preset_of], (known, offered))


def _create_setup(
    handlers: RaceHandlers,
) -> tuple[gr.Radio, Json, list[tuple[gr.Column, Json]]]:
    """Create the set-up of a race. returns: number of runs, settings by name, and the column of each run with its own"""
    with gr.Accordion(words.PRESETS_LABEL, open=False, elem_id="sd-race-setup"):
        with gr.Row():
            count = gr.Radio(list(range(LEAST, MOST + 1)), value=LEAST, label=words.COUNT)
            fields = {
                "max_new_tokens": create_widget(
                    "max_new_tokens", value=TOKENS, minimum=16, maximum=256
                ),
                "temperature": create_widget("temperature"),
                "seed": create_widget("seed", info=None),
            }
        with gr.Row(elem_classes="sd-race-lanes"):
            lanes = [_create_lane(handlers, number) for number in range(1, MOST + 1)]
        gr.Markdown(words.NOTE, elem_classes="sd-note")
    for number, (_, lane) in enumerate(lanes, 1):
        fields |= {f"{name} {number}": component for name, component in lane.items()}
    return count, fields, lanes


def _create_lane(handlers: RaceHandlers, number: int) -> tuple[gr.Column, Json]:
    """Create the column of one run, with its own settings by name. Defaults are from the first set-up with that many runs."""
    known = {method.name: method for method in handlers.studio.methods()}
    wanted = next(lanes[number - 1] for *_, lanes in PRESETS.values() if len(lanes) >= number)
    name, policy, lookahead = wanted
    chosen = known.get(name) or next(iter(known.values()))
    with gr.Column(visible=number <= LEAST, min_width=200) as column:
        lane = {
            "method": create_widget(
                "method",
                present.method_choices(list(known.values())),
                value=chosen.name,
                label=f"{words.LANE.format(number=number)}: {page.SETTINGS['method']}",
                elem_id=f"sd-race-method-{number}",
            ),
            "policy": create_widget(
                "policy", value=policy, visible="policy" in chosen.options or "hidden"
            ),
            "lookahead": create_widget(
                "lookahead", value=lookahead, visible="lookahead" in chosen.options or "hidden"
            ),
        }
    asked, depends = [lane["method"], lane["policy"]], [lane["policy"], lane["lookahead"]]
    lane["method"].change(handlers.offered, asked, depends, **QUICK)
    return column, lane


def against_plain(method: str) -> list[object]:
    """Return a set-up: plain decoding, and a method by the name that the menu of methods has."""
    return _preset((words.EXPLAIN, 0.0, 0, [PLAIN_LANE, (method, "cost", 8)]))


def _preset(preset: Preset) -> list[object]:
    """Return values of prompt, temperature, seed, count and the runs' settings; settings of unused runs stay unchanged."""
    prompt, temperature, seed, lanes = preset
    used = [value for lane in lanes for value in lane]
    unused = [gr.skip()] * (3 * (MOST - len(lanes)))
    return [prompt, temperature, seed, len(lanes), *used, *unused]


RACED = present.line("raced")  # all runs have ended; a notice ends a race too


def lane_line(index: int, title: str, **recorded: str) -> str:
    """Return the line before the events of a run. recorded: `run` and `lane` if the events are in a recorded run"""
    return present.line("lane", index=index, title=title, **recorded)


def recorded_lines(race: RecordedRace, methods: Sequence[MethodInfo]) -> str:
    """Return the lines of a recorded race, whose runs the script fetches."""
    lanes = []
    for lane in race.lanes:
        title = lane_title(methods, lane.method, lane.run.settings)
        if race.precisions:
            title = words.TITLE_PRECISION.format(precision=lane.run.precision, title=title)
        lanes.append({"title": title, "run": lane.run.name, "lane": lane.lane})
    opening = present.open_line("recorded", uuid.uuid4().hex, title=race.prompt)
    return opening + "".join(lane_line(i, **lane) for i, lane in enumerate(lanes)) + RACED


def lane_title(methods: Sequence[MethodInfo], name: str, settings: Mapping[str, object]) -> str:
    """Return the title of a run: its method, and its lookahead by the settings that the method reads."""
    method = next((one for one in methods if one.name == name), None)
    options = method.options if method else ("policy", "lookahead")
    if "lookahead" not in options:
        pattern = "{method}"
    elif "policy" not in options:
        pattern = words.TITLE_DEPTH
    else:
        fixed = settings.get("policy") == "constant"
        pattern = words.TITLE_FIXED if fixed else words.TITLE_POLICY
    policy = settings.get("policy", RunSettings().policy)
    return pattern.format(
        method=method.title if method else name,
        policy=words.POLICIES.get(policy, policy),
        lookahead=settings.get("lookahead", RunSettings().lookahead),
    )


TAB = Tab(2, "race", page.TAB_RACE, create_race, lambda *site: RaceHandlers(*site).site())
