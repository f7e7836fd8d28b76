"""All text that a visitor reads, in one place."""

from __future__ import annotations

from typing import Final

TITLE: Final = "specdemo"
TAGLINE: Final = "A small model drafts, the large one checks: the same text, sooner."

PROMPT_LABEL: Final = "Prompt"
PROMPT_HINT: Final = "Ask anything, or pick an example below. Ctrl+Enter runs, Esc stops."
RUN: Final = "Run"
STOP: Final = "Stop"
NEW: Final = "New"
THEME: Final = "Dark / light"

METHOD: Final = "Drafting method"
POLICY: Final = "Lookahead policy"
POLICIES: Final = {
    "constant": "Constant",
    "heuristic": "Heuristic: grow and shrink",
    "confidence": "Confidence: stop when unsure",
}
LOOKAHEAD: Final = "Lookahead"
LOOKAHEAD_HINT: Final = "Tokens drafted before the target checks them."
TEMPERATURE: Final = "Temperature"
TEMPERATURE_HINT: Final = "0 always takes the likeliest token."
MORE: Final = "More"
THRESHOLD: Final = "Confidence threshold"
FALLBACK: Final = "Stop drafting while it loses"
BASELINE: Final = "Measure plain decoding first"
SYSTEM: Final = "System prompt (optional)"
TOP_K: Final = "Top-k (0 = off)"
TOP_P: Final = "Top-p (1 = off)"
PENALTY: Final = "Repetition penalty (1 = off)"
SEED: Final = "Seed"
MAX_TOKENS: Final = "Maximum tokens"
PAIR: Final = "Model pair (target + draft)"
PRECISION: Final = "Precision of the target"
PRECISIONS: Final = {
    "nf4": "nf4 (4 bits)",
    "int8": "int8 (8 bits)",
    "bf16": "bf16 (16 bits)",
    "fp32": "fp32 (32 bits)",
}
LOAD: Final = "Load this pair for everybody"
NOT_HERE: Final = "{title} (not with this pair)"

READY: Final = "{pair}, {precision}: ready"
FAILED: Final = "The model is not loaded"
STARTING: Final = "Starting"
RECORDED: Final = "recorded run"

EMPTY_PROMPT: Final = "There is no prompt to answer."
EMPTY_PROMPT_ADVICE: Final = "Type one or pick an example, then press Run."
STILL_LOADING: Final = "The model is still loading; this prompt runs as soon as it is ready."
NOT_A_NUMBER: Final = "The field “{name}” holds no number."
NOT_A_NUMBER_ADVICE: Final = "Fill it in and run again."
BROKEN: Final = "The run broke off: {error}."
BROKEN_UNHARMED: Final = "What was written so far is kept, and the model stays loaded."
BROKEN_ADVICE: Final = "Run again; if it happens again, look at the program's log."
TOO_MANY: Final = "This run could not join the queue: too many are waiting, or the connection broke."
TOO_MANY_ADVICE: Final = "Try again in a moment."
SWITCHED: Final = "The conversation starts over with the new pair."

