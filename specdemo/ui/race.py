"""Two to four lanes on the same prompt and clock, each really run, replayed together."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gradio as gr

from specdemo.errors import UserError
from specdemo.scenarios.race import LEAST, MOST, NOTHING, RecordedRace, recorded_races, run_race
from specdemo.session.studio import Studio
from specdemo.settings import MAX_LOOKAHEAD, RunSettings, Sampling
from specdemo.trace.codec import encode
from specdemo.ui import present
from specdemo.ui import words as page
from specdemo.ui.handlers import LOADING_SECONDS, YIELD_SECONDS
from specdemo.ui.panels import shown
from specdemo.ui.view import RUNS, mounted
from specdemo.ui.words.en import race as words

TOKENS = 96
ALONE = {"concurrency_id": "alone", "concurrency_limit": 1}  # what is timed takes turns
QUICK: dict[str, Any] = {"queue": False, "show_progress": "hidden"}


@dataclass(slots=True)
class Switch:
    """What stops one visitor's race; when `dropped`, it shows nothing more either."""

    cancel: threading.Event = field(default_factory=threading.Event)
    dropped: bool = False

    def drop(self) -> None:
        """Something else is wanted, or nobody is there any more."""
        self.dropped = True
        self.cancel.set()


class Races:
    """Handlers bound to one studio; they hold nothing of a visitor, that is what `Switch` is for."""

    def __init__(self, studio: Studio, folder: Path = RUNS) -> None:
        self.studio = studio
        self.recorded = recorded_races(folder)

    def titles(self) -> dict[str, str]:
        """The methods' titles by name."""
        return {method.name: method.title for method in self.studio.methods()}

    def first(self) -> str:
        """What the tab shows before anything was run: the first recorded race."""
        return self.stream(0) if self.recorded else present.open_line("live", "empty")

    def choices(self) -> list[tuple[str, int]]:
        """Entries of the menu of recorded races."""
        return [(_recorded_title(race), place) for place, race in enumerate(self.recorded)]

    def replay(self, switch: Switch | None, place: int | None) -> object:
        """A recorded race was chosen; one that still runs gives way to it. returns: stream"""
        if switch is not None:
            switch.drop()
        return gr.skip() if place is None else self.stream(place)

    def stream(self, place: int) -> str:
        """A recorded race; its runs are fetched by the script."""
        race, titles = self.recorded[place], self.titles()
        lanes = []
        for lane in race.lanes:
            title = lane_title(titles, lane.method, lane.settings)
            if race.precisions:
                title = words.TITLE_PRECISION.format(precision=lane.precision, title=title)
            lanes.append({"title": title, "run": lane.run, "lane": lane.lane})
        opening = present.open_line("recorded", uuid.uuid4().hex, title=race.prompt)
        return opening + "".join(lane_line(i, **lane) for i, lane in enumerate(lanes)) + RACED

    def watch_loading(self, *methods: str) -> tuple[object, ...]:
        """returns: the timer, off once there is nothing to wait for, and the menus of methods"""
        choices = present.method_choices(self.studio.methods())
        return gr.Timer(active=self.studio.progress() is not None), *(
            gr.update(choices=choices) for _ in methods
        )

    def options(self, name: str) -> tuple[object, ...]:
        """A lane's method was chosen. returns: updates of its policy and its lookahead"""
        chosen = next(method for method in self.studio.methods() if method.name == name)
        return tuple(gr.update(visible=shown(chosen, option)) for option in ("policy", "lookahead"))

    def begin(self, switch: Switch | None) -> tuple[Switch, object]:
        """Race was pressed; answered at once. returns: the switch of this race, stream"""
        if switch is not None:
            switch.drop()
        if self.studio.replay_only:
            gr.Info(str(self.studio.replay_only), duration=None)
            return Switch(dropped=True), gr.skip()
        waiting = words.WAIT_TURN if self.studio.ready else words.WAIT_LOADING
        return Switch(), present.open_line("live", uuid.uuid4().hex, waiting=waiting)

    def run(
        self, switch: Switch, prompt: str | None, count: int, *controls: object
    ) -> Iterator[object]:
        """The race itself. yields: the stream, longer each time"""
        cancel = switch.cancel
        while not (
            switch.dropped or self.studio.ready or self.studio.error or cancel.wait(LOADING_SECONDS)
        ):
            yield gr.skip()  # a closed browser is noticed here
        if switch.dropped:
            yield gr.skip()
            return
        key = uuid.uuid4().hex
        stream, seen = present.open_line("live", key, title=prompt or ""), time.monotonic()
        try:
            lanes = read_lanes(controls)[:count]
            if not (prompt or "").strip():
                raise UserError(words.EMPTY, advice=words.EMPTY_ADVICE)
            titles = self.titles()
            named = [lane_title(titles, lane.method, lane.to_dict()) for lane in lanes]
            stream += "".join(lane_line(place, title) for place, title in enumerate(named))
            with closing(
                run_race(self.studio, prompt or "", lanes, cancel=cancel, every=YIELD_SECONDS)
            ) as race:
                for place, event in race:
                    stream += lane_line(place, named[place]) if event is None else _line(event)
                    if time.monotonic() - seen >= YIELD_SECONDS and not switch.dropped:
                        yield stream
                        seen = time.monotonic()
        except UserError as error:
            stream += present.notice_line(error)
        except Exception as error:  # noqa: BLE001 - a visitor is owed a sentence, not a stack trace
            stream += present.notice_line(unexpected(error))
        finally:
            cancel.set()  # also when the browser has gone
        yield gr.skip() if switch.dropped else stream + RACED

    def stop(self, switch: Switch | None) -> None:
        """Stop was pressed: the lane ends within one step, and what has run is kept."""
        if switch is not None:
            switch.cancel.set()


