"""What a visitor reads whose request or value is not taken."""

from __future__ import annotations

# Of requests.
UNKNOWN_HOST = (
    "This page is not served under that name. Who runs it can allow the name: --allowed-hosts NAME."
)
FOREIGN_ORIGIN = "Another page has asked, and this one does not answer it. Who runs it can allow the other: --allowed-hosts NAME."
CLOSED = "This page does not offer that."
TOO_MUCH = "That is more than {most} MB, which is the most that can be sent to this page."
NO_ANSWER = "This page has no answer to that request. Nothing was run. Load the page anew."

# Of values.
WRONG_COUNT = (
    "The page expects {wanted} values here and got {given}. Nothing was run. Load the page anew."
)
WRONG_VALUE = (
    "The value of \u201c{name}\u201d is not possible: it must be {range}. Nothing was run."
)
A_TEXT = "a text of at most {most} characters, in whole characters"
A_NUMBER = "a number"
A_SWITCH = "on or off"
A_CHOICE = "one of its choices"
A_GROUP = "a group of settings by name"
ONE_OF = "one of {names}"
NOT_BEGUN = "Nothing was asked for yet, so there is nothing to go on with."
BROKEN = "Something unexpected happened in the page. What ran before is kept. Try again, or load the page anew."
CONTROL = "The {name} contains the control character {code}, which no model can read."
CONTROL_ADVICE = "Remove it and run again."
PROMPT, SYSTEM = "prompt", "system prompt"
NOTHING_RUN = "Nothing was run."

# Of limits.
LONG_ANSWER = "The answer may have at most {most} tokens on this page, not {given}."
LONG_ANSWER_ADVICE = "Choose fewer tokens and run again."
LONG_PROMPT = "The conversation with this prompt has {length}; this page reads at most {room} before its answer."
LONG_PROMPT_KEPT = "The conversation so far is kept."
LONG_PROMPT_ADVICE = "Shorten the prompt, or press Clear to start over."
OFTEN = "You have begun {most} runs within a minute, which is the most on this page."
OFTEN_ADVICE = "Run again in {seconds} s."
CHANGED = "Another visitor has loaded a model: it is now {model} in {precision}."
CHANGED_UNHARMED = "No run goes on with it unasked."
CHANGED_ADVICE = "Press the button once more to ask this model."
FULL = "The class is full: as many visitors wait as can."
FULL_UNHARMED = "Your text is kept, and runs that go on are not affected."
FULL_ADVICE = "Try again in a minute. Recorded runs, the lessons and the cost model need no turn."
SWITCH_OFF = "Only pairs of the catalogue can be loaded here, and only where who runs the page allows it. The loaded model stays."

# Of runs.
STILL_LOADING = "The model is still loading."
STILL_LOADING_ADVICE = "Wait until it is ready, then run again."
STILL_STARTING = "The engines are still starting."
STILL_STARTING_ADVICE = "Wait until they are ready."
NO_MEMORY = "There was not enough memory to go on."
NO_MEMORY_ADVICE = "Shorten the prompt, press Clear, or choose a smaller pair."
RUN_BROKE = "The run broke: {error}."
RUN_BROKE_UNHARMED = "The text so far is kept, and other visitors are not affected."
RUN_BROKE_ADVICE = "Run again."
GONE = "The engine that answered has gone."
GONE_UNHARMED = "What was said so far is kept."
GONE_ADVICE = "Run again: another engine answers."
