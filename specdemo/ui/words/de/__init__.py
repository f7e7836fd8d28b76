"""German: the page around the parts, the player and everything that is drawn by `view.js`."""

from __future__ import annotations

from specdemo.trace.events import LARGEST_FILE
from specdemo.ui.words.de.charts import WORDS as CHARTS
from specdemo.ui.words.de.export import WORDS as EXPORT
from specdemo.ui.words.de.runs import RUNS as _RUNS

TITLE = "specdemo"
SUBTITLE = "Spekulatives Decodieren, live: ein Entwurf rät, das Zielmodell prüft."
PROMPT = "Prompt"
PROMPT_HINT = "Etwas fragen oder unten ein Beispiel wählen."
RUN, STOP, NEW = "Start", "Anhalten", "Leeren"
SKIP = "Zum Text springen"
DRAWER = "Einstellungen"
DRAWER_WORDS = {"label": "Einstellungen", "close": "Schließen"}
# What is asked for, by the name of the setting.
SETTINGS = {
    "method": "Verfahren",
    "policy": "Regel der Vorausschau",
    "lookahead": "Vorausschau",
    "nodes": "Knoten des Baums",
    "memory": "In dieser Sitzung Gelerntes nutzen",
    "preset": "Ziehen der Token",
    "verification": "Prüfung eines Entwurfs",
    "temperature": "Temperatur",
    "max_new_tokens": "Höchstzahl der Token",
    "threshold": "Schwelle der Zuversicht",
    "fallback": "Nicht entwerfen, solange es langsamer ist",
    "baseline": "Zuerst ohne Entwurf messen",
    "stand_in": "Solange andere warten, mit einem früheren Lauf ohne Entwurf vergleichen",
    "exact": "Bitgenauer Modus",
    "top_k": "Top-k (0 ist aus)",
    "top_p": "Top-p (1 ist aus)",
    "repetition_penalty": "Wiederholungsstrafe (1 ist aus)",
    "seed": "Startwert",
}
SETTING_HINTS = {
    "verification": "Als Block werden im Mittel mindestens so viele Token behalten, und der Text bleibt der des Zielmodells. Bäume, Kopien und das jeweils wahrscheinlichste Token werden immer Token für Token geprüft.",
    "exact": "Beim gierigen Decodieren ist der Text Bit für Bit der ohne Entwurf. Eine Grafikkarte entwirft dann nur so viele Token, wie sich als bitgenau gezeigt haben; der kompilierte Durchlauf eines Prozessors ist es immer.",
    "seed": "Derselbe Startwert gibt denselben Text, außer bei Auto und „Nach Kosten“, die auf gemessene Zeiten reagieren.",
}
SYSTEM = "System-Prompt (freiwillig)"
MORE, MODEL = "Weitere Einstellungen", "Modelle"
PAIR, PRECISION, LOAD = "Modell", "Genauigkeit des Zielmodells", "Laden"
DRAFTER, NO_DRAFTER = "Veröffentlichter Entwerfer", "Keiner"
DRAFTER_INFO = "Von anderen für dieses Modell gemacht; tritt an die Stelle eines trainierten Entwerfers seiner Art."
DRAFTER_NAMED = f"{DRAFTER_INFO} Auch eine Kennung des Hubs (owner/name oder owner/name@revision) oder ein Ordner lässt sich eingeben."
DRAFTER_HERE, DRAFTER_AWAY = "{name} ({family}, {size})", "{name} ({family}, Download)"
DRAFTER_CHOSEN = "{name} entwirft."
DRAFTER_ON_DISK = "Der Entwerfer liegt auf dieser Platte, {size}."
DRAFTER_ASKED = "Der Entwerfer muss heruntergeladen werden. „Laden“ fragt zuerst den Hub nach seiner Größe und Lizenz."
DRAFTER_LICENCE = "Lizenz des Entwerfers: {licence}."
DRAFTER_UNNAMED = "Die Karte des Entwerfers nennt keine Lizenz."
TOO_LARGE, TO_DOWNLOAD = "{title} (hier\u00a0zu\u00a0groß)", "{title} (Download\u00a0{size})"
PAIR_DRAFT = "Die Entwürfe macht {draft}."
SHIPPED_DRAFT = "das mitgelieferte Entwurfsmodell"
OWN_DRAFTER = "ein eigener, mitgelieferter Entwerfer"
NO_DRAFT = (
    "Kein Modell entwirft für dieses. Methoden, die aus dem Text kopieren, gehen, etwa N-Gramme; was sie bringen, hängt "
    "vom Text ab."
)
LOADED = "Jetzt geladen; braucht etwa {needed} Speicher."
ROOM = "Passt: braucht etwa {needed} Speicher, {free} sind frei."
NO_ROOM = "Passt nicht: braucht etwa {needed} Speicher, {free} sind frei."
ON_DISK = "Liegt schon auf dieser Platte."
DOWNLOAD_SIZE = "Muss zuerst heruntergeladen werden: etwa {size}."
RATE, RATE_PLAIN = (
    "Etwa {plain} Token/s ohne Entwurf und {drafted} mit, greedy.",
    "Etwa {plain} Token/s ohne Entwurf.",
)
BY_SIZE = "Modelliert nach der Größe, aus Durchgängen eines anderen Modells auf diesem Rechner."
BY_PASSES = "Modelliert aus seinen eigenen Durchgängen, auf diesem Rechner gemessen."
KEPT_RECORDED = "Entwürfe: {kept} % der ersten Token werden angenommen, gemessen nach dem Training."
KEPT_ASSUMED = "Entwürfe: {kept} % der Token werden angenommen; das ist nur geschätzt, denn niemand hat dieses Paar gemessen."
RATE_UNKNOWN = "Wie schnell es hier ist, wurde noch nicht gemessen."
LICENCE = "Lizenz: {licence}."
ASK = "{title} liegt nicht auf dieser Platte. Zum Laden werden etwa {size} heruntergeladen."
ASK_UNKNOWN = "{title} liegt nicht auf dieser Platte. Zum Laden wird es vom Hub heruntergeladen."
DOWNLOAD, NOT_NOW = "Herunterladen und laden", "Jetzt nicht"
COMING = "Unterwegs: Oben auf der Seite steht, wie weit es ist. Bis dahin geht es mit dem alten Modell weiter."
POLICIES = {
    "constant": "Fest",
    "heuristic": "Heuristik (+2 / -1)",
    "confidence": "Zuversicht",
    "learned": "Gelernte Regel",
    "cost": "Nach Kosten",
}
PRESETS = {
    "recommended": "Wie vom Modell empfohlen",
    "greedy": "Immer das wahrscheinlichste",
    "own": "Eigene Werte",
}
VERIFICATIONS = {"token": "Token für Token", "block": "Als Block"}
DRAWN = "Temperatur {temperature}, Top-k {top_k}, Top-p {top_p}, Wiederholungsstrafe {repetition_penalty}."
DRAWN_GREEDY = "Immer das wahrscheinlichste Token."
DRAWN_NOTHING = "Wer das Modell gemacht hat, empfiehlt nichts. Immer das wahrscheinlichste Token."
DRAWN_PROJECT = "Von diesem Projekt gewählt, denn das Modell nennt nichts: {values}"
OFF = "aus"
FORGET, FORGOTTEN = "Gelerntes löschen", "Das Gelernte ist gelöscht."
UNAVAILABLE, LOSSY = "hier nicht verfügbar", "verlustbehaftet"
NEEDS = "Braucht {need}."
NOT_HERE = "Für dieses Zielmodell nicht verfügbar. {why_not}"
LOSSY_NOTE = "Mit Absicht verlustbehaftet: Es behält vielleicht Token, die das Zielmodell allein nicht geschrieben hätte."
TAB_PLAY, TAB_RACE, TAB_LAB, TAB_LESSONS, TAB_PROPOSALS, TAB_METHODS = (
    "Ausprobieren",
    "Rennen",
    "Labor",
    "Lektionen",
    "Entwürfe",
    "Verfahren",
)
PROOF = "Beweis"
METHODS_LEAD = "Jede eingebaute Art zu raten, was sie braucht und was sie in ihrem aufgezeichneten Lauf gewonnen hat, jede mit einem eigenen Prompt. Nur die als verlustbehaftet markierten ändern, was das Zielmodell sagt: Der Beweis steht darunter."
TRAINING = "Training"
CARD_LOADING = "Die Trainingskarte erscheint, sobald das Modell geladen ist."
CARD_NOTHING = "{title} hat keine eigenen Gewichte; es gibt also nichts zu trainieren."
CARD_UNKNOWN = "Für das, womit dieses Verfahren entwirft, gibt es keine Trainingskarte: {need}."
THEME = "Hell / dunkel"
LOADING = {
    "start": "Start",
    "download": "Das Modell wird heruntergeladen",
    "check": "Das Modell wird geprüft",
    "convert": "Das Modell wird umgewandelt",
    "load": "Das Modell wird geladen",
    "quantise": "Laden und Quantisieren",
    "warm up": "Aufwärmen",
}
TIME_LEFT = "noch etwa {time}"
READY = "Bereit: {target}, {precision}"
CHOSEN = {
    "largest": "das größte auf dieser Platte, das hineinpasst",
    "usual": "nichts Größeres liegt auf dieser Platte und passt hinein",
}
FAILED = "Das Modell konnte nicht geladen werden. {message}"
REPLAY_ONLY = "Nur aufgezeichnete Läufe"
WAIT_LOADING = "Das Modell wird noch geladen. Der Lauf beginnt, sobald es bereit ist."
WAIT_TURN = "Der Lauf beginnt, sobald Platz für ihn ist."
NO_SUCH_RUN = "Diesen aufgezeichneten Lauf gibt es nicht mehr. Die Seite neu laden."
PLACE = "Platz {place} von {of} in der Schlange."
PLACE_SECONDS = (
    "Platz {place} von {of} in der Schlange. An der Reihe voraussichtlich in etwa {seconds} s."
)
TURN = "Der Lauf ist an der Reihe."
BATCH = "Mehrere Prompts zugleich"
BATCH_HINT = (
    "Höchstens {most}, mit dem Verfahren und den Einstellungen oben. Sie teilen sich die Durchgänge des "
    "Zielmodells; jeder dauert also länger als allein. Ohne Entwurf wird nicht gerechnet."
)
BATCH_PROMPTS = "Prompts, einer je Zeile"
BATCH_EXAMPLES = (
    "Write a short story about a lighthouse keeper.",
    "Write a short story about a lost suitcase.",
    "Explain photosynthesis to a ten-year-old.",
    "List ten tips for learning a new language.",
)
BATCH_RUN, BATCH_STOP = "Alle starten", "Alle anhalten"
BATCH_EMPTY = "Es gibt keine Prompts."
BATCH_EMPTY_ADVICE = "Einen je Zeile schreiben."
BATCH_MANY = "Das sind {count} Prompts; höchstens {most} werden zusammen beantwortet."
BATCH_MANY_ADVICE = "Einige Zeilen herausnehmen."
UNEXPECTED = "Etwas ging unerwartet schief: {error}."
UNEXPECTED_UNHARMED = "Der Text und die Läufe anderer Besucher sind nicht betroffen."
UNEXPECTED_ADVICE = (
    "Noch einmal starten. Kommt es wieder vor, sagt vielleicht python -m specdemo doctor, warum."
)

