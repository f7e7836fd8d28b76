"""A whole bench on a tiny model: repetitions, left-out variants, sums, bounds, throughput and files."""

import json
import threading
import time
from collections import Counter, defaultdict
from contextlib import contextmanager
from itertools import repeat
from types import SimpleNamespace

import pytest
from conftest import tiny_llama
from errors import reported
from lanes import Always
from outcomes import answered
from scripted_run import CountingStudio
from tiny_studio import TinyStudio

from specdemo.bench import run
from specdemo.bench.lanes import (
    PEERS,
    LaneLost,
    Paired,
    measuring_order,
    run_lanes,
)
from specdemo.bench.results import BenchAnswers, Journal, against_table, lanes_table, text
from specdemo.bench.run import BenchOptions, measure_throughput, run_bench
from specdemo.bench.seeds import SeedComparison
from specdemo.cli import console
from specdemo.cli.commands import bench as commands
from specdemo.cli.parser import main
from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings
from specdemo.drafters.base import Plain
from specdemo.engine.cost import CostProfile
from specdemo.engine.sampling import Shaper
from specdemo.models.memory import Way, Weights
from specdemo.session.door import MethodInfo
from specdemo.session.text import Item
from specdemo.trace.events import NOTHING, Node, RunFailed, Verified

URL = "http://127.0.0.1:8080/v1"
ITEMS = (Item("one", "list", ("abcabc", "more")), Item("two", "count", ("abab",)))


class Canned:
    """Fake variant with given rates in turn, which fails at some prompts. asked: names of variants, by call"""

    def __init__(self, name, rates=None, lost=(), asked=None):
        self.name, self.rates, self.lost = name, iter(rates or repeat(5.0)), lost
        self.asked, self.closed = [] if asked is None else asked, False

    @contextmanager
    def talk(self):
        try:
            yield self.answer
        finally:
            self.closed = True

    def answer(self, prompt):
        if prompt in self.lost:
            raise LaneLost("it broke")
        self.asked.append(self.name)
        return answered(self.name, next(self.rates))


@pytest.fixture
def studio():
    weights = tiny_llama(0)
    known = {"nothing": lambda _: Plain(), "script": lambda _: Always([0, 0], 0.5)}
    drafters = defaultdict(lambda: known["script"], known)
    studio = TinyStudio(weights, drafters, {"block": "It is not trained."}, costs=CostProfile())
    answer = studio.run

    def run_or_refuse(prompt, settings, **options):
        if "refused" in prompt:
            raise reported("The prompt is too long.")
        yield from answer(prompt, settings, **options)

    studio.run = run_or_refuse
    return studio


@pytest.fixture
def command(studio, monkeypatch, tmp_path):
    """A function that measures prompts by the command line: rows of a suite, further words. Returns the exit status."""
    monkeypatch.setattr(console, "open_studio", lambda _: studio)
    suite = tmp_path / "suite.jsonl"

    def run_command(rows, *words):
        suite.write_text("\n".join(map(json.dumps, rows)))
        asked = ["bench", "--suite", str(suite), "--lanes", "ngram", "--max-new-tokens", "6"]
        return main([*asked, *map(str, words)])

    return run_command


def bench(studio, items=ITEMS, told=None, **options):
    told = [] if told is None else told
    *_, last = run_bench(
        studio,
        items,
        BenchOptions(**{"lanes": "script", **options}),
        lambda lane: RunSettings(method=lane, max_new_tokens=6, baseline=False),
        listen=told.append,
    )
    return last


def compare(compared, items=ITEMS, journal=None):
    """Return the result of a comparison of seeds."""
    *_, last = compared.run(items, Journal(journal, {}), lambda _: None)
    return last


def test_lanes_and_peers_are_run_in_turn_and_repeated(studio, monkeypatch):
    rates = iter(range(1, 99))
    monkeypatch.setattr(run, "open_peer", lambda _studio, name, *_: Canned(name, rates))
    found = bench(studio, lanes="script,peers", repeat=2)
    assert found.measured.lanes == ["nothing", "script", *PEERS]
    rows = {(row["task"], row["lane"]): row for row in found.rows()}
    assert rows["count", "nothing"]["answers"] == 1
    assert rows["list", "script"]["answers"] == 2  # two turns
    assert rows["count", "script"]["same_output_rate"] == 1
    low, high = rows["all", "transformers:lookup"]["speedup_quartiles"]
    assert low < rows["all", "transformers:lookup"]["speedup"] < high
    tables = text(found.result())
    assert "over transformers:assisted" in tables
    assert found.result().about.startswith("tiny, fp32")


