"""English: the page around the parts, the player and everything that is drawn by `view.js`."""

from __future__ import annotations

from specdemo.session.menu import drafter_kinds, method_labels
from specdemo.ui.words.en.charts import WORDS as CHARTS
from specdemo.ui.words.en.export import WORDS as EXPORT

TITLE = "specdemo"
SUBTITLE = "Speculative decoding, live: a draft guesses, the target checks."
PROMPT = "Prompt"
PROMPT_HINT = "Ask something, or pick an example below. Ctrl+Enter runs, Esc stops."
RUN, STOP, NEW = "Run", "Stop", "New"
# What is asked for, by the name of the setting.
SETTINGS = {
    "method": "Method",
    "policy": "Lookahead policy",
    "lookahead": "Lookahead",
    "nodes": "Tree nodes",
    "memory": "Learn from this visit",
    "temperature": "Temperature",
    "max_new_tokens": "Maximum tokens",
    "threshold": "Confidence threshold",
    "fallback": "Stop drafting while it loses",
    "baseline": "Measure plain decoding first",
    "top_k": "Top-k (0 is off)",
    "top_p": "Top-p (1 is off)",
    "repetition_penalty": "Repetition penalty (1 is off)",
    "seed": "Seed",
}
SETTING_HINTS = {
    "seed": "The same seed gives the same text where nothing goes by the clock: not auto, not cost-aware.",
}
SYSTEM = "System prompt (optional)"
MORE, MODEL = "More settings", "Models"
PAIR, PRECISION, LOAD = "Target + draft", "Precision of the target", "Load"
POLICIES = {
    "constant": "Constant",
    "heuristic": "Heuristic (+2 / -1)",
    "confidence": "Confidence",
    "learned": "Learned classifier",
    "cost": "Cost-aware",
}
FORGET, FORGOTTEN = "Forget", "What was learned is forgotten."
UNAVAILABLE, LOSSY = "not available here", "lossy"
NEEDS = "Needs {need}."
NOT_HERE = "Not available for this target. {why_not}"
LOSSY_NOTE = "Lossy by design: it may keep what the target alone would not have said."
TAB_PLAY, TAB_RACE, TAB_LAB, TAB_LESSONS, TAB_PROPOSALS, TAB_METHODS = (
    "Play",
    "Race",
    "Lab",
    "Lessons",
    "Drafts side by side",
    "Methods and proof",
)
PROOF = "Proof"
TRAINING = "Training"
CARD_LOADING = "The card can be read as soon as the model is there."
CARD_NOTHING = "{title}: nothing to train, it drafts without weights of its own."
CARD_UNKNOWN = "There is no training card for what this method drafts from: {need}."
THEME = "Light / dark"
LOADING = {
    "start": "Starting",
    "download": "Downloading the model",
    "check": "Checking the model",
    "convert": "Converting the model",
    "load": "Loading the model",
    "quantise": "Loading and quantising",
    "warm up": "Warming up",
}
READY = "Ready: {target}, {precision}"
FAILED = "The model could not be loaded. {message}"
REPLAY_ONLY = "Recorded runs only"
WAIT_LOADING = "The model is still loading. Your run begins by itself as soon as it is ready."
WAIT_TURN = "Your run begins as soon as there is room for it."
BATCH = "Several prompts at once"
BATCH_HINT = (
    "At most {most}, with the method and settings above. They share the target's passes, so each takes "
    "longer than it would alone; plain decoding is not run."
)
BATCH_PROMPTS = "Prompts, one a line"
BATCH_EXAMPLES = (
    "Write a short story about a lighthouse keeper.",
    "Write a short story about a lost suitcase.",
    "Explain photosynthesis to a ten-year-old.",
    "List ten tips for learning a new language.",
)
BATCH_RUN, BATCH_STOP = "Run all", "Stop all"
BATCH_TURN = "Waiting: batches take turns. Yours begins as soon as the one before it has ended."
BATCH_EMPTY = "There are no prompts."
BATCH_EMPTY_ADVICE = "Write one a line."
BATCH_MANY = "These are {count} prompts; at most {most} are answered together."
BATCH_MANY_ADVICE = "Take some lines out."
UNEXPECTED = "Something unexpected broke: {error}."
UNEXPECTED_UNHARMED = "Your text and other visitors' runs are not affected."
UNEXPECTED_ADVICE = "Run again; if it returns, python -m specdemo doctor may tell why."

