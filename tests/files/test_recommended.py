"""Recommended sampling: from the model's file, else from the catalogue, else greedy."""

from __future__ import annotations

import json

import pytest

from specdemo.config.settings import AUTHORS, PROJECT, Sampling
from specdemo.files.catalogue import GENERATION_CONFIG, entries, recommended

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
