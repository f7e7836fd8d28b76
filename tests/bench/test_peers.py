"""Peers: the protocol, its failures, counting, and conversations that continue a peer's own answers."""

import sys
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from conftest import PROMPT, reference_greedy
from gguf import GGUFReader
from letters import Letters
from stand_in_peers import dies, echo, sulks
from tiny_files import make_tiny_tokenizer
from tiny_gguf import tiny_gguf

from specdemo.bench import peers, run
from specdemo.bench.lanes import FLOOR, LaneLost
from specdemo.bench.peer import (
    LlamaServerSpeaker,
    PeerSpec,
    TransformersSpeaker,
    answer,
    load_plain,
)
from specdemo.bench.peers import PeerLane, PeerProcess, gguf_file, open_peer
from specdemo.bench.run import BenchOptions
from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings, Sampling
from specdemo.files.sources import resolve
from specdemo.models.decoders.blocks import BlockLinear, load_blocks
from specdemo.models.memory import LOADING_FACTOR, Weights, way
from specdemo.models.pair import model_files
from specdemo.trace.events import ModelInfo


@pytest.fixture
def start():
    """Start child processes from a function, and end them."""
    started = []

    def start(work) -> PeerProcess:
        started.append(PeerProcess(PeerSpec("fake"), work))
        return started[-1]

    yield start
    for process in started:
        process.close()


def test_a_peer_continues_its_own_answers_and_is_timed_by_itself(start):
    process = start(echo)
    assert process.facts == {"spec": "fake"}
    lane = PeerLane("fake", process, Letters(), 512, RunSettings(), system="sys")
    with lane.talk() as say:
        first, second = say("abc"), say("de")
    own = Letters().decode(first.ids)
    text = "\n\n".join(("sys", "abc", own, "de"))
    assert second.ids[0] == len(Letters()(text)["input_ids"]) % 26
    assert (first.metrics.new_tokens, first.metrics.steps, first.metrics.drafted) == (2, 1, 2)
    assert first.metrics.accepted == 1
    assert first.metrics.tokens_per_second == 4
    with lane.talk() as say:
        assert say("abc").ids == first.ids  # a fresh conversation


def test_a_peer_that_dies_is_reported_with_its_last_lines():
    with pytest.raises(LaneLost, match="ended with status 1: no such instruction"):
        PeerProcess(PeerSpec("fake"), dies)


def test_a_busy_peer_is_ended_by_force(start, monkeypatch):
    monkeypatch.setattr(peers, "KILL_SECONDS", 0.05)
    process, begun = start(sulks), time.perf_counter()
    process.close()
    assert time.perf_counter() - begun < 5
    assert process._child.exitcode is not None


def test_the_real_child_says_why_it_cannot_start():
    with pytest.raises(LaneLost, match="Error"):
        PeerProcess(PeerSpec("llama-server", gguf="no such file.gguf"))


def test_llama_cpp_is_started_again_without_its_weight_layouts(monkeypatch):
    specs = []

    def process(spec):
        specs.append(spec)
        if spec.repack:
            raise LaneLost("its process ended with status -11")
        return spec

    monkeypatch.setattr(peers, "PeerProcess", process)
    assert peers._start(PeerSpec("llama-server", gguf="a.gguf")) == specs[1]
    with pytest.raises(LaneLost):
        peers._start(PeerSpec("transformers", folder="a"))
    assert [spec.repack for spec in specs] == [True, False, True]


@pytest.fixture(scope="module")
def folders(tmp_path_factory, target_weights, draft_weights):
    places = {}
    for name, weights in (("target", target_weights), ("draft", draft_weights)):
        places[name] = str(tmp_path_factory.mktemp(name))
        weights.save_pretrained(places[name])
    return places


def peer(folders, name, **more):
    threads = torch.get_num_threads()
    return PeerSpec(
        name,
        folder=folders["target"],
        draft=folders["draft"],
        precision="fp32",
        threads=threads,
        **more,
    )


