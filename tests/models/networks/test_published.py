"""Published drafters with a target: found, named with their licence, refused before the target is loaded, converted once."""

import json
import pickle
from pathlib import Path

import pytest
import tiny_dflash
import torch
from tiny_eagle3 import make, write_flat, write_speculators
from tiny_files import make_tiny_tokenizer

from specdemo.cli.parser import main
from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.files.catalogue import drafters, find
from specdemo.files.progress import silent
from specdemo.models import pair as pairs
from specdemo.models.networks.layouts.families import DRAFTER_FAMILIES
from specdemo.models.networks.layouts.family import drafter_files
from specdemo.session.loaded import load
from specdemo.session.studio import AUDIT_FILE

VOCABULARY = 300  # of the tiny model
FITTING = {"hidden": 64, "vocabulary": VOCABULARY, "words": 40}


def settings(target: Path, drafter: Path | str, cache: Path) -> AppSettings:
    return AppSettings(
        target=str(target), drafter=str(drafter), precision="fp32", device="cpu", cache_dir=cache
    )


def test_a_pair_has_the_drafter_in_place_of_a_draft_model(tiny_folder, tmp_path):
    folder = write_flat(tmp_path / "eagle", make(**FITTING))
    stages = []
    pair = load(settings(tiny_folder, folder, tmp_path), stages.append).pair
    assert "drafter eagle (EAGLE-3, licence: apache-2.0)" in [stage.detail for stage in stages]
    assert "draft" not in pair.drafts
    assert pair.reads == (1, 2)
    info = pair.drafts["feature"].info
    assert (info.name, info.precision) == ("eagle", "fp32")
    assert info.parameters > 0
    assert not pair.missing("feature", "a feature drafter")
    opened = pair.open_target()
    reader = pair.open_draft("feature", opened)
    opened.record(wanted=True)
    opened.read([5, 6, 7])
    reader.model.read([5, 6, 7, 8])
    reader.model.grow([9], [-1])
    assert reader.model.states.isfinite().all()


def test_one_block_drafter_serves_chains_and_trees(tiny_folder, tmp_path):
    facts = FITTING | {"words": VOCABULARY, "mask": VOCABULARY - 1}
    model = tiny_dflash.make(**facts, reads=(1, 2))
    folder = tiny_dflash.write_flat(tmp_path / "dflash", model, num_target_layers=None)
    pair = load(settings(tiny_folder, folder, tmp_path), silent).pair
    assert pair.drafts["block"].network() is pair.drafts["jet"].network()
    opened = pair.open_target()
    reader = pair.open_draft("block", opened)
    opened.record(wanted=True)
    opened.read([5, 6, 7])
    logits = reader.logits_after([5, 6, 7, 8], reader.model.guess)
    head = pair.target.model.get_output_embeddings().weight
    torch.testing.assert_close(logits, reader.model.states @ head.T, atol=1e-4, rtol=1e-4)


def refused(monkeypatch, asked: AppSettings) -> str:
    """Return the message for a target whose weights must not be loaded."""
    monkeypatch.setattr(pairs, "place_model", lambda *_, **__: pytest.fail("the target was loaded"))
    with pytest.raises(UserError) as error:
        load(asked, silent)
    return str(error.value)


def test_a_wrong_drafter_is_refused_before_the_target_is_loaded(monkeypatch, tiny_folder, tmp_path):
    narrow = write_speculators(tmp_path / "narrow", make(vocabulary=VOCABULARY))
    assert "states of 32 numbers, and this target's have 64" in refused(
        monkeypatch, settings(tiny_folder, narrow, tmp_path)
    )
    other = write_flat(tmp_path / "other", make(**FITTING))
    make_tiny_tokenizer("quite another text, of other words", 280).save_pretrained(other)
    assert "comes with another tokenizer" in refused(
        monkeypatch, settings(tiny_folder, other, tmp_path)
    )
    plain = settings(tiny_folder, tiny_folder, tmp_path)
    assert "no drafter of a family that is known here" in refused(monkeypatch, plain)
    for sentence, wrong in (
        ("draft_vocab_size is many; allowed", {"draft_vocab_size": "many"}),
        ("hidden_size is -1; allowed", {"hidden_size": -1}),
        ("has no vocab_size", {"vocab_size": None}),
        ("eagle_config is 7; allowed: an object", {"eagle_config": 7}),
        ("layer_types is 7; allowed: a list", {"layer_types": 7}),
        ("architectures is 1.5; allowed: a list", {"architectures": 1.5}),
        ("is not written as its family", {"layer_types": [[]]}),
    ):
        odd = write_flat(tmp_path / "odd", make(**FITTING), **wrong)
        assert sentence in refused(monkeypatch, settings(tiny_folder, odd, tmp_path))


class Evil:
    """Would run code when it is read."""

    def __reduce__(self):
        return (pytest.fail, ("code of a pickle was run",))


def test_a_pickle_is_read_as_tensors_alone_and_converted_once(monkeypatch, tmp_path):
    folder = tmp_path / "eagle"
    folder.mkdir()
    torch.save(make().tensors, folder / "pytorch_model.bin")
    (folder / "config.json").write_text("{}")
    first = drafter_files(str(folder), tmp_path / "cache")
    folders = {one.file.parent.parent for one in first.tensors.values()}
    assert folders == {tmp_path / "cache" / "drafters"}
    monkeypatch.setattr(torch, "load", lambda *_, **__: pytest.fail("converted twice"))
    assert drafter_files(str(folder), tmp_path / "cache").tensors == first.tensors
    monkeypatch.undo()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps({"0.1.weight": Evil()}))
    with pytest.raises(UserError, match="more than tensors"):
        drafter_files(str(folder), tmp_path / "cache")
    (folder / "pytorch_model.bin").unlink()
    with pytest.raises(UserError, match="holds no weights"):
        drafter_files(str(folder), tmp_path / "cache")


def test_the_catalogue_names_drafters_of_known_families_at_commits():
    for one in drafters():
        assert one.family in DRAFTER_FAMILIES
        assert one.revision is None or len(one.revision) == 40
        assert find(one.target) or "/" in one.target


def test_the_audit_judges_a_drafter_of_a_folder(tiny_folder, tmp_path, monkeypatch, capsys):
    """The command on real files: drafts change neither greedy nor sampled answers, and the table names the drafter."""
    folder = write_flat(tmp_path / "drafter", make(**FITTING))
    monkeypatch.setenv("SPECDEMO_CACHE", str(tmp_path))
    command = ["audit", "--methods", "feature", "--runs", "2", "--tokens", "3"]
    models = ["--target", str(tiny_folder), "--drafter", str(folder)]
    command += ["--precision", "fp32", "--device", "cpu"]
    assert main([*command, *models]) == 0
    assert f"{tiny_folder.name} with drafter, fp32" in capsys.readouterr().out
    found = json.loads((tmp_path / AUDIT_FILE).read_text(encoding="utf-8"))
    assert (found["drafter"], found["held"]) == ("drafter", True)
    assert [(row["name"], row["verdict"]) for row in found["methods"]] == [
        ("nothing", "held"), ("feature", "held"),
    ]  # fmt: skip
