"""Words of the part `race` of the page."""

from __future__ import annotations

LEAD = "Two to four lanes answer the same prompt. Each one actually runs, alone, one after the other; then all are replayed together on one clock."
PROMPT = "Prompt of the race"
START, STOP = "Race", "Stop"
PRESETS_LABEL, RECORDED_LABEL = "Set up", "Recorded races"
COUNT = "Lanes"
LANE = "Lane {number}"
NOTE = "All lanes use the loaded target; another precision would be another target. To race one, load it under Models on the first tab, or run `python -m specdemo bench --precision`. Runs that are recorded in two precisions are in the menu of recorded races. “Stop drafting while it is slower” is off here, so that each lane shows its own method."
WAIT_TURN = (
    "Waiting: races take turns, so that they do not disturb each other. Yours starts by itself."
)
WAIT_LOADING = "The model is still loading. Your race starts as soon as it is ready."
EMPTY, EMPTY_ADVICE = "There is no prompt to race on.", "Type one, or choose a set-up."

# How lanes are called.
TITLE_POLICY = "{method}: {policy}, up to {lookahead}"
TITLE_FIXED = "{method}: always {lookahead}"
TITLE_DEPTH = "{method}: up to {lookahead} deep"
TITLE_PRECISION = "{precision}: {title}"
POLICIES = {
    "heuristic": "heuristic",
    "confidence": "by confidence",
    "learned": "learned",
    "cost": "by cost",
}
RECORDED = "Recorded, {lanes} lanes: {prompt}"
RECORDED_PRECISIONS = "Recorded, {precisions}: {prompt}"

EXPLAIN = "What are the benefits of reading books?"
POEM = "Write a surreal poem about a clock that dreams of the sea, with unusual words."
# (title, prompt, temperature, seed, lanes); a lane is (method, policy, lookahead).
PRESETS = (
    (
        "Plain vs. draft model",
        EXPLAIN,
        0.0,
        0,
        (("nothing", "cost", 8), ("draft_model", "cost", 8)),
    ),
    (
        "Chain vs. tree",
        EXPLAIN,
        0.0,
        0,
        (("nothing", "cost", 8), ("draft_model", "cost", 6), ("tree", "cost", 6)),
    ),
    (
        "Three policies",
        EXPLAIN,
        0.0,
        0,
        (
            ("nothing", "cost", 8),
            ("draft_model", "constant", 4),
            ("draft_model", "confidence", 8),
            ("draft_model", "cost", 8),
        ),
    ),
    (
        "Good draft vs. a deliberately bad one",
        POEM,
        1.0,
        3,
        (("nothing", "cost", 8), ("draft_model", "cost", 8), ("draft_model", "constant", 16)),
    ),
)

WORDS: dict[str, object] = {
    "label": "The race",
    "source": {"live": "measured", "recorded": "recorded"},
    "phase": {
        "empty": "Choose the lanes and press Race.",
        "fetching": "The recorded runs are being read.",
        "missing": "A recorded run could not be read. Reload the page to try again.",
        "warming": "Lane {lane} of {lanes} warms up; nothing of it is timed.",
        "running": "Lane {lane} of {lanes} runs alone: {tokens} tokens so far. The race starts when all have run.",
        "ready": "All have run, one after the other. Press play to see them race.",
        "racing": "All at once, on one clock of decoding time; reading the prompt is not included.",
        "over": "The race is over.",
        "cut": "Stopped: what has run is shown.",
    },
    "recorded_about": "Each lane was recorded in its own run: {machine}.",
    "shared": "Measured while up to {runs} runs shared the model: lanes are slower than alone.",
    "start": "To the start (Home)",
    "play": "Play (Space)",
    "pause": "Pause (Space)",
    "end": "To the finish (End)",
    "scrub": "Time in the race",
    "speed": "Speed of the replay",
    "clock_of": "{now} of {all} s",
    "controls": "Replay of the race",
    "lane_waiting": "waiting for its turn",
    "lane_warming": "warming up",
    "lane_facts": "{tokens} tokens · {rate} tok/s",
    "lane_done": "{tokens} tokens in {seconds} s · {rate} tok/s",
    "lane_failed": "broke",
    "lane_stopped": "stopped",
    "lossy": "lossy by design",
    "rank": {"1": "1st", "2": "2nd", "3": "3rd", "4": "4th"},
    "finish": "Finish: {tokens} tokens",
    "track": "{title}: {tokens} of {goal} tokens",
    "margin": "{first} first, {seconds} s before {other}.",
    "chart": {
        "title": "Tokens over time",
        "label": "Chart: tokens written by each lane as time goes on",
        "x": "seconds of decoding",
        "y": "tokens",
    },
    "table": {
        "label": "Result of the race",
        "rank": "rank",
        "lane": "lane",
        "rate": "tokens/s, {origin}",
        "speedup": "over plain",
        "per_pass": "tokens per pass",
        "kept": "drafts kept",
        "seconds": "seconds",
        "tokens": "tokens",
        "no_plain": "There is no plain lane, so there is no speedup.",
        "finish": "Ranked by the time to the finish line at {tokens} tokens, which every lane reached.",
    },
    "times": "{speedup}×",
    "percent": "{percent} %",
    "copy": "Copy as Markdown",
    "copied": "Copied",
    "copy_failed": "The browser does not let this page copy. The table is selected: copy it with Ctrl+C.",
    "markdown_head": "Race on “{prompt}” ({origin}: {machine})",
    "same": {
        "all": "Every lane wrote the same {tokens} tokens.",
        "parts": "{lane} differs from {reference} from token {place} on: “{own}” instead of “{other}”.",
        "longer": "{lane} and {reference} are equal as far as both go, {tokens} tokens.",
        "greedy": "In a precision below fp32, a near-tie between two words can go the other way when a pass has more rows.",
        "sampled": "Drawn tokens may differ from method to method; the distribution that they are drawn from is the same.",
        "lossy": "{lane} is lossy by design: its text need not be the target's.",
        "precisions": "Another precision is another target: its text may differ.",
    },
}