STATUS = {
    "drafted": "drafted",
    "accepted": "accepted",
    "rejected": "rejected",
    "unreached": "unreached",
    "correction": "correction",
    "bonus": "bonus",
    "plain": "plain",
}

# What the script shows; names in braces are filled in by it.
VIEW: dict[str, object] = {
    "source": {"live": "measured", "recorded": "recorded"},
    "methods": {**method_labels(), "plain": "plain decoding"},
    "phase": {
        "waiting": "Waiting ...",
        "reading": "Reading the prompt ...",
        "plain": "First, plain decoding, to have something measured to compare with",
        "plain_done": "Plain decoding is done; now with drafts",
        "speculative": "Decoding with drafts",
        "playing": "Playing a recorded run on its own clock",
        "paused": "Paused; play goes on from here",
        "behind": "Looking back while the run goes on; End follows it",
        "held": "Held here while the run goes on; play goes on from here",
        "done": "Finished, {speedup}x as fast as plain decoding",
        "done_alone": "Finished",
        "cancelled": "Stopped; what there is stays",
        "failed": "Broke off; what there is stays",
        "cut": "Ends here",
    },
    "phase_lossy": {
        "done": "Finished, {speedup}x as fast; the target alone may have said something else",
    },
    "lossy": "lossy by design",
    "lossy_hint": "This method keeps more than an exact one would: the text may differ from the target's own",
    "announce": {
        "plain": "Plain decoding runs first.",
        "speculative": "Decoding with drafts.",
        "done": "Finished: {speedup} times as fast, {fast} against {plain} tokens per second, "
        "{accepted} per cent of drafts accepted.",
        "cancelled": "Stopped.",
        "failed": "The run broke off.",
    },
    "empty": "Type a prompt and press Run: each token will be coloured by what happened to it.",
    "text_label": "The answer, token by token",
    "strip": {
        "label": "Steps, one column each: drafted tokens below, the target's own on top; a step is shown when chosen",
        "step": "Step {step}: {accepted} of {drafted} drafted kept; draft {draft} ms, verify {verify} ms, "
        "overhead {overhead} ms",
        "open": "Step {step}: {drafted} drafted, being checked",
        "time": "Time",
        "time_hint": "Below each column: which share of the step went into what, bottom up",
        "draft": "draft",
        "verify": "verify",
        "overhead": "overhead",
    },
    "token_label": "{status} token",
    "tree": {
        "label": "The step as a tree: arrow keys go from node to node",
        "caption": "Step {step}: {accepted} kept of {drafted} drafted, {depth} deep",
        "open": "Step {step}: {drafted} drafted, {depth} deep, being checked",
        "numbers": "Numbers: the target's probability",
        "larger": "Larger (+)",
        "smaller": "Smaller (-)",
        "fit": "Fit (0)",
    },
    "legend": "What the marks mean",
    "loading": "Loading the model",
    "transport": {
        "label": "Player",
        "scrub": "Place in the run",
        "speed": "Speed of playing",
        "place": "step {step} of {steps}",
        "start": "To the start (Home)",
        "back_round": "One round back (Shift + Left)",
        "back": "One token back (Left)",
        "play": "Play (Space)",
        "pause": "Pause (Space)",
        "forward": "One token on (Right)",
        "round": "One round on (Shift + Right)",
        "rejection": "To the next rejection (N)",
        "end": "To the end (End)",
        "live": "Follow the run (End)",
    },
    "hide_drafts": "Hide refused",
    "open": "Open trace",
    "reused": "{cached} of {all} prompt tokens reused",
    "status": STATUS,
    "meaning": {
        "accepted": "Drafted, tested by the target and kept",
        "rejected": "Drafted, tested by the target and refused",
        "unreached": "Never tested: a token before it was refused, or another kept in its place",
        "correction": "The target's own token in place of a refused one",
        "bonus": "The target's own token after a draft that was kept to its end",
        "plain": "The target's own token in a step without a draft",
    },
    "explain": {
        "drafted": "Guessed by the drafter; the target has not judged it yet.",
        "accepted": "The target would have said the same, so it was kept.",
        "accepted_greedy": "The drafted token is the target's likeliest here, with {target}: kept.",
        "accepted_drawn": "The draw {draw} lies below the accept probability {accept}: kept.",
        "rejected": "The target would have said something else, so it was refused.",
        "rejected_greedy": "The target's likeliest token here is “{best}” with {best_prob}; “{token}”, "
        "to which it gives {target}, was refused.",
        "rejected_drawn": "The draw {draw} is not below the accept probability {accept}: refused.",
        "unreached": "Never tested: a token before it was refused, or another was kept in its place.",
        "unreached_refused": "Never tested: “{before}” before it was refused.",
        "unreached_kept": "Never tested: “{before}” was kept instead.",
        "folded": "{count} more of the tree, none of them tested and kept.",
        "correction": "The target's own choice in place of the refused guess.",
        "correction_greedy": "The target's likeliest token, with {target}, in place of the refused “{refused}”.",
        "correction_drawn": "“{refused}” was refused, so this was drawn from what the target had left to give.",
        "correction_listed": "“{refused}” was refused, so this was drawn from what the target had left to "
        "give, of which it has {residual}.",
        "bonus": "The draft was kept to its end, and the same pass of the target gave one token more.",
        "bonus_greedy": "The draft was kept to its end ({count}), and the same pass of the target gave "
        "one token more: its likeliest, with {target}.",
        "bonus_drawn": "The draft was kept to its end ({count}), and one token more was drawn from the "
        "same pass of the target, which gives it {target}.",
        "plain": "The target's own token, to which it gives {target}: nothing was drafted in this step.",
    },
    "formula": {
        "target_drawn": "accept = min(1, target / draft) = min(1, {target} / {draft}) = {accept}",
        "target_chosen": "accept = target / 1 = {accept}",
        "left_drawn": "accept = min(1, left / draft) = min(1, {left} / {draft}) = {accept}",
        "left_drawn_whole": "accept = min(1, left / draft) = 1, as left is at least {draft}",
        "left_chosen": "accept = left / 1 = {accept}",
        "draw_kept": "draw {draw} < {accept}: kept",
        "draw_refused": "draw {draw} ≥ {accept}: refused",
        "greedy_kept": "likeliest of the target = “{best}” ({best_prob}) = drafted: kept",
        "greedy_refused": "likeliest of the target = “{best}” ({best_prob}) ≠ “{token}”: refused",
        "residual": "residual = max(target - draft, 0) / rest = ({target} - {draft}) / {rest} = {residual}",
        "residual_unlisted": "residual = max(target - draft, 0) / rest = {residual}, where target is {target} "
        "and draft too small to be listed",
        "residual_chosen": "residual = target / (1 - refused) = {target} / (1 - {refused}) = {residual}",
    },
    "notes": {
        "left": "left: what the target still has to give after {count} refused in this place.",
        "no_detail": "This trace was recorded without detail: of each place it holds what was drafted and "
        "committed, and nothing else.",
        "not_there": "The target never came to this place, so there is no list of what it thought here.",
        "no_draft": "This drafter has no distribution here: it chose its tokens, and its number is an estimate.",
        "foreseen": "Foreseen before the target judged it: {chance} to be kept with all before it.",
        "greedy": "Nothing is drawn in greedy decoding: probabilities are shown at temperature 1.",
    },
    "inspector": {
        "label": "Token inspector",
        "token": "Token",
        "tree": "Tree",
        "tabs": "What the panel shows",
        "hint": "Point at any token. A click pins it; Shift and a click compares two.",
        "latest": "latest refusal",
        "place": "at the player's place",
        "pointed": "pointed at",
        "pinned": "pinned",
        "unpin": "Unpin (Esc)",
        "compare": "Compare",
        "compare_hint": "Pin a second token beside this one (Shift and a click)",
        "second": "Now choose the second token.",
        "branch": "Branch",
        "thoughts": "What the models thought of this place",
        "columns": {"token": "token", "target": "target", "draft": "draft", "residual": "residual"},
        "summary": "“{token}”, {status}, {place}. {why}",
    },
    "explain_lossy": {
        "accepted": "Kept by this method's own rule, which is looser than the target's.",
        "correction": "The target's token in place of the refused guess, by this method's own rule.",
    },
    "place_draft": "step {step}, draft {node}",
    "place_tree": "step {step}, node {node}, depth {depth}",
    "place_next": "step {step}, the target's own",
    "part_of_character": "(part of a character)",
    "numbers": {
        "origin": {"live": "measured", "recorded": "recorded"},
        "speedup": {
            "label": "speedup",
            "unit": "x",
            "hint": "Tokens per second with drafts over plain decoding, same prompt, same engine",
        },
        "fast": {
            "label": "with drafts",
            "unit": "tok/s",
            "hint": "New tokens per second of decoding, with drafts",
        },
        "plain": {
            "label": "plain",
            "unit": "tok/s",
            "hint": "New tokens per second of plain decoding, really run",
        },
        "accepted": {
            "label": "drafts kept",
            "unit": "%",
            "hint": "Accepted drafted tokens over all drafted tokens",
        },
        "per_step": {
            "label": "per step",
            "unit": "tok",
            "hint": "New tokens per step, the target's own included",
        },
        "draft": {"label": "drafting", "unit": "ms", "hint": "Milliseconds of drafting per step"},
        "verify": {
            "label": "verifying",
            "unit": "ms",
            "hint": "Milliseconds of the target's pass per step",
        },
        "prepared": {
            "label": "prepared, used",
            "unit": "%",
            "hint": "Steps whose draft had been prepared while the target was busy",
            "count": "In {hits} of {known} steps a draft prepared while the target was busy was used",
        },
        "shared": "Measured while up to {runs} runs shared the model: each is slower than alone.",
        "saved": {
            "label": "drafting hidden",
            "unit": "ms",
            "hint": "Drafting time of the whole run that the target's passes hid",
        },
    },
    "charts": CHARTS,
    "batch": {
        "label": "Prompts and their answers",
        "state": {
            "waiting": "waiting",
            "running": "running",
            "done": "done",
            "stopped": "stopped",
            "failed": "failed",
        },
        "rate": "{rate} tok/s",
        "total": "{prompts} prompts, {tokens} tokens, {rate} tokens/s together",
    },
    "export": EXPORT,
    "audit": {
        "label": "The last audit",
        "none": "No audit has been run here. python -m specdemo audit proves on the loaded model, method by "
        "method, that the text stays the target's own, and this table shows what held.",
        "columns": ["method", "greedy decoding", "sampling"],
        "lossy": "lossy by design",
        "missing": "Not available.",
        "greedy": "{equal} of {outputs} outputs equal plain decoding's",
        "same": "{share} % of the tokens stand before they part",
        "margin": "there the two tokens' probabilities are {margin} apart",
        "sampling": "{condition}: {samples} tokens, {impossible} impossible, p {ps}",
        "meaning": "p-values: uniform, independent and, where there is a draft, in the draft's order; one below "
        "{limit} counts against a method. Greedy outputs must be equal in fp32; in less, a pass over several "
        "rows rounds differently from a pass over one, so a near-tie can fall the other way.",
    },
    "card": {
        "about": "{what} Trained for {target} ({precision}).",
        "kinds": drafter_kinds(),
        "results": "Results on held-out prompts",
        "results_label": "Held-out results",
        "unmeasured": "Not measured.",
        "by_place": "By position in the draft",
        "place": "token {place}",
        "names": {
            "loss": "divergence from the target, nats a token",
            "greedy_agreement": "same likeliest word as the target, greedy text",
            "greedy_agreement_all": "same likeliest word as the target, any text",
            "overlap": "overlap with the target's distribution, temperature 1",
            "coverage": "target's probability inside the reduced vocabulary",
            "calibration_error_raw": "calibration error of the survival, as trained",
            "calibration_error": "calibration error of the survival, calibrated",
            "tokens": "held-out tokens",
            "prompts": "held-out prompts",
        },
        "shares": [
            "greedy_agreement",
            "greedy_agreement_all",
            "overlap",
            "coverage",
            "calibration_error_raw",
            "calibration_error",
        ],
        "data": "Data",
        "recipe": "Recipe",
        "facts": {
            "layers": "began as the target's layers",
            "words": "output words",
            "tokens_seen": "tokens seen",
            "steps": "steps",
            "minutes": "minutes",
            "machine": "machine",
            "seed": "seed",
            "licence": "licence",
        },
        "curve": "Loss while training (logarithmic)",
        "curve_label": "Chart: loss {losses} at the last step of training, {checks} on held-out texts",
        "losses": "training",
        "checks": "held out",
        "steps": "steps",
    },
    "trace": {
        "foreign": "{name} is not a trace of this program: line {line}: {problem}.",
        "nothing": "{name} holds no events.",
        "cut": "Line {line} of {name} cannot be read ({problem}); the {count} events before it are shown.",
        "unharmed": "Nothing was changed.",
        "advice": "Open a .jsonl file that specdemo saved.",
    },
}
