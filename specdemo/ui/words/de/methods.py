"""German: the methods, what they are and need, and why one may be missing."""

from __future__ import annotations

TITLES = {
    "auto": "Automatisch",
    "draft_model": "Entwurfsmodell",
    "tree": "Baum",
    "feature": "Zustandsleser",
    "feature_tree": "Zustandsleser, Baum",
    "exit": "Früher Ausstieg",
    "medusa": "Medusa",
    "medusa_static": "Medusa, fester Baum",
    "block": "DSpark",
    "jet": "JetSpec",
    "ngram": "N-Gramm (Suche im Prompt)",
    "retrieval": "Nachschlagen",
    "composite": "Kombination",
    "online": "Lernend",
    "parallel": "Parallel",
    "quantised_self": "Quantisiertes Selbst",
    "look_back": "Zurückschauen",
    "nothing": "Ohne Entwurf",
}
MARKED = [
    "{title} (verlustbehaftet)",
    "{title} (hier nicht verfügbar)",
    "{title} (verlustbehaftet, hier nicht verfügbar)",
]
SUMMARIES = {
    "auto": "Kopiert, fragt das Entwurfsmodell oder dekodiert ohne Entwurf, Schritt für Schritt: was hier "
    "am schnellsten ist.",
    "draft_model": "Ein kleines Sprachmodell rät die nächsten Token, eines nach dem anderen.",
    "tree": "Das Entwurfsmodell rät mehrere Fortsetzungen zugleich; das Zielmodell prüft alle Zweige in einem Durchgang.",
    "feature": "Ein Entwurfsmodell, das auch liest, was das Zielmodell ein Token früher wusste (nach EAGLE).",
    "feature_tree": "Dasselbe mit mehreren Fortsetzungen zugleich; sie wachsen dort, wo ihnen das Zielmodell "
    "wahrscheinlich folgt.",
    "exit": "Die ersten Schichten des Zielmodells und ein kleiner trainierter Adapter raten die nächsten Token.",
    "medusa": "Köpfe auf dem letzten Zustand des Zielmodells raten mehrere Token im Voraus; die besten Kombinationen "
    "bilden einen Baum.",
    "medusa_static": "Dieselben Köpfe mit einem festen Baum für jeden Text, wie zuerst veröffentlicht.",
    "block": "Ein Durchgang rät einen ganzen Block; jeder Tipp beachtet den vor ihm und sagt, wie sicher er ist.",
    "jet": "Ein Durchgang rät einen ganzen Block; die besten Kombinationen bilden einen Baum, an dessen Knoten das "
    "Zielmodell zieht.",
    "ngram": "Kopiert, was im Text oder in diesem Besuch schon einmal auf dieselben Wörter folgte; kostet fast nichts.",
    "retrieval": "Kopiert, was in einem Datenspeicher früherer Antworten meist auf dieselben Wörter folgte.",
    "composite": "Kopiert, wo der Text sich wiederholt, und fragt sonst das Entwurfsmodell.",
    "online": "Das Entwurfsmodell lernt, während Sie es benutzen: im Lauf durch Zählen, zwischen den Läufen durch "
    "Gradientenschritte.",
    "parallel": "Das Entwurfsmodell bereitet den nächsten Entwurf vor, während das Zielmodell noch den letzten prüft; "
    "braucht einen freien Prozessorkern.",
    "quantised_self": "Eine 4-Bit-Kopie des Zielmodells entwirft für das volle Zielmodell; ein weiteres Modell ist nicht "
    "nötig.",
    "look_back": "Verwirft gezogene Token, die unwahrscheinlich aussehen: der Fehler, der die Ausgabe verändert, zum "
    "Ansehen.",
    "nothing": "Keine Entwürfe: ein Durchgang des Zielmodells für jedes Token, die Vergleichsgrundlage.",
}
NEEDED = {
    "draft": "ein Entwurfsmodell",
    "copy": "ein Zielmodell in bf16 oder fp32, dessen 4-Bit-Kopie entwirft",
    "store": "einen Datenspeicher mit Texten",
    "feature": "einen Zustandsleser",
    "exit": "einen Ausstiegsadapter",
    "medusa": "Medusa-Köpfe",
    "block": "einen DSpark-Entwerfer",
    "jet": "einen JetSpec-Entwerfer",
}
MISSING = {
    "draft": "Das Zielmodell hat kein Entwurfsmodell.",
    "unknown": "Für dieses Zielmodell ist kein Entwurfsmodell bekannt.",
    "copy": "Das Zielmodell läuft selbst schon in {precision}; in bf16 oder fp32 geladen, kann es mit einer "
    "quantisierten Kopie entwerfen.",
    "trained": "Niemand hat bisher {what} für {name} trainiert: {command} macht das.",
    "store": "Für dieses Zielmodell gibt es keinen Datenspeicher; {command} baut einen.",
}

