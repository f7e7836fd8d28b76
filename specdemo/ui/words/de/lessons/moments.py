"""The lessons' moments in German: what a visitor counts, judges or compares for himself in each of them."""

from __future__ import annotations

_CUT = {
    "tokens": "ein Schritt ergibt {tokens} Token",
    "cost": "und kostet {cost} Durchgänge ohne Entwurf",
    "speedup": "Token durch Kosten: {speedup}×",
}

MOMENTS: dict[str, object] = {
    "origins": {
        "recorded": "aufgezeichnet",
        "measured": "hier gemessen",
        "modelled": "aus einem aufgezeichneten Lauf berechnet",
        "drawn": "hier gezogen, aus aufgezeichneten Wahrscheinlichkeiten",
    },
    "slow": {
        "title": "Viele Durchgänge oder einer",
        "intro": "Oben ein Durchgang für jedes Token, wie beim Schreiben. Unten ein Durchgang, der ebenso viele Token auf einmal beurteilt. Die Anzahl wählen, dann beide in ihrer Zeit laufen lassen.",
        "rows": "Anzahl Token",
        "run": "Beide starten, {slowed}-fach verlangsamt",
        "apart": "{rows} Durchgänge über ein Token: {milliseconds} ms, {done} fertig",
        "together": "ein Durchgang über {rows} Token: {milliseconds} ms, {done} beurteilt",
        "told": "Für {rows} Token ist ein Durchgang {ratio}-mal so schnell wie ein Durchgang für jedes.",
    },
    "check": {
        "title": "Selbst das Zielmodell sein",
        "intro": "Ein echter Entwurf aus dem aufgezeichneten Lauf. Welches ist das erste Token, das das Zielmodell nicht annimmt? Es wählen, oder sagen, dass der ganze Entwurf stimmt.",
        "draft": "Die entworfenen Token",
        "whole": "Alle stimmen",
        "next": "Ein anderer Entwurf",
        "ask": "Schritt {step} des Laufs.",
        "right": "Richtig.",
        "wrong": "Nicht ganz.",
        "rejected": "Das Zielmodell behält {kept} von {count}, lehnt „{drafted}“ ab und schreibt stattdessen „{own}“.",
        "kept": "Das Zielmodell behält alle {count} und fügt „{own}“ hinzu.",
        "score": "Bisher {right} von {asked} wie das Zielmodell beurteilt.",
    },
    "exact": {
        "title": "Tausend Ziehungen, mit Entwürfen und ohne",
        "intro": "Eine Stelle der aufgezeichneten Geschichte, an der das Zielmodell ein entworfenes Token abgelehnt hat. Das nächste Token tausendmal allein aus dem Zielmodell ziehen und tausendmal nach der Ablehnungsregel.",
        "table": "Wahrscheinlichkeiten beider Modelle und Anteile der Ziehungen",
        "columns": [
            "Token",
            "Zielmodell p",
            "Entwurf q",
            "ohne Entwürfe gezogen",
            "mit Entwürfen gezogen",
        ],
        "others": "alle anderen",
        "draw": "{count}-mal ziehen",
        "other": "Eine andere Stelle",
        "none": "Noch nichts gezogen. Der Trace nennt die wahrscheinlichsten Token; alle anderen zählen als eines.",
        "told": "Je {total} Ziehungen. {rejected} entworfene Token wurden abgelehnt, und doch folgen beide Spalten p: Ohne Entwürfe fällt ein Anteil von {plain} der Ziehungen anderswohin, mit ihnen {drafted}. Das ist Zufall.",
    },
    "ahead": {
        "title": "Derselbe Lauf, weniger weit entworfen",
        "intro": "Das aufgezeichnete Gedicht entwarf immer sechzehn Token. Die Entwürfe kürzen: Was behalten und was gemessen wurde, sagt, was jeder Schritt ergeben und gekostet hätte.",
        "limit": "Entworfene Token, höchstens",
        **_CUT,
        "told": "{kept} von {drafted} entworfenen Token werden behalten, {wasted} sind vergeblich. Am besten für diesen Lauf: {best}, mit {speedup}×.",
    },
    "slower": {
        "title": "Wohin die Millisekunden gehen",
        "intro": "Oben ohne Entwurf, unten mit Entwürfen, jeweils die Zeit für ein Token.",
        "lane": "{method}: {whole} ms je Token ({seconds} s für {tokens}): Zielmodell {verify}, Entwerfen {draft}, Übriges {other}",
        "parts": {"verify": "Ziel", "draft": "Entwerfen", "other": "Übriges"},
        "faster": "Ohne Entwürfe braucht ein Token {ratio}-mal so lange wie mit ihnen, auf {machine}.",
        "slower": "Mit Entwürfen braucht ein Token {ratio}-mal so lange wie ohne, auf {machine}.",
        "own": "Das ist der letzte eigene Lauf im Reiter Ausprobieren.",
        "recorded": "Das ist das aufgezeichnete Gedicht. Im Reiter Ausprobieren einen Prompt starten, mit dem Vergleich ohne Entwurf, und zurückkommen: Dann steht der eigene Lauf hier.",
    },
    "other": {
        "title": "Ein Text von jedem Verfahren",
        "intro": "Jeder bei Temperatur 0 aufgezeichnete Lauf wurde zweimal geschrieben: ohne Entwurf und mit Entwürfen. Alle vergleichen, Token für Token, in diesem Browser.",
        "compare": "{count} Verfahren vergleichen",
        "none": "Noch nichts verglichen.",
        "row": "{method}: {steps} Schritte für {tokens} Token, {same} gleich",
        "told": "{equal} von {count} Verfahren schrieben genau, was ohne Entwurf geschrieben wurde. Prompts und Zielmodelle sind verschieden, deshalb gibt es {texts} Texte. Die Balken sind Schritte: Kürzer ist besser.",
    },
    "trees": {
        "title": "Derselbe Baum, beschnitten",
        "intro": "Die aufgezeichneten Bäume wuchsen vom Besten her. Ihre letzten Knoten wegnehmen: Was behalten und was gemessen wurde, sagt, was jeder Schritt ergeben und gekostet hätte.",
        "limit": "Knoten, höchstens",
        **_CUT,
        "told": "{kept} von {drafted} Knoten werden behalten, {wasted} sind vergeblich. Am besten für diesen Lauf: {best}, mit {speedup}×.",
    },
    "latest": {
        "title": "Lernt es?",
        "intro": "Der Lauf mit dem lernenden Entwurf in fünf Teilen, und wie viel von den Entwürfen jedes Teils behalten wurde.",
        "part": "Schritte {from} bis {to}: {kept} von {drafted} behalten, {percent} %",
        "rises": "Der Anteil behaltener Entwürfe steigt, von {early} % auf {late} %: um mehr als zwei Standardfehler ({bound} Punkte).",
        "falls": "Der Anteil behaltener Entwürfe sinkt hier, von {early} % auf {late} %: um mehr als zwei Standardfehler ({bound} Punkte).",
        "unclear": "Der erste Teil behielt {early} %, der letzte {late} %. Zwei Standardfehler sind {bound} Punkte: Diese Entwürfe zeigen nicht, dass es lernt.",
        "own": "Das ist der letzte eigene Lauf im Reiter Ausprobieren.",
        "recorded": "Das ist ein aufgezeichneter Lauf, und ein kurzer. Im Reiter Ausprobieren einen langen Prompt zweimal mit dem Verfahren Online starten und zurückkommen: Dann steht der eigene Lauf hier.",
    },
}