# What the script shows. Names in {braces} are filled in there.
VIEW: Final[dict[str, object]] = {
    "text_label": "Generated text",
    "strip_label": "Steps: one column each, a slot for every token",
    "legend": "What became of a token",
    "empty": "Type a prompt or pick an example, then press Run.",
    "waiting": "Waiting for the engine: runs take turns, one at a time.",
    "skip": "Show all",
    "replay": "Replay",
    "save": "Download trace",
    "open": "Open trace",
    "hide_drafts": "Hide refused drafts",
    "loading": "Loading the model",
    "reused": "{cached} of {all} context tokens reused",
    "token_label": "{status} token",
    "part_of_character": "(part of a character)",
    "source": {"live": "measured", "recorded": "recorded"},
    "methods": {
        "nothing": "plain decoding",
        "draft_model": "draft model",
        "ngram": "n-gram lookup",
    },
    "status": {
        "accepted": "accepted",
        "rejected": "rejected",
        "unreached": "unreached",
        "correction": "correction",
        "bonus": "bonus",
        "plain": "plain",
        "drafted": "drafted",
    },
    "meaning": {
        "accepted": "Drafted and kept: one line under each run of kept tokens",
        "rejected": "Drafted, tested and refused; the target's correction follows",
        "unreached": "Drafted after a refused token, so never tested",
        "correction": "The target's own token in place of a refused one",
        "bonus": "The target's own token after a draft that was kept whole",
        "plain": "The target's own token in a step without a draft",
    },
    "phase": {
        "empty": "",
        "waiting": "waiting for its turn",
        "reading": "reading the prompt",
        "plain": "measuring plain decoding first",
        "plain_done": "plain decoding measured; the speculative run follows",
        "speculative": "speculating",
        "playing": "playing at its true speed",
        "done": "done: {speedup}× as fast as plain decoding",
        "done_alone": "done",
        "cancelled": "stopped; what was written is kept",
        "failed": "broke off; what was written is kept",
        "cut": "ends here",
    },
    "announce": {
        "plain": "Measuring plain decoding first.",
        "speculative": "Speculative decoding has begun.",
        "done": (
            "Done. {fast} tokens a second against {plain} plain: {speedup} times as fast. "
            "{accepted} per cent of the drafted tokens were accepted."
        ),
        "done_alone": "Done.",
        "cancelled": "Stopped. What was written is kept.",
        "failed": "The run broke off. What was written is kept.",
    },
    "numbers": {
        "origin": {"live": "measured", "recorded": "recorded"},
        "speedup": {"unit": "×", "label": "speedup", "hint": "Speculative over plain tokens per second"},
        "fast": {
            "unit": "tokens/s",
            "label": "speculative",
            "hint": "New tokens per second of decoding, with drafting",
        },
        "plain": {
            "unit": "tokens/s",
            "label": "plain",
            "hint": "The same prompt and engine without drafting",
        },
        "accepted": {
            "unit": "%",
            "label": "drafts accepted",
            "hint": "Accepted drafted tokens / drafted tokens",
        },
        "per_step": {
            "unit": "tokens",
            "label": "per step",
            "hint": "New tokens per step, the target's own included",
        },
        "draft": {"unit": "ms", "label": "draft a step", "hint": "Mean time to draft"},
        "verify": {"unit": "ms", "label": "verify a step", "hint": "Mean time of the target's check"},
    },
    "charts": {
        "lookahead_title": "Lookahead per step",
        "lookahead_label": "Chart: lookahead allowed, tokens drafted and accepted, for each step",
        "speedup_title": "Speedup over time",
        "speedup_label": "Chart: speedup against the measured plain run over time; plain decoding is the line at one",
        "accepted": "accepted",
        "not_accepted": "drafted in vain",
        "allowed": "allowed",
        "speedup": "speedup",
        "step": "step",
        "tokens": "tokens",
        "seconds": "seconds of decoding",
        "times": "times plain",
        "plain_line": "plain decoding",
        "wait_plain": "follows once plain decoding is measured",
        "no_plain": "needs a plain run of the same prompt",
        "no_reason": "no reason given",
        "lookahead_hover": "step {step}: allowed {lookahead}, drafted {drafted}, accepted {accepted}<br>{reason}",
        "speedup_hover": "{speedup}× at {tokens} tokens, {seconds} s",
    },
    "target_prob": "target",
    "draft_prob": "draft",
    "accept_prob": "accept",
    "draw": "draw",
    "place": "place",
    "place_draft": "step {step}, drafted token {node}",
    "place_next": "step {step}, the target's own",
    "explain": {
        "drafted": "Proposed by the draft; the target has not checked it yet.",
        "accepted": "The draft proposed it and the target would have written the same.",
        "accepted_drawn": "Kept: the draw {draw} is below its accept probability {accept}.",
        "rejected": "The draft proposed it; the target would have written something else.",
        "rejected_drawn": "Refused: the draw {draw} is not below its accept probability {accept}.",
        "unreached": "Not tested, because a token before it was refused or another branch was kept.",
        "correction": "The target's own token in place of the refused one.",
        "bonus": "The whole draft was kept, so the same check yields one more token for free.",
        "plain": "One pass of the target, one token: nothing was drafted in this step.",
    },
    "trace": {
        "foreign": "{name} is not a trace of this program: line {line} is unreadable ({problem}).",
        "nothing": "{name} holds no run.",
        "unharmed": "What is on screen stays as it is.",
        "advice": "Open a .jsonl file that specdemo saved.",
        "cut": "Line {line} of {name} cannot be read ({problem}); the {count} events before it are shown.",
    },
}
