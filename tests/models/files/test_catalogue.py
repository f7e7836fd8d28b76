"""The catalogue file is whole."""

import re

from specdemo.models.files.catalogue import entries, find, pairs, partner


def test_every_entry_has_exactly_one_source():
    for entry in entries():
        assert sum(bool(source) for source in (entry.wheel, entry.repo, entry.shipped)) == 1, (
            entry.name
        )


def test_revisions_are_commits():
    for entry in entries():
        if entry.repo:
            assert entry.revision is None or re.fullmatch("[0-9a-f]{40}", entry.revision), (
                entry.name
            )


def test_hashes_are_whole():
    wheel = find("smollm2-135m-instruct").wheel
    assert re.fullmatch("[0-9a-f]{64}", wheel.sha256)
    assert re.fullmatch("[0-9a-f]{64}", wheel.member_sha256)
    files = [entry.gguf for entry in entries() if entry.gguf]
    assert files
    assert all(re.fullmatch("[0-9a-f]{64}", file.sha256) and file.size > 0 for file in files)


def test_every_draft_is_in_the_catalogue_and_smaller():
    for pair in pairs():
        assert pair.draft.parameters < pair.target.parameters
        assert pair.draft.memory_4bit_gb < pair.target.memory_4bit_gb


def test_the_named_pairs_are_offered():
    offered = {(pair.target.name, pair.draft.name) for pair in pairs()}
    assert ("smollm2-135m-instruct", "smollm2-135m-instruct-draft") in offered
    assert ("smollm2-1.7b-instruct", "smollm2-135m-instruct-hub") in offered
    assert ("qwen2.5-coder-1.5b-instruct", "qwen2.5-coder-0.5b-instruct") in offered
    assert ("qwen2.5-7b-instruct", "qwen2.5-0.5b-instruct") in offered
    assert ("qwen3-8b", "qwen3-0.6b") in offered


def test_an_entry_is_found_by_hub_id_too():
    assert find("HuggingFaceTB/SmolLM2-1.7B-Instruct").name == "smollm2-1.7b-instruct"
    assert partner("Qwen/Qwen3-8B") == "qwen3-0.6b"
    assert find("someone/else") is None
    assert partner("someone/else") is None


def test_every_target_says_what_a_pass_of_it_reads():
    for pair in pairs():
        assert 0 < 2 * pair.target.head_parameters < pair.target.parameters, pair.name