@pytest.mark.parametrize("way", ["", ":assisted", ":lookup"])
def test_transformers_peer_equals_generate_and_counts_passes(way, folders, target_weights):
    speaker = TransformersSpeaker(peer(folders, f"transformers{way}"))
    expected = reference_greedy(target_weights, PROMPT, 20)
    for _ in range(2):  # counts restart
        spoken = speaker.speak(PROMPT, 20, Sampling())
        assert list(spoken.ids) == expected
        assert spoken.seconds > 0
        if way:
            assert 0 < spoken.passes < spoken.tokens < 20
            assert spoken.rows > spoken.passes
        else:  # the pass that reads the prompt gives the first token, before the clock starts
            assert spoken.tokens == spoken.passes == spoken.rows == 19


def test_transformers_stops_where_our_engine_stops(folders, target_weights):
    expected = reference_greedy(target_weights, PROMPT, 20)
    stop = expected[4]
    spec = peer(folders, "transformers", stop_ids=(stop,))
    spoken = TransformersSpeaker(spec).speak(PROMPT, 20, Sampling())
    assert list(spoken.ids) == expected[: expected.index(stop) + 1]
    drawn = [
        TransformersSpeaker(spec).speak(PROMPT, 8, Sampling(temperature=1.0, seed=seed)).ids
        for seed in (1, 1, 2)
    ]
    assert drawn[0] == drawn[1] != drawn[2]


def stub_studio(precision="fp32", draft_info=None, **settings):
    info = ModelInfo("tiny", precision=precision)
    target = SimpleNamespace(info=info, known="tiny", device=torch.device("cpu"))
    why = "No draft is known for this target."
    pair = SimpleNamespace(
        context=512, draft_info=draft_info, no_draft_why=why, target=target, tokenizer=Letters(),
        stop_ids=frozenset,
    )  # fmt: skip
    runner = SimpleNamespace(call=lambda work: work())
    return SimpleNamespace(pair=pair, settings=AppSettings(**settings), runner=runner)


def test_a_missing_requirement_of_a_peer_is_explained_in_a_sentence(tmp_path, folders, monkeypatch):
    monkeypatch.setattr(peers, "target_folder", lambda *_: tmp_path)
    studio = stub_studio(target=folders["target"])
    with pytest.raises(UserError, match="No draft is known"):
        open_peer(studio, "transformers:assisted", RunSettings(), "", tmp_path)
    monkeypatch.setattr(peers, "find_spec", lambda _: None)
    with pytest.raises(UserError, match="xllamacpp is not installed"):
        open_peer(studio, "llama-server", RunSettings(), "", tmp_path)
    with pytest.raises(UserError, match="was not made from one"):
        gguf_file(studio.settings, tmp_path)
    assert gguf_file(AppSettings(target="a/b.GGUF"), tmp_path).name == "b.GGUF"


@pytest.fixture
def of_file(tmp_path):
    """A studio whose target and draft run in the blocks of their files, and those files."""
    words = make_tiny_tokenizer(size=288)
    files = [
        tiny_gguf(tmp_path / f"{kind}.gguf", kind, words, quantised=["Q8_0", "Q4_K"])
        for kind in ("llama", "qwen2")
    ]
    target, draft = map(str, files)
    settings = {"target": target, "draft": draft, "cache_dir": tmp_path / "cache", "device": "cpu"}
    return stub_studio("file", ModelInfo("draft", precision="file"), **settings), files


def test_transformers_peers_multiply_the_weights_of_a_file_in_bf16(of_file, tmp_path, monkeypatch):
    monkeypatch.setattr(peers, "_start", lambda spec: spec)
    studio, files = of_file
    spec = open_peer(studio, "transformers:assisted", RunSettings(), "", tmp_path).process
    assert spec.precision == "bf16"
    for folder, file in zip((spec.folder, spec.draft), files, strict=True):
        model = load_plain(folder, spec)
        own = resolve(file, tmp_path / "cache", pack_as=torch.bfloat16, forms=["file"])
        parts = dict(load_blocks(own).named_modules())
        layers = {name: one.part for name, one in parts.items() if isinstance(one, BlockLinear)}
        assert len(layers) == 7
        for name, part in layers.items():
            wanted = part.values(0, part.outputs).bfloat16()
            assert torch.equal(model.get_submodule(name).weight, wanted)


