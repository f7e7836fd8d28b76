"""Model families, loaded from a folder: with any drafter, the output equals transformers'."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import transformers
from conftest import drafter_for, reference_greedy, run_lane
from passes import WINDOW, on_one_worker
from tiny_files import make_tiny_model
from tiny_gguf import tiny_gguf
from tiny_trained import READS
from transformers import AutoModelForCausalLM
from transformers import modeling_gguf_pytorch_utils as reading
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from specdemo.config.errors import UserError
from specdemo.engine.attention import windowed
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.files import catalogue, folder
from specdemo.files.folder import Family, check_causal_lm, check_rollback, find_family
from specdemo.files.sources import resolve
from specdemo.models.decoders.choose import is_supported
from specdemo.models.loading import load_model
from specdemo.trace.events import Verified
from specdemo.trace.metrics import dropped, output_ids

ROOT = Path(__file__).resolve().parents[2]
PARTLY = {"sliding_window": WINDOW, "layer_types": ["sliding_attention", "full_attention"]}
FAMILIES = {
    "llama": {},
    "qwen2": {},
    "qwen2 with windows": {"use_sliding_window": True, **PARTLY},
    "qwen3": {"head_dim": 8},
    "gemma3_text": {"head_dim": 8, "query_pre_attn_scalar": 8, **PARTLY},
    "gemma2": {
        "head_dim": 8,
        "query_pre_attn_scalar": 8,
        "attn_logit_softcapping": 2.0,
        "final_logit_softcapping": 10.0,
        "tie_word_embeddings": True,
        **PARTLY,
    },
    "gpt_oss": {"head_dim": 8, "num_local_experts": 2, "num_experts_per_tok": 1, **PARTLY},
    "phi3": {"sliding_window": WINDOW, "pad_token_id": 0},
    "mistral": {"sliding_window": WINDOW},
    "smollm3": {"no_rope_layer_interval": 2, "pad_token_id": 0, "tie_word_embeddings": True},
    "granite": {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "logits_scaling": 5.0},
    "olmo2": {"pad_token_id": 0},
    "gpt2": {"tie_word_embeddings": True},
}
WINDOWED = ["qwen2 with windows", "gemma3_text", "gemma2", "gpt_oss", "phi3", "mistral"]
RECURRENT = ["falcon_h1", "jamba", "mamba", "qwen3_next", "recurrent_gemma", "rwkv"]
METHODS = ["tree", "exit"]  # a tree, and a chain by the first layers
PROMPT = [5, 6, 7, 5, 6, 7, 5, 6, 11, 30, 2, 17, 40, 41, 42, 5, 6]
LENGTH = 20
#            0   1   2   3   4   5   6   7   8
TREE = Proposal((7, 8, 9, 10, 11, 12, 13, 14, 15), (-1, -1, 0, 0, 2, 1, 4, 6, 7))
DEEP = [0, 2, 4, 6, 7, 8]  # a path that alone is as long as a window


@pytest.fixture(scope="module", params=on_one_worker(FAMILIES))
def family(request, tmp_path_factory):
    """A target of a family and its folder, as the loader opens it and as transformers does."""
    folder = tmp_path_factory.mktemp("family")
    # With these weights the output depends on every position that a model may attend to.
    facts = {"initializer_range": 0.3, "max_position_embeddings": 256, "eos_token_id": None}
    facts |= {"tie_word_embeddings": False, **FAMILIES[request.param]}
    make_tiny_model(folder / "target", 32, 64, kind=request.param.split()[0], **facts)
    files = resolve(folder / "target", folder / "cache")
    reference = AutoModelForCausalLM.from_pretrained(files.folder, dtype=torch.float32).eval()
    reference.requires_grad_(False)
    return SimpleNamespace(
        name=request.param,
        files=files,
        target=load_model(files, "fp32", "cpu"),
        reference=reference,
    )


@pytest.fixture(scope="module")
def draft(family):
    """The target with some noise in its weights: it often agrees, but not always."""
    loaded = load_model(family.files, "fp32", "cpu")
    torch.manual_seed(5)
    for parameter in loaded.model.parameters():
        if parameter.ndim > 1:
            parameter.add_(torch.randn_like(parameter) * 0.01)
    return loaded


@pytest.mark.parametrize("method", METHODS)
def test_greedy_text_is_that_of_transformers(family, draft, method):
    target = CachedModel(family.target.decoder, READS)
    drafter = drafter_for(
        method, CachedModel(draft.decoder), vocabulary=family.target.vocabulary_size,
        target=target, policy="constant", lookahead=3,
    )  # fmt: skip
    if (family.name, method) == ("gpt2", "exit"):
        events = run_lane(None, drafter, PROMPT, target=target)
        assert "gpt2 is built differently" in dropped(events)
        return
    events = run_lane(None, drafter, PROMPT, target=target, max_new_tokens=LENGTH)
    assert output_ids(events) == reference_greedy(family.reference, PROMPT, LENGTH)
    assert any(event.nodes for event in events if isinstance(event, Verified))


def test_each_family_rolls_back_what_it_read(family):
    """Reading in chunks, verifying a tree, keeping a path, rolling back, growing nodes and running the first layers alone."""

    def alone(*token_ids):
        output = family.reference(torch.tensor([token_ids]), output_hidden_states=True)
        return output.logits[0, -1], output.hidden_states[1][0, -1]

    def equal(rows, texts, place=0):
        want = torch.stack([alone(*text)[place] for text in texts])
        torch.testing.assert_close(rows, want, atol=2e-4, rtol=1e-4)

    target = CachedModel(family.target.decoder)
    target.read(PROMPT[:3])
    equal(target.read(PROMPT[3:-1])[None], [PROMPT[:-1]])
    paths = [[*PROMPT, *path] for path in TREE.paths()]
    equal(target.forward(PROMPT[-1], TREE).logits, paths)
    target.keep(DEEP)
    text = paths[1 + DEEP[-1]]
    equal(target.read([20])[None], [[*text, 20]])
    target.rollback(len(PROMPT) + 2)
    text = text[: len(PROMPT) + 2]
    grown = [target.grow([4], [-1]), target.grow([3], [0]), target.grow([8, 9], [-1, 1])]
    equal(torch.cat(grown), [[*text, 4], [*text, 4, 3], [*text, 8], [*text, 4, 3, 9]])
    if family.name != "gpt2":
        states = [target.lower(1, [4], [-1], []), target.lower(1, [3], [0], [-1])]
        equal(torch.cat(states), [[*text, 4], [*text, 4, 3]], 1)
    equal(target.read([21])[None], [[*text, 21]])
    target.rollback(WINDOW - 2)  # to before the first window was full, and across its edge again
    equal(target.read(PROMPT[2:12])[None], [[*text[: WINDOW - 2], *PROMPT[2:12]]])


def test_windows_are_shorter_than_the_texts(family):
    """Otherwise the tests above would prove nothing: an early token has no effect if all layers have a window."""
    last = [
        family.reference(torch.tensor([[first, *PROMPT * 2]])).logits[0, -1] for first in (3, 4)
    ]
    assert torch.equal(*last) == (family.name in ("phi3", "mistral"))
    assert windowed(family.target.model.config) == (family.name in WINDOWED)
    # The lean pass runs all of these except those that cap scores, have experts or learn positions.
    others = ("gemma2", "gpt_oss", "gpt2")
    assert is_supported(family.target.model) == (family.name not in others)


@pytest.mark.parametrize("kind", RECURRENT)
def test_a_model_without_rollback_is_refused_before_weights_are_read(tmp_path, kind):
    config = {**CONFIG_MAPPING[kind]().to_dict(), "architectures": ["AnyForCausalLM"]}
    (tmp_path / "config.json").write_text(json.dumps(config, default=str))
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(UserError, match=kind) as refused:
        resolve(tmp_path, tmp_path / "cache")
    assert "cannot be rolled back" in str(refused.value)


@pytest.mark.parametrize(("family", "method"), [("gpt_oss", "mxfp4"), ("llama", "gptq")])
def test_a_model_quantised_by_others_is_refused_before_loading(tmp_path, family, method):
    config = CONFIG_MAPPING[family](quantization_config={"quant_method": method}).to_dict()
    (tmp_path / "config.json").write_text(
        json.dumps({**config, "architectures": ["AnyForCausalLM"]}, default=str)
    )
    with pytest.raises(UserError, match=f"quantised by {method}") as refused:
        resolve(tmp_path, tmp_path / "cache")
    assert "GGUF" in refused.value.advice


def test_each_family_with_an_attention_of_its_own_has_a_row():
    for model_type, found in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items():
        name = found if isinstance(found, str) else found[0]
        opened = getattr(transformers, name)._supports_sdpa
        if not opened and find_family(model_type=model_type).attention != "eager":
            with pytest.raises(UserError, match=r"cannot be replaced|rolled back|not a causal"):
                check_causal_lm({"model_type": model_type, "architectures": [name]}, "it")


def test_a_family_is_added_by_the_edits_of_the_document(monkeypatch, tmp_path):
    """Without its row SmolLM3's GGUF file is refused; with the two rows the model is read and found by name."""
    document = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    edits = re.search(r"\| a model family \| (.*?) \| `(.*?)` \|", document)
    families, listed = (ROOT / "specdemo" / path for path in re.findall(r"`(.*?\.json)`", edits[1]))
    assert Path(__file__) == ROOT / edits[2]
    row = next(one for one in json.loads(families.read_text()) if one["name"] == "smollm3")
    family = Family.read(row)
    rows = [one for one in folder.FAMILIES if one != family]
    gguf = tiny_gguf(tmp_path / "tiny.gguf", "smollm3")
    monkeypatch.setattr(folder, "FAMILIES", rows)
    known_before = [one for one in reading.GGUF_SUPPORTED_ARCHITECTURES if one != "smollm3"]
    monkeypatch.setattr(reading, "GGUF_SUPPORTED_ARCHITECTURES", known_before)
    # an earlier test may have added it
    monkeypatch.delitem(reading.GGUF_TO_TRANSFORMERS_MAPPING["config"], "smollm3", raising=False)
    with pytest.raises(UserError, match="smollm3"):
        resolve(gguf, tmp_path / "before")
    rows.append(family)
    catalogue_rows = json.loads(listed.read_text())
    known = {"name": "tiny", "title": "Tiny", "licence": "MIT", "parameters": 1, "suits": ""}
    catalogue_rows["models"].append(known | {"repo": "owner/tiny"})
    (tmp_path / "catalogue.json").write_text(json.dumps(catalogue_rows))
    monkeypatch.setattr(catalogue, "CATALOGUE_FILE", tmp_path / "catalogue.json")
    for cached in (catalogue.entries, catalogue.pairs):
        monkeypatch.setattr(catalogue, cached.__name__, cached.__wrapped__)
    assert [pair.name for pair in catalogue.pairs()][-1] == catalogue.find("owner/tiny").name
    assert resolve(gguf, tmp_path / "after", pack_as=torch.bfloat16).folder.is_dir()


def test_windows_that_attention_does_not_receive_are_refused():
    full, short = (CONFIG_MAPPING["phimoe"](sliding_window=window) for window in (None, WINDOW))
    check_rollback(full)
    with pytest.raises(UserError, match="phimoe"):
        check_rollback(short)
