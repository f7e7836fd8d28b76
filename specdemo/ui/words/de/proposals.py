"""German: drafts side by side."""

from __future__ import annotations

LEAD = "Was hätte jedes Verfahren hier entworfen? Eine Stelle in der Antwort des Zielmodells wählen: Jeder Entwerfer rät von dort aus, einer nach dem anderen, und das Zielmodell beurteilt jeden Entwurf."
PROMPT = "Prompt des Textes"
WRITE, STOP = "Erzeugen", "Anhalten"
RECORDED_LABEL = "Aufgezeichnete Texte"
RECORDED = "Aufgezeichnet, {runs} Verfahren: {prompt}"
SETTINGS = "Wie sie entwerfen"
SYSTEM = "System-Prompt (freiwillig)"
TOKENS = "Token des Textes"
EXPLAIN = "What are the benefits of reading books?"
WAIT_LOADING = "Das Modell wird noch geladen. Der Text beginnt, sobald es bereit ist."
WAIT_TURN = "Warten: Was gemessen wird, ist nacheinander dran. Es beginnt von selbst."
EMPTY, EMPTY_ADVICE = "Das Zielmodell schrieb nichts.", "Einen anderen Prompt versuchen."
NO_POSITION = "Diese Stelle gibt es im Text nicht. Ein Wort von ihm wählen."
NO_TEXT = "Es gibt noch keinen Text."
NO_TEXT_ADVICE = "Erzeugen drücken, dann eine Stelle im Text wählen."

WORDS: dict[str, object] = {
    "label": "Entwürfe an einer Stelle",
    "source": {"live": "gemessen", "recorded": "aufgezeichnet"},
    "phase": {
        "empty": "Erzeugen drücken oder einen aufgezeichneten Text wählen.",
        "fetching": "Die aufgezeichneten Läufe werden gelesen.",
        "missing": "Ein aufgezeichneter Lauf konnte nicht gelesen werden. Die Seite neu laden und noch einmal versuchen.",
        "alone": "Diese Läufe haben keine Stelle gemeinsam, an der sie entworfen haben.",
        "writing": "Das Zielmodell schreibt den Text: bisher {tokens} Token.",
        "choose": "Eine Stelle wählen: ein Wort anklicken oder ziehen.",
        "asking": "{method} entwirft.",
        "done": "{count} von {all} Verfahren entwarfen nach Token {position}.",
        "stopped": "Angehalten.",
    },
    "recorded_about": "Jedes Verfahren entwarf hier in einem eigenen Lauf: {machine}. Gepunktet: Stellen, an denen zwei oder mehr Verfahren entwarfen.",
    "text": "Die Antwort des Zielmodells; die Entwerfer raten, was nach der gewählten Stelle kommt",
    "place": "Stelle im Text",
    "place_of": "nach Token {position} von {tokens}",
    "earlier": "Eine Stelle zurück",
    "later": "Eine Stelle weiter",
    "rows": "Was jedes Verfahren hier entworfen hätte",
    "target": "Das Zielmodell sagt",
    "target_hint": "So geht die Antwort weiter.",
    "agree": "„{word}“ ist der erste Tipp von {count} aus {all}",
    "agree_right": "„{word}“ ist der erste Tipp von {count} aus {all}, und das Zielmodell schrieb es",
    "agree_wrong": "„{word}“ ist der erste Tipp von {count} aus {all}; das Zielmodell schrieb „{own}“",
    "silent": "Hier raten nichts: {count}",
    "unrecorded": "Kein aufgezeichneter Lauf dieses Textes zeigt: {methods}.",
    "facts": "{kept} von {drafted} behalten · {milliseconds} ms",
    "facts_tree": "{kept} behalten, {drafted} Knoten · {milliseconds} ms",
    "facts_hint": "Entworfene Token, die das Zielmodell behielt, und Millisekunden des Entwerfens, {origin}",
    "nothing": "Entwirft hier nichts: {reason}",
    "nothing_alone": "Entwirft hier nichts.",
    "next": "Mit dem des Zielmodells sind das {tokens} Token in einem Durchgang.",
    "tree_caption": "{drafted} Knoten, {accepted} behalten",
    "waiting": "wartet",
    "lossy": "mit Absicht verlustbehaftet",
    "note": "Jedes Verfahren beginnt an dieser Stelle neu und erinnert sich an nichts aus dem Lauf. Seine Zeit ist die eines zweiten Versuchs, nach dem Aufwärmen.",
}
