"""Words of the methods, as the methods' own entries say them, and why one may be missing."""

from __future__ import annotations

from specdemo.session.menu import method_needs, method_summaries, method_titles
from specdemo.ui.words.en import LOSSY as _LOSSY
from specdemo.ui.words.en import UNAVAILABLE as _UNAVAILABLE

TITLES = method_titles()
MARKED = [f"{{title}} ({marks})" for marks in (_LOSSY, _UNAVAILABLE, f"{_LOSSY}, {_UNAVAILABLE}")]
SUMMARIES = method_summaries()
NEEDED = method_needs()
MISSING = {
    "draft": "The target has no draft model.",
    "unknown": "No draft is known for this target.",
    "copy": "The target itself already runs in {precision}; load it in bf16 or fp32 to draft with a quantised copy.",
    "trained": "Nobody has trained {what} for {name} yet: {command} makes one.",
    "store": "There is no datastore for this target; {command} builds one.",
}

WORDS: dict[str, object] = {
    "label": "All methods",
    "columns": [
        "method",
        "guesses with",
        "needs",
        "recorded",
        "pays when",
        "how it works",
        "try it",
    ],
    "nothing": "nothing",
    "unsaid": "–",
    "reading": "…",
    "gain": "{speedup}× on {target}",
    "try": "Try it",
    "race": "Race it",
    "watch": "Watch it",
    "of": "{label}: {method}",
    "guesses": {
        "auto": "a lookup or the draft model",
        "draft_model": "a small language model",
        "tree": "a small language model, several branches",
        "feature": "a layer that reads the target's states",
        "feature_tree": "the same, several branches",
        "exit": "the target's own first layers",
        "medusa": "extra heads on the target",
        "medusa_static": "extra heads on the target",
        "block": "one pass for a whole block",
        "jet": "one pass for a whole block",
        "ngram": "a lookup in the text",
        "retrieval": "a lookup in earlier answers",
        "composite": "a lookup, then the draft model",
        "online": "a draft model that learns",
        "parallel": "a draft model that works ahead",
        "quantised_self": "a 4-bit copy of the target",
        "look_back": "the draft model, with a mistake",
        "nothing": "no guess",
    },
    "pays": {
        "auto": "you do not know which method pays",
        "draft_model": "the target is many times as large as the draft",
        "tree": "further rows of a pass cost little, as on a GPU",
        "feature": "a reader was trained for the target",
        "feature_tree": "a reader was trained and further rows cost little",
        "exit": "the target has many layers",
        "medusa": "further rows cost little, and memory is short",
        "medusa_static": "the same; to compare with the paper",
        "block": "a pass of the draft costs much beside its tokens",
        "jet": "the same, and further rows cost little",
        "ngram": "the answer repeats the prompt: edits, code, summaries",
        "retrieval": "answers resemble those of before",
        "composite": "parts of the answer repeat and others do not",
        "online": "the same kind of text is asked for again",
        "parallel": "a core is idle while the target works",
        "quantised_self": "the target runs in 16 bits or more",
        "look_back": "never: it changes the text, and shows how",
        "nothing": "drafts are seldom right",
    },
}