def test_the_floor_counts_the_bytes_of_a_files_own_blocks(of_file, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "BUFFER_BYTES", 1 << 12)
    studio, (path, _) = of_file
    stored = [one for one in GGUFReader(path).tensors if one.name != "token_embd.weight"]
    rates = {"F32": 2.0, "Q8_0": 1 + 2 / 32, "Q4_K": 0.5 + 2 / 32 + 2 * 2 / 256}  # bytes a weight
    wanted = sum(int(one.n_elements) * rates[one.tensor_type.name] for one in stored)
    lane = run._open(studio, FLOOR, RunSettings(), BenchOptions(FLOOR), tmp_path)
    names = 4 * len(stored)  # of kinds, a few bytes for a matrix
    assert -1 <= lane.num_bytes - wanted <= names
    files = model_files(str(path), replace(studio.settings, precision="file"))
    needed = Weights.of_folder(files.folder, "").loaded_bytes(way(studio.settings, "file"))
    assert needed == pytest.approx(LOADING_FACTOR * wanted, rel=0.001)


class FakeServer:
    """xllamacpp's surface: drafts two tokens a pass and accepts one."""

    def __init__(self, options):
        self.options = options

    def handle_completions(self, request):
        if request["n_predict"] == 0:
            return {"error": {"message": "nothing to do"}}
        first = request["prompt"][-1] + 1
        ids = list(range(first, first + request["n_predict"]))
        drafts = {"draft_n": 4, "draft_n_accepted": 2} if self.options.speculative.types else {}
        timings = {"predicted_n": len(ids), "predicted_ms": 500.0, **drafts}
        sent = ids if request.get("return_tokens") else []
        return {"__verbose": {"tokens": sent}, "timings": timings}


def some(**values):
    return SimpleNamespace(cpuparams=SimpleNamespace(), cpuparams_batch=SimpleNamespace(), **values)


@pytest.fixture
def llama_server(monkeypatch):
    """Options of the server that is started."""
    draft = some(mparams=SimpleNamespace())
    options = some(model=SimpleNamespace(), speculative=SimpleNamespace(types=[], draft=draft))
    kinds = SimpleNamespace(
        COMMON_SPECULATIVE_TYPE_DRAFT_SIMPLE="simple", COMMON_SPECULATIVE_TYPE_NGRAM_SIMPLE="ngram"
    )
    module = SimpleNamespace(
        Server=FakeServer, CommonParams=lambda: options, common_speculative_type=kinds
    )
    monkeypatch.setitem(sys.modules, "xllamacpp", module)
    return options


@pytest.mark.parametrize(
    ("way", "kinds", "passes", "rows"),
    [("", [], 4, 4), (":draft", ["simple"], 2, 6), (":lookup", ["ngram"], 2, 6)],
)
def test_llama_server_peer_counts_drafts(llama_server, way, kinds, passes, rows):
    spec = PeerSpec(f"llama-server{way}", gguf="a", draft="b" * (way == ":draft"), threads=3)
    speaker = LlamaServerSpeaker(spec)
    spoken = speaker.speak([4, 5], 5, Sampling())
    assert spoken.ids == (6, 7, 8, 9, 10)
    assert (spoken.tokens, spoken.seconds, spoken.passes, spoken.rows) == (4, 0.5, passes, rows)
    assert llama_server.cpuparams.n_threads == llama_server.cpuparams_batch.n_threads == 3
    assert llama_server.speculative.types == kinds
    if way == ":draft":
        draft = llama_server.speculative.draft
        assert (draft.mparams.path, draft.cpuparams.n_threads) == ("b", 3)


@pytest.mark.usefixtures("llama_server")
def test_a_broken_request_is_answered_with_a_sentence():
    requests, answers = iter([([1, 2], 0, Sampling()), ([1, 2], 2, Sampling())]), []

    def receive():
        if request := next(requests, None):
            return request
        raise EOFError

    spec = PeerSpec("llama-server", gguf="a.gguf")
    answer(spec, SimpleNamespace(recv=receive, send=answers.append))
    facts, broken, spoken = answers
    assert facts["weights"] == "laid out for the processor"
    assert "nothing to do" in broken
    assert spoken.ids == (3, 4)
