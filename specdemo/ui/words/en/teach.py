"""Words of the part `teach` of the page: recorded runs, links, the presenter mode and the keys."""

from __future__ import annotations

SHARE, PRESENT, KEYS = "Share", "Present", "Keys"

# Sentences that Python says.
LOCAL_ONLY = "This address works only on this computer. To let others in your network in, start specdemo with {command}; they can then open {address}."
LOCAL_NAME = "Others cannot open {here}. In your network, they can open {address}."

WORDS: dict[str, object] = {
    "runs": "Recorded runs",
    "unknown_value": "The address asks for {name}={value}, which is not possible here. It was ignored; the rest of the link holds. Ask whoever sent the link for a new one.",
    "dismiss": "Dismiss",
    "close": "Close",
    "share": {
        "title": "Share this page as it is now",
        "link": "Link",
        "copy": "Copy link",
        "copied": "The link is copied.",
        "select": "The browser does not let this page copy. The link is selected: copy it with Ctrl+C.",
        "class": "For a class",
        "classroom": "Fix everything for a class",
        "language": "Language",
        "any_language": "as each browser asks",
        "site": "Address of your static site, which needs no model",
        "hide": "Leave out",
        "start": "Run the prompt immediately",
        "presenter": "Open in presenter mode",
        "qr": "QR code of the link",
        "qr_failed": "The QR code could not be drawn: the link is too long. Leave something out, or shorten the prompt.",
        "use": "Use {address}",
        "parts": {
            "prompt": "prompt",
            "controls": "settings",
            "examples": "examples",
            "runs": "recorded runs",
            "numbers": "numbers",
            "legend": "legend",
            "strip": "strip of steps",
            "tree": "tree",
            "charts": "charts",
            "batch": "several prompts",
            "tabs": "tabs",
            "header": "header",
        },
    },
    "keys": {
        "title": "Keys",
        "rows": [
            ["Ctrl+Enter", "Run the prompt"],
            ["Esc", "Stop the run; leave presenter mode"],
            ["Space", "Play or pause"],
            ["\u2190 \u2192", "One token back, one token forward"],
            ["Shift+\u2190 \u2192", "One step back, one step forward"],
            ["Home End", "To the start, to the end"],
            ["N", "To the next rejection"],
            ["P", "Presenter mode"],
            ["?", "This list"],
        ],
        "note": "They work whenever you are not typing.",
    },
    "presenter": {
        "entered": "Presenter mode. P or Esc leaves it.",
        "left": "Presenter mode is off.",
    },
}
