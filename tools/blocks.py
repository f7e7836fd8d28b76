"""Compare a GGUF file's own blocks with NF4 and with 16 bits, all of the same file, and write docs/measured/19-blocks.json.

python -m tools.blocks [TARGET ...]

Speed is measured in one process, in turn, so both forms suffer alike from other programs.
"""

from __future__ import annotations

import json
import math
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import TypeAlias

import torch

from specdemo.bench.lanes import LaneResult, run_once
from specdemo.bench.results import Result, Table
from specdemo.bench.run import WARM_UP_PROMPT
from specdemo.cli.console import reporting
from specdemo.config.settings import AppSettings, RunSettings
from specdemo.config.strings import ASSETS
from specdemo.engine.attention import ModuleDecoder
from specdemo.engine.cost import measure_costs
from specdemo.engine.passes import Decoder
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.files.progress import ProgressCallback
from specdemo.files.store import write_file
from specdemo.session.loaded import Loaded, fetch, load
from specdemo.session.studio import Studio
from specdemo.session.text import read_suite
from specdemo.trace.metrics import same_prefix, speedup

FILE = Path(__file__).resolve().parents[1] / "docs/measured/19-blocks.json"
TARGETS = ("smollm2-135m-instruct", "qwen2.5-coder-1.5b-instruct")
FORMS = ("nf4", "file")
TEXT = ASSETS / "datastore" / "prompts.txt"
TOKENS, CHUNK = 2048, 256  # tokens of the text that are predicted, and rows of a pass over it
ROWS = (1, 8, 16)  # of the passes in the table
ROUNDS = 3  # measurements of the passes
NEW_TOKENS, SHOWN = 48, 8  # tokens of an answer, and of its text after the point where answers part
PRESETS = {"greedy": 1, "recommended": 3}  # with every so many examples
METHODS = ("nothing", "auto")

# Form, preset, method, and number of the prompt in the suite.
Key: TypeAlias = tuple[str, str, str, int]

ABOUT = f"""\
The file's own blocks with 8-bit activations (`--precision file`), NF4 made from the same file, and the file's weights expanded to 16 bits.
Perplexity of {TOKENS:,} tokens of a fixed text, and the share of them at which the most likely token is that of 16 bits; medians of
{ROUNDS} measured passes after 128 tokens; tokens/s of {NEW_TOKENS} new tokens on the twelve examples, greedy, and on four of them with the
recommended sampling, without datastore and memory. In brackets: the median of the prompts' ratios to NF4, and the tokens of a step of `auto`. The forms ran in turn."""


def read_text(decoder: Decoder, ids: Sequence[int]) -> tuple[float, torch.Tensor]:
    """Return the perplexity of a text without its first token, and the most likely token at each position but the last."""
    conversation, loss, likely = CachedModel(decoder), 0.0, []
    for first in range(0, len(ids) - 1, CHUNK):
        part = ids[first : min(first + CHUNK, len(ids) - 1)]
        rows = conversation.forward(part[0], Proposal.chain(part[1:])).logits.float()
        conversation.keep(range(len(part) - 1))
        wanted = torch.tensor(ids[first + 1 : first + 1 + len(part)])
        loss += float(torch.nn.functional.cross_entropy(rows, wanted, reduction="sum"))
        likely.append(rows.argmax(-1))
    return math.exp(loss / (len(ids) - 1)), torch.cat(likely)


def load_forms(studio: Studio, report: ProgressCallback) -> dict[str, Loaded]:
    """Load a studio's target in each form, in the thread that computes."""
    forms = {}
    for form in FORMS:
        settings = replace(studio.settings, precision=form)
        fetch(settings, report)
        forms[form] = studio.runner.call(partial(load, settings, report))
    return forms


def answer_all(studio: Studio, forms: dict[str, Loaded], report: Callable[[str], None]) -> dict[Key, LaneResult]:  # fmt: skip
    """Answer the examples with each form and method; the order of the forms alternates."""
    found: dict[Key, LaneResult] = {}

    def answer(preset: str, number: int, prompt: str) -> None:
        for form in FORMS if number % 2 else FORMS[::-1]:
            studio.use(forms[form])
            for method in METHODS:
                settings = RunSettings(method=method, preset=preset, max_new_tokens=NEW_TOKENS, memory=False)  # fmt: skip
                with closing(studio.open()) as conversation:
                    result = run_once(conversation, method, prompt, settings)
                found[form, preset, method, number] = replace(result, events=())

    answer("greedy", 0, WARM_UP_PROMPT)  # not counted: the first example replaces it
    for preset, step in PRESETS.items():
        for number, item in list(enumerate(read_suite(None, 1)))[::step]:
            report(f"{preset}, prompt {number + 1}")
            answer(preset, number, item.turns[0])
    return found


