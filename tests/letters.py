"""Tokens that are letters: a tokenizer, and a tiny pair with another one."""

from types import SimpleNamespace

import torch
from conftest import PROFILE, VOCABULARY, tiny_llama
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specdemo.config.settings import AppSettings
from specdemo.engine.target import CachedModel, PrefixReader
from specdemo.models.decoders.lean import LeanDecoder
from specdemo.models.loading import LoadedModel
from specdemo.models.networks.registry import Draft
from specdemo.models.pair import LoadedPair
from specdemo.session.loaded import Loaded
from specdemo.session.studio import Studio
from specdemo.trace.events import ModelInfo

LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Letters:
    """A tokenizer without a chat template, which reads letters alone: a is 0."""

    chat_template = pad_token_id = None

    def get_vocab(self):
        return {chr(97 + token_id): token_id for token_id in range(VOCABULARY)}

    def __call__(self, text, **_options):
        return {"input_ids": [(ord(one) - 97) % VOCABULARY for one in text if one.isalpha()]}

    def decode(self, ids, **_options):
        return "".join(chr(97 + token_id) for token_id in ids)


def letters_studio(pair=None, **settings):
    """A studio with a pair, by default a target alone."""
    studio = Studio(AppSettings(**{"target": "tiny", "draft": "none", **settings}))
    studio.use(Loaded(studio.settings, pair or tiny_pair()))
    return studio


def tiny_pair(draft_weights=None, seed=0):
    """A random target, and a draft when its weights are given."""
    vocabulary = {
        letter: place for place, letter in enumerate([*LETTERS, "?", *map(str, range(37))])
    }
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="?"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.decoder = decoders.Fuse()
    weights, info = tiny_llama(seed), ModelInfo("tiny", precision="fp32")
    network = SimpleNamespace(open=lambda _: PrefixReader(CachedModel(draft_weights)))
    return LoadedPair(
        LoadedModel(weights, LeanDecoder(weights), info, torch.device("cpu"), 64),
        PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="?"),
        {"draft": Draft(info, lambda: network)} if draft_weights else {},
        costs=PROFILE,
    )