def unexpected(error: Exception) -> UserError:
    """A sentence for what nobody has foreseen."""
    return UserError(
        page.UNEXPECTED.format(error=error),
        unharmed=page.UNEXPECTED_UNHARMED,
        advice=page.UNEXPECTED_ADVICE,
    )


def lane_line(index: int, title: str, **recorded: str) -> str:
    """Whose the events after it are. recorded: `run` and `lane` where they lie in a recorded run instead"""
    return json.dumps({"type": "lane", "index": index, "title": title, **recorded}) + "\n"


RACED = json.dumps({"type": "raced"}) + "\n"  # no lane runs any more


def _line(event: Any) -> str:
    return encode(event) + "\n"


def lane_title(titles: Mapping[str, str], method: str, settings: Mapping[str, Any]) -> str:
    """What a lane is called: its method, and how far it drafts."""
    title, policy = titles.get(method, method), settings.get("policy", "cost")
    if method == NOTHING:
        return title
    pattern = words.TITLE_FIXED if policy == "constant" else words.TITLE_POLICY
    if method == "auto":
        pattern = words.TITLE_DEPTH
    return pattern.format(
        method=title,
        policy=words.POLICIES.get(policy, policy),
        lookahead=settings.get("lookahead", RunSettings().lookahead),
    )


def read_lanes(controls: Sequence[object]) -> list[RunSettings]:
    """Settings of all lanes. controls: temperature, tokens, seed, then method, policy and lookahead of each lane"""
    temperature, tokens, seed, *rest = controls
    try:
        sampling = Sampling(temperature=float(temperature), seed=int(seed))
        return [
            RunSettings(
                method=str(method),
                policy=str(policy),
                lookahead=int(lookahead),
                fallback=False,
                max_new_tokens=int(tokens),
                sampling=sampling,
            )
            for method, policy, lookahead in zip(rest[::3], rest[1::3], rest[2::3], strict=True)
        ]
    except (TypeError, ValueError) as error:
        raise UserError(words.SETTING, advice=words.SETTING_ADVICE) from error


def _recorded_title(race: RecordedRace) -> str:
    if race.precisions:
        names = " / ".join(dict.fromkeys(lane.precision for lane in race.lanes))
        return words.RECORDED_PRECISIONS.format(precisions=names, prompt=race.prompt)
    return words.RECORDED.format(lanes=len(race.lanes), prompt=race.prompt)


