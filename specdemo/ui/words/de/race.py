"""German: the race."""

from __future__ import annotations

from specdemo.ui.words.en import race as en

LEAD = (
    "Zwei bis vier Bahnen beantworten denselben Prompt. Jede läuft wirklich, allein, eine nach der anderen; dann "
    "werden alle zusammen auf einer Uhr abgespielt."
)
PROMPT = "Prompt des Rennens"
START, STOP = "Rennen", "Anhalten"
PRESETS_LABEL, RECORDED_LABEL = "Aufstellung", "Aufgezeichnete Rennen"
COUNT = "Bahnen"
LANE = "Bahn {number}"
NOTE = "Alle Bahnen nutzen das Zielmodell, wie es geladen ist: Eine andere Genauigkeit wäre ein anderes Zielmodell. Um eine antreten zu lassen, auf dem ersten Reiter unter Modelle laden oder `python -m specdemo bench --precision` starten; wo Läufe in zwei Genauigkeiten aufgezeichnet sind, stehen sie im Menü der aufgezeichneten Rennen. „Nicht entwerfen, solange es langsamer ist“ ist hier aus, damit jede Bahn ihr eigenes Verfahren zeigt."
WAIT_TURN = (
    "Warten: Rennen sind nacheinander dran, damit keines ein anderes stört. Es beginnt von selbst."
)
WAIT_LOADING = "Das Modell wird noch geladen. Das Rennen beginnt, sobald es bereit ist."
EMPTY, EMPTY_ADVICE = (
    "Es gibt keinen Prompt für das Rennen.",
    "Einen eingeben oder eine Aufstellung wählen.",
)

TITLE_POLICY = "{method}: {policy}, bis zu {lookahead}"
TITLE_FIXED = "{method}: immer {lookahead}"
TITLE_DEPTH = "{method}: bis zu {lookahead} tief"
TITLE_PRECISION = "{precision}: {title}"
POLICIES = {
    "heuristic": "heuristisch",
    "confidence": "nach Zuversicht",
    "learned": "gelernt",
    "cost": "nach Kosten",
}
RECORDED = "Aufgezeichnet, {lanes} Bahnen: {prompt}"
RECORDED_PRECISIONS = "Aufgezeichnet, {precisions}: {prompt}"

EXPLAIN, POEM = en.EXPLAIN, en.POEM
_TITLES = (
    "Ohne Entwurf gegen Entwurfsmodell",
    "Kette gegen Baum",
    "Drei Regeln",
    "Guter Entwurf gegen absichtlich schlechten",
)
PRESETS = tuple((title, *rest) for title, (_, *rest) in zip(_TITLES, en.PRESETS, strict=True))

WORDS: dict[str, object] = {
    "label": "Das Rennen",
    "source": {"live": "gemessen", "recorded": "aufgezeichnet"},
    "phase": {
        "empty": "Die Bahnen wählen und Rennen drücken.",
        "fetching": "Die aufgezeichneten Läufe werden gelesen.",
        "missing": "Ein aufgezeichneter Lauf konnte nicht gelesen werden. Die Seite neu laden und noch einmal versuchen.",
        "warming": "Bahn {lane} von {lanes} wärmt auf; nichts davon wird gemessen.",
        "running": "Bahn {lane} von {lanes} läuft allein: bisher {tokens} Token. Das Rennen beginnt, wenn alle gelaufen sind.",
        "ready": "Alle sind gelaufen, eine nach der anderen. Abspielen zeigt sie im Rennen.",
        "racing": "Alle zugleich, auf einer Uhr der Decodierzeit; das Lesen des Prompts zählt nicht.",
        "over": "Das Rennen ist vorbei.",
        "cut": "Angehalten: Was gelaufen ist, wird gezeigt.",
    },
    "recorded_about": "Jede Bahn wurde in einem eigenen Lauf aufgezeichnet: {machine}.",
    "shared": "Gemessen, während bis zu {runs} Läufe sich das Modell teilten: Die Bahnen sind langsamer als allein.",
    "start": "Zum Anfang (Pos1)",
    "play": "Abspielen (Leertaste)",
    "pause": "Pause (Leertaste)",
    "end": "Zum Ziel (Ende)",
    "scrub": "Zeit im Rennen",
    "speed": "Geschwindigkeit der Wiedergabe",
    "clock_of": "{now} von {all} s",
    "controls": "Wiedergabe des Rennens",
    "lane_waiting": "wartet, bis sie dran ist",
    "lane_warming": "wärmt auf",
    "lane_facts": "{tokens} Token · {rate} Tok/s",
    "lane_done": "{tokens} Token in {seconds} s · {rate} Tok/s",
    "lane_failed": "abgebrochen",
    "lane_stopped": "angehalten",
    "lossy": "mit Absicht verlustbehaftet",
    "rank": {"1": "1.", "2": "2.", "3": "3.", "4": "4."},
    "finish": "Ziel: {tokens} Token",
    "track": "{title}: {tokens} von {goal} Token",
    "margin": "{first} zuerst, {seconds} s vor {other}.",
    "chart": {
        "title": "Token im Lauf der Zeit",
        "label": "Diagramm: Token, die jede Bahn im Lauf der Zeit geschrieben hat",
        "x": "Sekunden des Decodierens",
        "y": "Token",
    },
    "table": {
        "label": "Ergebnis des Rennens",
        "rank": "Rang",
        "lane": "Bahn",
        "rate": "Token/s, {origin}",
        "speedup": "gegen ohne Entwurf",
        "per_pass": "Token je Durchgang",
        "kept": "Entwürfe behalten",
        "seconds": "Sekunden",
        "tokens": "Token",
        "no_plain": "Es gibt keine Bahn ohne Entwurf, also gibt es keine Beschleunigung.",
        "finish": "Geordnet nach der Zeit bis zur Ziellinie bei {tokens} Token, die jede Bahn erreicht hat.",
    },
    "times": "{speedup}×",
    "percent": "{percent} %",
    "copy": "Als Markdown kopieren",
    "copied": "Kopiert",
    "copy_failed": "Der Browser lässt diese Seite nicht kopieren. Die Tabelle ist markiert: mit Strg+C kopieren.",
    "markdown_head": "Rennen um „{prompt}“ ({origin}: {machine})",
    "same": {
        "all": "Jede Bahn schrieb dieselben {tokens} Token.",
        "parts": "{lane} weicht bei Token {place} von {reference} ab: „{own}“ statt „{other}“.",
        "longer": "{lane} und {reference} sind gleich, so weit beide gehen: {tokens} Token.",
        "greedy": "Unter fp32 kann ein Beinahe-Gleichstand zweier Wörter anders ausgehen, wenn ein Durchgang mehr Zeilen hat.",
        "sampled": "Gezogene Token dürfen sich von Verfahren zu Verfahren unterscheiden; gleich ist die Verteilung, aus der gezogen wird.",
        "lossy": "{lane} ist mit Absicht verlustbehaftet: Ihr Text muss nicht der des Zielmodells sein.",
        "precisions": "Eine andere Genauigkeit ist ein anderes Zielmodell: Sein Text kann anders sein.",
    },
}