def test_seed_comparison_finds_other_texts_and_continues(studio, tmp_path):
    def seeds():
        return SeedComparison(studio, ["script"], ["1/1/1", "1.5/0.9/1.1"], 6)

    next(seeds().run(ITEMS, Journal(tmp_path / "stored", {}), lambda _: None))
    own, studio.shaper = studio.shaper, lambda settings: Shaper(settings.sampling)
    compared = seeds()
    broken = compare(compared, journal=tmp_path / "new").values  # the noise of each text is its own
    assert not compared.held
    assert broken["equal"] < broken["answers"] == 4
    # The first prompt was answered before the fault.
    stored = compare(seeds(), journal=tmp_path / "stored").values
    studio.shaper, compared = own, seeds()
    held = compare(compared, journal=tmp_path / "new").values
    assert compared.held
    assert (held["equal"], compared.prompts) == (4, 2)
    assert broken["equal"] < stored["equal"] < 4


def test_a_method_that_fails_is_left_out_of_the_comparison_of_seeds(studio):
    compared = SeedComparison(studio, ["script", "other"], ["1/1/1"], 6)
    run_before = studio.run

    def run(prompt, settings, **options):
        if settings.method == "script" and prompt == ITEMS[1].turns[0]:
            yield RunFailed("plain", "It broke.", "", "")
        yield from run_before(prompt, settings, **options)

    studio.run = run
    items = (*ITEMS, Item("long", "count", ("refused",)))
    result = compare(compared, items)
    assert compared.lost == {"script": "It broke."}
    assert result.notes == [
        "script is left out: It broke.",
        "long is left out: The prompt is too long.",
    ]
    assert result.values["answers"] == 2  # of the other method
    assert not compared.held
    with pytest.raises(UserError, match="No prompt"):
        compare(SeedComparison(studio, [], ["1/1/1"], 6), items[2:])
    studio.broken = {"nothing"}
    with pytest.raises(UserError, match=r"Plain decoding failed: It broke\."):
        compare(compared)


def test_peers_weights_are_written_by_the_thread_that_computes(studio, monkeypatch):
    # libgomp lets every team sleep at each barrier once there are more threads than cores: a pass took three times as long
    seen = []

    def open_peer(_studio, name, *_):
        seen.append(threading.current_thread().name)
        return Canned(name)

    monkeypatch.setattr(run, "open_peer", open_peer)
    bench(studio, lanes="transformers:assisted")
    assert seen == ["specdemo-engine"]


def test_an_impossible_method_is_reported_and_the_others_run(studio, monkeypatch):
    def open_peer(_studio, name, *_):
        if name == URL:
            raise reported("It is not installed.", advice="Install it.")
        return Canned(name, lost=["abab"])

    monkeypatch.setattr(run, "open_peer", open_peer)
    told: list[str] = []
    items = (*ITEMS, Item("three", "count", ("refused",)))
    found = bench(studio, items, told, lanes=f"{URL},transformers,script")
    left_out = [sentence.partition(" is left out")[0] for sentence in told]
    assert left_out == [URL, "transformers", "three"]
    assert "Install it." in told[0]
    assert found.measured.lanes == ["nothing", "script"]  # a failed variant is not counted at all
    assert set(told) <= set(found.result().notes)
    with pytest.raises(UserError, match="No prompt"):
        bench(studio, items[2:])
    told.clear()
    assert bench(studio, told=told, lanes="block,script").measured.lanes == ["nothing", "script"]
    assert told == ["block is left out: It is not trained."]


def test_a_bench_notes_when_the_datastore_knows_the_prompts(studio, monkeypatch, tmp_path):
    monkeypatch.setattr(studio, "loaded", SimpleNamespace(store=object()))
    told: list[str] = []

    def methods():
        return [MethodInfo(name, name, "", (), True) for name in ("nothing", "retrieval")]

    monkeypatch.setattr(studio, "methods", methods)
    monkeypatch.setattr(run.Bench, "_open", lambda _bench, name, *_: Canned(name))
    found = bench(studio, told=told, lanes="retrieval")
    assert "answers to these very prompts" in told[0]
    assert found.result().notes[1:] == told
    told.clear()
    bench(studio, told=told, lanes="retrieval", suite=tmp_path / "mine.jsonl")
    studio.settings = AppSettings(target="tiny", draft="none", store="none")
    bench(studio, told=told, lanes="retrieval")
    assert not told


