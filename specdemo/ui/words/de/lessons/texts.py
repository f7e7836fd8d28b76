"""The eight lessons in German. *A term* stands between stars at its first use, `code` between backticks.

Numbers of this machine never stand here: the page reads them off the recorded runs. Others name their paper.
"""

from __future__ import annotations

LESSONS: dict[str, object] = {
    "slow": {
        "title": "Warum Decodieren langsam ist",
        "aim": "Sehen, warum ein Modell ein Token nach dem anderen schreibt und worauf gewartet wird.",
        "text": [
            "Ein Sprachmodell schreibt Text in *Token*: Wörtern oder Wortteilen. Für das nächste läuft das ganze "
            "Modell einmal, von der ersten Schicht bis zur letzten. Das ist ein *Durchgang*. Das Token geht wieder "
            "hinein, und der nächste Durchgang beginnt. Keiner kann beginnen, bevor der vorige zu Ende ist, denn "
            "seine Eingabe ist, was jener ergab. Das ist *Decodieren*; ohne jede Hilfe heißt es hier *ohne Entwurf*.",
            "In jedem Durchgang wird jedes *Gewicht* des Modells aus dem Speicher geholt, und 4-Bit-Gewichte werden "
            "auch noch ausgepackt. Der größte Teil dieser Arbeit ist gleich, um wie viele Token es auch geht. Ein "
            "Durchgang über mehrere Token zugleich, mehrere *Zeilen*, tut sie einmal für alle: Er kostet mehr als "
            "einer über eine Zeile, aber viel weniger als ebenso viele Durchgänge.",
            "Das Lesen des Prompts nutzt das: Alle seine Token sind bekannt, also werden viele Zeilen auf einmal "
            "gelesen. Beim Schreiben sind die nächsten Token nicht bekannt. Noch nicht.",
        ],
        "runs": {
            "05-plain": {
                "title": "Ohne Entwurf",
                "look": "Zweimal ohne Entwurf: Es gibt keine Entwürfe, also ist jeder Schritt des Streifens ein Token, "
                "und die Beschleunigung bleibt bei 1.",
            }
        },
        "questions": {
            "passes": {
                "ask": "Wie viele Durchgänge des Modells braucht eine Antwort ohne Entwurf?",
                "options": {
                    "one": "Einen für die ganze Antwort",
                    "half": "Einen für je ein paar Token",
                    "each": "Einen für jedes Token",
                },
                "evidence": "Die Antwort hat {tokens} Token und brauchte {passes} Durchgänge von je {milliseconds} ms.",
            },
            "rows": {
                "ask": "Ein Durchgang beurteilt acht Token zugleich. Wie lange dauert er, gemessen in Durchgängen über "
                "ein Token?",
                "value": "{value}-mal ein Durchgang",
                "evidence": "Als das Modell geladen wurde, dauerte ein Durchgang über eine Zeile {one} ms und einer über "
                "acht Zeilen {eight} ms: {ratio}-mal so lange für achtmal so viele Token.",
                "bar": "ein Durchgang über {rows}: {milliseconds} ms",
            },
        },
        "live": "Dieselbe Frage auf der eigenen Maschine ohne Entwurf starten. Dann als Verfahren Draft model wählen, "
        "noch einmal starten und die Token je Sekunde vergleichen.",
        "takeaway": "Ein Token je Durchgang macht das Decodieren langsam; ein Durchgang über mehrere Token kostet viel "
        "weniger als mehrere Durchgänge. Wer die nächsten Token raten könnte, könnte sie zusammen prüfen lassen.",
        "papers": [
            "2211.17192 Leviathan et al., Fast Inference from Transformers via Speculative Decoding",
            "2302.01318 Chen et al., Accelerating Large Language Model Decoding with Speculative Sampling",
        ],
    },
    "check": {
        "title": "Entwerfen und prüfen",
        "aim": "Einem Schritt folgen: ein Entwurf, eine Prüfung, und was aus jedem geratenen Token wird.",
        "text": [
            "Ein *Entwerfer* rät die nächsten paar Token. Hier ist er eine einzige kleine Schicht, die "
            "gelernt hat, was dieses Modell als Nächstes sagt, sodass Raten wenig kostet. Das große Modell ist das *Zielmodell*. Es liest den ganzen "
            "*Entwurf* in einem Durchgang und sagt an jeder Stelle, welches Token es selbst geschrieben hätte.",
            "Beim *gierigen* Decodieren, das immer das wahrscheinlichste Token nimmt, wird ein entworfenes Token "
            "*angenommen*, wenn das Zielmodell dasselbe geschrieben hätte. Beim ersten, das abweicht, wird es "
            "*abgelehnt*, und an seiner Stelle steht das Token des Zielmodells: die *Korrektur*. Was dahinter "
            "entworfen war, ist *nicht erreicht*. Wird der ganze Entwurf behalten, hat derselbe Durchgang noch ein "
            "Token zu geben: die *Zugabe*.",
            "So gibt jeder *Schritt* (ein Entwurf, eine Prüfung) mindestens ein Token, und jedes ist eines, das das "
            "Zielmodell geschrieben hätte. Das ist *spekulatives Decodieren*.",
        ],
        "runs": {
            "20-larger-model": {
                "title": "Ein kleiner Entwerfer",
                "look": "Mit den Tasten unter dem Text Schritt für Schritt gehen, oder in den Text klicken und die "
                "Pfeiltasten nutzen. Durchgestrichen: abgelehnt. Das Token daneben: die Korrektur.",
            }
        },
        "questions": {
            "kept": {
                "ask": "Von 100 Token, die der Entwerfer hier rät: Wie viele behält das Zielmodell?",
                "value": "{value} von 100",
                "evidence": "{accepted} von {drafted} entworfenen Token wurden behalten. Die hinter einem abgelehnten "
                "zählen auch als entworfen.",
            },
            "behind": {
                "ask": "Ein entworfenes Token wird abgelehnt. Was geschieht mit den entworfenen Token dahinter?",
                "options": {
                    "kept": "Die richtigen werden behalten",
                    "tested": "Sie werden gegen die Korrektur geprüft",
                    "dropped": "Sie werden ungeprüft verworfen",
                },
                "evidence": "{dropped} der {drafted} entworfenen Token wurden so verworfen: Sie setzten einen Text fort, "
                "den es nicht mehr gibt.",
            },
            "per_step": {
                "ask": "Wie viele Token gibt ein Schritt im Mittel, das des Zielmodells mitgezählt?",
                "value": "{value} Token je Schritt",
                "evidence": "{tokens} Token in {steps} Schritten, also {steps} Durchgänge des Zielmodells statt "
                "{tokens}. Ein Schritt entwirft auch, und sein Durchgang hat mehr Zeilen: Die Beschleunigung ist {speedup}×.",
            },
        },
        "live": "Denselben Prompt hier starten, dann einen eigenen. Welche Wörter werden meist richtig geraten und "
        "welche nicht?",
        "takeaway": "Ein kleines Modell rät, das Zielmodell prüft alles Geratene in einem Durchgang, und jeder Schritt "
        "gibt mindestens ein Token.",
        "papers": [
            "2211.17192 Leviathan et al., Fast Inference from Transformers via Speculative Decoding",
            "2302.01318 Chen et al., Accelerating Large Language Model Decoding with Speculative Sampling",
        ],
    },
    "exact": {
        "title": "Warum sich nichts ändert",
        "aim": "Die Ablehnungsregel von Hand rechnen und sehen, warum auch ein schlechter Entwurf den Text nicht ändern kann.",
        "text": [
            "Beim *Ziehen* (Sampling) wird das nächste Token zufällig gezogen, jedes mit der Wahrscheinlichkeit, die das "
            "Zielmodell ihm gibt. Die *Temperatur* ebnet diese Wahrscheinlichkeiten ein (über 1) oder schärft sie (unter "
            "1). In Aufsätzen steht p für die *Verteilung* des Zielmodells und q für die des Entwurfs.",
            "Die *Ablehnungsregel*: Ein entworfenes Token x wird mit Wahrscheinlichkeit min(1, p(x) / q(x)) behalten. Der "
            "Entwurf mochte es vielleicht zu sehr; dann wird es nur so oft behalten. Wird es abgelehnt, so wird das Token "
            "an seiner Stelle aus dem gezogen, was der Entwurf zu wenig mochte: max(0, p - q), auf die Summe 1 normiert. "
            "Das ist der *Rest*.",
            "Ein Wort kann auf zwei Wegen herauskommen. Entworfen und behalten: min(p, q). Abgelehnt, dann aus dem Rest "
            "gezogen: genau das Übrige, p - min(p, q). Zusammen sind sie p, was q auch ist. Das bedeutet *verlustfrei*: "
            "dieselbe Wahrscheinlichkeit für jeden Text, nicht derselbe Zug.",
            "Nachprüfen statt glauben: `python -m specdemo audit` prüft jedes Verfahren am geladenen Modell, und der Reiter Verfahren zeigt das letzte Ergebnis. In geringer Genauigkeit rundet ein Durchgang über mehrere Zeilen anders als einer über eine; beim gierigen Decodieren kann ein Beinahe-Gleichstand also anders ausgehen. Die Prüfung sagt, wie oft.",
        ],
        "runs": {
            "03-story-sampled": {
                "title": "Ziehen bei Temperatur 1",
                "look": "Auf ein entworfenes Token zeigen: seine Wahrscheinlichkeiten bei Zielmodell und Entwurf, die "
                "Wahrscheinlichkeit, behalten zu werden, und die gezogene Zahl, die entschied.",
            }
        },
        "questions": {
            "accept": {
                "ask": "Das Zielmodell gibt blau 0.5, klar 0.3 und grau 0.2. Der Entwurf gibt blau 0.2, klar 0.6 und grau "
                "0.2 und zieht klar. Mit welcher Wahrscheinlichkeit wird klar behalten?",
                "value": "{value}",
                "evidence": "min(1, {target} / {draft}) = {accept}. Wird klar abgelehnt, tritt blau mit Wahrscheinlichkeit "
                "{first} an seine Stelle: Es ist das einzige Wort, das der Entwurf zu wenig mochte.",
            },
            "seed": {
                "ask": "Derselbe Prompt, derselbe Startwert, Temperatur 1: Schreibt das Modell mit Entwürfen dieselben "
                "Wörter wie ohne?",
                "options": {
                    "same": "Ja, dieselben Wörter",
                    "other": "Nein, andere Wörter, die ebenso wahrscheinlich waren",
                    "worse": "Nein, schlechtere Wörter",
                },
                "evidence": "Hier gehen die zwei Texte nach {agree} Token auseinander. Beide sind Züge aus derselben "
                "Verteilung, und Entwürfe verbrauchen Zufallszahlen, die es ohne Entwurf nicht braucht.",
            },
            "share": {
                "ask": "Von 100 entworfenen Token, die das Zielmodell hier wirklich geprüft hat: Wie viele werden behalten?",
                "value": "{value} von 100",
                "evidence": "{kept} von {tested} geprüften Token wurden behalten. Die Wahrscheinlichkeiten dafür ergeben "
                "zusammen {expected} von 100: Die Züge taten etwa, was die Regel versprach.",
            },
        },
        "live": "Die Geschichte zweimal mit demselben Startwert starten und zweimal mit zweien. Dann die Temperatur auf 0 "
        "stellen und sehen, wie viel mehr Entwürfe behalten werden.",
        "takeaway": "Mit min(1, p / q) behalten, aus dem Rest ersetzen: Die Summe ist p für jeden Entwurf. Ein schlechter "
        "Entwurf kostet Zeit und sonst nichts.",
        "papers": [
            "2211.17192 Leviathan et al., Fast Inference from Transformers via Speculative Decoding",
            "2302.01318 Chen et al., Accelerating Large Language Model Decoding with Speculative Sampling",
            "docs/lossless.md",
        ],
    },
    "ahead": {
        "title": "Wie weit vorausschauen",
        "aim": "Entscheiden, wie viele Token entworfen werden, und den Lauf das in jedem Schritt neu entscheiden lassen.",
        "text": [
            "Die *Vorausschau* sagt, wie viele Token in einem Schritt entworfen werden. Die Chance, dass ein entworfenes "
            "Token behalten wird, ist seine *Annahmerate*, a. Das zweite zählt nur, wenn das erste behalten wurde, das "
            "dritte nur, wenn beide es wurden. Hätte jedes dieselbe Chance, gäbe ein Schritt mit g entworfenen Token im "
            "Mittel (1 - a^(g+1)) / (1 - a) Token. Jedes weitere bringt weniger und kostet gleich viel.",
            "Manche Stellen sind leicht (das Ende einer Wendung), manche schwer (ein Name, ein neuer Gedanke). *Dynamische "
            "Spekulation* entscheidet während des Entwerfens. Zwei ihrer Regeln: zwei mehr entwerfen nach einem ganz "
            "behaltenen Entwurf und sonst eines weniger (*Heuristik*); aufhören nach einem Token, das der Entwurf selbst "
            "unwahrscheinlich findet (*Zuversicht*, 2405.04304). Auch eine an aufgezeichneten Läufen trainierte Regel kann "
            "entscheiden (*gelernt*, 2405.19715).",
            "Die *Kostenregel* dieses Programms fragt, ob sich das nächste Token lohnt: seine Chance, behalten zu werden, "
            "gegen die Zeit eines weiteren Entwurfsschritts und einer weiteren Zeile im Durchgang des Zielmodells. Kosten "
            "werden auf dieser Maschine gemessen, Chancen aus dem Lauf selbst gelernt. Der Grund steht bei jedem Schritt im "
            "Diagramm der Vorausschau.",
            "Eine Regel darf nach einem unwahrscheinlichen Token aufhören. Sie darf ein gezogenes Token nicht zurücknehmen: Das ändert den Text. Das Verfahren Look back macht es absichtlich falsch, damit man es sieht.",
        ],
        "runs": {
            "07-constant-three": {
                "title": "Immer drei",
                "look": "Im Diagramm der Vorausschau ist jeder Balken ein Schritt: angenommen und nicht angenommen. Die Marke ist die bestmögliche Vorausschau, im Nachhinein.",
            },
            "01-guess-and-check": {
                "title": "Nach Kosten, höchstens acht",
                "look": "Auf einen Balken im Diagramm der Vorausschau zeigen: Er sagt, warum das Entwerfen dort aufhörte.",
            },
            "06-too-far": {
                "title": "Immer sechzehn",
                "look": "Sechzehn Token in jedem Schritt, gewünscht oder nicht.",
            },
        },
        "questions": {
            "whole": {
                "ask": "Immer drei voraus: In wie vielen von 100 Schritten werden alle drei behalten?",
                "value": "{value} von 100",
                "evidence": "In {whole} von {steps} Schritten wurden alle behalten, und Weiterentwerfen hätte sich vielleicht "
                "gelohnt. In {none} Schritten keines, und alle drei waren umsonst entworfen. Keine feste Zahl passt für beides.",
            },
            "chosen": {
                "ask": "Die Kostenregel darf bis zu acht Token entwerfen. Wie viele entwirft sie im Mittel?",
                "value": "{value} Token",
                "evidence": "Zwischen {least} und {most}, Schritt für Schritt. Einer ihrer Gründe: {reason}.",
            },
            "waste": {
                "ask": "Ein Gedicht mit ungewöhnlichen Wörtern bei Temperatur 1, immer sechzehn voraus. Wie viele der "
                "sechzehn werden in einem mittleren Schritt behalten?",
                "value": "{value} von 16",
                "evidence": "{kept} von {drafted} entworfenen je Schritt behalten, über {steps} Schritte. Der Rest wurde "
                "zweimal berechnet, von Entwurf und Zielmodell, und weggeworfen.",
            },
        },
        "live": "Dieselbe Liste mit der Kostenregel starten, dann mit einer festen Vorausschau von 3, dann von 12. Die "
        "Diagramme der Vorausschau vergleichen, und die Sekunden.",
        "takeaway": "Wie weit man entwirft, hängt von der Stelle, dem Entwurf und der Maschine ab. Veröffentlichte Gewinne "
        "dynamischer Regeln gegenüber der besten festen Zahl sind 7 bis 11 %: Die beste feste Zahl ist der ehrliche Gegner.",
        "papers": [
            "2405.04304 DISCO, Dynamic Speculation Lookahead Accelerates Speculative Decoding",
            "2405.19715 SpecDec++, Boosting Speculative Decoding via Adaptive Candidate Lengths",
        ],
    },
    "slower": {
        "title": "Wenn es langsamer ist",
        "aim": "Spekulatives Decodieren mit Absicht verlieren lassen und mit zwei Zahlen sagen, warum.",
        "text": [
            "Ein Schritt kostet mehr als ein Durchgang ohne Entwurf: g Entwurfsschritte und ein Durchgang mit g + 1 Zeilen "
            "statt einer. Beides in einfachen Durchgängen gezählt: c sei der Preis eines Entwurfsschritts und v der des "
            "breiteren Durchgangs; ein Schritt kostet dann g × c + v. Die *Beschleunigung* ist, was ein Schritt an Token "
            "gibt, durch das, was er kostet. Gibt er weniger, als er kostet, ist Entwerfen langsamer als Nichtentwerfen.",
            "Dazu führen drei Dinge. Ein schwerer Text: Ungewöhnliche Wörter sind schwer zu raten. Eine hohe Temperatur: Zielmodell und Entwurf streuen beide und stimmen weniger überein; im Mittel wird ein entworfenes Token mit der Summe von min(p, q) über alle Wörter behalten. Und eine zu weite Vorausschau: Token, die kaum je erreicht werden, sind voll bezahlt.",
            "Ein *Rückfall* schützt davor: Solange gemessene Zeiten sagen, dass Entwerfen langsamer ist, ruht es und versucht es ab und zu wieder. Der Lauf hier wurde ohne ihn aufgezeichnet.",
        ],
        "runs": {
            "06-too-far": {
                "title": "Ein Gedicht, Temperatur 1, immer sechzehn",
                "look": "Rote Marken sind vergebliche Entwürfe. Die Linie bei 1 im Diagramm der Beschleunigung steht für „ohne Entwurf“.",
            }
        },
        "questions": {
            "faster": {
                "ask": "Ein surreales Gedicht, Temperatur 1, sechzehn Token in jedem Schritt entworfen: schneller oder "
                "langsamer als ohne Entwurf?",
                "options": {
                    "faster": "Schneller",
                    "same": "Etwa gleich",
                    "slower": "Langsamer",
                },
                "evidence": "{fast} Token/s mit Entwürfen, {plain} ohne: {speedup}×.",
            },
            "price": {
                "ask": "Was kostet ein Schritt mit sechzehn entworfenen Token, in einfachen Durchgängen?",
                "value": "{value} einfache Durchgänge",
                "evidence": "Ein Schritt dauert {step} ms, davon {draft} ms Entwerfen; ein einfacher Durchgang dauert {pass} "
                "ms. Er gibt {gives} Token zum Preis von {price}: {gives} / {price} ist die Beschleunigung von {speedup}×.",
            },
        },
        "live": "Dasselbe Gedicht mit der Kostenregel und dem Rückfall starten. Wie kurz werden die Entwürfe, und ruht das "
        "Entwerfen?",
        "takeaway": "Beschleunigung ist Token je Schritt durch die Kosten eines Schritts. Der Anteil angenommener Entwürfe "
        "allein sagt wenig: auf beides sehen, und auf Sekunden.",
        "papers": [
            "2211.17192 Leviathan et al., Fast Inference from Transformers via Speculative Decoding (die Kosten eines Schritts)"
        ],
    },
    "other": {
        "title": "Entwürfe ohne zweites Modell",
        "aim": "Vier andere Quellen von Entwürfen kennenlernen: den Text selbst und das Innere des Zielmodells.",
        "text": [
            "*N-Gramm*-Entwürfe (prompt lookup) brauchen kein Modell: Gesucht wird, wo die letzten paar Token schon einmal "
            "standen, und abgeschrieben, was folgte. Das kostet fast nichts und stimmt, wenn eine Antwort ihren Prompt "
            "wiederholt: Bearbeitungen, Zusammenfassungen, Code. *Nachschlagen* (REST, 2311.08252) tut dasselbe mit einem "
            "Vorrat anderer Texte.",
            "*Früher Ausstieg* (LayerSkip, 2404.16710) entwirft mit den ersten Schichten des Zielmodells und einem kleinen "
            "trainierten Adapter. *Medusa* (2401.10774) hängt weitere Köpfe an den letzten *verborgenen Zustand* des "
            "Zielmodells, die Zahlenreihe, aus der es sein Token wählt: Jeder Kopf rät eine Stelle weiter voraus.",
            "Ein *Zustandsleser* (die EAGLE-Familie, 2401.15077 und 2503.01840) liest auch die verborgenen Zustände des "
            "Zielmodells: In ihnen steht, was es gleich sagen wollte. In diesem Programm ist er eine Schicht auf dem "
            "Entwurfsmodell, behält also ein kleines zweites Modell.",
            "Was sie bringen, hängt vom Zielmodell ab. Bei einem mit vielen Schichten ist ein Ausstieg nach wenigen billig; "
            "beim kleinen, das hier aufgezeichnet ist, ist jede Schicht ein großer Teil eines Durchgangs. Die Aufsätze "
            "berichten Beschleunigungen von 2 bis 6 bei weit größeren Zielmodellen und auf GPUs.",
        ],
        "runs": {
            "02-copy-and-edit": {
                "title": "N-Gramm",
                "look": "Die Antwort wiederholt den Prompt: Lange Stücke werden abgeschrieben, und ein geändertes Wort "
                "beendet das Abschreiben.",
            },
            "08-early-exit": {
                "title": "Früher Ausstieg",
                "look": "Auf die Millisekunden des Entwerfens je Schritt sehen und mit den anderen Läufen vergleichen.",
            },
            "09-medusa": {
                "title": "Medusa",
                "look": "Die Köpfe wissen nicht, was die anderen wählten: Ihre Entwürfe werden zu einem Baum verbunden.",
            },
            "10-feature": {
                "title": "Zustandsleser",
                "look": "Wieder eine Kette, von einem Entwerfer, der sieht, was das Zielmodell vor einem Token wusste.",
            },
        },
        "questions": {
            "copied": {
                "ask": "Das Modell schreibt einen Text ab und ändert ein Wort darin. Wie viele Token gibt ein Schritt mit "
                "N-Gramm-Entwürfen im Mittel?",
                "value": "{value} Token je Schritt",
                "evidence": "Die längste behaltene Abschrift hat {longest} Token. Das Entwerfen brauchte {draft} ms je "
                "Schritt, und die Beschleunigung ist {speedup}×.",
            },
            "cheapest": {
                "ask": "Welches der vier braucht am wenigsten Zeit für ein entworfenes Token?",
                "options": {
                    "02-copy-and-edit": "N-Gramm",
                    "08-early-exit": "Früher Ausstieg",
                    "09-medusa": "Medusa",
                    "10-feature": "Zustandsleser",
                },
                "evidence": "Billig heißt noch nicht gut: auf das Behaltene sehen und auf die Beschleunigung. Die Prompts sind verschieden, also mit Vorsicht vergleichen.",
                "bar": "{option}: {milliseconds} ms je entworfenem Token, {accepted} % behalten, {speedup}×",
            },
            "exit": {
                "ask": "Früher Ausstieg entwirft mit den ersten Schichten dieses kleinen Zielmodells. Ist das hier schneller "
                "als ohne Entwurf?",
                "options": {
                    "faster": "Schneller",
                    "same": "Etwa gleich",
                    "slower": "Langsamer",
                },
                "evidence": "{speedup}×: Ein entworfenes Token kostet {share} % eines einfachen Durchgangs, und {accepted} % "
                "wurden behalten.",
            },
        },
        "live": "Den Katzentext mit N-Gramm-Entwürfen starten, dann damit um ein Gedicht bitten. Wo hilft Abschreiben nicht "
        "mehr?",
        "takeaway": "Entwürfe können aus dem Text kommen, aus einem Vorrat oder aus dem Inneren des Zielmodells. Es zählt, "
        "was ein Entwurf kostet und wie oft er behalten wird, bei diesem Zielmodell und diesem Text.",
        "papers": [
            "2311.08252 REST, Retrieval-Based Speculative Decoding",
            "2404.16710 LayerSkip, Enabling Early Exit Inference and Self-Speculative Decoding",
            "2309.08168 Draft & Verify, Lossless Large Language Model Acceleration via Self-Speculative Decoding",
            "2401.10774 Medusa, Simple LLM Inference Acceleration Framework with Multiple Decoding Heads",
            "2401.15077 EAGLE, Speculative Sampling Requires Rethinking Feature Uncertainty",
            "2503.01840 EAGLE-3, Scaling up Inference Acceleration via Training-Time Test",
        ],
    },
    "trees": {
        "title": "Bäume",
        "aim": "Mehrere Fortsetzungen in einem Durchgang prüfen und sehen, was die zweite Wahl wert ist.",
        "text": [
            "Eine Kette endet beim ersten abgelehnten Token. Ein *Baum* entwirft mehrere Fortsetzungen: Wo der Entwurf "
            "zwischen zwei Wörtern schwankt, folgt er beiden. Das Zielmodell beurteilt alle *Zweige* im selben Durchgang. "
            "Eine *Vorfahrenmaske* lässt jedes entworfene Token den Text sehen und vom Entwurf nur das, wovon es abstammt: "
            "Jeder Zweig wird beurteilt, als stünde er allein (SpecInfer, 2305.09781).",
            "An jeder Stelle werden die entworfenen Geschwister nacheinander geprüft; werden alle abgelehnt, tritt das Token "
            "des Zielmodells an ihre Stelle. Beim Ziehen ändert jede Ablehnung, was für das nächste Geschwister übrig ist, "
            "und die Summe ist weiterhin p.",
            "Jeder Knoten kostet eine Zeile. Also wächst ein Baum *das Beste zuerst*: Der nächste Knoten kommt dorthin, wo "
            "die Chance auf ein weiteres behaltenes Token am besten ist (EAGLE-2, 2406.16858; Sequoia, 2402.12374). "
            "Höchstens ein Zweig kann behalten werden; die anderen sind der Preis.",
        ],
        "runs": {
            "04-tree": {
                "title": "Entwurfsmodell, Baum",
                "look": "Neben dem Text steht der Baum eines Schritts: Der behaltene Pfad ist dick, abgelehnte Knoten sind "
                "durchgestrichen, ungeprüfte gepunktet.",
            },
            "11-feature-tree": {
                "title": "Zustandsleser, Baum",
                "look": "Dasselbe mit einem Entwerfer, der die verborgenen Zustände des Zielmodells liest.",
            },
        },
        "questions": {
            "share": {
                "ask": "Der Prompt ist der von Lektion 2, jetzt mit einem Baum statt einer Kette. Wird ein größerer oder ein "
                "kleinerer Anteil der entworfenen Token behalten?",
                "options": {
                    "larger": "Ein größerer Anteil",
                    "same": "Etwa derselbe Anteil",
                    "smaller": "Ein kleinerer Anteil",
                },
                "evidence": "{tree} % der Token des Baums wurden behalten, {chain} % der Kette. Höchstens ein Zweig kann "
                "behalten werden, aber die Regel fügt nur dort einen hinzu, wo sie erwartet, dass er sich lohnt.",
            },
            "per_step": {
                "ask": "Die Kette von Lektion 2 und dieser Baum beantworten denselben Prompt. Wie viele Token gibt ein Schritt "
                "mit dem Baum?",
                "value": "{value} Token je Schritt",
                "evidence": "Die Kette gab {chain}. In Sekunden erreichte der Baum {tree_x}× und die Kette {chain_x}×: mehr "
                "Token je Schritt, bei mehr Zeilen je Durchgang.",
            },
            "rescued": {
                "ask": "In wie vielen von 100 Schritten ist ein behaltenes Token nicht die erste Wahl an seiner Stelle: Eine "
                "Kette hätte dort geendet?",
                "value": "{value} von 100",
                "evidence": "{rescued} von {steps} Schritten behielten ein Token, dessen Geschwister vorher abgelehnt wurde.",
            },
        },
        "live": "Denselben Prompt mit einem Baum von 4 Knoten starten, dann von 24 (Knoten des Baums, unter dem Verfahren). "
        "Was ist auf dieser Maschine schneller?",
        "takeaway": "Ein Baum tauscht Zeilen gegen Token: Mehrere Zweige werden bezahlt, höchstens einer wird behalten. Das "
        "lohnt sich, wo Zeilen billig sind und die zweite Wahl oft stimmt.",
        "papers": [
            "2305.09781 SpecInfer, Tree-based Speculative Inference and Verification",
            "2406.16858 EAGLE-2, Faster Inference of Language Models with Dynamic Draft Trees",
            "2402.12374 Sequoia, Scalable, Robust, and Hardware-aware Speculative Decoding",
        ],
    },
    "latest": {
        "title": "Die Verfahren von 2026",
        "aim": "Vier neue Ideen bei der Arbeit sehen, und was davon auf einem kleinen Modell und wenigen Kernen bleibt.",
        "text": [
            "*DSpark* (DeepSeek-AI und Universität Peking, 2026) rät einen ganzen *Block* in einem Durchgang des Entwerfers "
            "und berichtigt dann jede Stelle nach dem Token davor: of course oder no problem, nicht of problem. Ein "
            "*Zuversichtskopf* sagt, wie wahrscheinlich jedes Geratene behalten wird, und ein *Planer* nimmt nur so lange "
            "Stellen hinzu, wie das die Token je Sekunde erhöht. Er hört bei der ersten auf, die es nicht tut, und sieht nie "
            "dahinter: Das würde den Text ändern.",
            "*JetSpec* (2606.18394) rät auch einen Block in einem Durchgang, wobei jede Stelle die davor sieht, und lässt "
            "daraus einen Baum wachsen. An jedem Knoten zieht das Zielmodell sein eigenes Token, und der Weg geht weiter, wo "
            "ein Zweig es trägt: exakt für jeden Entwurf.",
            "*Paralleles Entwerfen* (PEARL, 2408.11850; SSD, 2603.03251) entwirft, während das Zielmodell rechnet: Es rät, "
            "wie die Prüfung ausgeht, und bereitet den nächsten Entwurf vor. Richtig geraten ist ein *Treffer*, und seine "
            "Zeit ist verborgen. Es braucht einen freien Kern.",
            "*Lernendes* Entwerfen (OSD, 2310.07177) lernt bei der Nutzung aus den Urteilen des Zielmodells: im Lauf durch "
            "Zählen, zwischen Läufen durch kleine Trainingsschritte. Nichts von einem Besucher erreicht einen anderen.",
        ],
        "runs": {
            "12-dspark": {
                "title": "DSpark",
                "look": "Das Diagramm der Vorausschau zeigt, wie viele Stellen des Blocks der Planer zulässt.",
            },
            "13-jetspec": {
                "title": "JetSpec",
                "look": "Derselbe Prompt wie bei DSpark: ein Baum aus einem Durchgang des Entwerfers.",
            },
            "14-parallel": {
                "title": "Parallel",
                "look": "Zwei Zahlen mehr: wie oft ein vorbereiteter Entwurf genutzt wurde, und die verborgene Zeit des "
                "Entwerfens. Die gestrichelte Linie ist die berechnete Grenze.",
            },
            "15-online": {
                "title": "Lernend",
                "look": "Den Anfang des Streifens mit seinem Ende vergleichen.",
            },
        },
        "questions": {
            "admitted": {
                "ask": "Ein Block von DSpark hat fünf Stellen. Wie viele lässt der Planer das Zielmodell im Mittel prüfen?",
                "value": "{value} Stellen",
                "evidence": "Zwischen {least} und {most}. {accepted} % dessen, was er zuließ, wurde behalten.",
            },
            "wider": {
                "ask": "Derselbe Prompt, dieselbe Blockgröße: Welches von beiden gibt mehr Token je Schritt?",
                "options": {"13-jetspec": "JetSpec, der Baum", "12-dspark": "DSpark, die Kette"},
                "evidence": "JetSpec gab {jet} Token je Schritt bei {jet_nodes} entworfenen, DSpark {spark} bei "
                "{spark_nodes}.",
            },
            "ahead": {
                "ask": "Entwerfen, während das Zielmodell rechnet, auf Kernen, die das Zielmodell selbst haben will: Wie ist "
                "das gegen ohne Entwurf?",
                "options": {
                    "faster": "Schneller",
                    "same": "Etwa gleich",
                    "slower": "Langsamer",
                },
                "evidence": "{speedup}×. Von {known} Entwürfen waren {hits} vorbereitet, was insgesamt {saved} ms Entwerfen "
                "verbarg; was Entwurf und Zielmodell einander wegnehmen, ist in dieser Zahl nicht enthalten.",
            },
            "learned": {
                "ask": "Lernendes Entwerfen zählt, während es läuft. Wird in der zweiten Hälfte dieses Laufs ein größerer oder "
                "ein kleinerer Anteil der Entwürfe behalten als in der ersten?",
                "options": {"more": "Ein größerer Anteil", "fewer": "Ein kleinerer Anteil"},
                "evidence": "{early} % in der ersten Hälfte der Schritte, {late} % in der zweiten. Eine kurze Geschichte ist "
                "wenig zum Lernen, und ihr Ende kann schwerer sein als ihr Anfang.",
            },
        },
        "live": "Die E-Mail mit DSpark, JetSpec und dem Entwurfsmodell starten. Dann Auto wählen, das im Lauf misst und nimmt, "
        "was am schnellsten ist: eine Kopie, das Entwurfsmodell oder keinen Entwurf.",
        "takeaway": "Neue Verfahren senken, was ein Entwurf kostet, oder verbergen es, und entscheiden, was zu prüfen sich "
        "lohnt. Alle leben weiter von der Regel aus Lektion 3 und von gemessenen Kosten.",
        "papers": [
            "DSpark (DeepSeek-AI und Universität Peking, 2026)",
            "2606.18394 JetSpec",
            "2408.11850 PEARL, Parallel Speculative Decoding with Adaptive Draft Length",
            "2603.03251 SSD, Speculative Speculative Decoding",
            "2310.07177 OSD, Online Speculative Decoding",
        ],
    },
}
