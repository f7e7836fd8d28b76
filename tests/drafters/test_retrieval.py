"""The datastore against brute force, the files that it refuses, how it is built, and the drafter that reads it."""

import json
import random
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import VOCABULARY, reference_greedy, run_lane
from letters import Letters

from specdemo.config.errors import UserError
from specdemo.drafters.copies import Retrieval, most_frequent
from specdemo.drafters.memory.datastore import CARD, SUFFIXES, TOKENS, Datastore, fingerprint
from specdemo.drafters.policies.lookahead import Confidence, Constant
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.session.text import read_prompts
from specdemo.trace.codec import encode
from specdemo.trace.events import ModelInfo, Reason
from specdemo.trace.metrics import output_ids
from specdemo.training.datastore import (
    DRAWN_ANSWERS,
    build,
    build_datastore,
    build_from_prompts,
    check_sources,
    suffix_array,
)

SHIPPED = Path(__file__).resolve().parents[2] / "assets/datastore/smollm2-135m-instruct"


def store_of(folder, texts, size=VOCABULARY):
    out = build_datastore(texts, folder / "store", {"vocabulary_size": size, "tokenizer": "abc"})
    return Datastore.open(out)


def by_brute_force(texts, ids, longest, shortest):
    """Length of the longest suffix of `ids` in any text, and the continuations at each position, in order."""
    for length in range(min(longest, len(ids)), shortest - 1, -1):
        wanted = list(ids[-length:])
        found = [
            text[end:]
            for text in texts
            for end in range(length, len(text) + 1)
            if text[end - length : end] == wanted
        ]
        if found:
            return length, sorted(found)
    return 0, []


@pytest.mark.parametrize("size", [4, 70_000])  # uint16 and int32
def test_lookup_finds_what_brute_force_finds(tmp_path, size):
    draw = random.Random(size)
    low = size - 4
    texts = [[low + draw.randrange(4) for _ in range(draw.randrange(1, 60))] for _ in range(25)]
    store = store_of(tmp_path, texts, size)
    assert store.tokens.dtype == (np.uint16 if size == 4 else np.int32)
    for _ in range(200):
        ids = [low + draw.randrange(4) for _ in range(draw.randrange(12))]
        shortest = draw.choice([3, 4, 5])  # a store of runs answers some of them
        length, positions = store.lookup(ids, longest=9, shortest=shortest, most=10_000)
        expected = by_brute_force(texts, ids, 9, shortest)
        assert (length, sorted(store.following(positions, 60))) == expected
    assert store.lookup([low, 3 * size, low]) == (0, [])  # a stranger matches nothing
    assert store.lookup([65_535] * 3) == (0, [])  # neither does a separator


def test_a_selection_of_the_matches_keeps_the_shares(tmp_path):
    store = store_of(tmp_path, [[1, 2, 3]] * 300 + [[1, 2, 4]] * 100)
    _, positions = store.lookup([1, 2], most=40)
    followers = [row[0] for row in store.following(positions, 1)]
    assert (followers.count(3), followers.count(4)) == (30, 10)


def test_suffixes_are_ordered_by_their_tokens():
    draw = np.random.default_rng(0)
    for alphabet, count in ((1, 50), (2, 200), (9, 200), (1, 1)):
        tokens = draw.integers(alphabet, size=count)
        suffixes = suffix_array(tokens).tolist()
        assert suffixes == sorted(range(count), key=lambda place: tokens[place:].tolist())


def test_a_store_survives_the_disk_mapped_and_without_leftovers(tmp_path):
    texts = [[1, 2, 3, 4], [], [5, 6]]
    for _ in range(2):  # the second replaces the first
        store = store_of(tmp_path, texts)
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    assert store.tokens.tolist() == [1, 2, 3, 4, 65_535, 5, 6, 65_535]
    assert len(store) == 8
    assert isinstance(store.tokens.base, np.memmap)
    assert not store.tokens.flags.writeable
    assert (store.card["texts"], store.card["tokens"]) == (2, 8)


def test_only_a_datastore_is_overwritten(tmp_path):
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "thesis.txt").write_text("mine", encoding="utf-8")
    with pytest.raises(UserError, match="is no datastore"):
        store_of(tmp_path, [[1, 2]])
    assert (tmp_path / "store" / "thesis.txt").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    ("texts", "match"),
    [([[]], "no text"), ([[1, VOCABULARY]], "does not have"), ([[-1]], "not have")],
)
def test_texts_that_cannot_be_stored_are_refused(tmp_path, texts, match):
    with pytest.raises(UserError, match=match):
        store_of(tmp_path, texts)