STATUS = {
    "drafted": "entworfen",
    "accepted": "angenommen",
    "rejected": "abgelehnt",
    "unreached": "nicht erreicht",
    "correction": "Korrektur",
    "bonus": "Zugabe",
    "plain": "ohne Entwurf",
}

VIEW: dict[str, object] = {
    "source": {"live": "gemessen", "recorded": "aufgezeichnet"},
    "runs": _RUNS,
    "methods": {
        "draft_model": "Entwurfsmodell",
        "tree": "Baum",
        "ngram": "N-Gramm",
        "retrieval": "Nachschlagen",
        "quantised_self": "quantisiertes Selbst",
        "parallel": "paralleles Entwerfen",
        "composite": "Kombination",
        "copy_through": "Weiterkopieren",
        "auto": "Auto",
        "online": "lernend",
        "feature": "Zustandsleser",
        "feature_tree": "Zustandsbaum",
        "exit": "früher Ausstieg",
        "medusa": "Medusa",
        "medusa_static": "Medusa, fester Baum",
        "block": "DSpark",
        "block_tree": "DSpark-Baum",
        "jet": "JetSpec",
        "look_back": "Zurückschauen",
        "nothing": "ohne Entwurf",
        "plain": "ohne Entwurf",
    },
    "phase": {
        "waiting": "Warten…",
        "reading": "Der Prompt wird gelesen…",
        "plain": "Zuerst wird ohne Entwurf gemessen, zum Vergleich",
        "plain_done": "Ohne Entwurf ist fertig; jetzt mit Entwürfen",
        "speculative": "Decodieren mit Entwürfen",
        "playing": "Ein aufgezeichneter Lauf in seinem eigenen Tempo",
        "playing_slowed": "Ein aufgezeichneter Lauf, {times}-mal verlangsamt",
        "playing_faster": "Ein aufgezeichneter Lauf, {times}-mal so schnell",
        "stale": "Das beantwortet eine frühere Frage; Start beantwortet die obige",
        "paused": "Pause; Abspielen geht hier weiter",
        "behind": "Rückblick, während der Lauf weitergeht; Ende folgt ihm wieder",
        "held": "Hier angehalten, während der Lauf weitergeht; Abspielen geht hier weiter",
        "done": "Fertig, {speedup}× so schnell wie ohne Entwurf",
        "done_stand_in": "Fertig, {speedup}× so schnell wie ohne Entwurf bei einem anderen Prompt, {minutes} min zuvor gemessen",
        "done_alone": "Fertig",
        "cancelled": "Angehalten; der bisherige Text bleibt",
        "failed": "Der Lauf brach ab; der bisherige Text bleibt",
        "cut": "Endet hier",
    },
    "phase_lossy": {
        "done": "Fertig, {speedup}× so schnell; das Zielmodell allein hätte vielleicht etwas anderes geschrieben",
    },
    "lossy": "mit Absicht verlustbehaftet",
    "lossy_hint": "Dieses Verfahren behält mehr als ein exaktes: Der Text kann vom Text des Zielmodells abweichen",
    "announce": {
        "plain": "Zuerst läuft es ohne Entwurf.",
        "speculative": "Decodieren mit Entwürfen.",
        "done": "Fertig: {speedup}-mal so schnell, {fast} gegen {plain} Token je Sekunde, "
        "{accepted} Prozent der Entwürfe angenommen.",
        "done_stand_in": "Fertig: {speedup}-mal so schnell wie ohne Entwurf bei einem anderen Prompt.",
        "cancelled": "Angehalten.",
        "failed": "Der Lauf brach ab.",
    },
    "empty": "Einen Prompt eingeben und Start drücken. Jedes Token zeigt dann, was mit ihm geschah.",
    "text_label": "Die Antwort, Token für Token",
    "strip": {
        "label": "Schritte, je eine Spalte: unten entworfene Token, oben das des Zielmodells. Einen Schritt wählen, um ihn zu sehen",
        "step": "Schritt {step}: {accepted} von {drafted} entworfenen behalten; Entwurf {draft} ms, Prüfen {verify} ms, "
        "Verwaltung {overhead} ms",
        "open": "Schritt {step}: {drafted} entworfen, wird geprüft",
        "time": "Zeit",
        "time_hint": "Unter jeder Spalte: womit der Schritt seine Zeit verbrachte, von unten nach oben",
        "draft": "Entwurf",
        "verify": "Prüfen",
        "overhead": "Verwaltung",
    },
    "token_label": "Token: {status}",
    "tree": {
        "label": "Der Schritt als Baum; die Pfeiltasten gehen von Knoten zu Knoten",
        "caption": "Schritt {step}: {accepted} von {drafted} entworfenen behalten, {depth} tief",
        "open": "Schritt {step}: {drafted} entworfen, {depth} tief, wird geprüft",
        "numbers": "Zahlen: die Wahrscheinlichkeit des Zielmodells",
        "larger": "Größer (+)",
        "smaller": "Kleiner (-)",
        "fit": "Einpassen (0)",
    },
    "legend": "Was die Zeichen bedeuten",
    "marks": {
        "accepted": ["unterstrichen", "richtig geraten"],
        "rejected": ["durchgestrichen", "falsch geraten"],
        "correction": ["umrandet", "stattdessen das Wort des Zielmodells"],
        "unreached": ["gepunktet", "nie geprüft"],
        "bonus": ["doppelte Linie", "eins umsonst dazu"],
    },
    "next": {
        "label": "Nach diesem Lauf",
        "explain": "Die erste Ablehnung erklären",
        "race": "Mit diesem Prompt ein Rennen",
        "others": "Was hätten die anderen hier geraten?",
        "drawn": "Mit Temperatur 1 versuchen",
    },
    "tour": {
        "label": "Einführung",
        "start": "Ein Entwurf rät die nächsten Token. Das Zielmodell, dessen Antwort man will, prüft sie alle in einem Durchgang.",
        "rejected": "„{guess}“ war falsch geraten: Stattdessen steht nun „{own}“, das Token des Zielmodells. Was davor richtig geraten war, bleibt; der Text bleibt also der des Zielmodells.",
        "same": "Derselbe Text, {speedup}× so schnell: {passes} Durchgänge des Zielmodells statt {tokens}.",
        "done": "{speedup}× so schnell wie ohne Entwurf: {passes} Durchgänge des Zielmodells für {tokens} Token.",
        "plain": "ohne Entwurf, {count} Token",
        "drafted": "mit Entwurf, {count} Token",
        "skip": "Überspringen",
        "close": "Verstanden",
        "again": "Die Einführung abspielen",
    },
    "loading": "Das Modell wird geladen",
    "transport": {
        "label": "Abspielen",
        "scrub": "Stelle im Lauf",
        "speed": "Geschwindigkeit",
        "place": "Schritt {step} von {steps}",
        "start": "Zum Anfang (Pos1)",
        "back_round": "Einen Schritt zurück (Umschalt + Links)",
        "back": "Ein Token zurück (Links)",
        "play": "Abspielen (Leertaste)",
        "pause": "Pause (Leertaste)",
        "forward": "Ein Token weiter (Rechts)",
        "round": "Einen Schritt weiter (Umschalt + Rechts)",
        "rejection": "Zur nächsten Ablehnung (N)",
        "end": "Zum Ende (Ende)",
        "live": "Dem Lauf folgen (Ende)",
    },
    "hide_drafts": "Abgelehnte Token ausblenden",
    "open": f"Gespeicherten Lauf öffnen… (höchstens {LARGEST_FILE >> 20} MB)",
    "reused": "{cached} von {all} Token des Prompts wiederverwendet",
    "status": STATUS,
    "meaning": {
        "accepted": "Entworfen, vom Zielmodell geprüft und behalten",
        "rejected": "Entworfen, vom Zielmodell geprüft und abgelehnt",
        "unreached": "Nie geprüft: Ein Token davor wurde abgelehnt oder ein anderes an seiner Stelle behalten",
        "correction": "Das Token des Zielmodells anstelle eines abgelehnten",
        "bonus": "Das Token des Zielmodells nach einem Entwurf, der ganz behalten wurde",
        "plain": "Das Token des Zielmodells in einem Schritt ohne Entwurf",
    },
    "explain": {
        "drafted": "Vom Entwerfer geraten; das Zielmodell hat noch nicht geurteilt.",
        "accepted": "Das Zielmodell hätte dasselbe gesagt, also wurde es behalten.",
        "accepted_greedy": "Das entworfene Token ist hier das wahrscheinlichste des Zielmodells, mit {target}: behalten.",
        "accepted_drawn": "Die gezogene Zahl {draw} liegt unter der Annahmewahrscheinlichkeit {accept}: behalten.",
        "accepted_block": "Die {drafted} entworfenen Token wurden als Block geprüft. Die gezogene Zahl {draw} liegt unter der Annahmewahrscheinlichkeit {accept} dieses Tokens, die den ganzen Entwurf berücksichtigt: behalten.",
        "rejected_block": "Die {drafted} entworfenen Token wurden als Block geprüft. Die gezogene Zahl {draw} liegt nicht unter der Annahmewahrscheinlichkeit {accept} dieses Tokens, die den ganzen Entwurf berücksichtigt: abgelehnt.",
        "rejected": "Das Zielmodell hätte etwas anderes gesagt, also wurde es abgelehnt.",
        "rejected_greedy": "Das wahrscheinlichste Token des Zielmodells ist hier „{best}“ mit {best_prob}; „{token}“, "
        "dem es {target} gibt, wurde abgelehnt.",
        "rejected_drawn": "Die gezogene Zahl {draw} liegt nicht unter der Annahmewahrscheinlichkeit {accept}: abgelehnt.",
        "unreached": "Nie geprüft: Ein Token davor wurde abgelehnt oder ein anderes an seiner Stelle behalten.",
        "unreached_block": "Die {drafted} entworfenen Token wurden als Block geprüft; davon wurde der Teil vor „{before}“ behalten.",
        "unreached_refused": "Nie geprüft: „{before}“ davor wurde abgelehnt.",
        "unreached_kept": "Nie geprüft: Stattdessen wurde „{before}“ behalten.",
        "folded": "{count} weitere Token des Baums; keines davon wurde geprüft und behalten.",
        "correction": "Die Wahl des Zielmodells anstelle des abgelehnten Entwurfs.",
        "correction_greedy": "Das wahrscheinlichste Token des Zielmodells, mit {target}, anstelle des abgelehnten „{refused}“.",
        "correction_drawn": "„{refused}“ wurde abgelehnt, also wurde dies aus dem gezogen, was das Zielmodell noch zu vergeben hatte.",
        "correction_listed": "„{refused}“ wurde abgelehnt, also wurde dies aus dem gezogen, was das Zielmodell noch zu "
        "vergeben hatte; davon hat es {residual}.",
        "bonus": "Der Entwurf wurde ganz behalten, und derselbe Durchgang des Zielmodells gab noch ein Token.",
        "bonus_greedy": "Der Entwurf wurde ganz behalten ({count}), und derselbe Durchgang des Zielmodells gab noch ein Token: sein wahrscheinlichstes, mit {target}.",
        "bonus_drawn": "Der Entwurf wurde ganz behalten ({count}), und noch ein Token wurde aus demselben Durchgang des Zielmodells gezogen, das ihm {target} gibt.",
        "plain": "Das Token des Zielmodells, dem es {target} gibt: In diesem Schritt wurde nichts entworfen.",
    },
    "formula": {
        "target_drawn": "Annahme = min(1, Ziel / Entwurf) = min(1, {target} / {draft}) = {accept}",
        "target_chosen": "Annahme = Ziel / 1 = {accept}",
        "left_drawn": "Annahme = min(1, übrig / Entwurf) = min(1, {left} / {draft}) = {accept}",
        "left_drawn_whole": "Annahme = min(1, übrig / Entwurf) = 1, denn übrig ist mindestens {draft}",
        "left_chosen": "Annahme = übrig / 1 = {accept}",
        "draw_kept": "gezogen {draw} < {accept}: behalten",
        "draw_refused": "gezogen {draw} ≥ {accept}: abgelehnt",
        "block_prefix_first": "Anfang = min(1, Ziel / Entwurf) = min(1, {target} / {draft}) = {prefix}",
        "block_prefix": "Anfang = min(1, Anfang davor × Ziel / Entwurf) = min(1, {before} × {target} / {draft}) = {prefix}",
        "block_keep": "bleibt = Ende + (1 - Ende) × bleibt des nächsten = {ends} + (1 - {ends}) × {next} = {keep}",
        "block_keep_last": "bleibt = Anfang = {keep}",
        "block_accept": "Annahme = bleibt / bleibt davor = {keep} / {keep_before} = {accept}",
        "greedy_kept": "wahrscheinlichstes des Zielmodells = „{best}“ ({best_prob}) = entworfen: behalten",
        "greedy_refused": "wahrscheinlichstes des Zielmodells = „{best}“ ({best_prob}) ≠ „{token}“: abgelehnt",
        "residual": "Rest = max(Ziel - Entwurf, 0) / Summe = ({target} - {draft}) / {rest} = {residual}",
        "residual_unlisted": "Rest = max(Ziel - Entwurf, 0) / Summe = {residual}, wobei Ziel {target} ist "
        "und Entwurf zu klein für die Liste",
        "residual_block": "Rest = max(Anfang × Ziel - Entwurf, 0) / Summe = ({prefix} × {target} - {draft}) / {rest} = {residual}",
        "residual_unlisted_block": "Rest = max(Anfang × Ziel - Entwurf, 0) / Summe = {residual}, wobei Anfang {prefix} und Ziel {target} ist "
        "und Entwurf zu klein für die Liste",
        "residual_chosen": "Rest = Ziel / (1 - abgelehnt) = {target} / (1 - {refused}) = {residual}",
    },
    "notes": {
        "block": "Anfang: mit welcher Wahrscheinlichkeit der Entwurf bis hier behalten wird, bevor man weiß, was folgt. Ende: mit welcher er nach diesem Token endet, wenn er nicht weiter behalten wird. bleibt: mit welcher er bis hier behalten wird, wenn man ihn ganz kennt.",
        "left": "übrig: was das Zielmodell nach {count} Ablehnungen an dieser Stelle noch zu vergeben hat.",
        "no_detail": "Dieser Lauf wurde ohne Einzelheiten aufgezeichnet: Zu jeder Stelle enthält er nur, was entworfen "
        "und festgelegt wurde.",
        "not_there": "Das Zielmodell kam nie an diese Stelle; es gibt also keine Liste dessen, was es hier dachte.",
        "no_draft": "Dieser Entwerfer hat hier keine Verteilung: Er hat seine Token gewählt, und seine Zahl ist eine Schätzung.",
        "foreseen": "Vorhergesagt, bevor das Zielmodell urteilte: mit {chance} wird es behalten, samt allem davor.",
        "greedy": "Beim gierigen Decodieren wird nichts gezogen: Wahrscheinlichkeiten gelten bei Temperatur 1.",
    },
    "inspector": {
        "label": "Token-Lupe",
        "token": "Token",
        "tree": "Baum",
        "tabs": "Was das Feld zeigt",
        "hint": "Auf ein Token zeigen. Ein Klick hält es fest; Umschalt+Klick vergleicht zwei.",
        "latest": "zuletzt abgelehntes Token",
        "place": "an der Stelle des Abspielens",
        "pointed": "gezeigt",
        "pinned": "festgehalten",
        "unpin": "Loslassen (Esc)",
        "compare": "Vergleichen",
        "compare_hint": "Ein zweites Token daneben festhalten (Umschalt+Klick)",
        "second": "Jetzt das zweite Token wählen.",
        "branch": "Zweig",
        "thoughts": "Was die Modelle an dieser Stelle dachten",
        "columns": {"token": "Token", "target": "Ziel", "draft": "Entwurf", "residual": "Rest"},
        "summary": "„{token}“, {status}, {place}. {why}",
    },
    "explain_lossy": {
        "accepted": "Behalten nach der eigenen Regel dieses Verfahrens, die lockerer ist als die des Zielmodells.",
        "correction": "Das Token des Zielmodells anstelle des abgelehnten, nach der eigenen Regel dieses Verfahrens.",
    },
    "place_draft": "Schritt {step}, Entwurf {node}",
    "place_tree": "Schritt {step}, Knoten {node}, Tiefe {depth}",
    "place_next": "Schritt {step}, das des Zielmodells",
    "part_of_character": "(Teil eines Zeichens)",
    "numbers": {
        "more": "Alle Zahlen",
        "origin": {"live": "gemessen", "recorded": "aufgezeichnet", "stand_in": "Ersatzwert"},
        "speedup": {
            "label": "Beschleunigung",
            "unit": "×",
            "hint": "Token je Sekunde mit Entwürfen, geteilt durch die ohne Entwurf; derselbe Prompt, dieselbe Maschine",
        },
        "fast": {
            "label": "mit Entwürfen",
            "unit": "Tok/s",
            "hint": "Neue Token je Sekunde des Decodierens, mit Entwürfen",
        },
        "plain": {
            "label": "ohne Entwurf",
            "unit": "Tok/s",
            "hint": "Neue Token je Sekunde ohne Entwurf, tatsächlich gemessen",
        },
        "accepted": {
            "label": "Entwürfe behalten",
            "unit": "%",
            "hint": "Angenommene entworfene Token, geteilt durch alle entworfenen",
        },
        "per_step": {
            "label": "je Schritt",
            "unit": "Tok",
            "hint": "Neue Token je Schritt, das des Zielmodells mitgezählt",
        },
        "draft": {
            "label": "Entwerfen",
            "unit": "ms",
            "hint": "Millisekunden des Entwerfens je Schritt",
        },
        "verify": {
            "label": "Prüfen",
            "unit": "ms",
            "hint": "Millisekunden des Durchgangs durch das Zielmodell je Schritt",
        },
        "prepared": {
            "label": "vorbereitet, genutzt",
            "unit": "%",
            "hint": "Schritte, deren Entwurf vorbereitet war, während das Zielmodell rechnete",
            "count": "In {hits} von {known} Schritten wurde ein Entwurf genutzt, der vorbereitet war, während das Zielmodell rechnete",
        },
        "shared": "Gemessen, während bis zu {runs} Läufe sich das Modell teilten: Jeder ist langsamer als allein.",
        "saved": {
            "label": "Entwerfen verborgen",
            "unit": "ms",
            "hint": "Zeit des Entwerfens im ganzen Lauf, die hinter den Durchgängen des Zielmodells lag",
        },
    },
    "charts": CHARTS,
    "batch": {
        "label": "Prompts und ihre Antworten",
        "state": {
            "waiting": "wartet",
            "running": "läuft",
            "done": "fertig",
            "stopped": "angehalten",
            "failed": "gescheitert",
        },
        "rate": "{rate} Tok/s",
        "total": "{prompts} Prompts, {tokens} Token, zusammen {rate} Token/s",
    },
    "export": EXPORT,
    "audit": {
        "recorded": "Auf einer anderen Maschine aufgezeichnet; python -m specdemo audit macht einen von dieser.",
        "label": "Die letzte Prüfung",
        "none": "Hier lief noch keine Prüfung. python -m specdemo audit beweist am geladenen Modell, Verfahren für Verfahren, dass der Text der des Zielmodells bleibt; diese Tabelle zeigt dann das Ergebnis.",
        "columns": ["Verfahren", "gieriges Decodieren", "Ziehen"],
        "lossy": "mit Absicht verlustbehaftet",
        "missing": "Nicht verfügbar.",
        "greedy": "{equal} von {outputs} Ausgaben sind gleich denen ohne Entwurf",
        "same": "{share} % der Token kommen vor dem ersten Unterschied",
        "margin": "dort liegen die Wahrscheinlichkeiten der zwei Token {margin} auseinander",
        "sampling": "{condition}: {samples} Token, {impossible} unmöglich, p {ps}",
        "meaning": "p-Werte: gleichverteilt, unabhängig und, wo es einen Entwurf gibt, in dessen Reihenfolge; einer unter {limit} spricht gegen ein Verfahren. Gierige Ausgaben müssen in fp32 gleich sein; in geringerer Genauigkeit rundet ein Durchgang über mehrere Zeilen anders als einer über eine, ein Beinahe-Gleichstand kann also anders ausgehen.",
    },
    "card": {
        "about": "{what} Trainiert für {target} ({precision}).",
        "kinds": {
            "draft": "Ein kleines Sprachmodell, das nur den Text liest.",
            "feature": "Ein kleiner Entwerfer, der auch die verborgenen Zustände des Zielmodells liest.",
            "exit": "Ein Adapter, der die ersten Schichten des Zielmodells entwerfen lässt.",
            "medusa": "Köpfe auf dem letzten verborgenen Zustand des Zielmodells, einer für jedes Token voraus.",
            "block": "DSpark: ein ganzer Block in einem Durchgang, mit einem Markow- und einem Zuversichtskopf.",
            "jet": "JetSpec: ein ganzer Block in einem Durchgang, aus dem Bäume wachsen.",
        },
        "results": "Ergebnisse auf zurückgehaltenen Prompts",
        "results_label": "Zurückgehaltene Ergebnisse",
        "unmeasured": "Nicht gemessen.",
        "by_place": "Nach Stelle im Entwurf",
        "place": "Token {place}",
        "names": {
            "loss": "Abweichung vom Zielmodell, Nat je Token",
            "greedy_agreement": "dasselbe wahrscheinlichste Token wie das Zielmodell, gieriger Text",
            "greedy_agreement_all": "dasselbe wahrscheinlichste Token wie das Zielmodell, beliebiger Text",
            "overlap": "Überlappung mit der Verteilung des Zielmodells, Temperatur 1",
            "coverage": "Wahrscheinlichkeit des Zielmodells im verkleinerten Wortschatz",
            "calibration_error_raw": "Kalibrierfehler des Überlebens, wie trainiert",
            "calibration_error": "Kalibrierfehler des Überlebens, kalibriert",
            "tokens": "zurückgehaltene Token",
            "prompts": "zurückgehaltene Prompts",
        },
        "shares": [
            "greedy_agreement",
            "greedy_agreement_all",
            "overlap",
            "coverage",
            "calibration_error_raw",
            "calibration_error",
        ],
        "data": "Daten",
        "recipe": "Rezept",
        "facts": {
            "layers": "begonnen mit Schichten des Zielmodells",
            "words": "Wortschatz der Ausgabe",
            "tokens_seen": "gesehene Token",
            "steps": "Schritte",
            "minutes": "Minuten",
            "machine": "Maschine",
            "seed": "Startwert",
            "licence": "Lizenz",
        },
        "curve": "Verlust beim Training (logarithmisch)",
        "curve_label": "Diagramm: Verlust {losses} im letzten Schritt des Trainings, {checks} auf zurückgehaltenen Texten",
        "losses": "Training",
        "checks": "zurückgehalten",
        "steps": "Schritte",
    },
    "trace": {
        "large": f"{{name}} ist größer als {LARGEST_FILE >> 20} MB; mehr darf ein Lauf nicht haben.",
        "foreign": "{name} ist kein Lauf dieses Programms: Zeile {line}: {problem}.",
        "nothing": "{name} enthält keine Ereignisse.",
        "cut": "Zeile {line} von {name} ist nicht lesbar ({problem}); die {count} Ereignisse davor werden gezeigt.",
        "unharmed": "Nichts wurde verändert.",
        "advice": "Eine .jsonl-Datei öffnen, die specdemo gespeichert hat.",
    },
}

GRADIO = [
    "Zahlenfeld für {label}",
    "Schieberegler für {label}",
    "Auf den Vorgabewert zurücksetzen",
    "Weitere Reiter",
    "Fußzeile von Gradio",
]
