"""Checks of `attach` and `doctor` that need a real llama-server and minutes: they start servers from xllamacpp, one thread each.

python -m tools.attach rounds       200 generations: the rounds against the server's own counters
python -m tools.attach healthy      50 examinations of servers without a fault
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from specdemo.attach.detection import attach
from specdemo.attach.doctor import PROBES, diagnose, examine
from specdemo.attach.pasted import counters, read_file
from specdemo.attach.rounds import Generation
from specdemo.attach.servers import Request
from specdemo.bench.peers import gguf_file
from specdemo.bench.results import ROW_COLUMNS, cell, totals
from specdemo.config.settings import AppSettings, Sampling
from specdemo.files.catalogue import DEFAULT_TARGET, partner
from specdemo.files.sources import resolve
from specdemo.models.networks.folders import export_gguf
from specdemo.session.loaded import machine_name

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from llama_server import llama_server

ROOT = Path(__file__).resolve().parents[1]
TOKENS = 24
PROMPTS = [*itertools.chain.from_iterable(PROBES.values()), "List ten emoji with their names."]
KIND = "xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_"
SPEED = ("loses", "fixed_cost")  # findings about speed
BASE = "options.n_ctx, options.endpoint_slots, options.endpoint_metrics = 2048, True, True\n"


def say(line: str) -> None:
    """Write a line at once: a check lasts minutes."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def draft_model(draft: Path, n_max: int = 3, p_min: float = 0.0) -> str:
    """Return the statements that make a server use the draft model."""
    return (
        f"s = options.speculative; s.types = [{KIND}DRAFT_SIMPLE]\n"
        f"s.draft.mparams.path, s.draft.n_max, s.draft.p_min = {str(draft)!r}, {n_max}, {p_min}\n"
        "s.draft.cpuparams.n_threads = s.draft.cpuparams_batch.n_threads = 1\n"
    )


def ngram(size: int = 3, longest: int = 8) -> str:
    """Return the statements that make a server draft what followed the last `size` tokens before."""
    return (
        f"s = options.speculative; s.types = [{KIND}NGRAM_SIMPLE]\n"
        f"s.ngram_simple.size_n, s.ngram_simple.size_m = {size}, {longest}\n"
    )


def generations(url: str, count: int) -> Iterator[tuple[Generation, bool]]:
    """Yield answers, greedy and sampled in turn, with different limits, and whether it was cancelled: every eighth is."""
    server = attach(url)
    prompts = itertools.cycle(PROMPTS)
    for number in range(count):
        sampling = Sampling(temperature=0.8 * (number % 2), seed=number)
        ask = [{"role": "user", "content": next(prompts)}]
        cancel, last = threading.Event(), None
        stopped = number % 8 == 7
        for place, part in enumerate(server.stream(Request(ask, TOKENS + number % 16, sampling), cancel)):  # fmt: skip
            if stopped and place == 5:
                cancel.set()
            last = part
        assert isinstance(last, Generation)
        yield last, stopped


def check_rounds(target: Path, draft: Path) -> bool:
    """Compare the rounds of 200 generations with the server's sums, and of those that end with its counters."""
    kinds = {"draft model": draft_model(draft, 5), "draft model, p_min": draft_model(draft, 8, 0.5)}
    kinds |= {"n-gram": ngram(), "plain": ""}
    good = True
    for name, options in kinds.items():
        with llama_server(str(target), BASE + options) as url:
            found = list(generations(url, 50))
            complete = [one for one, stopped in found if not stopped]
            wrong = sum(bool(one.mismatches()) for one, _ in found)
            sums = [sum(getattr(one, part) or 0 for one in complete) for part in ("drafted", "accepted")]  # fmt: skip
            own = counters(attach(url).client.get("/metrics").text)
        counted = [own.drafted, own.accepted] if own else [0, 0]
        # A cancelled answer is counted by the server as far as it came, so its counters may only be larger.
        at_least = all((of or 0) >= one for of, one in zip(counted, sums, strict=True))
        say(f"{name}: {len(found)} generations, {len(complete)} of them complete, {wrong} differ; drafted and accepted of the complete ones {sums}, counters {counted}")  # fmt: skip
        good &= not wrong and at_least
    return good