def test_summarise_counts_answers_that_repeat_themselves_and_disturbed_pairs_apart():
    measured = BenchAnswers()

    def add(prompt, plain, fast, *, repeats=False, disturbed=False):
        fast_one = answered("fast", fast, repeats=repeats)
        measured.add("qa", prompt, [Paired(fast_one, answered("nothing", plain), disturbed)])

    for number, (plain, fast) in enumerate([(10, 20), (10, 30), (20, 80), (5, 50), (10, 60)]):
        add(str(number), plain, fast)
    add("loop", 10, 900, repeats=True)
    add("0", 10, 990, disturbed=True)
    row = next(row for row in measured.rows() if row["task"] == "all")
    assert row["speedup"] == pytest.approx(4)  # the median of 2, 3, 4, 6, 10
    assert row["speedup_quartiles"] == pytest.approx([3, 6])
    assert (row["speedup_lowest"], row["speedup_mean"]) == (pytest.approx(2), pytest.approx(5))
    assert row["speedup_all"] == pytest.approx(5)
    assert (row["answers"], row["repeats"], row["disturbed"]) == (6, 1, 1)
    shown = dict(zip(lanes_table([row]).columns, lanes_table([row]).rows[0], strict=True))
    assert (shown["speedup"], shown["repeat themselves"]) == ("4.00x", "1 of 6")
    measured.busy = True
    assert measured.rows()[-1]["speedup"] == pytest.approx(6)  # prompt 0 has 50.5 in the middle


def test_measuring_order_puts_each_variant_next_to_plain_decoding_in_turn():
    assert measuring_order(["a"], 0) == [("nothing", 0), ("a", 0)]
    assert measuring_order(["a"], 1) == [("a", 0), ("nothing", 0)]
    for names in (["a"], ["a", "b"], ["a", "b", "c"], list("abcde")):
        before = Counter()
        for number in range(4 * len(names)):
            order = measuring_order(names, number)
            for place, (name, index) in enumerate(order):
                if name != "nothing":
                    plain = order.index(("nothing", index))
                    assert abs(plain - place) == 1
                    before[name] += 1 if plain < place else -1
        assert not any(before.values())


def test_lanes_take_turns_at_being_first_and_go_on_without_a_lost_one():
    asked, told = [], []
    lost_at = {NOTHING: "", "a": "", "b": "3", "c": ""}
    lanes = {name: Canned(name, lost=prompt, asked=asked) for name, prompt in lost_at.items()}
    variants = list(lanes.values())
    results = run_lanes(lanes, ["1", "2", "3"], first=1, lost=lambda *what: told.append(what))
    names = [[pair.result.name for pair in turn] for turn in results]
    assert names == [[*lost_at], [*lost_at], [NOTHING, "a", "c"]]
    turns = "".join(asked).replace(NOTHING, ".")
    assert turns == "c.ba." + ".bc.a" + "a.c."
    assert told == [("b", "it broke")]
    assert list(lanes) == [NOTHING, "a", "c"]
    assert all(one.closed for one in variants)


def test_lanes_end_with_the_message_of_plain_decoding_if_that_is_lost():
    variants = [Canned(NOTHING, lost="2"), Canned("a")]
    results = run_lanes({one.name: one for one in variants}, ["1", "2"], lost=lambda *_: None)
    assert len(next(results)) == 2
    with pytest.raises(UserError, match="Plain decoding failed: it broke"):
        next(results)
    assert all(one.closed for one in variants)


def test_our_lanes_are_compared_with_each_peer():
    plain, measured = answered("nothing", 10), BenchAnswers()
    rates = {"nothing": 10, "auto": 30, "transformers": 20}
    measured.add("qa", "one", [Paired(answered(name, rate), plain) for name, rate in rates.items()])
    assert against_table(measured).rows == [["nothing", "0.50x"], ["auto", "1.50x"]]
    measured.drop("transformers")
    assert against_table(measured).rows == []


def test_weights_count_the_bytes_of_a_pass(tmp_path):
    weights = tiny_llama(0)
    weights.save_pretrained(tmp_path)
    read = sum(p.numel() for p in weights.parameters()) - weights.model.embed_tokens.weight.numel()
    counted = Weights.of_folder(tmp_path, "tiny")
    assert counted.pass_bytes(Way("fp32")) == 4 * read
    matrices = sum(
        p.numel() for name, p in weights.named_parameters() if p.ndim == 2 and "layers" in name
    )
    assert counted.pass_bytes(Way("nf4")) == 2 * (read - matrices) + 0.5625 * matrices