def measure(target: str) -> tuple[list[list[str]], list[list[str]]]:
    """Measure one target. returns: rows of the table of forms, and of the table of answers"""
    studio = Studio(AppSettings(target=target, store="none"))
    with reporting() as report:
        forms = load_forms(studio, report)

    def say(line: str) -> None:
        print(f"{target}: {line}", file=sys.stderr)  # noqa: T201

    call = studio.runner.call
    decoders: dict[str, Decoder] = {form: one.pair.target.decoder for form, one in forms.items()}
    times: dict[tuple[str, int], list[float]] = defaultdict(list)
    for _ in range(ROUNDS):
        for form, decoder in decoders.items():
            costs = call(partial(measure_costs, CachedModel(decoder), None, steps=ROWS))
            for rows, seconds in costs.verify:
                times[form, rows].append(1000 * seconds)
    answers = answer_all(studio, forms, say)
    say("perplexity")
    tokenizer, expanded = forms["file"].pair.tokenizer, forms["file"].pair.target.model
    ids = tokenizer(TEXT.read_text(encoding="utf-8"), add_special_tokens=False)["input_ids"]
    decoders["16 bits"] = ModuleDecoder(expanded)
    texts = {
        form: call(partial(read_text, decoder, ids[: TOKENS + 1]))
        for form, decoder in decoders.items()
    }
    lines = []
    for form, (perplexity, likely) in texts.items():
        same = float((likely == texts["16 bits"][1]).double().mean())
        cells = [f"{median(times[form, rows]):.1f}" if form in FORMS else "-" for rows in ROWS]
        cells += [speeds(answers, form, preset, method) for preset in PRESETS for method in METHODS]
        lines.append([target, form, f"{perplexity:.2f}", f"{same:.0%}", *cells])
    return lines, [
        [target, *compare(answers, number, lambda ids: str(tokenizer.decode(list(ids))))]
        for number in sorted({number for *_, number in answers})
    ]


def speeds(answers: Mapping[Key, LaneResult], form: str, preset: str, method: str) -> str:
    """Return a form's tokens/s, the median of their ratios to NF4's, and for a method that drafts its tokens per step."""
    if form not in FORMS:
        return "-"
    own, nf4 = (  # both in the order of the prompts
        [one.metrics for key, one in answers.items() if key[:3] == (name, preset, method)]
        for name in (form, "nf4")
    )
    rate = median(one.tokens_per_second or 0.0 for one in own)
    ratio = median(speedup(slow, fast) or 0.0 for slow, fast in zip(nf4, own, strict=True))
    steps = sum(one.new_tokens for one in own) / sum(one.steps for one in own)
    drafted = "" if method == "nothing" else f", {steps:.2f} a step"
    return f"{rate:.1f} ({ratio:.2f}{drafted})"


def compare(answers: Mapping[Key, LaneResult], number: int, decode: Callable[[Sequence[int]], str]) -> list[str]:  # fmt: skip
    """Return where the greedy answers of both forms part, and how each continues."""
    nf4, own = (answers[form, "greedy", "nothing", number].ids for form in FORMS)
    same = same_prefix(nf4, own)
    parts = [" ".join(decode(text[same : same + SHOWN]).split()) for text in (nf4, own)]
    return [str(number + 1), "equal" if nf4 == own else f"{same} tokens", *parts]


def main() -> None:
    """Measure the targets of the command line, and write the document's tables."""
    forms, parted = [], []
    for target in sys.argv[1:] or TARGETS:
        lines, answers = measure(target)
        forms += lines
        parted += answers
    speed = [f"{'plain' if method == 'nothing' else method}, {preset}, tokens/s" for preset in PRESETS for method in METHODS]  # fmt: skip
    columns = ["target", "weights", "perplexity", "as 16 bits", *(f"{rows} rows, ms" for rows in ROWS), *speed]  # fmt: skip
    heads = ["target", "example", "equal until", "NF4 continues", "the file's blocks continue"]
    tables = [Table(columns, forms), Table(heads, parted, "", "Greedy answers of plain decoding.")]
    result = Result("The file's own blocks and NF4", " ".join(ABOUT.split()), tables)
    result.command = "python -m tools.blocks"
    write_file(FILE, json.dumps(result.to_dict(), indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
