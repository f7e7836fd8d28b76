"""German: titles of recorded runs and examples, by the English ones."""

from __future__ import annotations

RUNS = {
    "A model of 1.5 billion weights, and its small drafter": "Ein Modell mit 1,5 Milliarden Gewichten und sein kleiner Entwerfer",
    "The larger model writes code: auto": "Das größere Modell schreibt Code: Automatisch",
    "The larger model copies: n-grams": "Das größere Modell kopiert: N-Gramme",
    "The larger model, sampled as it recommends": "Das größere Modell, gezogen wie empfohlen",
    "A draft model guesses, the target checks": "Ein Entwurfsmodell rät, das Zielmodell prüft",
    "Copying from the prompt: no second model": "Aus dem Prompt kopiert: ohne zweites Modell",
    "Sampling: the rejection rule at work": "Ziehen: die Verwerfungsregel bei der Arbeit",
    "A tree instead of a chain": "Ein Baum statt einer Kette",
    "Plain decoding: one token a pass": "Ohne Entwurf: ein Token je Durchgang",
    "Always sixteen ahead: slower": "Immer sechzehn voraus: langsamer",
    "Always three ahead": "Immer drei voraus",
    "Early exit: the target's own first layers": "Früher Ausstieg: die ersten Schichten des Zielmodells",
    "Medusa: heads on the target's last state": "Medusa: Köpfe auf dem letzten Zustand des Zielmodells",
    "A feature drafter reads the target's states": "Ein Zustandsleser liest die Zustände des Zielmodells",
    "A feature drafter's tree": "Der Baum eines Zustandslesers",
    "DSpark: a block in one pass, and how sure it is": "DSpark: ein Block in einem Durchgang, und wie sicher er ist",
    "JetSpec: a tree from one pass": "JetSpec: ein Baum aus einem Durchgang",
    "Drafting while the target is busy": "Entwerfen, während das Zielmodell rechnet",
    "A draft that learns from the verdicts": "Ein Entwurf, der aus den Urteilen lernt",
    "Looking up what texts said before": "Nachschlagen, was frühere Texte sagten",
    "The target's own quantised copy drafts": "Die quantisierte Kopie des Zielmodells entwirft",
    "Copy if possible, else ask the draft": "Kopieren, wo es geht, sonst den Entwurf fragen",
    "Auto: whatever is fastest now": "Automatisch: was gerade am schnellsten ist",
}
EXAMPLES = {
    "Why is the sky blue?": "Warum ist der Himmel blau?",
    "Short story": "Kurzgeschichte",
    "Python code": "Python-Code",
    "Maths": "Rechnen",
    "Translation": "Übersetzung",
    "Summary": "Zusammenfassung",
    "Copy and edit": "Kopieren und ändern",
    "List": "Liste",
    "E-mail": "E-Mail",
    "Recipe": "Rezept",
    "Explain": "Erklären",
    "Poem (hard to guess)": "Gedicht (schwer zu raten)",
}
