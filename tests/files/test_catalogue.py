"""The catalogue file is whole; recommended sampling is the file's, else the catalogue's, else greedy."""

import json

import pytest

from specdemo.config.settings import AUTHORS, PROJECT, Sampling
from specdemo.files import catalogue
from specdemo.files.catalogue import (
    GENERATION_CONFIG,
    OWN_TITLE,
    draft_of,
    entries,
    find,
    pairs,
    partner,
    recommended,
)


def test_every_entry_has_one_source_and_a_target_the_weights_of_its_head():
    for entry in entries():
        file = entry.gguf
        sources = [source for source in (file, entry.repo, entry.shipped) if source]
        assert len(sources) == 1 + bool(file and entry.repo), entry.name
        assert not file or (file.size > 0 and (file.repo or file.parts))
    for pair in pairs():
        assert 0 < 2 * pair.target.head_parameters < pair.target.parameters, pair.name


def test_every_draft_is_in_the_catalogue_and_smaller():
    for entry in entries():
        if entry.draft:
            assert find(entry.draft).parameters < entry.parameters
    for pair in pairs():
        if pair.draft:
            assert pair.draft.parameters < pair.target.parameters
            assert pair.draft.name in (pair.target.draft, "")


def test_the_named_pairs_are_offered():
    offered = {(pair.target.name, pair.target.draft) for pair in pairs()}
    assert ("qwen2.5-coder-0.5b-instruct", None) in offered
    assert ("smollm2-135m-instruct", "smollm2-135m-instruct-draft") in offered
    assert ("smollm2-1.7b-instruct", "smollm2-135m-instruct-hub") in offered
    assert ("qwen2.5-coder-1.5b-instruct", "qwen2.5-coder-0.5b-instruct") in offered
    assert ("qwen2.5-7b-instruct", "qwen2.5-0.5b-instruct") in offered
    assert ("qwen3-8b", "qwen3-0.6b") in offered


def test_the_menu_begins_with_the_embedded_model_and_two_that_grow():
    assert [pair.target.title for pair in pairs()][:3] == [
        "SmolLM2 135M Instruct", "Qwen2.5-Coder 0.5B Instruct", "Qwen2.5-Coder 1.5B Instruct",
    ]  # fmt: skip
    alone = next(pair for pair in pairs() if pair.name == "qwen2.5-coder-0.5b-instruct")
    assert (alone.draft, alone.title, alone.licence) == (None, alone.target.title, "Apache-2.0")


@pytest.fixture
def shipped(monkeypatch, tmp_path):
    """Make assets with a trained drafter for the larger Qwen2.5-Coder, whose card is as `train` writes it."""
    folder = tmp_path / "drafts" / "qwen2.5-coder-1.5b-instruct-trained" / "feature"
    folder.mkdir(parents=True)
    about = {"card": {"target": "qwen2.5-coder-1.5b-instruct"}}
    (folder / "config.json").write_text(json.dumps({"specdemo": about}))
    monkeypatch.setattr(catalogue, "ASSETS", tmp_path)
    pairs.cache_clear()
    yield folder
    pairs.cache_clear()


def test_a_drafter_of_its_own_stands_in_for_the_draft_model(shipped):
    name = "qwen2.5-coder-1.5b-instruct"
    pair = next(pair for pair in pairs() if pair.name == name)
    assert (pair.draft.title, pair.draft.folder) == (OWN_TITLE, shipped)
    assert draft_of(name, "auto", "auto") is None
    assert draft_of("Qwen/Qwen2.5-Coder-1.5B-Instruct", "auto", "auto") is None
    partner_of = "qwen2.5-coder-0.5b-instruct"
    assert draft_of(name, "auto", "none") == partner_of  # trained drafters are switched off
    assert draft_of(name, "auto", "/elsewhere") == partner_of
    assert draft_of(partner_of, "auto", str(shipped.parent)) is None  # a folder of the user
    assert draft_of(name, partner_of, "auto") == partner_of  # named
    assert draft_of("qwen3-8b", "none", "auto") is None
    (shipped / "config.json").write_text("damaged")
    assert draft_of(name, "auto", "auto") == partner_of


def test_a_shipped_draft_model_is_loaded_next_to_a_feature_drafter_that_needs_none(shipped):
    folder = shipped.parents[1] / "smollm2-135m-instruct-trained" / "feature"
    shipped.parent.rename(folder.parent)
    assert draft_of("smollm2-135m-instruct", "auto", "auto") == "smollm2-135m-instruct-draft"


def test_an_entry_is_found_by_hub_id_too():
    assert find("HuggingFaceTB/SmolLM2-1.7B-Instruct").name == "smollm2-1.7b-instruct"
    assert partner("Qwen/Qwen3-8B") == "qwen3-0.6b"
    assert find("someone/else") is None
    assert partner("someone/else") is None


QWEN = {
    "bos_token_id": 1,
    "do_sample": True,
    "temperature": 0.7,
    "top_p": 0.8,
    "top_k": 20,
    "repetition_penalty": 1.1,
}


@pytest.mark.parametrize(
    ("said", "sampling"),
    [
        (QWEN, Sampling(0.7, 20, 0.8, 1.1)),
        ({**QWEN, "do_sample": False}, Sampling(repetition_penalty=1.1)),
        ({"do_sample": True}, Sampling(1.0)),
        ({"temperature": 0.6, "top_p": None}, Sampling(0.6)),
        ({"do_sample": False}, Sampling()),
    ],
)
def test_the_file_of_a_model_comes_first(tmp_path, said, sampling):
    (tmp_path / GENERATION_CONFIG).write_text(json.dumps(said))
    found = recommended(tmp_path, "qwen2.5-coder-1.5b-instruct")
    assert (found.sampling, found.origin) == (sampling, AUTHORS)


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "[]",
        '{"eos_token_id": 2}',
        '{"temperature": 7}',
        '{"do_sample": true, "top_k": "x"}',
    ],
)
def test_a_file_that_says_nothing_of_drawing_leaves_it_to_the_catalogue(tmp_path, text):
    if text is not None:
        (tmp_path / GENERATION_CONFIG).write_text(text)
    found = recommended(tmp_path, "someone/else")
    assert (found.sampling, found.origin) == (Sampling(), "")
    entry = next(entry for entry in entries() if entry.sampling)
    for name in (entry.name, f"{entry.name}-Q4_K_M"):
        found = recommended(tmp_path, name)
        assert found.origin == entry.sampling.get("origin", AUTHORS)
        assert found.sampling.temperature == entry.sampling["temperature"]


def test_every_recommendation_of_the_catalogue_is_possible(tmp_path):
    for entry in entries():
        assert recommended(tmp_path, entry.name).origin in ("", AUTHORS, PROJECT)
