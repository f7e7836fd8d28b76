"""English: the page around the parts, the player and everything that is drawn by `view.js`."""

from __future__ import annotations

from specdemo.ui.words.en.charts import WORDS as CHARTS

TITLE = "specdemo"
SUBTITLE = "Speculative decoding, live: a draft guesses, the target checks."
PROMPT = "Prompt"
PROMPT_HINT = "Ask something, or pick an example below. Ctrl+Enter runs, Esc stops."
RUN, STOP, NEW = "Run", "Stop", "New"
METHOD, POLICY, LOOKAHEAD, THRESHOLD = (
    "Method",
    "Lookahead policy",
    "Lookahead",
    "Confidence threshold",
)
TEMPERATURE, TOP_K, TOP_P = "Temperature", "Top-k (0 is off)", "Top-p (1 is off)"
SEED_HINT = (
    "The same seed gives the same text where nothing goes by the clock: not auto, not cost-aware."
)
PENALTY, SEED, MAX_TOKENS = "Repetition penalty (1 is off)", "Seed", "Maximum tokens"
FALLBACK = "Stop drafting while it loses"
BASELINE = "Measure plain decoding first"
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
NODES = "Tree nodes"
MEMORY, FORGET, FORGOTTEN = "Learn from this visit", "Forget", "What was learned is forgotten."
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
    "methods": {
        "draft_model": "draft model",
        "tree": "tree",
        "ngram": "n-gram",
        "retrieval": "retrieval",
        "quantised_self": "quantised self",
        "parallel": "parallel drafting",
        "composite": "composite",
        "auto": "auto",
        "online": "online",
        "feature": "feature drafter",
        "feature_tree": "feature tree",
        "exit": "early exit",
        "medusa": "Medusa",
        "medusa_static": "Medusa, static tree",
        "block": "DSpark",
        "jet": "JetSpec",
        "look_back": "looking back",
        "nothing": "plain decoding",
        "plain": "plain decoding",
    },
    "phase": {
        "waiting": "Waiting ...",
        "reading": "Reading the prompt ...",
        "plain": "First, plain decoding, to have something measured to compare with",
        "plain_done": "Plain decoding is done; now with drafts",
        "speculative": "Decoding with drafts",
        "playing": "Playing a recorded run on its own clock",
        "paused": "Paused; play goes on from here",
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
    "strip_label": "One column for each step: drafted tokens below, the target's own on top",
    "token_label": "{status} token",
    "tree": {
        "label": "The step as a tree: arrow keys go from node to node",
        "caption": "Step {step}: {accepted} kept of {drafted} drafted, {depth} deep",
        "open": "Step {step}: {drafted} drafted, {depth} deep, being checked",
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
    "save": "Download trace",
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
        "accepted_drawn": "The draw {draw} lies below the accept probability {accept}: kept.",
        "rejected": "The target would have said something else, so it was refused.",
        "rejected_drawn": "The draw {draw} is not below the accept probability {accept}: refused.",
        "unreached": "Never tested: a token before it was refused, or another was kept in its place.",
        "folded": "{count} more of the tree, none of them tested and kept.",
        "correction": "The target's own choice in place of the refused guess.",
        "bonus": "The draft was kept to its end, and the same pass of the target gave one token more.",
        "plain": "The target's own token: nothing was drafted in this step.",
    },
    "explain_lossy": {
        "accepted": "Kept by this method's own rule, which is looser than the target's.",
        "correction": "The target's token in place of the refused guess, by this method's own rule.",
    },
    "target_prob": "target",
    "draft_prob": "draft",
    "accept_prob": "accept",
    "draw": "draw",
    "place": "place",
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
        "kinds": {
            "draft": "A small language model that reads the text alone.",
            "feature": "A small drafter that also reads the target's hidden states.",
            "exit": "An adapter that lets the target's first layers draft.",
            "medusa": "Heads on the target's last hidden state, one for each token ahead.",
            "block": "DSpark: a whole block of guesses in one pass, with a Markov and a confidence head.",
            "jet": "JetSpec: a whole block of guesses in one pass, from which trees grow.",
        },
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
        "curve": "Divergence from the target while training, nats a token (logarithmic)",
        "curve_label": "Chart: training {losses} nats a token at the last step, held out {checks}",
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
