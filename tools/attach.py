"""Checks of `attach` and `doctor` that need a real llama-server and minutes: they start servers from xllamacpp, one thread each.

python -m tools.attach rounds       200 generations: the rounds against the server's own counters
python -m tools.attach healthy      50 examinations of servers without a fault
python -m tools.attach faults       a server with each fault that `doctor` knows, with and without its log
python -m tools.attach tune         predicted and true speedups of servers that simulate acceptance
python -m tools.attach page         what the open page costs the server, and how late a first token is shown
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from http.client import HTTPResponse
from operator import mul, sub
from pathlib import Path
from statistics import fmean, quantiles, stdev
from typing import TYPE_CHECKING
from urllib.request import Request as Asked
from urllib.request import urlopen

from specdemo.attach.client import Client
from specdemo.attach.detection import attach
from specdemo.attach.doctor import PROBES, diagnose, examine
from specdemo.attach.llama_server import LlamaServer
from specdemo.attach.pasted import counters, read_file
from specdemo.attach.records import Record, from_rounds
from specdemo.attach.servers import Generation, Part, Request, Server, ask, whole_answer
from specdemo.attach.tuning import DraftSetting, TuningPlan, ask_in_turn, plan, rounds_of
from specdemo.cli.console import write
from specdemo.config.settings import AppSettings, RunSettings, Sampling
from specdemo.engine.cost import CostProfile
from specdemo.files.catalogue import DEFAULT_TARGET, find, partner
from specdemo.files.hub import fetch_gguf
from specdemo.files.sources import resolve
from specdemo.models.networks.folders import export_gguf
from tools.probe import served

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests"))
from attach.stand_in import Reply, serving, true_seconds
from llama_server import llama_server

if TYPE_CHECKING:
    from playwright.sync_api import Page

TOKENS = 24
PROMPTS = [*itertools.chain.from_iterable(PROBES.values()), "List ten emoji with their names."]
KIND = "xllamacpp.common_speculative_type.COMMON_SPECULATIVE_TYPE_"
# Stores when the first token of a live run is drawn; the page may still play a recorded one.
FIRST_TOKEN = """() => {
  window.first = null;
  let cleared = false;
  const watch = new MutationObserver(() => {
    const count = document.querySelectorAll(".sd-answer .sd-token").length;
    cleared ||= count === 0;
    if (!cleared || count === 0 || document.querySelector(".sd-root:has(.sd-answer) .sd-badge-recorded")) return;
    watch.disconnect();
    requestAnimationFrame(() => (window.first = performance.timeOrigin + performance.now()));
  });
  watch.observe(document.body, { childList: true, subtree: true, attributes: true });
}"""
CHROMIUM = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync"]  # fmt: skip
SPEED = ("loses", "fixed_cost")  # findings about speed
FOUR_SLOTS = "options.n_parallel, options.n_ctx = 4, 8192\n"
BASE = "options.n_ctx, options.endpoint_slots, options.endpoint_metrics = 2048, True, True\n"


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
    """Yield answers, greedy and sampled in turn, with different limits, and whether each was cancelled: every eighth is."""
    server = attach(url)
    prompts = itertools.cycle(PROMPTS)
    for number in range(count):
        sampling = Sampling(temperature=0.8 * (number % 2), seed=number)
        cancel, last = threading.Event(), None
        stopped = number % 8 == 7
        request = ask(next(prompts), TOKENS + number % 16, sampling)
        for index, part in enumerate(server.stream(request, cancel)):
            if stopped and index == 5:
                cancel.set()
            last = part
        assert isinstance(last, Generation)
        yield last, stopped


def check_rounds(target: Path, draft: Path, count: str = "50") -> bool:
    """Compare rounds with the server's own sums, and those of complete generations with its counters.

    count: generations by each of four servers
    """
    kinds = {"draft model": draft_model(draft, 5), "draft model, p_min": draft_model(draft, 8, 0.5)}
    kinds |= {"n-gram": ngram(), "plain": ""}
    good = True
    for name, options in kinds.items():
        with llama_server(str(target), BASE + options) as url:
            found = list(generations(url, int(count)))
            complete = [one for one, stopped in found if not stopped]
            wrong = sum(one.contradictory for one, _ in found)
            sums = [sum(getattr(one, part) or 0 for one in complete) for part in ("drafted", "accepted")]  # fmt: skip
            own = counters(attach(url).client.get("/metrics").text)
        counted = [own.drafted, own.accepted] if own else [0, 0]
        # A cancelled answer is counted by the server as far as it came, so its counters may only be larger.
        at_least = all((of or 0) >= one for of, one in zip(counted, sums, strict=True))
        write(f"{name}: {len(found)} generations, {len(complete)} of them complete, {wrong} differ; drafted and accepted of the complete ones {sums}, counters {counted}")  # fmt: skip
        good &= not wrong and at_least
    return good


@dataclass(frozen=True)
class Remembered(LlamaServer):
    """A plain server that gets each request once: at temperature 0 the answer is always the same."""

    known: dict[str, list[Part]] = field(default_factory=dict)

    def stream(self, request: Request, cancel: threading.Event) -> Iterator[Part]:
        asked = str(request)
        if asked not in self.known:
            self.known[asked] = list(super().stream(request, cancel))
        return iter(self.known[asked])


def check_healthy(target: Path, draft: Path, count: str = "50", first: str = "0") -> bool:
    """Examine `count` servers without a fault from the `first` of 50 on, two at a time, with their logs; every second one next to a plain server.

    Whether drafts cost time is no fault of these servers but a fact of the machine: on a CPU they do. It is printed, not counted.
    """
    drafts = [draft_model(draft, n, p) for p in (0.0, 0.3, 0.6, 0.8) for n in range(1, 9)]
    copies = [ngram(size, longest) for size in (2, 3, 4) for longest in (2, 4, 6, 8, 12, 16)]
    kinds = random.Random(0).sample([*drafts, *copies], 50)
    chosen = range(int(first), int(first) + int(count))

    def alarms(number: int) -> int:
        path = Path(work) / str(number)
        debug = f"{BASE}{kinds[number]}options.verbosity = 5\n"
        with path.open("wb") as log, llama_server(str(target), debug, log) as url:
            seen = examine(attach(url), plain if number % 2 else None)
            found = diagnose(replace(seen, log=read_file(path)))
        problems = [(one.kind, one.values) for one in found if one.level == "problem"]
        others = [one.kind for one in found if one.level != "problem"]
        write(f"{number + 1} {kinds[number].splitlines()[1]} {problems} {others}")
        return sum(kind not in SPEED for kind, _ in problems)

    with tempfile.TemporaryDirectory() as work, llama_server(str(target), BASE) as beside:
        plain = Remembered(Client(beside), attach(beside).about, drafting=False)
        with ThreadPoolExecutor(2) as pool:
            found = sum(pool.map(alarms, chosen))
    write(f"{found} false alarms")
    return not found


def wrong_draft(draft: Path, path: Path) -> Path:
    """Write a draft model whose matrices have their rows in reverse order: it loads, and its tokens mean nothing."""
    from gguf import GGUFReader

    shutil.copyfile(draft, path)
    for tensor in GGUFReader(path, "r+").tensors:
        if tensor.name.startswith("blk.") and tensor.data.ndim > 1:
            tensor.data[:] = tensor.data[::-1].copy()
    return path


def forwarded(
    choose: Callable[[bytes], str], pass_line: Callable[[bytes], None] = lambda _line: None
) -> Callable[[str, dict[str, str], bytes], Reply]:
    """Return the replies of other servers. choose: the address for a body; pass_line: called with each line that comes."""

    def lines(answer: HTTPResponse) -> Iterator[bytes]:
        for line in answer:
            pass_line(line)
            yield line

    def reply(path: str, _headers: dict[str, str], body: bytes) -> Reply:
        answer = urlopen(Asked(choose(body) + path, body or None))  # noqa: S310
        kind = {"Content-Type": answer.headers["Content-Type"], "Server": "llama.cpp"}
        return answer.status, kind, lines(answer)

    return reply


@contextmanager
def busy_machine() -> Iterator[None]:
    """Run programs that compute every other two seconds, one more than this machine has cores."""
    code = "import time\nwhile True:\n end = time.time() + 2\n while time.time() < end: pass\n time.sleep(2)"
    count = (os.cpu_count() or 1) + 1
    others = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    try:
        yield
    finally:
        for one in others:
            one.kill()
            one.wait()


def check_faults(target: Path, draft: Path, *chosen: str) -> bool:
    """Examine servers with one fault each, some next to a plain one, and read the log of the examination.

    chosen: faults, all if none is named. A finding is expected without the log too, unless only the log shows it.
    """
    only_logged = ("left_out", "synthetic", "slow_draft")
    next_to_plain = ("lossy", "busy", "slow_draft", "slow_target", *SPEED)
    with tempfile.TemporaryDirectory() as work, llama_server(str(target), BASE) as plain:
        wrong = wrong_draft(draft, Path(work) / "wrong.gguf")
        never = f"{draft_model(draft)}s.synth_rates = [0.0] * 3\n"
        synthetic = f"{draft_model(draft)}s.synth_rates = [1.0] * 3\n"
        itself = draft_model(target, 5, 0.6)
        faults = {
            "no_drafts_llama": f"options.speculative.draft.mparams.path = {str(draft)!r}\n",
            "left_out": "",
            "idle_drafts": draft_model(draft, 4, 1.0),
            "slow_target": draft_model(draft, 4, 1.0),
            "ngram": ngram(12, 16),
            "broken": draft_model(wrong, 3),
            "only_greedy": draft_model(draft, 3, 0.6),
            "cliff": f"{draft_model(draft, 4)}s.synth_rates = [0.9, 0.8, 0.0, 0.0]\n",
            "too_long": draft_model(draft, 24),
            "always_accepted": draft_model(target, 5),
            "synthetic": synthetic,
            "lossy": synthetic,
            "control": draft_model(draft, 5),
            "loses": itself,
            "fixed_cost": itself,
            "slow_draft": draft_model(target, 5),
            "context": f"{draft_model(draft)}options.n_ctx = 256\n",
            "busy": draft_model(draft),
        }
        missed = 0
        for kind, options in faults.items():
            if chosen and kind not in chosen:
                continue
            with ExitStack() as running:
                log = running.enter_context((Path(work) / kind).open("wb"))
                debug = f"{BASE}{options}options.verbosity = 5\n"
                url = running.enter_context(llama_server(str(target), debug, log))
                if kind == "only_greedy":
                    other = running.enter_context(llama_server(str(target), BASE + never))
                    urls = {False: url, True: other}
                    drawn = forwarded(lambda body: urls[bool(body and json.loads(body).get("temperature"))])  # noqa: B023  # fmt: skip
                    url = running.enter_context(serving(drawn))
                if kind == "busy":
                    running.enter_context(busy_machine())
                near = plain if kind in next_to_plain else ""
                if kind == "control":
                    near = running.enter_context(llama_server(str(target), BASE + FOUR_SLOTS))
                seen = examine(attach(url), attach(near) if near else None)
                named = [one.kind for one in diagnose(replace(seen, log=read_file(Path(work) / kind)))]  # fmt: skip
                alone = [one.kind for one in diagnose(seen)]
            found = kind in named and (kind in only_logged or kind in alone)
            missed += not found
            write(f"{kind}: {'found' if found else 'MISSED'}; without the log {alone}, with it {named}")  # fmt: skip
    return not missed


def check_tune(target: Path, draft: Path, count: str = "20") -> bool:
    """Predict four settings for each of `count` servers that simulate acceptance, from ten requests to it and to a plain one.

    A true speedup follows from the simulated rates and the time of a round in plain steps, measured on servers with each setting.
    All get requests in turn with the plain server, so that a busy machine changes no ratio much. The times that were measured
    while a server was examined are left out of its true speedups.
    """
    lengths, tokens, requests = (2, 4, 6, 8), 48, 10
    cases = list[tuple[TuningPlan, list[float]]]()
    periods = list[dict[int, float]]()  # time of a round in plain steps by drafted tokens

    with ExitStack() as running:

        def start(n: int, rates: list[float], stack: ExitStack = running) -> Server:
            options = f"{draft_model(draft, n)}s.synth_rates = {rates[:n]}\n" if n else ""
            return attach(stack.enter_context(llama_server(str(target), BASE + options)))

        plain, others = start(0, []), [start(n, [0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.1]) for n in lengths]  # fmt: skip
        for seed in range(int(count)):
            rng = random.Random(seed)
            first, decay = rng.uniform(0.5, 0.95), rng.uniform(0.85, 1)
            rates = list(itertools.accumulate((first * decay**n for n in range(8)), mul))
            asked = [
                ask(PROMPTS[n % len(PROMPTS)], tokens, Sampling(temperature=1.0, seed=n))
                for n in range(seed * requests, (seed + 1) * requests)
            ]
            drafted = list[Record]()

            def beside(done: float) -> None:
                """Ask another server before each request."""
                number = round(done * requests)
                request = replace(asked[number], max_new_tokens=tokens // 2)  # noqa: B023
                answer = whole_answer(others[(seed + number) % len(others)], request)  # noqa: B023
                drafted.append(from_rounds("", answer))  # noqa: B023

            with ExitStack() as one_seed:
                recorded, bare = ask_in_turn(start(8, rates, one_seed), plain, asked, beside)
            cases.append((plan(recorded, bare, assumption="positions"), rates))
            # Its own whole answers too: the time of a round does not depend on what is accepted.
            drafted += [one for one in recorded if (one.tokens or 0) > max(lengths) + 2]
            times: dict[int, list[float]] = {}
            for each in itertools.chain.from_iterable(map(rounds_of, drafted)):
                times.setdefault(each.drafted or 0, []).append(each.seconds or 0.0)
            step = sum(one.seconds or 0.0 for one in bare) / sum((one.tokens or 0) - 1 for one in bare)  # fmt: skip
            periods.append({length: fmean(each) / step for length, each in times.items()})
    inside, near, widths = 0, 0, list[float]()
    for seed, (found, rates) in enumerate(cases):
        known = {n: [one[n] for one in (*periods[:seed], *periods[seed + 1 :]) if n in one] for n in range(9)}  # fmt: skip
        seconds = CostProfile(tuple((n, fmean(each)) for n, each in known.items() if len(each) > 1)).verify_seconds  # fmt: skip
        forecasts = {n: found.at(DraftSetting(n)) for n in lengths}
        predicted = {n: one.over_plain for n, one in forecasts.items() if one and one.over_plain}
        true = {n: (tokens - 1) / true_seconds(rates[:n], tokens, seconds) for n in predicted}
        inside += sum(one.low <= true[n] <= one.high for n, one in predicted.items())
        widths += [(one.high - one.low) / 2 / one.value for one in predicted.values()]
        best = max(predicted, key=lambda n: predicted[n].value)
        near += true[best] >= 0.97 * max(true.values())
        write(f"{seed}: {', '.join(f'n_max {n}: {true[n]:.2f}, predicted {one}' for n, one in predicted.items())}")  # fmt: skip
    errors = {n: [one[n] for one in periods if n in one] for n in lengths}
    shown = ", ".join(f"{n}: {stdev(each) / fmean(each) / len(each) ** 0.5:.1%}" for n, each in errors.items())  # fmt: skip
    write(f"standard errors of the true times of a round: {shown}; half an interval is {fmean(widths):.1%} of its value")  # fmt: skip
    total = len(lengths) * int(count)
    write(f"{inside} of {total} true speedups are in their interval of 90 %; {near} of {count} choices are within 3 % of the best")  # fmt: skip
    return inside >= 0.85 * total and near >= 0.9 * int(count)


@contextmanager
def open_page(url: str) -> Iterator[Page]:
    """Open the page of `app --attach` in a browser. yields: it, once its recorded run plays"""
    from playwright.sync_api import sync_playwright

    with served("--attach", url) as address, sync_playwright() as play:
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=CHROMIUM)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(address)
        page.locator(".sd-badge:not(#sd-first *)", has_text="recorded").wait_for()
        yield page
        browser.close()


def answer_on(page: Page, prompt: str) -> float:
    """Run a prompt on the page. returns: when its first token was drawn, in seconds since 1970"""
    page.locator("#sd-prompt textarea").fill(prompt)
    page.evaluate(FIRST_TOKEN)
    page.get_by_role("button", name="Run", exact=True).click()
    page.wait_for_function("window.first && document.querySelector('.sd-phase')?.textContent.startsWith('Finished')", timeout=120_000, polling=200)  # fmt: skip
    return float(page.evaluate("window.first")) / 1000


def decoding_counts(url: str) -> tuple[float, float]:
    """Return the tokens that a server has predicted since its start, and the seconds that it needed for them."""
    text = attach(url).client.get("/metrics").text
    found = dict(re.findall(r"^llamacpp:(tokens_predicted\w*) (\S+)", text, re.MULTILINE))
    return float(found["tokens_predicted_total"]), float(found["tokens_predicted_seconds_total"])


def check_page(target: Path, draft: Path, count: str = "12") -> bool:
    """Measure what the page costs a server on the same machine, and how late a first token is shown.

    A prompt is answered in turn on the page and to a program that drops the stream while the page is open.
    """
    if int(count) < 2:
        raise SystemExit("page: quartiles need two rounds or more")
    request = ask(PROMPTS[0], RunSettings().max_new_tokens)
    sent: list[float] = []

    def arrived(line: bytes) -> None:
        if line.startswith(b"data: ") and b'"predicted_n":1,' in line:
            sent.append(time.time())

    with llama_server(str(target), BASE + draft_model(draft)) as url:
        late, speeds = [], list[dict[str, float]]()
        with serving(forwarded(lambda _body: url, arrived)) as near, open_page(near) as page:
            for prompt in PROMPTS[:5]:
                late.append(answer_on(page, prompt) - sent[-1])
        with open_page(url) as page:
            server = attach(url)
            ways: dict[str, Callable[[], object]] = {
                "page": lambda: answer_on(page, PROMPTS[0]),
                "program": lambda: whole_answer(server, request),
            }
            for number in range(int(count) + 1):
                speeds.append({})
                for way in reversed(ways) if number % 2 else ways:
                    before = decoding_counts(url)
                    ways[way]()
                    tokens, seconds = map(sub, decoding_counts(url), before)
                    speeds[-1][way] = tokens / seconds
                    write(f"round {number}, {way}: {speeds[-1][way]:.2f} tokens/s")
    write(f"first token on the page after {', '.join(f'{1000 * one:.0f}' for one in late)} ms")
    low, middle, high = quantiles((each["page"] / each["program"] for each in speeds[1:]), n=4)
    write(f"page / program: {middle:.3f} ({low:.3f} to {high:.3f}, quartiles of {count})")
    return middle >= 0.98 and max(late) <= 0.1


CHECKS: dict[str, Callable[..., bool]] = {"rounds": check_rounds, "healthy": check_healthy, "faults": check_faults, "tune": check_tune, "page": check_page}  # fmt: skip


def main() -> int:
    """Run one check with the embedded pair. returns: 1 if it failed"""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)  # fmt: skip
    parser.add_argument("check", choices=CHECKS)
    parser.add_argument("options", nargs="*", help="numbers or faults, see the check's function")
    parsed = parser.parse_args()
    settings, entry = AppSettings(target=DEFAULT_TARGET), find(DEFAULT_TARGET)
    assert entry
    assert entry.gguf
    target = fetch_gguf(entry.gguf, settings.cache_dir)
    with tempfile.TemporaryDirectory() as work:
        draft = Path(work) / "draft.gguf"
        folder = resolve(partner(DEFAULT_TARGET) or "", settings.cache_dir).folder
        export_gguf(folder, target, draft)
        return int(not CHECKS[parsed.check](target, draft, *parsed.options))


if __name__ == "__main__":
    sys.exit(main())