def test_sources_are_checked_before_a_model_is_needed(tmp_path):
    """A saved run in place of prompts and a folder that cannot be written to are refused too."""
    (tmp_path / "prompts.txt").write_text("one\n\ntwo\n")
    (tmp_path / "prompts.jsonl").write_text('{"prompt": "one"}\n{"turns": ["two", "three"]}\n')
    (tmp_path / "trace.jsonl").write_text('{"type": "run_started"}\n{"type": "drafted"}\n')
    (tmp_path / "windows.txt").write_text("one\r\ntwo\r\n", encoding="utf-8-sig")
    for name in ("prompts.txt", "prompts.jsonl", "windows.txt"):
        assert [item.turns[0] for item in read_prompts(tmp_path / name)] == ["one", "two"]
    check_sources(
        [tmp_path / "prompts.txt"], tmp_path / "prompts.jsonl", tmp_path / "new" / "store"
    )
    for match, files, prompts, out in (
        ("cannot be read: line 1 has no prompt", [], "trace.jsonl", "store"),
        ("cannot be read", ["missing.txt"], None, "store"),
        ("prompts.txt cannot be written to", ["prompts.txt"], None, "prompts.txt/store"),
        ("is no datastore", ["prompts.txt"], None, ""),
    ):
        named = prompts and tmp_path / prompts
        with pytest.raises(UserError, match=match):
            check_sources([tmp_path / one for one in files], named, tmp_path / out)


def damage_card(folder, **changes):
    card = json.loads((folder / CARD).read_text(encoding="utf-8"))
    (folder / CARD).write_text(json.dumps({**card, **changes}), encoding="utf-8")


