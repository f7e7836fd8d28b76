"""German: recorded runs, links, the presenter mode and the keys."""

from __future__ import annotations

SHARE, PRESENT, KEYS = "Teilen", "Vorführen", "Tasten"

LOCAL_ONLY = (
    "Diese Adresse geht nur auf diesem Rechner. Für andere im selben Netz specdemo mit {command} starten; "
    "dann öffnen sie {address}."
)
LOCAL_NAME = "Andere können {here} nicht öffnen. Im selben Netz können sie {address} öffnen."

WORDS: dict[str, object] = {
    "runs": "Aufgezeichnete Läufe",
    "unknown_value": "Die Adresse verlangt {name}={value}, was hier nicht geht. Es wurde ignoriert; der Rest des Links gilt. Ein neuer Link kommt von der Person, die ihn geschickt hat.",
    "dismiss": "Ausblenden",
    "close": "Schließen",
    "share": {
        "title": "Diese Seite teilen, wie sie jetzt ist",
        "link": "Link",
        "copy": "Link kopieren",
        "copied": "Der Link ist kopiert.",
        "select": "Der Browser lässt diese Seite nicht kopieren. Der Link ist markiert: mit Strg+C kopieren.",
        "class": "Für eine Klasse",
        "classroom": "Alles für eine Klasse festlegen",
        "language": "Sprache",
        "any_language": "wie der Browser es wünscht",
        "site": "Adresse der eigenen statischen Seite, die kein Modell braucht",
        "hide": "Weglassen",
        "start": "Den Prompt gleich starten",
        "presenter": "Im Vorführmodus öffnen",
        "qr": "QR-Code des Links",
        "qr_failed": "Der QR-Code konnte nicht gezeichnet werden: Der Link ist zu lang. Etwas weglassen oder den Prompt kürzen.",
        "use": "{address} verwenden",
        "parts": {
            "prompt": "Prompt",
            "controls": "Einstellungen",
            "examples": "Beispiele",
            "runs": "aufgezeichnete Läufe",
            "numbers": "Zahlen",
            "legend": "Legende",
            "strip": "Streifen der Schritte",
            "tree": "Baum",
            "charts": "Diagramme",
            "batch": "mehrere Prompts",
            "tabs": "Reiter",
            "header": "Kopfzeile",
        },
    },
    "keys": {
        "title": "Tasten",
        "rows": [
            ["Strg+Enter", "Den Prompt starten"],
            ["Esc", "Den Lauf anhalten; den Vorführmodus verlassen"],
            ["Leertaste", "Abspielen oder Pause"],
            ["\u2190 \u2192", "Ein Token zurück, ein Token weiter"],
            ["Umschalt+\u2190 \u2192", "Einen Schritt zurück, einen Schritt weiter"],
            ["Pos1 Ende", "Zum Anfang, zum Ende"],
            ["N", "Zur nächsten Ablehnung"],
            ["P", "Vorführmodus"],
            ["?", "Diese Liste"],
        ],
        "note": "Sie gelten, solange man nicht tippt.",
    },
    "presenter": {
        "entered": "Vorführmodus. P oder Esc verlässt ihn.",
        "left": "Der Vorführmodus ist aus.",
    },
}
