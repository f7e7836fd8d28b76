"""Measure a machine with a pair of models within minutes, above all a graphics card.

Passes by their rows, whether outputs stay the same, speed and memory. Each missing part is
explained by a sentence.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import pairwise, takewhile
from platform import platform, python_version

import torch
from torch import Tensor

from specdemo.bench.results import ABOUT, STRINGS, Result, Row, Table, lanes_table, totals, versions
from specdemo.bench.run import BenchOptions, run_bench
from specdemo.config.errors import UserError
from specdemo.config.settings import RunSettings, Sampling
from specdemo.config.strings import JsonView
from specdemo.drafters.base import Plain
from specdemo.engine.attention import ModuleDecoder
from specdemo.engine.cost import ANY_ROWS, CONTEXT, fitting, read_in_passes
from specdemo.engine.loop import generate
from specdemo.engine.passes import Decoder
from specdemo.engine.sampling import Shaper
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Limits, Proposal
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.models.decoders.graphs import GraphDecoder
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.models.decoders.packed import CompiledDecoder
from specdemo.models.pair import LoadedPair
from specdemo.session.loaded import machine_name
from specdemo.session.studio import Studio
from specdemo.session.text import Item, encode_prompt
from specdemo.trace.events import NOTHING, ModelInfo, RunStarted
from specdemo.trace.metrics import output_ids

TIMED_ROWS = tuple(range(1, 18))  # row counts of the timed passes
ROUNDS = 15  # timed passes, at most, after a warm-up
FEWEST_TIMED = 3  # rounds that must fit, else a backend is left out
REREAD_ROWS = (2, 3, 4, 5, 8, 16)  # rows of the passes in which a greedy text is read again
TEXTS, TOKENS = 4, 64  # greedy texts, and new tokens of each, at most
PASSES_A_TOKEN = (
    5.0  # a text is written once, then read again in passes of one and of REREAD_ROWS rows
)
SHORTEST_TEXT = 16  # tokens, below which a text is too short to compare
TIMED_METHODS = ("ngram", "draft_model", "auto")
EXACT = " in exact mode"  # one more variant, if the pair has an exact mode
ANSWER_TOKENS = 128  # new tokens of an answer
FIRST = ("code", "question", "edit", "story")  # tasks that are measured first


@dataclass(frozen=True, slots=True)
class Sameness:
    """Greedy texts read in passes of `rows` rows, compared with the same texts read in passes of one row.

    tokens: compared; same_bits, same_word: tokens with the same logits, and with the same most likely token
    difference: largest difference of a logit; lead: smallest lead of the most likely token in passes of one row
    overtaken: largest lead of a most likely token that was overtaken; None if none was
    """

    rows: int
    tokens: int
    same_bits: int
    same_word: int
    difference: float
    lead: float
    overtaken: float | None

    def __add__(self, other: Sameness) -> Sameness:
        overtaken = [one.overtaken for one in (self, other) if one.overtaken is not None]
        return Sameness(
            self.rows,
            self.tokens + other.tokens,
            self.same_bits + other.same_bits,
            self.same_word + other.same_word,
            max(self.difference, other.difference),
            min(self.lead, other.lead),
            max(overtaken, default=None),
        )


@dataclass(slots=True)
class PairFindings:
    """Findings about one pair. `left_out` has a sentence for each part that was not measured.

    costs: the profile that was measured at loading
    ladders: by backend, medians of the seconds of a target pass of each of TIMED_ROWS
    memory: bytes of a graphics card by time; rows: rows of the bench
    """

    target: JsonView
    draft: JsonView | None
    costs: JsonView
    ladders: dict[str, list[float]] = field(default_factory=dict)
    sameness: list[Sameness] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    memory: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)


Part = Callable[[float], None]  # measures until then, by `time.monotonic`, and adds its findings


def measure_pair(
    studio: Studio,
    items: Sequence[Item],
    seconds: float,
    report: ProgressCallback = silent,
) -> Iterator[PairFindings]:
    """Measure the loaded pair, the most important parts first: each may use a fraction of the remaining time.

    yields: the findings so far, after each part
    """
    pair, ends = studio.pair, time.monotonic() + seconds
    draft = asdict(pair.draft_info) if pair.draft_info else None
    found = PairFindings(asdict(pair.target.info), draft, asdict(pair.costs))
    if draft is None:
        found.left_out["draft step"] = UserError("bench.no_draft", why=pair.no_draft_why).message
    items = sorted(items, key=lambda item: (*FIRST, item.task).index(item.task))

    def on_engine(work: Callable[[LoadedPair, PairFindings, float], None]) -> Part:
        return lambda until: studio.runner.call(partial(work, pair, found, until))

    parts: dict[str, tuple[float, Part]] = {
        "ladder": (0.3, on_engine(_ladders)),
        "same words": (0.4, on_engine(partial(_same_words, items))),
        "tokens a second": (0.8, partial(_rates, studio, items, found)),
        "memory": (1.0, on_engine(_memory)),
    }
    for name, (share, work) in parts.items():
        report(Progress("measure", None, f"{found.target['name']}: {name}"))
        left = ends - time.monotonic()
        try:
            if left < 0:
                raise UserError("bench.out_of_time")
            work(time.monotonic() + share * left)
        except UserError as error:
            found.left_out[name] = error.message
        except Exception as error:  # noqa: BLE001 - on a card that nobody has tried the other parts go on
            reason = (str(error).splitlines() or [""])[0]
            found.left_out[name] = f"{type(error).__name__}: {reason}"
        yield found


def ways(pair: LoadedPair) -> dict[str, Decoder]:
    """Return the backends of a target's passes on its device: its own first, transformers' last."""
    own = pair.target.decoder
    named = {CompiledDecoder: "compiled pass", LeanDecoder: "lean pass"}
    found = dict[str, Decoder]()
    if isinstance(own, GraphDecoder):
        found = {"CUDA graphs": own} if own.records else {}
        found["lean pass"] = own.lean
    elif type(own) in named:
        found[named[type(own)]] = own
    return found | {"transformers' own pass": ModuleDecoder(pair.target.model)}


def _ladders(pair: LoadedPair, found: PairFindings, until: float) -> None:
    """Time passes over each of TIMED_ROWS, the backends in turn, up and down; the first round of each warms up."""
    targets, texts = dict[str, CachedModel](), STRINGS["left_out"]
    for way, decoder in ways(pair).items():
        target = CachedModel(decoder)
        target.read([0] * fitting(target, CONTEXT, max(TIMED_ROWS)))
        spent = min(_pass_seconds(target, 1) for _ in range(2))
        if targets and (1 + FEWEST_TIMED) * len(TIMED_ROWS) * spent > until - time.monotonic():
            found.left_out[way] = texts["no_time"].format(ms=1e3 * spent)
            continue
        for rows in TIMED_ROWS:
            _pass_seconds(target, rows)
        targets[way] = target
    spent_by: dict[tuple[str, int], list[float]] = {}
    rounds = 0
    while rounds < ROUNDS and (not rounds or time.monotonic() < until):
        for rows in TIMED_ROWS if rounds % 2 == 0 else reversed(TIMED_ROWS):
            for way, target in targets.items():
                spent_by.setdefault((way, rows), []).append(_pass_seconds(target, rows))
        rounds += 1
    found.ladders = {
        way: [statistics.median(spent_by[way, rows]) for rows in TIMED_ROWS] for way in targets
    }
    if pair.target.device.type != "cuda":
        found.left_out["CUDA graphs"] = texts["no_cuda"]
    elif "CUDA graphs" not in targets:
        found.left_out["CUDA graphs"] = texts["no_graphs"].format(kernel=pair.target.info.kernel)


def _pass_seconds(target: CachedModel, rows: int) -> float:
    """Time one pass without keeping its tokens."""
    guess = Proposal.chain([0] * (rows - 1))
    begun = time.perf_counter()
    float(target.forward(0, guess).logits[0, 0])  # sync: a GPU has computed it by now
    return time.perf_counter() - begun


def _same_words(items: Sequence[Item], pair: LoadedPair, found: PairFindings, until: float) -> None:
    """Compare passes on greedy texts, one after the other while there is time."""
    once = pair.costs.verify_seconds(1)
    tokens = tokens_within(TOKENS, until, PASSES_A_TOKEN * once)
    compared: dict[int, Sameness] = {}
    target = CachedModel(pair.target.decoder)
    for number, item in enumerate(items[:TEXTS]):
        if number and time.monotonic() > until:
            break
        prompt = encode_prompt(pair.tokenizer, item.turns[0], pair.context)
        for one in same_words(target, prompt, pair.stop_ids(), tokens):
            compared[one.rows] = compared[one.rows] + one if one.rows in compared else one
    found.sameness = list(compared.values())


def tokens_within(most: int, until: float, each: float) -> int:
    """Return the number of tokens that fit into the time, at most `most`. each: seconds

    Raises UserError if there is no time for SHORTEST_TEXT tokens.
    """
    tokens = min(most, int((until - time.monotonic()) / each))
    if tokens < SHORTEST_TEXT:
        raise UserError("bench.too_slow", milliseconds=f"{1000.0 * each:.0f}")
    return tokens


def same_words(
    target: CachedModel, prompt: Sequence[int], stop_ids: frozenset[int], tokens: int = TOKENS
) -> list[Sameness]:
    """Read a greedy text again in passes of each of REREAD_ROWS, each with the cache that such passes have written."""
    started = RunStarted("plain", NOTHING, "", {}, ModelInfo(""))
    limits, shaper = Limits(tokens, stop_ids), Shaper(Sampling())
    target.rollback(0)
    run = generate(target, Plain(), prompt, shaper=shaper, limits=limits, started=started)
    text = [prompt[-1], *output_ids(run)][:-1]
    alone, found = read_in_passes(target, prompt[:-1], text, 1), []
    for rows in REREAD_ROWS:
        if rows <= len(text):
            together = read_in_passes(target, prompt[:-1], text, rows)
            found.append(compare(rows, alone[: len(together)], together))
    return found


def compare(rows: int, alone: Tensor, together: Tensor) -> Sameness:
    """Compare logits of the same tokens, (tokens, V) each, from passes of one row and of several."""
    best = alone.topk(2, dim=1)
    theirs = together.argmax(dim=1)
    word = best.indices[:, 0] == theirs
    leads = best.values[:, 0] - alone.gather(1, theirs[:, None])[:, 0]
    return Sameness(
        rows,
        len(alone),
        int((alone == together).all(dim=1).sum()),
        int(word.sum()),
        float((alone - together).abs().max()),
        float((best.values[:, 0] - best.values[:, 1]).min()),
        None if bool(word.all()) else float(leads[~word].max()),
    )


def _rates(studio: Studio, items: Sequence[Item], found: PairFindings, until: float) -> None:
    """Measure the methods of TIMED_METHODS greedily on first turns until the time is over."""
    methods = {method.name: method for method in studio.methods()}
    missing = {name: methods[name].why_not for name in TIMED_METHODS if not methods[name].available}
    found.left_out |= missing
    names = [name for name in TIMED_METHODS if name not in missing]
    # One warm-up and the first prompt; plain decoding bounds the time of each variant.
    each = 4 * len(names) * studio.pair.costs.verify_seconds(1)
    usual = RunSettings(max_new_tokens=tokens_within(ANSWER_TOKENS, until, each), memory=False)
    if 1 < studio.pair.costs.exact_rows < ANY_ROWS:
        names += [f"{name}{EXACT}" for name in ("draft_model", "ngram") if name in names][:1]

    def settings_of(lane: str) -> RunSettings:
        return replace(usual, method=lane.removesuffix(EXACT), exact=lane.endswith(EXACT))

    options = BenchOptions(",".join(names), first_turns=True, until=until)
    for bench in run_bench(studio, items, options, settings_of, listen=lambda _: None):
        found.rows = bench.rows()
    if bench.notes:
        found.left_out["prompts"] = " ".join(bench.notes)


def _memory(pair: LoadedPair, found: PairFindings, _until: float) -> None:
    """Read the memory of a graphics card: allocated after all measurements, peak, and reserved by torch."""
    device = pair.target.device
    if device.type != "cuda":
        raise UserError("bench.cuda_only")
    found.memory = {
        "allocated": torch.cuda.memory_allocated(device),
        "peak": torch.cuda.max_memory_allocated(device),
        "reserved": torch.cuda.memory_reserved(device),
        "total": torch.cuda.get_device_properties(device).total_memory,
    }


CARD_PACKAGES = ("torch", "transformers", "bitsandbytes", "triton", "numba")


def card_result(
    pairs: Sequence[PairFindings], *, minutes: float, seconds: float, notes: Sequence[str] = ()
) -> Result:
    """Return the findings about all pairs.

    minutes, seconds: allowed and used; notes: on pairs that are left out
    """
    device = device_facts()
    card = device.get("graphics card")
    named = [(str(pair.target["name"]), pair) for pair in pairs]
    told = [f"{name}: {sentence}" for name, pair in named for sentence in findings(pair)]
    return Result(
        title=f"A pass by its rows on {card or machine_name()}",
        about=" ".join(STRINGS[part]["about"] for part in ("passes", "same", "rates")).format(
            speedups=ABOUT
        ),
        tables=[table for table in _tables(named) if table.rows],
        notes=[*notes, *told],
        values={
            "facts": device,
            "versions": versions(*CARD_PACKAGES),
            "time": f"{seconds:.0f} s of {minutes:g} minutes",
            "pairs": [asdict(pair) for pair in pairs],
        },
        machine=", ".join(filter(None, (card, machine_name()))),
    )


def device_facts() -> dict[str, str]:
    """Return the system, and the graphics card if there is one."""
    facts = {"system": platform(), "python": python_version()}
    if not torch.cuda.is_available():
        return facts | {"CUDA": "none; the processor computes"}
    card = torch.cuda.get_device_properties(0)
    return facts | {
        "CUDA": str(torch.version.cuda),
        "graphics card": card.name,
        "compute capability": f"{card.major}.{card.minor}",
        "multiprocessors": str(card.multi_processor_count),
        "memory": f"{card.total_memory / 1e9:.1f} GB",
    }


def _tables(named: Sequence[tuple[str, PairFindings]]) -> list[Table]:
    rates = [(name, lanes_table(pair.rows)) for name, pair in named if pair.rows]
    title, about = STRINGS["rates"]["title"], STRINGS["rates"]["about"].format(speedups=ABOUT)
    same_columns = [
        "target", "rows", "tokens", "same bits", "same most likely token", "largest difference",
        "smallest lead", "largest lead overtaken",
    ]  # fmt: skip
    return [
        *(_passes_table(name, pair.ladders) for name, pair in named if pair.ladders),
        Table(("target", "draft", "ms", "of a pass"), [
            [name, (pair.draft or {}).get("name", "-"), f"{1e3 * step:.2f}",
             f"1/{next(iter(pair.ladders.values()))[0] / step:.1f}" if pair.ladders else "-"]
            for name, pair in named if (step := pair.costs.get("draft_step"))
        ], **STRINGS["draft_step"]),
        Table(same_columns, [_same_row(name, one) for name, pair in named for one in pair.sameness], **STRINGS["same"]),
        *(Table([name, *one.columns[1:]], one.rows, title, about) for name, one in rates),
        Table(("target", "when", "MB"), [
            [name, when, f"{count / 1e6:.0f}"] for name, pair in named for when, count in pair.memory.items()
        ], **STRINGS["memory"]),
        Table(("target", "part", "why"), [
            [name, part, why] for name, pair in named for part, why in pair.left_out.items()
        ], **STRINGS["not_measured"]),
    ]  # fmt: skip


def _passes_table(name: str, ladders: Mapping[str, Sequence[float]]) -> Table:
    """Return a line for each number of rows: for each backend, the milliseconds of the pass and of its last row."""
    columns, rows = ["target", "rows"], [[name, str(count)] for count in TIMED_ROWS]
    for way, ladder in ladders.items():
        columns += [f"{way}, ms", "more"]
        times = [1e3 * seconds for seconds in ladder]
        steps = ["-", *(f"{after - before:+.2f}" for before, after in pairwise(times))]
        for row, ms, step in zip(rows, times, steps, strict=True):
            row += [f"{ms:.2f}", step]
    return Table(columns, rows, **STRINGS["passes"])


def _same_row(name: str, one: Sameness) -> list[str]:
    shares = (f"{100 * count / one.tokens:.1f} %" for count in (one.same_bits, one.same_word))
    overtaken = "-" if one.overtaken is None else f"{one.overtaken:.3g}"
    leads = [f"{one.difference:.3g}", f"{one.lead:.3g}", overtaken]
    return [name, str(one.rows), str(one.tokens), *shares, *leads]


def findings(pair: PairFindings) -> list[str]:
    """Return sentences about a pair: its fastest pass, whether outputs stay the same, and the fastest variant."""
    texts, said = STRINGS["findings"], list[str]()
    if pair.ladders:
        way, times = min(pair.ladders.items(), key=lambda ladder: ladder[1])
        one, five = (1e3 * times[rows - 1] for rows in (1, 5))
        said.append(texts["pass"].format(way=way, one=one, times=five / one))
    if pair.sameness:
        equal = list(takewhile(lambda one: one.same_bits == one.tokens, pair.sameness))
        said.append(texts["same"].format(rows=equal[-1].rows) if equal else texts["not_same"])
    known = [row for row in totals(pair.rows) if row["speedup"]]
    if known:
        fastest = max(known, key=lambda row: row["speedup"])
        rate, code = fastest["tokens_per_second"], "fastest"
        if fastest["lane"] == NOTHING:
            code = "plain"
        said.append(texts[code].format(rate=rate, **fastest))
    return said