DAMAGE = {
    "no folder": lambda folder: folder.rename(folder.with_name("elsewhere")),
    "card is no JSON": lambda folder: (folder / CARD).write_text("{", encoding="utf-8"),
    "card is a list": lambda folder: (folder / CARD).write_text("[]", encoding="utf-8"),
    "another format": lambda folder: damage_card(folder, format=99),
    "another size": lambda folder: damage_card(folder, tokens=3),
    "no vocabulary": lambda folder: damage_card(folder, vocabulary_size=None),
    "no end": lambda folder: damage_card(folder, vocabulary_size=1 << 20),
    "no tokens": lambda folder: (folder / TOKENS).unlink(),
    "cut short": lambda folder: (folder / TOKENS).write_bytes((folder / TOKENS).read_bytes()[:-3]),
    "pickle": lambda folder: np.save(folder / TOKENS, np.array([{}, 1], object)),
    "floats": lambda folder: np.save(folder / SUFFIXES, np.zeros(5)),
    "too few": lambda folder: np.save(folder / SUFFIXES, np.zeros(2, np.int32)),
    "a table": lambda folder: np.save(folder / TOKENS, np.zeros((5, 1), np.uint16)),
    "out of range": lambda folder: np.save(folder / SUFFIXES, np.full(5, 9, np.int32)),
    "negative": lambda folder: np.save(folder / SUFFIXES, np.full(5, -1, np.int32)),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_a_damaged_store_is_a_sentence(tmp_path, damage):
    store_of(tmp_path, [[1, 2, 3, 4]])
    damage(tmp_path / "store")
    with pytest.raises(UserError, match=r"damaged|no datastore"):
        Datastore.open(tmp_path / "store")


def test_a_store_of_another_tokenizer_is_refused(tmp_path):
    store_of(tmp_path, [[1, 2]])
    assert Datastore.open(tmp_path / "store", "abc")
    with pytest.raises(UserError, match="another tokenizer"):
        Datastore.open(tmp_path / "store", "xyz")
    assert fingerprint({"a": 0, "b": 1}) == fingerprint({"b": 1, "a": 0})
    assert fingerprint({"a": 0, "b": 1}) != fingerprint({"a": 1, "b": 0})


def test_the_most_frequent_continuation_is_followed():
    rows = [[1, 2, 3], [1, 4], [5, 2]]
    assert list(most_frequent(rows)) == [(1, 2 / 4), (2, 1 / 3), (3, 1 / 2)]
    assert list(most_frequent([[], [7], []])) == [(7, 1 / 4)]
    assert list(most_frequent([])) == []


def test_retrieval_drafts_the_most_frequent_and_keeps_to_policy_and_budget(tmp_path):
    store = store_of(tmp_path, [[1, 2, 3, 9, 9], [1, 2, 3, 9, 8], [1, 2, 4], [9, 9]])
    retrieval = Retrieval(store, Constant(5))
    retrieval.start([1, 2])
    proposal = retrieval.propose([7, 1, 2], 8)
    assert proposal.token_ids[:2] == (3, 9)
    assert proposal.confidences == (2 / 4, 2 / 3, 1 / 3)
    assert proposal.parents == (-1, 0, 1)
    assert proposal.draft_probs is None
    assert (proposal.source, proposal.lookahead) == ("retrieval", 5)
    assert proposal.reasons[0] == Reason("retrieval", {"matched": 2, "places": 3})
    match = retrieval.search([7, 1, 2], 32)
    matched = match.reason.values["matched"]
    assert (matched, [token for token, _ in match.copies]) == (2, list(proposal.token_ids))
    assert retrieval.propose([7, 1, 2], 1).token_ids == (3,)
    assert len(retrieval.propose([7, 1, 2], 0)) == 0
    assert Retrieval(store, Confidence(0.6)).propose([1, 2], 8).token_ids == (3,)
    assert len(retrieval.propose([7, 2], 8)) == 0  # one token is too short
    assert retrieval.search([7, 2], 32) is None
    assert len(Retrieval(store, Constant(4), shortest=3).propose([1, 2], 8)) == 0


def test_a_store_from_text_files_and_saved_runs(tmp_path, target_weights):
    (tmp_path / "notes.txt").write_text("abc\n\nabd", encoding="utf-8")
    prompt = [3, 9, 27]
    events = run_lane(target_weights, Retrieval(store_of(tmp_path, [[1]]), Constant(2)), prompt)
    run = tmp_path / "run.jsonl"
    run.write_text("".join(encode(event) + "\n" for event in events), encoding="utf-8")
    reports = []
    files = [tmp_path / "notes.txt", run]
    store = Datastore.open(build(files, Letters(), "tiny", tmp_path / "out", reports.append))
    assert store.tokens[:6].tolist() == [0, 1, 2, 0, 1, 3]
    assert store.tokens[7:-1].tolist() == output_ids(events)
    assert store.card["sources"] == ["notes.txt", "run.jsonl"]
    assert store.card["tokenizer"] == fingerprint(Letters().get_vocab())
    assert [report.stage for report in reports] == ["read", "sort"]

    with pytest.raises(UserError, match="not one of other but of tiny"):
        build([run], Letters(), "other", tmp_path / "out")
    started = replace(events[0], lane="plain", target=replace(events[0].target, name="two"))
    run.write_text(f"{encode(events[0])}\n{encode(started)}\n", encoding="utf-8")
    with pytest.raises(UserError, match="of tiny, two"):
        build([run], Letters(), "tiny", tmp_path / "out")
    (tmp_path / "notes.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="UTF-8"):
        build(files[:1], Letters(), "tiny", tmp_path / "out")
    with pytest.raises(UserError, match="cannot be read"):
        build([tmp_path / "missing.txt"], Letters(), "tiny", tmp_path / "out")
    assert len(Datastore.open(tmp_path / "out")) == len(store)  # the failure changed nothing


def texts_of(store):
    texts, start = [], 0
    for end in np.flatnonzero(store.tokens == 65_535).tolist():
        texts.append(store.tokens[start:end].tolist())
        start = end + 1
    return texts


def test_a_store_of_a_targets_own_answers(tmp_path, target_weights, monkeypatch):
    monkeypatch.setattr("specdemo.training.datastore.MOST_NEW_TOKENS", 12)
    prompts = ["abcabd", "dddddddddddddddddddddd"]
    (tmp_path / "prompts.txt").write_text("\n".join(prompts) + "\n", encoding="utf-8")

    target = SimpleNamespace(decoder=LeanDecoder(target_weights), info=ModelInfo("tiny"))
    pair = SimpleNamespace(target=target, tokenizer=Letters(), stop_ids=frozenset)

    def built(name):
        out = build_from_prompts(
            tmp_path / "prompts.txt",
            pair,
            tmp_path / name,
            examples=prompts[:1],
            licence="Apache-2.0",
        )
        return Datastore.open(out)

    store = built("store")
    greedy, drawn = texts_of(store)[:2], texts_of(store)[2:]
    for prompt, text in zip(prompts, greedy, strict=True):
        ids = Letters()(prompt)["input_ids"]
        assert text == ids[-16:] + reference_greedy(target_weights, ids, 12)
    assert len(drawn) == DRAWN_ANSWERS
    assert all(text[:6] == greedy[0][:6] for text in drawn)  # its prompt
    assert any(text != greedy[0] for text in drawn)
    assert texts_of(built("again")) == greedy + drawn
    assert (store.card["licence"], store.card["model"]) == ("Apache-2.0", "tiny")


def test_the_shipped_store_is_whole_small_and_knows_the_examples():
    store = Datastore.open(SHIPPED)
    assert sum(path.stat().st_size for path in SHIPPED.iterdir()) < 2_000_000
    assert store.card["model"] == "smollm2-135m-instruct"
    assert store.card["licence"] == "Apache-2.0"
    prompts = (SHIPPED.parent / "prompts.txt").read_text(encoding="utf-8").splitlines()
    rows = json.loads((SHIPPED.parents[1] / "examples.json").read_text(encoding="utf-8"))
    examples = {row["prompt"] for row in rows["examples"]}
    assert examples <= set(prompts)
    assert len(prompts) == len(set(prompts))
    assert store.card["texts"] == len(prompts) + DRAWN_ANSWERS * len(examples)
    suffixes = np.sort(store.suffixes)
    assert np.array_equal(suffixes, np.arange(len(store)))
    assert (store.tokens[store.suffixes][1:] >= store.tokens[store.suffixes][:-1]).all()
