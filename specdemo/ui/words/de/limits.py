"""The English texts of `words/en/limits.py` in German."""

from __future__ import annotations

UNKNOWN_HOST = "Unter diesem Namen gibt es diese Seite nicht. Wer sie betreibt, kann den Namen erlauben: --allowed-hosts NAME."
FOREIGN_ORIGIN = "Eine andere Seite hat gefragt, und ihr antwortet diese nicht. Wer sie betreibt, kann die andere erlauben: --allowed-hosts NAME."
CLOSED = "Das bietet diese Seite nicht an."
TOO_MUCH = "Das sind mehr als {most} MB. Mehr kann an diese Seite nicht geschickt werden."
NO_ANSWER = (
    "Auf diese Anfrage hat die Seite keine Antwort. Nichts ist gelaufen. Die Seite neu laden."
)

WRONG_COUNT = "Die Seite erwartet hier {wanted} Werte und bekam {given}. Nichts ist gelaufen. Die Seite neu laden."
WRONG_VALUE = (
    "Der Wert von \u201e{name}\u201c ist nicht möglich: Er muss {range} sein. Nichts ist gelaufen."
)
A_TEXT = "ein Text von höchstens {most} ganzen Zeichen"
A_NUMBER = "eine Zahl"
A_SWITCH = "an oder aus"
A_CHOICE = "eine der Möglichkeiten"
A_GROUP = "eine Gruppe von Einstellungen mit ihren Namen"
ONE_OF = "eines von {names}"
NOT_BEGUN = "Es wurde noch nichts verlangt, also gibt es nichts fortzusetzen."
BROKEN = "Auf der Seite ist etwas Unerwartetes geschehen. Was vorher lief, bleibt. Noch einmal versuchen oder die Seite neu laden."
CONTROL = "Der {name} enthält das Steuerzeichen {code}, das kein Modell lesen kann."
CONTROL_ADVICE = "Das Zeichen entfernen und noch einmal starten."
PROMPT, SYSTEM = "Prompt", "System-Prompt"
NOTHING_RUN = "Nichts ist gelaufen."

LONG_ANSWER = "Die Antwort darf auf dieser Seite höchstens {most} Tokens haben, nicht {given}."
LONG_ANSWER_ADVICE = "Weniger Tokens wählen und noch einmal starten."
LONG_PROMPT = "Das Gespräch mit diesem Prompt hat {length}; diese Seite liest höchstens {room} vor der Antwort."
LONG_PROMPT_KEPT = "Das bisherige Gespräch bleibt."
LONG_PROMPT_ADVICE = "Den Prompt kürzen, oder mit Leeren von vorn beginnen."
OFTEN = "Du hast in einer Minute {most} Läufe begonnen. Mehr sind auf dieser Seite nicht möglich."
OFTEN_ADVICE = "In {seconds} s noch einmal starten."
CHANGED = "Jemand anderes hat ein Modell geladen: Es ist jetzt {model} in {precision}."
CHANGED_UNHARMED = "Ungefragt läuft nichts damit weiter."
CHANGED_ADVICE = "Noch einmal auf die Schaltfläche drücken, um dieses Modell zu fragen."
SWITCH_OFF = "Hier können nur Paare aus dem Katalog geladen werden, und nur, wo die Betreiberin oder der Betreiber es erlaubt. Das geladene Modell bleibt."
