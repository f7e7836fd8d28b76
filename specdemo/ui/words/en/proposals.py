"""Words of the part `proposals` of the page."""

from __future__ import annotations

LEAD = "What would each method have drafted here? Choose a position in the target's answer: every drafter guesses from there, one after the other, and the target judges each guess."
PROMPT = "Prompt of the text"
WRITE, STOP = "Generate", "Stop"
RECORDED_LABEL = "Recorded texts"
RECORDED = "Recorded, {runs} methods: {prompt}"
SETTINGS = "How they draft"
SYSTEM = "System prompt (optional)"
TOKENS = "Tokens of the text"
EXPLAIN = "What are the benefits of reading books?"
WAIT_LOADING = "The model is still loading. The text starts as soon as it is ready."
WAIT_TURN = "Waiting: whatever is timed takes turns. Yours starts by itself."
EMPTY, EMPTY_ADVICE = "The target wrote nothing.", "Try another prompt."
NO_POSITION = "There is no such place in the text. Choose a word of it."
NO_TEXT = "There is no text yet."
NO_TEXT_ADVICE = "Press Generate, then choose a position in the text."

WORDS: dict[str, object] = {
    "label": "Drafts at one position",
    "source": {"live": "measured", "recorded": "recorded"},
    "phase": {
        "empty": "Press Generate, or choose a recorded text.",
        "fetching": "The recorded runs are being read.",
        "missing": "A recorded run could not be read. Reload the page to try again.",
        "alone": "These runs have no position in common where they drafted.",
        "writing": "The target writes the text: {tokens} tokens so far.",
        "choose": "Choose a position: click a word, or drag.",
        "asking": "{method} drafts.",
        "done": "{count} of {all} methods drafted after token {position}.",
        "stopped": "Stopped.",
    },
    "recorded_about": "Each method drafted here in a run of its own: {machine}. Dotted: positions where two or more methods drafted.",
    "text": "The target's answer; the drafters guess what comes after the chosen position",
    "place": "Position in the text",
    "place_of": "after token {position} of {tokens}",
    "earlier": "One position back",
    "later": "One position forward",
    "rows": "What each method would have drafted here",
    "target": "The target says",
    "target_hint": "This is how the answer continues.",
    "agree": "“{word}” is the first guess of {count} of {all}",
    "agree_right": "“{word}” is the first guess of {count} of {all}, and the target wrote it",
    "agree_wrong": "“{word}” is the first guess of {count} of {all}; the target wrote “{own}”",
    "silent": "Nothing is guessed here by {count}",
    "unrecorded": "No recorded run of this text shows: {methods}.",
    "facts": "{kept} of {drafted} kept · {milliseconds} ms",
    "facts_tree": "{kept} kept, {drafted} nodes · {milliseconds} ms",
    "facts_hint": "Drafted tokens that the target kept, and milliseconds of drafting, {origin}",
    "nothing": "Drafts nothing here: {reason}",
    "nothing_alone": "Drafts nothing here.",
    "next": "With the target's own token that makes {tokens} tokens in one pass.",
    "tree_caption": "{drafted} nodes, {accepted} kept",
    "waiting": "waits",
    "lossy": "lossy by design",
    "note": "Each method starts fresh at this position and remembers nothing of the run. Its time is that of a second take, after a warm-up.",
}
