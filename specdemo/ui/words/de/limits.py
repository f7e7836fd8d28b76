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
OFTEN = "Auf dieser Seite sind höchstens {most} Läufe in einer Minute möglich."
OFTEN_ADVICE = "In {seconds} s noch einmal starten."
CHANGED = "Jemand anderes hat ein Modell geladen: Es ist jetzt {model} in {precision}."
CHANGED_UNHARMED = "Ungefragt läuft nichts damit weiter."
CHANGED_ADVICE = "Noch einmal auf die Schaltfläche drücken, um dieses Modell zu fragen."
FULL = "Der Kurs ist voll: Mehr Wartende sind nicht möglich."
FULL_UNHARMED = (
    "Der eingegebene Text bleibt, und Läufe, die schon begonnen haben, sind nicht betroffen."
)
FULL_ADVICE = "In einer Minute noch einmal versuchen. Aufgezeichnete Läufe, die Lektionen und das Kostenmodell gehen sofort."
SWITCH_OFF = "Hier können nur Paare aus dem Katalog geladen werden, und nur, wo die Betreiberin oder der Betreiber es erlaubt. Das geladene Modell bleibt."

STILL_LOADING = "Das Modell wird noch geladen."
STILL_LOADING_ADVICE = "Warten, bis es bereit ist, dann noch einmal starten."
STILL_STARTING = "Die Rechner starten noch."
STILL_STARTING_ADVICE = "Warten, bis sie bereit sind."
NO_MEMORY = "Der Speicher hat nicht gereicht."
NO_MEMORY_ADVICE = "Den Prompt kürzen, Leeren drücken oder ein kleineres Paar wählen."
RUN_BROKE = "Der Lauf ist abgebrochen: {error}."
RUN_BROKE_UNHARMED = "Der bisherige Text bleibt, und andere sind nicht betroffen."
RUN_BROKE_ADVICE = "Noch einmal starten."
GONE = "Der Rechner, der geantwortet hat, ist ausgefallen."
GONE_UNHARMED = "Was bis dahin geschrieben wurde, bleibt."
GONE_ADVICE = "Noch einmal starten: Ein anderer antwortet."