def check_healthy(target: Path, draft: Path) -> bool:
    """Examine 50 servers without a fault; every second one next to a plain server.

    Whether drafts cost time is no fault of these servers but a fact of the machine: on a CPU they do. It is printed, not counted.
    """
    drafts = [draft_model(draft, n, p) for p in (0.0, 0.3, 0.6, 0.8) for n in range(1, 9)]
    copies = [ngram(size, longest) for size in (2, 3, 4) for longest in (2, 4, 6, 8, 12, 16)]
    alarms = 0
    with llama_server(str(target), BASE) as plain:
        for number, options in enumerate([*drafts, *copies]):
            with llama_server(str(target), BASE + options) as url:
                beside = attach(plain) if number % 2 else None
                found = diagnose(examine(attach(url), beside))
            problems = [(one.kind, one.values) for one in found if one.level == "problem"]
            others = [one.kind for one in found if one.level != "problem"]
            alarms += any(kind not in SPEED for kind, _ in problems)
            say(f"{number + 1} {options.splitlines()[1]} {problems} {others}")
    say(f"{alarms} false alarms")
    return not alarms


def check_faults(target: Path, draft: Path) -> bool:
    """Examine servers with one fault each. The busy machine, the text and the speed need a plain server beside them."""
    synthetic = f"{draft_model(draft)}s.synth_rates = [1.0] * 3\n"
    faults = {
        "no_drafts_llama": f"options.speculative.draft.mparams.path = {str(draft)!r}\n",
        "idle_drafts": draft_model(draft, 4, 1.0),
        "always_accepted": draft_model(target, 5),
        "too_long": draft_model(draft, 24),
        "ngram": ngram(12, 16),
        "synthetic": synthetic,
        "lossy": synthetic,
        "loses": draft_model(target, 5),
        "slow_draft": draft_model(target, 5),
        "context": f"{draft_model(draft)}options.n_ctx = 256\n",
    }
    missed = 0
    with tempfile.TemporaryDirectory() as work, llama_server(str(target), BASE) as plain:
        for kind, options in faults.items():
            path = Path(work) / kind
            logged = kind in ("synthetic", "slow_draft")
            debug = "options.verbosity = 5\n" if logged else ""
            with path.open("wb") as file, llama_server(str(target), BASE + options + debug, file) as url:  # fmt: skip
                beside = attach(plain) if kind in ("lossy", "loses") else None
                if logged:
                    examine(attach(url))  # the log is read after its requests
                log = read_file(path) if logged else None
                found = [one.kind for one in diagnose(examine(attach(url), beside, log))]
            missed += kind not in found
            say(f"{kind}: {'found' if kind in found else 'MISSED'} {found}")
    return not missed


def measure_pair(options: list[str]) -> int:
    """Measure the embedded pair here and in llama-server and write the document's tables. options: more ones of `bench`"""
    lanes = "draft_model:constant:3,draft_model,llama-server,llama-server:draft"
    command = ["-m", "specdemo", "bench", "--suite", "examples", "--limit", "1", "--first-turns", "--temperature", "0", "--no-fallback", "--lanes", lanes, *options]  # fmt: skip
    with tempfile.TemporaryDirectory() as work:
        path = Path(work) / "bench.json"
        done = subprocess.run([sys.executable, *command, "--json", str(path)], check=False)
        if done.returncode:
            return done.returncode
        rows = totals(json.loads(path.read_text(encoding="utf-8"))["rows"])
    keys = ("tokens_per_second", "tokens_per_step", "drafted_accept_rate")
    body = [[row["lane"], *(cell(row, key) if row.get(key) else "-" for key in keys)] for row in rows]  # fmt: skip
    document = {
        "title": "The embedded pair here and in llama-server",
        "machine": machine_name(),
        "date": date.today().isoformat(),
        "command": "python -m tools.attach pair",
        "about": "The same pair in both programs, greedy, 12 prompts of the suite `examples`. llama-server reads the target's GGUF file from which our weights were converted, and the draft model as 8-bit blocks (Q8_0); ours are NF4 and 8 bits. It drafts three tokens a step, its default.",
        "tables": [{"columns": ["lane", *(ROW_COLUMNS[key][0] for key in keys)], "rows": body}],
    }  # fmt: skip
    text = json.dumps(document, indent=1, ensure_ascii=False)
    (ROOT / "docs/measured/18-llama-server.json").write_text(f"{text}\n", encoding="utf-8")
    return 0


CHECKS = {"rounds": check_rounds, "healthy": check_healthy, "faults": check_faults}


def main() -> int:
    """Run one check with the embedded pair. returns: 1 if it failed"""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("check", choices=[*CHECKS, "pair"])
    parsed, more = parser.parse_known_args()
    if parsed.check == "pair":
        return measure_pair(more)
    settings = AppSettings(target=DEFAULT_TARGET)
    with tempfile.TemporaryDirectory() as work:
        target, draft = gguf_file(settings, Path(work)), Path(work) / "draft.gguf"
        folder = resolve(partner(DEFAULT_TARGET) or "", settings.cache_dir).folder
        export_gguf(folder, target, draft)
        return int(not CHECKS[parsed.check](target, draft))


if __name__ == "__main__":
    sys.exit(main())
