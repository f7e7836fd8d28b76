"""The English texts of `words/en/gpu.py` in German."""

from __future__ import annotations

UNHARMED = "Aufgezeichnete Läufe, die Lektionen und das Kostenmodell brauchen keine GPU."
QUOTA = "Dieser Lauf verlangt {requested} s GPU-Zeit; übrig sind noch {left} s."
QUOTA_ADVICE = "Weniger Token verlangen oder nach {wait} noch einmal starten. Wer bei Hugging Face angemeldet ist, hat mehr GPU-Zeit."
RUNS = "Mehr Läufe auf einer GPU sind vorerst nicht möglich."
RUNS_ADVICE = "Später noch einmal starten. Wer bei Hugging Face angemeldet ist, hat mehr GPU-Zeit."
LONG = "Dieser Lauf verlangt {requested} s GPU-Zeit. So viel bekommt kein Lauf."
LONG_ADVICE = "Weniger Token verlangen und noch einmal starten."
NOBODY = "Hugging Face weiß nicht, wessen GPU-Zeit dieser Lauf verbrauchen würde."
NOBODY_ADVICE = "Die Seite auf huggingface.co öffnen und sich anmelden."
BUSY = "Eine Minute lang war keine GPU frei."
BUSY_ADVICE = "In einer Weile noch einmal starten."
ABORTED = "Die GPU wurde weggenommen, bevor der Lauf zu Ende war."
ABORTED_UNHARMED = "Was bis dahin geschrieben wurde, bleibt."
ABORTED_ADVICE = "Weniger Token verlangen und noch einmal starten."
UNREACHED = "Die GPU war nicht zu bekommen: {error}."

REPORTED = (
    "Warteschlange von ZeroGPU",
    "Der Lauf wartet auf eine freie GPU",
    "Der Lauf wartet auf einen Platz dieses Space auf einer GPU",
    "Eine GPU ist da",
    "Dauer auf ZeroGPU",
    "Der Lauf dauert länger als verlangt und wird vielleicht abgebrochen",
)