def create_race(studio: Studio) -> None:
    """The tab's components and what they do. Called inside its tab."""
    races = Races(studio)
    switch = gr.State(None, time_to_live=3600, delete_callback=_leave)
    gr.Markdown(words.LEAD, elem_classes="sd-lead")
    with gr.Row(elem_classes="sd-race-ask"):
        prompt = gr.Textbox(
            words.EXPLAIN,
            label=words.PROMPT,
            show_label=False,
            container=False,
            lines=1,
            max_lines=3,
            scale=8,
            elem_id="sd-race-prompt",
        )
        start = gr.Button(words.START, variant="primary", scale=1, elem_id="sd-race-start")
        stop = gr.Button(words.STOP, scale=1, elem_id="sd-race-stop")
    with gr.Row(elem_classes="sd-race-presets"):
        presets = [gr.Button(title, size="sm") for title, *_ in words.PRESETS]
        recorded = gr.Dropdown(
            races.choices(),
            value=0 if races.recorded else None,
            label=words.RECORDED_LABEL,
            show_label=False,
            container=False,
            elem_id="sd-race-recorded",
        )
    with gr.Accordion(words.PRESETS_LABEL, open=False, elem_id="sd-race-setup"):
        with gr.Row():
            count = gr.Radio(list(range(LEAST, MOST + 1)), value=LEAST, label=words.COUNT)
            tokens = gr.Slider(16, 256, TOKENS, step=8, label=words.TOKENS)
            temperature = gr.Slider(0, 2, 0, step=0.05, label=words.TEMPERATURE)
            seed = gr.Number(0, precision=0, minimum=0, label=words.SEED)
        with gr.Row(elem_classes="sd-race-lanes"):
            lanes = [_create_lane(races, place) for place in range(MOST)]
        gr.Markdown(words.NOTE, elem_classes="sd-note")
    view = mounted(
        races.first(),
        "race/race.js",
        "mountRace",
        "sd-race-view",
        own_words={"view": page.VIEW, **words.WORDS},
    )
    columns = [column for column, *_ in lanes]
    inputs = [component for _, *components in lanes for component in components]
    methods = inputs[::3]

    count.change(_lanes_shown, count, columns, **QUICK)
    started = gr.on([start.click, prompt.submit], races.begin, switch, [switch, view], **QUICK)
    started.then(
        races.run,
        [switch, prompt, count, temperature, tokens, seed, *inputs],
        view,
        show_progress="hidden",
        **ALONE,
    )
    stop.click(races.stop, switch, None, **QUICK)
    recorded.input(races.replay, [switch, recorded], view, **QUICK)
    for button, preset in zip(presets, words.PRESETS, strict=True):
        button.click(
            lambda preset=preset: _preset(preset),
            None,
            [prompt, temperature, seed, count, *inputs],
            **QUICK,
        )
    timer = gr.Timer(1)
    timer.tick(races.watch_loading, methods, [timer, *methods], **QUICK)


def _create_lane(races: Races, place: int) -> tuple[gr.Column, gr.Dropdown, gr.Dropdown, gr.Slider]:
    """A lane's column, method, policy and lookahead; as the first set-up that has so many lanes wants them."""
    known = {method.name: method for method in races.studio.methods()}
    wanted = [lanes[place] for *_, lanes in words.PRESETS if len(lanes) > place]
    name, policy_name, ahead = wanted[0]
    chosen = known.get(name) or next(iter(known.values()))
    with gr.Column(visible=place < LEAST, min_width=200) as column:
        method = gr.Dropdown(
            present.method_choices(list(known.values())),
            value=chosen.name,
            label=f"{words.LANE.format(number=place + 1)}: {words.METHOD}",
            elem_id=f"sd-race-method-{place + 1}",
        )
        policy = gr.Dropdown(
            [(title, name) for name, title in page.POLICIES.items()],
            value=policy_name,
            label=words.POLICY,
            visible=shown(chosen, "policy"),
        )
        lookahead = gr.Slider(
            1,
            MAX_LOOKAHEAD,
            ahead,
            step=1,
            label=words.LOOKAHEAD,
            visible=shown(chosen, "lookahead"),
        )
    method.change(races.options, method, [policy, lookahead], **QUICK)
    return column, method, policy, lookahead


def _leave(switch: Switch | None) -> None:
    if switch is not None:
        switch.drop()


def _lanes_shown(count: int) -> list[object]:
    return [gr.update(visible=place < count) for place in range(MOST)]


def _preset(preset: tuple[Any, ...]) -> list[object]:
    """Values of prompt, temperature, seed, count and the lanes; lanes that are not used stay as they are."""
    _, prompt, temperature, seed, lanes = preset
    used = [value for lane in lanes for value in lane]
    unused = [gr.skip()] * (3 * (MOST - len(lanes)))
    return [prompt, temperature, seed, len(lanes), *used, *unused]
