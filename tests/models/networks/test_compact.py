"""A compact draft computes the logits of transformers' Llama, exports as one, and adds its conversation's tokens."""

import sys
from pathlib import Path

import psutil
import pytest
import torch
from conftest import reference_logits
from transformers import LlamaForCausalLM

from specdemo.config.errors import UserError
from specdemo.engine.sampling import ReducedVocabulary
from specdemo.models.networks.chain import CompactDecoder, CompactModel, CompactWeights
from specdemo.models.networks.folders import TargetTensors, export, load_compact, read_tensor
from specdemo.models.networks.parts import MOST_ADDED, MixedEmbedding, TextWords
from specdemo.training.package import Card, package

NOISE = 0.02  # bf16 has 8 bits; logits of the tiny model are of the order of one
TEXT = [5, 9, 200, 33, 7, 7, 120, 64, 2, 18, 99]


@pytest.fixture(scope="module")
def draft(tiny_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A packaged draft (the tiny target's own two layers, half its words), and its export."""
    folder = tmp_path_factory.mktemp("draft")
    model = LlamaForCausalLM.from_pretrained(tiny_folder)
    state = {k: v for k, v in model.model.state_dict().items() if not k.startswith("embed")}
    card = Card("tiny", "bf16", "draft", (0, 1), 150, ("made up",), 0, 0, 0.0, 0)
    package(state, torch.arange(0, 300, 2)[:150], tiny_folder, folder / "compact", card)
    export(folder / "compact", tiny_folder, folder / "plain")
    return folder / "compact", folder / "plain"


@pytest.fixture(scope="module")
def weights(draft: tuple[Path, Path], tiny_folder: Path) -> CompactWeights:
    """The draft in bf16, ready to run."""
    embedding = read_tensor(tiny_folder)
    return load_compact(draft[0], TargetTensors(embedding, torch.device("cpu"), four_bit=False))


@pytest.fixture(scope="module")
def reference(draft: tuple[Path, Path]) -> LlamaForCausalLM:
    """The export as transformers loads it, computing in fp32."""
    return LlamaForCausalLM.from_pretrained(draft[1], dtype=torch.float32).eval()


def test_chunks_and_rollbacks_read_as_one_text_does(weights, reference):
    model = CompactModel(CompactDecoder(weights))
    model.read(TEXT[:4])
    model.read([250, 251, 252])  # drafted and rejected
    model.rollback(4)
    model.read(TEXT[4:5])
    model.read([11])
    model.rollback(5)
    for end in range(6, len(TEXT) + 1):
        words = model.read(TEXT[end - 1 : end])
        want = reference_logits(reference, TEXT[:end])[model.words.ids]
        assert (words - want).abs().max() < NOISE
        assert want.abs().max() > 10 * NOISE  # else the comparison is empty
    assert (CompactModel(CompactDecoder(weights)).read(TEXT) - want).abs().max() < NOISE
    assert model.length == len(TEXT)
    with pytest.raises(ValueError, match="cached"):
        model.rollback(len(TEXT) + 1)


def test_a_four_bit_drafter_stays_near_the_original(draft, tiny_folder, weights):
    four = load_compact(draft[0], TargetTensors(read_tensor(tiny_folder), torch.device("cpu")))
    both = [CompactModel(CompactDecoder(one)).read(TEXT) for one in (weights, four)]
    assert torch.corrcoef(torch.stack(both))[0, 1] > 0.9


def test_damaged_weights_are_refused(draft, tiny_folder, tmp_path):
    (tmp_path / "config.json").write_text((draft[0] / "config.json").read_text())
    part = next(draft[0].glob("*.safetensors")).read_bytes()
    (tmp_path / "part-01.safetensors").write_bytes(part[: len(part) // 2])
    with pytest.raises(UserError, match="damaged"):
        load_compact(tmp_path, TargetTensors(read_tensor(tiny_folder), torch.device("cpu")))


def test_a_grown_tree_has_the_logits_of_each_path_alone(weights):
    model = CompactModel(CompactDecoder(weights))
    model.read(TEXT)
    tokens, parents = [7, 8, 9, 10, 11], [-1, -1, 0, 2, 1]
    rows = torch.cat([model.grow(tokens[:2], parents[:2]), model.grow(tokens[2:], parents[2:])])
    paths = [[7], [8], [7, 9], [7, 9, 10], [8, 11]]
    for row, path in zip(rows, paths, strict=True):
        alone = CompactModel(CompactDecoder(weights)).read([*TEXT, *path])
        # its vocabulary contains its path, too
        assert (row - alone[: len(row)]).abs().max() < NOISE
    assert model.length == len(TEXT)
    after = model.read([5]) - CompactModel(CompactDecoder(weights)).read([*TEXT, 5])
    assert after.abs().max() < NOISE  # grown nodes left no mark


SIZE, WIDTH = 4096, 64
SAID = list(range(0, SIZE, 4))  # in the reduced vocabulary
EMBEDDING = torch.randn(SIZE, WIDTH, generator=torch.Generator().manual_seed(3)).bfloat16()


def text_words() -> TextWords:
    return TextWords(ReducedVocabulary(torch.tensor(SAID), SIZE), EMBEDDING)


def same(one: TextWords, other: TextWords) -> bool:
    states = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(1)).bfloat16()
    assert one.words.column_of == other.words.column_of
    assert one.words.tokens.tolist() == one.words.ids.tolist()
    assert one.marked[: one.num_marked] == other.marked[: other.num_marked]
    return torch.equal(one.logits(states), other.logits(states))


def test_words_of_the_text_join_the_vocabulary():
    found = text_words()
    found.read(0, [8, 5, 8, 7, 5, 12, 1])
    assert found.words.tokens.tolist() == [*SAID, 5, 7, 1]
    assert found.words.token(found.words.column_of[7]) == 7
    states = torch.randn(2, WIDTH).bfloat16()
    assert torch.equal(found.logits(states), states @ EMBEDDING[[5, 7, 1]].T)


def test_words_depend_on_the_text_and_not_on_how_it_was_read():
    text = [(37 * i) % SIZE for i in range(200)]
    whole, pieces = text_words(), text_words()
    whole.read(0, text)
    pieces.read(0, text[:50])
    pieces.read(50, [4001, 4002, 4003])  # and taken back
    pieces.forget(51)
    pieces.forget(50)
    for place in range(50, 200):
        pieces.read(place, text[place : place + 1])
    assert same(whole, pieces)
    columns = whole.words.columns(dict.fromkeys(text))
    assert whole.marked[: whole.num_marked].tolist() == columns
    assert whole.added.tolist() == pieces.added.tolist() == whole.words.tokens[len(SAID) :].tolist()
    pieces.forget(0)
    assert pieces.words.tokens.tolist() == SAID
    assert pieces.added is None


def test_the_number_of_words_of_the_text_is_limited():
    found = text_words()
    found.read(0, range(SIZE))
    assert len(found.words.tokens) == len(SAID) + MOST_ADDED
    assert same(found, found)


def test_two_conversations_share_no_words():
    words = ReducedVocabulary(torch.tensor(SAID), SIZE)
    one, other = (TextWords(words, EMBEDDING) for _ in range(2))
    one.read(0, [5])
    assert 5 not in other.words.column_of
    assert 5 not in words.column_of


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such memory")
def test_mixed_embeddings_take_memory_for_the_tokens_that_were_read_alone():
    size, own = 64, psutil.Process()
    embedding, seldom = torch.randn(1, size).bfloat16().expand(1_000_000, size), [7, 900_000]
    before = own.memory_info().rss
    mixed = MixedEmbedding(embedding, torch.eye(size), seldom[:1])
    mixed.read(seldom)
    assert own.memory_info().rss - before < mixed.table.nbytes / 4
    assert torch.equal(mixed.table[seldom], embedding[seldom])
    assert not mixed.table[8:900_000].any()
