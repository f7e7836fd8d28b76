"""A tiny pair whose tokens are letters."""

from __future__ import annotations

import torch
from conftest import PROFILE, tiny_llama
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specdemo.engine.target import CachedModel
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.models.loading import LoadedModel
from specdemo.models.pair import LoadedPair
from specdemo.trace.events import ModelInfo

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def tiny_pair(draft_weights=None, seed=0):
    """A random target, and a draft when its weights are given."""
    vocabulary = {
        letter: place for place, letter in enumerate([*LETTERS, "?", *map(str, range(37))])
    }
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.decoder = decoders.Fuse()
    weights, info = tiny_llama(seed), ModelInfo("tiny", precision="fp32")
    return LoadedPair(
        LoadedModel(weights, LeanDecoder(weights), info, torch.device("cpu"), 64),
        PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="?"),
        info if draft_weights else None,
        (lambda: CachedModel(draft_weights)) if draft_weights else None,
        costs=PROFILE,
    )
