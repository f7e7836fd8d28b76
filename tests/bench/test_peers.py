"""Other programs as lanes: transformers on our weights, servers at an address, and conversations that continue their own answers."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from conftest import PROMPT, reference_greedy
from gguf import GGUFReader
from letters import Letters
from tiny_files import make_tiny_tokenizer
from tiny_gguf import tiny_gguf

from specdemo.attach.servers import Generation, Piece, Round
from specdemo.bench import peers
from specdemo.bench.lanes import LaneLost, LaneResult
from specdemo.bench.peers import load_plain, open_peer
from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings, RunSettings, Sampling
from specdemo.files.sources import resolve
from specdemo.models.decoders.blocks import BlockLinear, load_blocks
from specdemo.models.memory import LOADING_FACTOR, Weights, way
from specdemo.models.pair import model_files
from specdemo.trace.events import Knowledge, ModelInfo
from specdemo.trace.metrics import measure

URL = "http://127.0.0.1:8080"


@pytest.fixture(scope="module")
def folders(tmp_path_factory, target_weights, draft_weights):
    places = {}
    for name, weights in (("target", target_weights), ("draft", draft_weights)):
        places[name] = tmp_path_factory.mktemp(name)
        weights.save_pretrained(places[name])
    return places


def stub_studio(precision="fp32", draft_info=None, stop_ids=frozenset, **settings):
    info = ModelInfo("tiny", precision=precision)
    target = SimpleNamespace(info=info, known="tiny", device=torch.device("cpu"))
    why = "No draft is known for this target."
    pair = SimpleNamespace(
        context=512, draft_info=draft_info, no_draft_why=why, target=target, tokenizer=Letters(),
        stop_ids=stop_ids,
    )  # fmt: skip
    runner = SimpleNamespace(call=lambda work: work())
    return SimpleNamespace(pair=pair, settings=AppSettings(**settings), runner=runner)


@pytest.fixture
def lane(folders, monkeypatch, tmp_path):
    """A function that opens a lane of transformers on tiny weights: its way, settings of sampling, stop tokens."""
    for name, folder in folders.items():
        monkeypatch.setattr(peers, f"{name}_folder", lambda *_, folder=folder: folder)

    def lane(way="", stop_ids=frozenset, **sampling):
        settings = RunSettings(max_new_tokens=20, sampling=Sampling(**sampling))
        studio = stub_studio(stop_ids=stop_ids)
        return open_peer(studio, f"transformers{way}", settings, "sys", tmp_path)

    return lane


@pytest.mark.parametrize("way", ["", ":assisted", ":lookup"])
def test_transformers_lane_equals_generate_and_counts_passes(way, lane, target_weights):
    opened = lane(way)
    expected = reference_greedy(target_weights, PROMPT, 20)
    for _ in range(2):  # counts restart
        said = opened.generate(PROMPT, 20)
        measured = said.metrics
        assert (said.name, list(said.ids)) == (f"transformers{way}", expected)
        assert measured.tokens_per_second > 0
        if way:
            assert 0 < measured.steps < measured.new_tokens < 20
            assert measured.drafted > 0
        else:  # the pass that reads the prompt gives the first token, before the clock starts
            assert (measured.steps, measured.new_tokens, measured.drafted) == (19, 19, 0)
    assert ("scikit-learn" in opened.facts) == (way == ":assisted")


def test_transformers_lane_stops_where_our_engine_stops(lane, target_weights):
    expected = reference_greedy(target_weights, PROMPT, 20)
    stop = expected[4]
    said = lane(stop_ids=lambda: frozenset([stop])).generate(PROMPT, 20)
    assert list(said.ids) == expected[: expected.index(stop) + 1]
    drawn = [lane(temperature=1.0, seed=seed).generate(PROMPT, 8).ids for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]


def test_transformers_lane_continues_its_own_answers(lane, monkeypatch):
    opened, read = lane(), []

    def generate(prompt_ids, most):
        if len(read) == 3:
            raise RuntimeError("no memory\nmore")
        read.append((prompt_ids, most))
        return LaneResult("transformers", measure(()), (3, 4))

    monkeypatch.setattr(opened, "generate", generate)
    with opened.talk() as say:
        say("abc"), say("de")
    with opened.talk() as say:  # a fresh conversation
        say("abc")
        with pytest.raises(LaneLost, match=r"^RuntimeError: no memory$"):
            say("de")
    first, second, fresh = read
    assert first == fresh == (Letters()("sys\n\nabc")["input_ids"], 20)
    assert second == (Letters()("\n\n".join(("sys", "abc", "de", "de")))["input_ids"], 20)


def test_a_missing_draft_is_explained_in_a_sentence(tmp_path):
    with pytest.raises(UserError, match="No draft is known"):
        open_peer(stub_studio(), "transformers:assisted", RunSettings(), "", tmp_path)


class AnsweringServer:
    """A server that answers in two rounds, and refuses a long conversation."""

    about = Generation("llama-server", "b1", Knowledge.EXACT, model="tiny.gguf")

    def __init__(self):
        self.asked = []

    def stream(self, request, _cancel):
        if len(request.messages) > 4:
            raise UserError("attach.died", url=URL)
        self.asked.append(request)
        rounds = (Round((Piece("b", 7), Piece("c", 8)), 2, 1), Round((Piece("d", 9),), 1, 0))
        yield replace(
            self.about,
            first=(Piece("a", 6),),
            rounds=rounds,
            drafted=3,
            accepted=1,
            decode_seconds=0.5,
        )


def test_server_lane_counts_tokens_after_the_first_and_sends_whole_conversations(monkeypatch):
    server = AnsweringServer()
    monkeypatch.setattr(peers, "attach", lambda *_: server)
    settings = RunSettings(max_new_tokens=9, sampling=Sampling(temperature=0.5))
    opened = open_peer(None, URL, settings, "sys", None)
    assert opened.facts == {"server": "llama-server b1", "model": "tiny.gguf"}
    with opened.talk() as say:
        said = say("one")
        say("two")
        with pytest.raises(LaneLost, match=r"127\.0\.0\.1"):
            say("three")
    measured = said.metrics
    assert (said.name, said.ids) == (URL, (6, 7, 8, 9))
    assert (measured.steps, measured.new_tokens) == (2, 3)
    assert (measured.drafted, measured.accepted) == (3, 1)
    assert measured.tokens_per_second == 6
    first, second = server.asked
    assert (first.max_new_tokens, first.sampling) == (9, settings.sampling)
    said = ["sys", "one", "abcd", "two"]
    assert [one["content"] for one in second.messages] == said
    assert [one["content"] for one in first.messages] == said[:2]


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


def test_transformers_lane_multiplies_the_weights_of_a_file_in_bf16(of_file, tmp_path, monkeypatch):
    loaded, load = [], load_plain
    monkeypatch.setattr(peers, "load_plain", lambda *what: loaded.append(load(*what)) or loaded[-1])
    studio, files = of_file
    open_peer(studio, "transformers:assisted", RunSettings(), "", tmp_path)
    for model, file in zip(loaded, files, strict=True):
        own = resolve(file, tmp_path / "cache", pack_as=torch.bfloat16, forms=["file"])
        parts = dict(load_blocks(own).named_modules())
        layers = {name: one.part for name, one in parts.items() if isinstance(one, BlockLinear)}
        assert len(layers) == 7
        for name, part in layers.items():
            wanted = part.values(0, part.outputs).bfloat16()
            assert torch.equal(model.get_submodule(name).weight, wanted)


def test_weights_count_the_bytes_of_a_files_own_blocks(of_file):
    studio, (path, _) = of_file
    stored = [one for one in GGUFReader(path).tensors if one.name != "token_embd.weight"]
    rates = {"F32": 2.0, "Q8_0": 1 + 2 / 32, "Q4_K": 0.5 + 2 / 32 + 2 * 2 / 256}  # bytes a weight
    wanted = sum(int(one.n_elements) * rates[one.tensor_type.name] for one in stored)
    names = 4 * len(stored)  # of kinds, a few bytes for a matrix
    files = model_files(str(path), replace(studio.settings, precision="file"))
    weights, used = Weights.of_folder(files.folder, ""), way(studio.settings, "file")
    assert -1 <= weights.pass_bytes(used) - wanted <= names
    assert weights.loaded_bytes(used) == pytest.approx(LOADING_FACTOR * wanted, rel=0.001)
