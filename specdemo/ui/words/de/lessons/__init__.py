"""German: the lessons; their own texts are in `texts`."""

from __future__ import annotations

from specdemo.ui.words.de.lessons.texts import LESSONS

WORDS: dict[str, object] = {
    "list": "Lektionen",
    "done": "fertig",
    "forget": "Fortschritt vergessen",
    "place": "Lektion {place} von {count}",
    "predict": "Zuerst vorhersagen",
    "run": "Der aufgezeichnete Lauf",
    "runs": "Welcher aufgezeichnete Lauf gezeigt wird",
    "missing": "Der aufgezeichnete Lauf {name} konnte nicht gelesen werden. Der Text und der Fortschritt sind "
    "unversehrt; noch einmal versuchen oder die Seite neu laden.",
    "live": "Selbst ausprobieren",
    "try": "Im Reiter Ausprobieren einstellen",
    "copy": "Den Prompt kopieren",
    "copied": "Der Prompt ist kopiert.",
    "not_copied": "Der Browser lässt diese Seite nicht kopieren. Der Prompt lautet: {prompt}",
    "settings": {
        "method": "Verfahren: {method}.",
        "policy": "Regel der Vorausschau: {policy}.",
        "lookahead": "Vorausschau: {lookahead}.",
        "temperature": "Temperatur: {temperature}.",
        "fallback": "Das Entwerfen ruht, solange es langsamer ist.",
    },
    "no_model": "Hier gibt es kein Modell, um es auszuführen. Wo specdemo mit einem läuft, den Prompt und diese "
    "Einstellungen in den Reiter Ausprobieren übernehmen.",
    "takeaway": "Zum Mitnehmen",
    "papers": "Zum Weiterlesen",
    "turn": "Vorige und nächste Lektion",
    "previous": "Zurück: {title}",
    "next": "Weiter: {title}",
    "question": {
        "reveal": "Aufdecken",
        "first": "Zuerst raten; nichts wird gewertet.",
        "no_guess": "Den Regler bewegen",
        "right": "Ja: {answer}.",
        "wrong": "Gewählt: {guess}. Die Antwort: {answer}.",
        "close": "Nahe dran. Geraten: {guess}; es ist {answer}.",
        "off": "Geraten: {guess}; es ist {answer}.",
        "your_guess": "geraten",
        "the_run": "die Antwort",
        "recorded": "aufgezeichnet",
        "exact": "exakt",
        "show": "Schritt {step} im Lauf zeigen",
    },
    "three": {
        "title": "Die Regel von Hand, mit drei Wörtern",
        "intro": "Die Gewichte ziehen: Aus ihnen entstehen die Verteilungen des Zielmodells und des Entwurfs. Jede andere Zahl ist exakt. Dann ziehen lassen.",
        "table": "Drei Wörter, die Regel und was herauskommt",
        "words": ["blau", "klar", "grau"],
        "weight": "{side}, Gewicht von {word}",
        "columns": {
            "word": {"title": "Wort", "rule": ""},
            "target": {"title": "Ziel", "rule": "p"},
            "draft": {"title": "Entwurf", "rule": "q"},
            "accept": {"title": "behalten, wenn entworfen", "rule": "min(1, p / q)"},
            "kept": {"title": "entworfen und behalten", "rule": "min(p, q)"},
            "residual": {"title": "Rest", "rule": "max(0, p − q), normiert"},
            "result": {"title": "kommt heraus", "rule": "behalten + abgelehnt × Rest"},
            "drawn": {"title": "bisher gezogen", "rule": "Anteil der Züge"},
        },
        "equal": "Ein Entwurf wird mit Wahrscheinlichkeit {accepted} behalten und mit {refused} abgelehnt. Heraus "
        "kommt das p des Zielmodells, Wort für Wort.",
        "biased": "Ein Entwurf wird mit Wahrscheinlichkeit {refused} abgelehnt, und der Ersatz wird aus p selbst "
        "gezogen. Heraus kommt nicht mehr p: {gap} der Wahrscheinlichkeit liegt auf den falschen Wörtern.",
        "wrong": "Den Fehler machen: den Ersatz aus dem p des Zielmodells ziehen statt aus dem Rest",
        "draw": "{times} ziehen",
        "reset": "Von vorn",
        "none": "Noch ist nichts gezogen.",
        "kept": "Der Entwurf sagt {drafted}; die gezogene Zahl {draw} liegt unter {accept}: behalten.",
        "refused": "Der Entwurf sagt {drafted}; die gezogene Zahl {draw} liegt nicht unter {accept}: abgelehnt, und "
        "{said} tritt an seine Stelle.",
        "told": "Nach {total} Zügen liegen {gap} der Züge auf anderen Wörtern, als p sagt.",
    },
    "lessons": LESSONS,
}