WORDS: dict[str, object] = {
    "label": "Alle Verfahren",
    "columns": [
        "Verfahren",
        "rät mit",
        "braucht",
        "aufgezeichnet",
        "lohnt sich, wenn",
        "wie es geht",
        "ansehen",
    ],
    "nothing": "nichts",
    "unsaid": "–",
    "reading": "…",
    "gain": "{speedup}× mit {target}",
    "try": "Ausprobieren",
    "race": "Rennen",
    "watch": "Zeigen",
    "of": "{label}: {method}",
    "guesses": {
        "auto": "Suche oder Entwurfsmodell",
        "draft_model": "einem kleinen Sprachmodell",
        "tree": "einem kleinen Sprachmodell, mehrere Zweige",
        "feature": "einer Schicht, die Zustände des Zielmodells liest",
        "feature_tree": "derselben, mehrere Zweige",
        "exit": "den ersten Schichten des Zielmodells",
        "medusa": "zusätzlichen Köpfen am Zielmodell",
        "medusa_static": "zusätzlichen Köpfen am Zielmodell",
        "block": "einem Durchgang für einen ganzen Block",
        "jet": "einem Durchgang für einen ganzen Block",
        "ngram": "einer Suche im Text",
        "retrieval": "einer Suche in früheren Antworten",
        "composite": "einer Suche, dann dem Entwurfsmodell",
        "online": "einem Entwurfsmodell, das lernt",
        "parallel": "einem Entwurfsmodell, das vorausarbeitet",
        "quantised_self": "einer 4-Bit-Kopie des Zielmodells",
        "look_back": "dem Entwurfsmodell, mit einem Fehler",
        "nothing": "gar nichts",
    },
    "pays": {
        "auto": "man nicht weiß, welches Verfahren sich lohnt",
        "draft_model": "das Zielmodell vielmal so groß wie der Entwurf ist",
        "tree": "weitere Zeilen eines Durchgangs wenig kosten, wie auf einer GPU",
        "feature": "ein Leser für das Zielmodell trainiert ist",
        "feature_tree": "ein Leser trainiert ist und weitere Zeilen wenig kosten",
        "exit": "das Zielmodell viele Schichten hat",
        "medusa": "weitere Zeilen wenig kosten und Speicher knapp ist",
        "medusa_static": "dasselbe; zum Vergleich mit der Veröffentlichung",
        "block": "ein Durchgang des Entwurfs neben seinen Token viel kostet",
        "jet": "dasselbe gilt und weitere Zeilen wenig kosten",
        "ngram": "die Antwort den Prompt wiederholt: Änderungen, Code, Zusammenfassungen",
        "retrieval": "Antworten früheren ähneln",
        "composite": "Teile der Antwort sich wiederholen und andere nicht",
        "online": "immer wieder ähnlicher Text verlangt wird",
        "parallel": "ein Kern frei ist, während das Zielmodell rechnet",
        "quantised_self": "das Zielmodell mit 16 Bit oder mehr läuft",
        "look_back": "nie: Es verändert den Text und zeigt, wie",
        "nothing": "Entwürfe selten richtig sind",
    },
}
