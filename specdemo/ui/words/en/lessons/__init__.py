"""Words of the part `lessons` of the page; the lessons' own texts are in `texts`."""

from __future__ import annotations

from specdemo.ui.words.en.lessons.texts import LESSONS

WORDS: dict[str, object] = {
    "list": "Lessons",
    "done": "done",
    "forget": "Forget progress",
    "place": "Lesson {place} of {count}",
    "predict": "Predict first",
    "run": "The recorded run",
    "runs": "Which recorded run is shown",
    "missing": "The recorded run {name} could not be read. The text and your progress are unharmed; try again, or "
    "reload the page.",
    "live": "Try it live",
    "try": "Set it up on the Play tab",
    "copy": "Copy the prompt",
    "copied": "The prompt is copied.",
    "not_copied": "The browser does not let this page copy. The prompt is: {prompt}",
    "settings": {
        "method": "Method: {method}.",
        "policy": "Lookahead policy: {policy}.",
        "lookahead": "Lookahead: {lookahead}.",
        "temperature": "Temperature: {temperature}.",
        "fallback": "Drafting stops while it loses.",
    },
    "no_model": "There is no model here to run it with. Where specdemo runs with one, put the prompt and these "
    "settings on the Play tab.",
    "takeaway": "Take away",
    "papers": "Read on: {papers}.",
    "turn": "Previous and next lesson",
    "previous": "Back: {title}",
    "next": "Next: {title}",
    "question": {
        "reveal": "Reveal",
        "first": "Answer first; nobody counts.",
        "no_guess": "not moved yet",
        "right": "Yes: {answer}.",
        "wrong": "You chose: {guess}. The answer: {answer}.",
        "close": "Close. You said {guess}; it is {answer}.",
        "off": "You said {guess}; it is {answer}.",
        "your_guess": "your guess",
        "the_run": "the answer",
        "recorded": "recorded",
        "exact": "exact",
        "show": "Show step {step} in the run",
    },
    "three": {
        "title": "The rule by hand, with three words",
        "intro": "Drag the weights: the target's opinion and the draft's are made of them. Every other number is "
        "exact. Then draw.",
        "table": "Three words, the rule and what comes out",
        "words": ["blue", "clear", "grey"],
        "weight": "{side}, weight of {word}",
        "columns": {
            "word": {"title": "word", "rule": ""},
            "target": {"title": "target", "rule": "p"},
            "draft": {"title": "draft", "rule": "q"},
            "accept": {"title": "kept if drafted", "rule": "min(1, p / q)"},
            "kept": {"title": "drafted and kept", "rule": "min(p, q)"},
            "residual": {"title": "residual", "rule": "max(0, p − q), scaled"},
            "said": {"title": "comes out", "rule": "kept + refused × residual"},
            "drawn": {"title": "drawn so far", "rule": "share of draws"},
        },
        "equal": "A draft is kept with probability {accepted} and refused with {refused}. What comes out is the "
        "target's p, word by word.",
        "biased": "A draft is refused with probability {refused}, and the replacement is drawn from p itself. What "
        "comes out is no longer p: {gap} of the probability lies on the wrong words.",
        "wrong": "Make the mistake: draw the replacement from the target p in place of the residual",
        "draw": "Draw {times}",
        "reset": "Start over",
        "none": "Nothing is drawn yet.",
        "kept": "The draft says {drafted}; the draw {draw} is below {accept}: kept.",
        "refused": "The draft says {drafted}; the draw {draw} is not below {accept}: refused, and {said} takes its "
        "place.",
        "told": "After {total} draws, {gap} of the share lies on other words than p says.",
    },
    "lessons": LESSONS,
}
