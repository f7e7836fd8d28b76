"""Words of the part `proposals` of the page."""

from __future__ import annotations

LEAD = (
    "What would each have drafted here? Choose a place in the target's answer: every drafter guesses from there, "
    "alone and in turn, and the target judges each guess."
)
PROMPT = "Prompt of the text"
WRITE, STOP = "Write", "Stop"
RECORDED_LABEL = "Recorded texts"
RECORDED = "Recorded, {runs} methods: {prompt}"
SETTINGS = "How they draft"
SYSTEM = "System prompt (optional)"
TOKENS = "Tokens of the text"
EXPLAIN = "Give me a simple recipe for vegetable soup with ingredients and steps."
WAIT_LOADING = "The model is still loading. The text begins by itself as soon as it is ready."
WAIT_TURN = "Waiting: what is timed takes turns. Yours begins by itself."
EMPTY, EMPTY_ADVICE = "The target said nothing.", "Try another prompt."
NO_TEXT = "There is no text yet."
NO_TEXT_ADVICE = "Press Write; then choose a place in it."

WORDS: dict[str, object] = {
    "label": "Drafts at one place",
    "source": {"live": "measured", "recorded": "recorded"},
    "phase": {
        "empty": "Press Write, or choose a recorded one.",
        "fetching": "The recorded runs are being read.",
        "missing": "A recorded run could not be read. Reload the page to try again.",
        "alone": "These runs share no place where they drafted.",
        "writing": "The target writes the text: {tokens} tokens so far.",
        "choose": "Choose a place: click a word, or drag.",
        "asking": "{method} drafts.",
        "done": "{count} of {all} methods drafted after token {position}.",
        "stopped": "Stopped.",
    },
    "recorded_about": "Each method drafted here in a run of its own: {machine}. Marked are the places that two or more share.",
    "text": "The target's answer; what comes after the chosen place is what the drafters are after",
    "place": "Place in the text",
    "place_of": "after token {position} of {tokens}",
    "earlier": "One place back",
    "later": "One place on",
    "rows": "What each would have drafted here",
    "target": "The target says",
    "target_hint": "The answer goes on so.",
    "facts": "{kept} of {drafted} kept · {milliseconds} ms",
    "facts_tree": "{kept} kept, {drafted} nodes · {milliseconds} ms",
    "facts_hint": "Drafted tokens that the target kept, and milliseconds of drafting, {origin}",
    "nothing": "Drafts nothing here: {reason}",
    "nothing_alone": "Drafts nothing here.",
    "next": "With the target's own that is {tokens} tokens in one pass.",
    "tree_caption": "{drafted} nodes, {accepted} kept",
    "waiting": "waits",
    "lossy": "lossy by design",
    "note": "Each begins anew at this place and remembers nothing of the run; its time is that of a second take, after one that warms up.",
}