class Waiting(CountingStudio):
    """A studio whose runs sleep instead of computing, so that concurrent runs do not slow each other."""

    def run(self, _prompt, settings, **_options):
        time.sleep(0.05 if settings.method == "nothing" else 0.1)
        yield Verified("plain", 0, (), (), Node(7), 0.0, 0.05, 0.0, 0.05)


def test_conversations_at_once_are_compared_with_the_same_in_turn_and_with_plain_ones():
    lanes = {"nothing": RunSettings(method="nothing"), "slow": RunSettings(method="ngram")}
    plain, slow = measure_throughput(Waiting(), lanes, ["a"] * 4, BenchOptions("", repeat=2))
    assert plain["ratio"] > 1
    # A token takes 0.05 s or longer, however busy the machine is.
    assert plain["in_turn"] < 20.1
    assert plain["in_turn"] < plain["together"] < 4 * 20.1
    assert plain["over_plain"] == 1
    assert slow["over_plain"] < 0.9


def test_every_own_lane_is_measured_with_conversations_at_once_on_a_repeated_suite(studio):
    found = bench(studio, concurrent=(2, 3))
    measured = [(each["lane"], each["conversations"]) for each in found.throughput]
    assert measured == [("nothing", 2), ("script", 2), ("nothing", 3), ("script", 3)]
    assert "over plain together" in found.result().tables[-1].columns


def test_a_variant_that_was_lost_is_not_measured_at_once_and_a_failure_there_keeps_the_rest(studio):
    studio.broken, told = {"script"}, []
    found = bench(studio, concurrent=(2,), told=told)
    assert [each["lane"] for each in found.throughput] == ["nothing"]
    assert told == ["script is left out: It broke."]
    runs, whole = [], studio.run

    def run(prompt, settings, **options):
        runs.append(prompt)
        studio.broken = {"nothing"} if len(runs) > before else set()
        yield from whole(prompt, settings, **options)

    before, studio.run, studio.broken = 10**6, run, set()
    bench(studio)
    before = len(runs)
    runs.clear()
    found = bench(studio, concurrent=(2,), told=told)
    assert told[-1] == "2 at once is left out: It broke."
    assert found.measured.answers
    assert found.result().tables


def test_an_interrupted_bench_keeps_its_results(studio, command, monkeypatch, tmp_path, capsys):
    out = tmp_path / "out.json"
    rows = [{"id": name, "task": name, "turns": [f"{name}b"]} for name in ("aa", "stop")]
    whole, prompts = studio.run, []

    def interrupted(prompt, settings, **options):
        prompts.append(prompt)
        if prompt == "stopb":
            raise KeyboardInterrupt
        return whole(prompt, settings, **options)

    monkeypatch.setattr(studio, "run", interrupted)
    assert command(rows, "--json", out) == 130
    assert " aa " in capsys.readouterr().out
    assert {row["task"] for row in json.loads(out.read_text())["rows"]} == {"aa", "all"}
    prompts.clear()
    monkeypatch.setattr(studio, "run", lambda *a, **k: (prompts.append(a[0]), whole(*a, **k))[1])
    assert command(rows, "--json", out) == 0
    assert "aab" not in prompts
    assert {row["task"] for row in json.loads(out.read_text())["rows"]} == {"aa", "stop", "all"}
    assert sorted(path.name for path in tmp_path.glob("*out*")) == ["out.json"]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (OSError(28, "No space left on device", "out.json"), "No space left on device"),
        (UserError("bench.plain_lost", message="it broke"), "Plain decoding failed: it broke"),
    ],
)
def test_a_bench_that_fails_shows_its_results(command, monkeypatch, tmp_path, capsys, fault, said):
    def fail(*_):
        raise fault

    monkeypatch.setattr(commands, "_write_json", fail)
    rows = [{"id": "a", "task": "count", "prompt": "abab"}]
    assert command(rows, "--json", tmp_path / "out.json") == 1
    shown = capsys.readouterr()
    assert "| ngram " in shown.out
    assert said in shown.err


def test_the_command_writes_its_files(command, tmp_path, capsys):
    out = tmp_path / "out.json"
    rows = [{"id": "a", "task": "count", "turns": ["abab", "ab"]}]
    assert command(rows, "--json", out, "--repeat", 2) == 0
    shown = capsys.readouterr().out
    assert "| ngram " in shown
    document = json.loads(out.read_text())
    assert document["repeat"] == 2
    assert document["suite"] == "suite.jsonl"
