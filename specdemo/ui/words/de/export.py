"""German: what leaves the page, the export menu, the one-file replay and the static site."""

from __future__ import annotations

WORDS: dict[str, object] = {
    "menu": "Mehr",
    "trace": "Lauf (JSON-Zeilen)",
    "trace_hint": "Alles, was geschah; „Gespeicherten Lauf öffnen…“ und python -m specdemo replay lesen es",
    "csv": "Tabelle (CSV)",
    "csv_hint": "Eine Zeile je Token, auch der abgelehnten, für eine Tabellenkalkulation oder ein Skript",
    "html": "Wiedergabe (eine HTML-Datei)",
    "html_hint": "Dieser Lauf und sein Abspieler in einer Datei, die sich ohne Netz öffnet",
    "failed": "Die Datei konnte nicht erstellt werden: Der Server der Seite antwortete nicht. Der Lauf ist unversehrt; noch einmal versuchen.",
    "page": {
        "title": "specdemo",
        "subtitle": "Spekulatives Decodieren: ein Entwurf rät, das Zielmodell prüft.",
        "theme": "Hell / dunkel",
        "tabs": {
            "play": "Ausprobieren",
            "race": "Rennen",
            "proposals": "Entwürfe",
            "lab": "Labor",
            "lessons": "Lektionen",
            "methods": "Verfahren",
        },
        "tabs_label": "Teile der Seite",
        "choices": {
            "play": "Aufgezeichneter Lauf",
            "race": "Aufgezeichnetes Rennen",
            "proposals": "Aufgezeichneter Text",
        },
    },
}
