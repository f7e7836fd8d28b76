"""English: the page around the parts, the player and everything that is drawn by `view.js`."""

from __future__ import annotations

from specdemo.session.door import drafter_kinds, method_labels
from specdemo.trace.events import LARGEST_FILE
from specdemo.ui.words.en.charts import WORDS as CHARTS
from specdemo.ui.words.en.export import WORDS as EXPORT
from specdemo.ui.words.en.runs import RUNS as _RUNS

TITLE = "specdemo"
SUBTITLE = "Speculative decoding, live: a draft guesses, the target checks."
PROMPT = "Prompt"
PROMPT_HINT = "Ask something, or pick an example below."
RUN, STOP, NEW = "Run", "Stop", "Clear"
SKIP = "Skip to the text"
DRAWER = "Settings"
DRAWER_WORDS = {"label": "Settings", "close": "Close"}
# What is asked for, by the name of the setting.
SETTINGS = {
    "method": "Method",
    "policy": "Lookahead policy",
    "lookahead": "Lookahead",
    "nodes": "Tree nodes",
    "memory": "Reuse what this session learned",
    "preset": "Sampling",
    "verification": "Verification of a draft",
    "temperature": "Temperature",
    "max_new_tokens": "Maximum tokens",
    "threshold": "Confidence threshold",
    "fallback": "Stop drafting while it is slower",
    "baseline": "Measure plain decoding first",
    "stand_in": "While others wait, compare with a recent plain run",
    "exact": "Exact mode",
    "top_k": "Top-k (0 is off)",
    "top_p": "Top-p (1 is off)",
    "repetition_penalty": "Repetition penalty (1 is off)",
    "seed": "Seed",
}
SETTING_HINTS = {
    "verification": "As a block keeps at least as many tokens on average, and the text stays the target's. Trees, copies and greedy decoding are always judged token by token.",
    "exact": "Greedy text is plain decoding's bit by bit. A graphics card then drafts no more tokens than were found exact; the compiled pass of a processor is always exact.",
    "seed": "The same seed gives the same text, except with Auto and Cost-aware, which react to timing.",
}
SYSTEM = "System prompt (optional)"
MORE, MODEL = "More settings", "Models"
PAIR, PRECISION, LOAD = "Model", "Precision of the target", "Load"
DRAFTER, NO_DRAFTER = "Published drafter", "None"
DRAFTER_INFO = "Made by others for this model; takes the place of a trained drafter of its kind."
DRAFTER_NAMED = f"{DRAFTER_INFO} Or type a hub id (owner/name, or owner/name@revision) or a folder."
DRAFTER_HERE, DRAFTER_AWAY = "{name} ({family}, {size})", "{name} ({family}, download)"
DRAFTER_CHOSEN = "{name} drafts."
DRAFTER_ON_DISK = "The drafter is on this disk, {size}."
DRAFTER_ASKED = "The drafter is to be downloaded. Load asks the hub for its size and licence first."
DRAFTER_LICENCE = "Licence of the drafter: {licence}."
DRAFTER_UNNAMED = "The drafter's card names no licence."
# What follows a title in a narrow menu stays in one line.
TOO_LARGE, TO_DOWNLOAD = "{title} (too\u00a0large\u00a0here)", "{title} (download\u00a0{size})"
PAIR_DRAFT = "Drafts come from {draft}."
SHIPPED_DRAFT = "the draft that ships with specdemo"
OWN_DRAFTER = "a drafter of its own that ships with specdemo"
NO_DRAFT = "No model drafts for it. Methods that copy from the text work, such as n-gram; what they gain depends on the text."
LOADED = "Loaded now; needs about {needed} of memory."
ROOM = "Fits: needs about {needed} of memory, {free} are free."
NO_ROOM = "Does not fit: needs about {needed} of memory, {free} are free."
ON_DISK = "Already on this disk."
DOWNLOAD_SIZE = "To be downloaded first: about {size}."
RATE, RATE_PLAIN = (
    "About {plain} tokens/s plain and {drafted} drafted, greedy.",
    "About {plain} tokens/s plain.",
)
BY_SIZE = "Modelled by size, from another model's passes on this machine."
BY_PASSES = "Modelled from its own passes, measured on this machine."
KEPT_RECORDED = "Drafts: {kept} % of first tokens are accepted, as measured after training."
KEPT_ASSUMED = (
    "Drafts: {kept} % of tokens are assumed to be accepted; nobody has measured this pair."
)
RATE_UNKNOWN = "How fast it is here has not been measured."
LICENCE = "Licence: {licence}."
ASK = "{title} is not on this disk. Loading it downloads about {size}."
ASK_UNKNOWN = "{title} is not on this disk. Loading it downloads it from the hub."
DOWNLOAD, NOT_NOW = "Download and load", "Not now"
COMING = "On its way: the top of the page says how far it is. Until then the old model goes on."
POLICIES = {
    "constant": "Constant",
    "heuristic": "Heuristic (+2 / -1)",
    "confidence": "Confidence",
    "learned": "Learned classifier",
    "cost": "Cost-aware",
}
PRESETS = {"recommended": "As the model recommends", "greedy": "Greedy", "own": "Own values"}
VERIFICATIONS = {"token": "Token by token", "block": "As a block"}
# Which values the preset stands for.
DRAWN = "Temperature {temperature}, top-k {top_k}, top-p {top_p}, repetition penalty {repetition_penalty}."
DRAWN_GREEDY = "Always the most likely token."
DRAWN_NOTHING = "The model's authors recommend nothing. Always the most likely token."
DRAWN_PROJECT = "Chosen by this project, as the authors say nothing: {values}"
OFF = "off"
FORGET, FORGOTTEN = "Clear what was learned", "What was learned is cleared."
UNAVAILABLE, LOSSY = "not available here", "lossy"
NEEDS = "Needs {need}."
NOT_HERE = "Not available for this target. {why_not}"
LOSSY_NOTE = "Lossy by design: it may keep tokens that the target alone would not have written."
TAB_PLAY, TAB_RACE, TAB_LAB, TAB_LESSONS, TAB_PROPOSALS, TAB_METHODS = (
    "Play",
    "Race",
    "Lab",
    "Lessons",
    "Drafts",
    "Methods",
)
PROOF = "Proof"
METHODS_LEAD = "Every way to guess that is built in, what it needs, and what it gained in its recorded run, each on a prompt of its own. Only those marked lossy change what the target says: the proof is below."
TRAINING = "Training"
CARD_LOADING = "The training card appears once the model is loaded."
CARD_NOTHING = "{title} has no weights of its own, so there is nothing to train."
CARD_UNKNOWN = "There is no training card for what this method drafts with: {need}."
THEME = "Light / dark"
LOADING = {
    "start": "Starting…",
    "download": "Downloading the model",
    "check": "Checking the model",
    "convert": "Converting the model",
    "load": "Loading the model",
    "quantise": "Loading and quantising",
    "warm up": "Warming up",
}
TIME_LEFT = "about {time} left"
READY = "Ready: {target}, {precision}"
# Why a target was taken that nobody named.
CHOSEN = {
    "largest": "the largest on this disk that fits",
    "usual": "nothing larger is on this disk and fits",
}
FAILED = "The model could not be loaded. {message}"
REPLAY_ONLY = "Recorded runs only"
WAIT_LOADING = "The model is still loading. Your run starts as soon as it is ready."
WAIT_TURN = "Your run starts as soon as there is room for it."
NO_SUCH_RUN = "This recorded run is not there any more. Load the page anew."
PLACE = "You are number {place} of {of} in line."
PLACE_SECONDS = (
    "You are number {place} of {of} in line. Your turn is expected in about {seconds} s."
)
TURN = "It is your turn."
BATCH = "Several prompts at once"
BATCH_HINT = "Up to {most}, with the method and settings above. They share the target's passes, so each takes longer than it would alone. Plain decoding is not run."
BATCH_PROMPTS = "Prompts, one per line"
BATCH_EXAMPLES = (
    "Write a short story about a lighthouse keeper.",
    "Write a short story about a lost suitcase.",
    "Explain photosynthesis to a ten-year-old.",
    "List ten tips for learning a new language.",
)
BATCH_RUN, BATCH_STOP = "Run all", "Stop all"
BATCH_EMPTY = "There are no prompts."
BATCH_EMPTY_ADVICE = "Write one per line."
BATCH_MANY = "There are {count} prompts; at most {most} can be answered together."
BATCH_MANY_ADVICE = "Remove some lines."
UNEXPECTED = "Something unexpected went wrong: {error}."
UNEXPECTED_UNHARMED = "Your text and other visitors' runs are not affected."
UNEXPECTED_ADVICE = "Run again. If it happens again, python -m specdemo doctor may say why."

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
    "runs": _RUNS,  # their titles
    "methods": {**method_labels(), "plain": "plain decoding"},
    "phase": {
        "waiting": "Waiting…",
        "reading": "Reading the prompt…",
        "plain": "Measuring plain decoding first, for comparison",
        "plain_done": "Plain decoding is done; now with drafts",
        "speculative": "Decoding with drafts",
        "playing": "Playing a recorded run at its own speed",
        "playing_slowed": "Playing a recorded run, slowed {times} times",
        "playing_faster": "Playing a recorded run, {times} times as fast",
        "stale": "This answers an earlier question; Run answers the one above",
        "paused": "Paused; Play continues from here",
        "behind": "Looking back while the run continues; End follows it again",
        "held": "Paused here while the run continues; Play continues from here",
        "done": "Finished, {speedup}× as fast as plain decoding",
        "done_stand_in": "Finished, {speedup}× as fast as plain decoding of another prompt, measured {minutes} min before",
        "done_alone": "Finished",
        "cancelled": "Stopped; the text so far stays",
        "failed": "The run broke; the text so far stays",
        "cut": "Ends here",
    },
    "phase_lossy": {
        "done": "Finished, {speedup}× as fast; the target alone might have written something else",
    },
    "lossy": "lossy by design",
    "lossy_hint": "This method keeps more than an exact one would: the text may differ from the target's own",
    "announce": {
        "plain": "Plain decoding runs first.",
        "speculative": "Decoding with drafts.",
        "done": "Finished: {speedup} times as fast, {fast} against {plain} tokens per second, "
        "{accepted} per cent of drafts accepted.",
        "done_stand_in": "Finished: {speedup} times as fast as plain decoding of another prompt.",
        "cancelled": "Stopped.",
        "failed": "The run broke.",
    },
    "empty": "Type a prompt and press Run. Each token is then marked by what happened to it.",
    "text_label": "The answer, token by token",
    "strip": {
        "label": "Steps, one column each: drafted tokens below, the target's own on top. Choose a step to see it",
        "step": "Step {step}: {accepted} of {drafted} drafted kept; draft {draft} ms, verify {verify} ms, "
        "overhead {overhead} ms",
        "open": "Step {step}: {drafted} drafted, being checked",
        "time": "Time",
        "time_hint": "Below each column: how the step's time was spent, from the bottom up",
        "draft": "draft",
        "verify": "verify",
        "overhead": "overhead",
    },
    "token_label": "{status} token",
    "tree": {
        "label": "The step as a tree; the arrow keys go from node to node",
        "caption": "Step {step}: {accepted} kept of {drafted} drafted, {depth} deep",
        "open": "Step {step}: {drafted} drafted, {depth} deep, being checked",
        "numbers": "Numbers: the target's probability",
        "larger": "Larger (+)",
        "smaller": "Smaller (-)",
        "fit": "Fit (0)",
    },
    "legend": "What the marks mean",
    "marks": {
        "accepted": ["underlined", "guessed right"],
        "rejected": ["struck", "guessed wrong"],
        "correction": ["boxed", "the target's own word instead"],
        "unreached": ["dotted", "never checked"],
        "bonus": ["double line", "one more for free"],
    },
    "next": {
        "label": "After this run",
        "explain": "Explain the first rejection",
        "race": "Race this prompt",
        "others": "What would the others have guessed here?",
        "drawn": "Try it at temperature 1",
    },
    "tour": {
        "label": "Introduction",
        "start": "A draft guesses the next tokens. The target, the model whose answer you want, checks all of them in one pass.",
        "rejected": "“{guess}” was guessed wrong: the target's own “{own}” takes its place. What was guessed right before it is kept, so the text stays the target's.",
        "same": "The same text, {speedup}× as fast: {passes} passes of the target instead of {tokens}.",
        "done": "{speedup}× as fast as plain decoding: {passes} passes of the target for {tokens} tokens.",
        "plain": "plain decoding, {count} tokens",
        "drafted": "with drafts, {count} tokens",
        "skip": "Skip",
        "close": "Got it",
        "again": "Play the introduction",
    },
    "loading": "Loading the model",
    "transport": {
        "label": "Player",
        "scrub": "Position in the run",
        "speed": "Speed of playing",
        "place": "step {step} of {steps}",
        "start": "To the start (Home)",
        "back_round": "One step back (Shift + Left)",
        "back": "One token back (Left)",
        "play": "Play (Space)",
        "pause": "Pause (Space)",
        "forward": "One token forward (Right)",
        "round": "One step forward (Shift + Right)",
        "rejection": "To the next rejection (N)",
        "end": "To the end (End)",
        "live": "Follow the run (End)",
    },
    "hide_drafts": "Hide rejected tokens",
    "open": f"Open a saved run… (at most {LARGEST_FILE >> 20} MB)",
    "reused": "{cached} of {all} prompt tokens reused",
    "status": STATUS,
    "meaning": {
        "accepted": "Drafted, tested by the target and kept",
        "rejected": "Drafted, tested by the target and rejected",
        "unreached": "Never tested: a token before it was rejected, or another was kept in its place",
        "correction": "The target's own token in place of a rejected one",
        "bonus": "The target's own token after a draft that was kept to its end",
        "plain": "The target's own token in a step without a draft",
    },
    "explain": {
        "drafted": "Guessed by the drafter; the target has not judged it yet.",
        "accepted": "The target would have said the same, so it was kept.",
        "accepted_greedy": "The drafted token is the target's most likely one here, with {target}: kept.",
        "accepted_drawn": "The draw {draw} lies below the accept probability {accept}: kept.",
        "accepted_block": "The {drafted} drafted tokens were judged as a block. The draw {draw} lies below this token's accept probability {accept}, which takes the whole draft into account: kept.",
        "rejected_block": "The {drafted} drafted tokens were judged as a block. The draw {draw} is not below this token's accept probability {accept}, which takes the whole draft into account: rejected.",
        "rejected": "The target would have said something else, so it was rejected.",
        "rejected_greedy": "The target's most likely token here is “{best}” with {best_prob}; “{token}”, to which it gives {target}, was rejected.",
        "rejected_drawn": "The draw {draw} is not below the accept probability {accept}: rejected.",
        "unreached": "Never tested: a token before it was rejected, or another was kept in its place.",
        "unreached_block": "The {drafted} drafted tokens were judged as a block, of which the part before “{before}” was kept.",
        "unreached_refused": "Never tested: “{before}” before it was rejected.",
        "unreached_kept": "Never tested: “{before}” was kept instead.",
        "folded": "{count} more tokens of the tree; none of them was tested and kept.",
        "correction": "The target's own choice in place of the rejected guess.",
        "correction_greedy": "The target's most likely token, with {target}, in place of the rejected “{refused}”.",
        "correction_drawn": "“{refused}” was rejected, so this was drawn from what the target had left to give.",
        "correction_listed": "“{refused}” was rejected, so this was drawn from what the target had left to give, of which it has {residual}.",
        "bonus": "The whole draft was kept, and the same pass of the target gave one more token.",
        "bonus_greedy": "The whole draft was kept ({count}), and the same pass of the target gave one more token: its most likely one, with {target}.",
        "bonus_drawn": "The whole draft was kept ({count}), and one more token was drawn from the same pass of the target, which gives it {target}.",
        "plain": "The target's own token, to which it gives {target}: nothing was drafted in this step.",
    },
    "formula": {
        "target_drawn": "accept = min(1, target / draft) = min(1, {target} / {draft}) = {accept}",
        "target_chosen": "accept = target / 1 = {accept}",
        "left_drawn": "accept = min(1, left / draft) = min(1, {left} / {draft}) = {accept}",
        "left_drawn_whole": "accept = min(1, left / draft) = 1, as left is at least {draft}",
        "left_chosen": "accept = left / 1 = {accept}",
        "draw_kept": "draw {draw} < {accept}: kept",
        "draw_refused": "draw {draw} ≥ {accept}: rejected",
        "block_prefix_first": "prefix = min(1, target / draft) = min(1, {target} / {draft}) = {prefix}",
        "block_prefix": "prefix = min(1, prefix before × target / draft) = min(1, {before} × {target} / {draft}) = {prefix}",
        "block_keep": "keep = end + (1 - end) × keep of the next = {ends} + (1 - {ends}) × {next} = {keep}",
        "block_keep_last": "keep = prefix = {keep}",
        "block_accept": "accept = keep / keep before = {keep} / {keep_before} = {accept}",
        "greedy_kept": "target's most likely = “{best}” ({best_prob}) = drafted: kept",
        "greedy_refused": "target's most likely = “{best}” ({best_prob}) ≠ “{token}”: rejected",
        "residual": "residual = max(target - draft, 0) / rest = ({target} - {draft}) / {rest} = {residual}",
        "residual_unlisted": "residual = max(target - draft, 0) / rest = {residual}, where target is {target} "
        "and draft too small to be listed",
        "residual_block": "residual = max(prefix × target - draft, 0) / rest = ({prefix} × {target} - {draft}) / {rest} = {residual}",
        "residual_unlisted_block": "residual = max(prefix × target - draft, 0) / rest = {residual}, where prefix is {prefix}, "
        "target is {target} and draft too small to be listed",
        "residual_chosen": "residual = target / (1 - rejected) = {target} / (1 - {refused}) = {residual}",
    },
    "notes": {
        "block": "prefix: the chance to keep the draft up to here, before it is known what follows. end: the chance that it ends after this token when it is not kept further. keep: the chance to keep it up to here, given the whole draft.",
        "left": "left: what the target still has to give after {count} rejected at this position.",
        "no_detail": "This run was recorded without detail: for each position it holds what was drafted and committed, and nothing else.",
        "not_there": "The target never reached this position, so there is no list of what it thought here.",
        "no_draft": "This drafter has no distribution here: it chose its tokens, and its number is an estimate.",
        "foreseen": "Predicted before the target judged it: a chance of {chance} to be kept with all before it.",
        "greedy": "Nothing is drawn in greedy decoding: probabilities are shown at temperature 1.",
    },
    "inspector": {
        "label": "Token inspector",
        "token": "Token",
        "tree": "Tree",
        "tabs": "What the panel shows",
        "hint": "Point at any token. Click to pin it; Shift-click to compare two.",
        "latest": "latest rejected token",
        "place": "at the player's position",
        "pointed": "pointed at",
        "pinned": "pinned",
        "unpin": "Unpin (Esc)",
        "compare": "Compare",
        "compare_hint": "Pin a second token beside this one (Shift-click)",
        "second": "Now choose the second token.",
        "branch": "Branch",
        "thoughts": "What the models thought at this position",
        "columns": {"token": "token", "target": "target", "draft": "draft", "residual": "residual"},
        "summary": "“{token}”, {status}, {place}. {why}",
    },
    "explain_lossy": {
        "accepted": "Kept by this method's own rule, which is looser than the target's.",
        "correction": "The target's token in place of the rejected guess, by this method's own rule.",
    },
    "place_draft": "step {step}, draft {node}",
    "place_tree": "step {step}, node {node}, depth {depth}",
    "place_next": "step {step}, the target's own",
    "part_of_character": "(part of a character)",
    "numbers": {
        "more": "All numbers",
        "origin": {"live": "measured", "recorded": "recorded", "stand_in": "stand-in"},
        "speedup": {
            "label": "speedup",
            "unit": "×",
            "hint": "Tokens per second with drafts divided by those of plain decoding; same prompt, same engine",
        },
        "fast": {
            "label": "with drafts",
            "unit": "tok/s",
            "hint": "New tokens per second of decoding, with drafts",
        },
        "plain": {
            "label": "plain",
            "unit": "tok/s",
            "hint": "New tokens per second of plain decoding, actually run",
        },
        "accepted": {
            "label": "drafts kept",
            "unit": "%",
            "hint": "Accepted drafted tokens divided by all drafted tokens",
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
        "recorded": "Recorded on another machine; python -m specdemo audit makes one of this machine.",
        "label": "The last audit",
        "none": "No audit has been run here. python -m specdemo audit proves on the loaded model, method by method, that the text stays the target's own. This table then shows the result.",
        "columns": ["method", "greedy decoding", "sampling"],
        "lossy": "lossy by design",
        "missing": "Not available.",
        "greedy": "{equal} of {outputs} outputs equal plain decoding's",
        "same": "{share} % of the tokens come before the first difference",
        "margin": "there the two tokens' probabilities differ by {margin}",
        "sampling": "{condition}: {samples} tokens, {impossible} impossible, p {ps}",
        "meaning": "p-values: uniform, independent and, where there is a draft, in the draft's order; one below {limit} counts against a method. Greedy outputs must be equal in fp32. In lower precision, a pass over several rows rounds differently from a pass over one, so a near-tie can fall the other way.",
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
            "loss": "divergence from the target, nats per token",
            "greedy_agreement": "same most likely token as the target, greedy text",
            "greedy_agreement_all": "same most likely token as the target, any text",
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
            "layers": "initialised from the target's layers",
            "words": "output vocabulary",
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
        "large": f"{{name}} is larger than {LARGEST_FILE >> 20} MB, the most that a trace may have.",
        "foreign": "{name} is not a trace of this program: line {line}: {problem}.",
        "nothing": "{name} holds no events.",
        "cut": "Line {line} of {name} cannot be read ({problem}); the {count} events before it are shown.",
        "unharmed": "Nothing was changed.",
        "advice": "Open a .jsonl file that specdemo saved.",
    },
}

# What Gradio names its own controls, in English.
GRADIO = [
    "number input for {label}",
    "range slider for {label}",
    "Reset to default value",
    "More tabs",
    "Gradio footer navigation",
]
