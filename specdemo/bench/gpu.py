"""What a machine does with a pair, a graphics card above all: the ladder of its passes, whether words stay the same, speed and memory.

All within so many minutes. What cannot be measured leaves a sentence in its place, and so does what there was no time for.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from specdemo.bench.lanes import PLAIN, Lane, OwnLane, run_lanes
from specdemo.bench.report import Report
from specdemo.bench.run import WARM_UP
from specdemo.bench.suite import Item
from specdemo.config.errors import UserError
from specdemo.config.settings import RunSettings
from specdemo.engine.cost import ANY_ROWS, CONTEXT
from specdemo.engine.exactness import read_in_passes
from specdemo.engine.module_decoder import ModuleDecoder
from specdemo.engine.passes import Decoder
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.session.text import encode_conversation

if TYPE_CHECKING:
    from torch import Tensor

    from specdemo.models.pair import LoadedPair
    from specdemo.session.studio import Studio

ROWS = tuple(range(1, 18))  # of the ladder
ROUNDS = 15  # of passes, at most, beside the one that warms up
FEWEST = 3  # rounds that must fit, else a way is left out
DRAFT_STEPS = 40
GROUPS = (2, 3, 4, 5, 8, 16)  # rows of the passes in which a greedy text is read again
TEXTS, TOKENS = 4, 64  # greedy texts, and new tokens of each, at most
PASSES_A_TOKEN = 4.0  # of such a text, which is written once and read again in each of GROUPS
SHORTEST = 16  # tokens: less of a text tells nothing
LANES = ("ngram", "draft_model", "auto")
EXACT = "exact mode"  # a lane beside these, where the pair has it
ANSWER = 128  # new tokens of a lane's answer
FIRST = ("code", "question", "edit", "story")  # tasks: there may be no time for others


@dataclass(frozen=True, slots=True)
class Ladder:
    """Passes of one way to compute. seconds: medians, by rows, see ROWS; rounds: that were timed"""

    way: str
    seconds: tuple[float, ...]
    rounds: int


@dataclass(frozen=True, slots=True)
class Sameness:
    """Greedy texts read in passes of so many rows, beside the same texts read in passes of one row.

    tokens: compared; same_bits, same_word: at how many all logits, and the likeliest words, were the same
    difference: largest of any logit; lead: smallest of a likeliest word over the next one in the passes of one row
    overtaken: largest lead of a likeliest word that was overtaken; None where none was
    """

    rows: int
    tokens: int
    same_bits: int
    same_word: int
    difference: float
    lead: float
    overtaken: float | None


@dataclass(slots=True)
class PairFindings:
    """What was found out about one pair. Parts that are empty stand in `left_out`, each with a sentence why.

    costs: as the lookahead policies know them; draft_step: seconds, median
    memory: bytes of a graphics card by when; rows: of the bench
    """

    target: Mapping[str, Any]
    draft: Mapping[str, Any] | None
    costs: Mapping[str, Any]
    ladders: list[Ladder] = field(default_factory=list)
    draft_step: float | None = None
    sameness: list[Sameness] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)
    memory: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)


Part = Callable[[float], None]
"""Measures until then, by `time.monotonic`, and adds what it has found."""


def measure_pair(
    studio: Studio, items: Sequence[Item], seconds: float, report: ProgressCallback = silent
) -> PairFindings:
    """Measure the loaded pair for so many seconds, the most important parts first: each may take a share of what is left."""
    pair, ends = studio.pair, time.monotonic() + seconds
    draft = asdict(pair.draft_info) if pair.draft_info else None
    found = PairFindings(asdict(pair.target.info), draft, asdict(pair.costs))
    items = sorted(items, key=lambda item: (*FIRST, item.task).index(item.task))

    def on_engine(work: Callable[[LoadedPair, PairFindings, float], None]) -> Part:
        return lambda until: studio.runner.call(partial(work, pair, found, until))

    parts: dict[str, tuple[float, Part]] = {
        "ladder": (0.3, on_engine(_ladders)),
        "draft step": (1.0, on_engine(_draft_step)),
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
    return found


def ways(pair: LoadedPair) -> dict[str, Decoder]:
    """The ways that a target's passes can go on its device: its own first, transformers' last."""
    from specdemo.models.decoders.compiled import CompiledDecoder
    from specdemo.models.decoders.graphs import GraphDecoder
    from specdemo.models.decoders.lean import LeanDecoder

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
    """Passes over each of ROWS, the ways in turn, up and down; the first round of each way warms up."""
    targets, why = dict[str, CachedModel](), "There was no time for it: a pass takes {:.0f} ms."
    for way, decoder in ways(pair).items():
        target = CachedModel(decoder)
        target.read([0] * CONTEXT)
        spent = min(_pass_seconds(target, 1) for _ in range(2))
        if targets and (1 + FEWEST) * len(ROWS) * spent > until - time.monotonic():
            found.left_out[way] = why.format(1e3 * spent)
            continue
        for rows in ROWS:
            _pass_seconds(target, rows)
        targets[way] = target
    spent_by: dict[tuple[str, int], list[float]] = {}
    rounds = 0
    while rounds < ROUNDS and (not rounds or time.monotonic() < until):
        for rows in ROWS if rounds % 2 == 0 else reversed(ROWS):
            for way, target in targets.items():
                spent_by.setdefault((way, rows), []).append(_pass_seconds(target, rows))
        rounds += 1
    found.ladders = [
        Ladder(way, tuple(statistics.median(spent_by[way, rows]) for rows in ROWS), rounds)
        for way in targets
    ]
    if "CUDA graphs" not in targets:
        found.left_out["CUDA graphs"] = _no_graphs(pair)


def _no_graphs(pair: LoadedPair) -> str:
    if pair.target.device.type != "cuda":
        return "They need a CUDA device; this model runs on the processor."
    return f"They do not run with this model: {pair.target.info.kernel}."


def _pass_seconds(target: CachedModel, rows: int) -> float:
    """A pass that is forgotten."""
    guess = Proposal.chain([0] * (rows - 1))
    begun = time.perf_counter()
    float(target.forward(0, guess).logits[0, 0])  # sync: a GPU has computed it by now
    return time.perf_counter() - begun


def _draft_step(pair: LoadedPair, found: PairFindings, _until: float) -> None:
    """One token after the other, as a draft model reads them."""
    if pair.open_draft is None:
        raise UserError("bench.no_draft", why=pair.no_draft_why)
    draft = pair.open_draft()
    draft.read([0] * CONTEXT)
    spent = []
    for _ in range(DRAFT_STEPS):
        begun = time.perf_counter()
        float(draft.read([0])[0])  # sync: a GPU has computed it by now
        spent.append(time.perf_counter() - begun)
    found.draft_step = statistics.median(spent[DRAFT_STEPS // 4 :])


def _same_words(items: Sequence[Item], pair: LoadedPair, found: PairFindings, until: float) -> None:
    """Compare passes on greedy texts, one after the other while there is time."""
    once = pair.costs.verify_seconds(1)
    tokens = tokens_within(TOKENS, until, PASSES_A_TOKEN * once)
    compared: dict[int, list[Sameness]] = {rows: [] for rows in GROUPS}
    target = CachedModel(pair.target.decoder)
    for number, item in enumerate(items[:TEXTS]):
        if number and time.monotonic() > until:
            break
        messages = [{"role": "user", "content": item.turns[0]}]
        prompt = encode_conversation(pair.tokenizer, messages, pair.context)
        for one in same_words(target, prompt, pair.stop_ids(), tokens):
            compared[one.rows].append(one)
    found.sameness = [_together(several) for several in compared.values() if several]


def tokens_within(most: int, until: float, each: float) -> int:
    """How many tokens there is time for, at most so many. each: seconds. Raises UserError for a text that is too short."""
    tokens = min(most, int((until - time.monotonic()) / each))
    if tokens < SHORTEST:
        raise UserError("bench.too_slow", milliseconds=f"{1000.0 * each:.0f}")
    return tokens


def same_words(
    target: CachedModel, prompt: Sequence[int], stop_ids: frozenset[int], tokens: int = TOKENS
) -> list[Sameness]:
    """Read a greedy text again in passes of each of GROUPS, each with the cache that such passes have written."""
    import torch

    text, wanted = [prompt[-1]], list[Any]()
    target.rollback(0)
    target.read(prompt[:-1])
    while len(wanted) < tokens and text[-1] not in stop_ids:
        wanted.append(target.forward(text[-1], Proposal.chain([])).logits[0])
        target.keep([])
        text.append(int(wanted[-1].argmax()))  # sync: one a pass
    alone, found = torch.stack(wanted), []
    for rows in GROUPS:
        if rows <= len(wanted):
            together = read_in_passes(target, prompt[:-1], text[: len(wanted)], rows)
            found.append(compare(rows, alone[: len(together)], together))
    return found


def compare(rows: int, alone: Tensor, together: Tensor) -> Sameness:
    """Logits of the same tokens, (tokens, V) each, by passes of one row and of several."""
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


def _together(several: Sequence[Sameness]) -> Sameness:
    """Several texts as one."""
    return Sameness(
        several[0].rows,
        sum(one.tokens for one in several),
        sum(one.same_bits for one in several),
        sum(one.same_word for one in several),
        max(one.difference for one in several),
        min(one.lead for one in several),
        max((one.overtaken for one in several if one.overtaken is not None), default=None),
    )


def _rates(studio: Studio, items: Sequence[Item], found: PairFindings, until: float) -> None:
    """Plain decoding and each of LANES on first turns in turn, until the time is over; greedy."""
    methods = {method.name: method for method in studio.methods()}
    missing = {name: methods[name].why_not for name in LANES if not methods[name].available}
    found.left_out |= missing
    names = [PLAIN, *(name for name in LANES if name not in missing)]
    # The words that warm up, and the first prompt: plain decoding bounds what a lane takes.
    each = 2 * len(names) * studio.pair.costs.verify_seconds(1)
    usual = RunSettings(max_new_tokens=tokens_within(ANSWER, until, each), memory=False)
    lanes: dict[str, Lane] = {
        name: OwnLane(studio, name, replace(usual, method=name)) for name in names
    }
    if 1 < studio.pair.costs.exact_rows < ANY_ROWS and "ngram" in lanes:
        first = "draft_model" if "draft_model" in lanes else "ngram"
        exact = replace(usual, method=first, exact=True)
        lanes[f"{first}, {EXACT}"] = OwnLane(studio, f"{first}, {EXACT}", exact)
    report, longest = Report(PLAIN), 0.0
    lost = found.left_out.__setitem__
    list(run_lanes(lanes, [WARM_UP], lost=lost))  # not counted
    for number, item in enumerate(items):
        begun = time.monotonic()
        if number and begun + longest > until:
            found.left_out["prompts"] = f"There was time for {number} of {len(items)}."
            break
        for results in run_lanes(lanes, item.turns[:1], first=number, lost=lost):
            report.add(item.task, results)
            found.rows = report.rows()
        longest = max(longest, time.monotonic() - begun)


def _memory(pair: LoadedPair, found: PairFindings, _until: float) -> None:
    """Bytes of a graphics card: after all that was measured, most at a moment, and what torch keeps for itself."""
    import torch

    device = pair.target.device
    if device.type != "cuda":
        raise UserError("bench.cuda_only")
    found.memory = {
        "allocated": torch.cuda.memory_allocated(device),
        "peak": torch.cuda.max_memory_allocated(device),
        "reserved": torch.cuda.memory_reserved(device),
        "total": torch.cuda.get_device_properties(device).total_memory,
    }
