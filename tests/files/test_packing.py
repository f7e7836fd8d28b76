"""GGUF and safetensors become the 4-bit model that from_pretrained makes of them, one tensor at a time."""

import json
import os
import shutil

import pytest
import torch
from errors import reported
from safetensors.torch import load_file
from tiny_files import make_tiny_model
from tiny_gguf import KINDS, tiny_gguf

from specdemo.config.errors import UserError
from specdemo.files import packing
from specdemo.files.catalogue import Entry, GgufFile
from specdemo.files.folder import Family, count_parameters
from specdemo.files.sources import resolve
from specdemo.files.store import file_sha256, is_complete
from specdemo.models import loading
from specdemo.models.memory import Weights

BF16 = torch.bfloat16


@pytest.fixture(scope="module")
def ggufs(tmp_path_factory):
    """A file of each architecture; the tensors of each are quantised in all ways that the larger models use."""
    folder = tmp_path_factory.mktemp("gguf")
    return {kind: tiny_gguf(folder / f"{kind}.gguf", kind) for kind in KINDS}


def tensors_of(model):
    """Return all numbers of a 4-bit model in their stored form."""
    found = {}
    for name, tensor in model.named_parameters():
        found[name] = tensor.data
        if state := getattr(tensor, "quant_state", None):
            found |= {f"{name}.{key}": value for key, value in state.as_dict(packed=True).items()}
    return found


def raw(files):
    """A model as `from_pretrained` leaves it, before a pass lays matrices out for the processor."""
    return loading._load(files, "nf4", torch.device("cpu"))


def assert_same(one, other):
    one, other = tensors_of(one), tensors_of(other)
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert tensor.dtype == other[name].dtype, name
        assert torch.equal(tensor, other[name]), name


@pytest.mark.parametrize("kind", KINDS)
def test_a_gguf_file_gives_the_numbers_that_transformers_quantises_to(ggufs, tmp_path, kind):
    plain = resolve(ggufs[kind], tmp_path)
    made = resolve(ggufs[kind], tmp_path, pack_as=BF16)
    assert made.folder != plain.folder
    assert (made.name, made.revision) == (plain.name, plain.revision)
    assert_same(raw(made), raw(plain))
    for name in ("generation_config.json", "tokenizer.json", "tokenizer_config.json"):
        assert (made.folder / name).read_bytes() == (plain.folder / name).read_bytes()
    config, before = (
        json.loads((files.folder / "config.json").read_text()) for files in (made, plain)
    )
    assert config.pop("quantization_config")["bnb_4bit_quant_type"] == "nf4"
    assert {key: value for key, value in config.items() if key != "dtype"} == {
        key: value for key, value in before.items() if key != "dtype"
    }


def test_safetensors_give_the_same_numbers_and_the_same_answers(tiny_folder, tmp_path):
    plain = resolve(tiny_folder, tmp_path)
    made = resolve(tiny_folder, tmp_path, pack_as=BF16)
    assert_same(raw(made), raw(plain))
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        given, wanted = (
            loading.load_model(files, "nf4", "cpu").model(ids).logits for files in (made, plain)
        )
    assert torch.equal(given, wanted)
    assert count_parameters(made.folder, "") == count_parameters(plain.folder, "")
    assert Weights.of_folder(made.folder, "") == Weights.of_folder(plain.folder, "")


def test_matrices_of_odd_sizes_are_packed_too(tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "READ_STEP", 64 * 40)
    folder = make_tiny_model(tmp_path / "odd", hidden=40, intermediate=88)
    plain = resolve(folder, tmp_path)
    assert_same(raw(resolve(folder, tmp_path, pack_as=BF16)), raw(plain))


def test_a_model_is_packed_once_and_progress_is_in_bytes(tiny_folder, tmp_path, monkeypatch):
    reports = []
    made = resolve(tiny_folder, tmp_path, reports.append, BF16)
    packing = [report for report in reports if report.stage == "quantise"]
    assert [report.done for report in packing] == sorted(report.done for report in packing)
    assert packing[-1].done == 1
    assert packing[-1].seconds_left == 0
    assert "kB" in packing[-1].detail or "MB" in packing[-1].detail
    monkeypatch.setattr("specdemo.files.sources.pack", lambda *_: pytest.fail("twice"))
    assert resolve(tiny_folder, tmp_path, pack_as=BF16) == made


def test_a_file_of_the_catalogue_is_packed_once_by_path_and_by_name(ggufs, tmp_path, monkeypatch):
    file = GgufFile("a/b", "llama.gguf", file_sha256(ggufs["llama"]), ggufs["llama"].stat().st_size)
    entry = Entry("tiny", "Tiny", "MIT", 1, "", repo="a/b", gguf=file)
    monkeypatch.setattr("specdemo.files.found.entries", lambda: (entry,))
    monkeypatch.setattr("specdemo.files.sources.find", {"tiny": entry}.get)
    by_path = resolve(ggufs["llama"], tmp_path, pack_as=BF16)
    assert resolve("tiny", tmp_path, pack_as=BF16).folder == by_path.folder


def test_a_gguf_file_is_read_anew_where_its_reading_has_changed(ggufs, tmp_path, monkeypatch):
    packed_before = resolve(ggufs["llama"], tmp_path, pack_as=BF16).folder
    plain_before = resolve(ggufs["llama"], tmp_path).folder
    times = [folder.stat().st_mtime_ns for folder in (packed_before, plain_before)]
    monkeypatch.setattr("specdemo.files.sources.RECIPE", "another")
    assert resolve(ggufs["llama"], tmp_path, pack_as=BF16).folder == packed_before
    assert resolve(ggufs["llama"], tmp_path).folder == plain_before
    later = [folder.stat().st_mtime_ns for folder in (packed_before, plain_before)]
    assert all(after > before for before, after in zip(times, later, strict=True))


@pytest.mark.parametrize("part", ["model.safetensors", "parts/model-1.safetensors"])
def test_other_weights_are_packed_anew(tiny_folder, tmp_path, part):
    copy = shutil.copytree(tiny_folder, tmp_path / "copy")
    weights = copy / part
    weights.parent.mkdir(exist_ok=True)
    (copy / "model.safetensors").rename(weights)
    index = {"metadata": {}, "weight_map": dict.fromkeys(load_file(weights), part)}
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    first = resolve(copy, tmp_path, pack_as=BF16)
    assert first.folder != copy
    assert resolve(copy, tmp_path, pack_as=torch.float16).folder != first.folder
    before = weights.stat()
    weights.write_bytes(weights.read_bytes())
    # as `cp -p` or an archive sets it
    os.utime(weights, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert resolve(copy, tmp_path, pack_as=BF16).folder != first.folder


@pytest.mark.parametrize("keep", [0.2, 0.9, 0.999])
def test_a_truncated_gguf_file_is_refused(ggufs, tmp_path, keep):
    whole = ggufs["llama"].read_bytes()
    path = tmp_path / "cut.gguf"
    path.write_bytes(whole[: int(keep * len(whole))])
    with pytest.raises(UserError, match=r"cut.gguf cannot be read"):
        resolve(path, tmp_path, pack_as=BF16)
    assert not [one for one in (tmp_path / "models").iterdir() if one.suffix != ".lock"]


def test_another_architecture_is_converted_as_a_whole(ggufs, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "find_family", lambda gguf: Family(gguf, gguf))
    plain = resolve(ggufs["qwen2"], tmp_path)
    assert resolve(ggufs["qwen2"], tmp_path, pack_as=BF16) == plain


def test_a_folder_is_used_as_it_is_where_no_copy_can_be_made(tiny_folder, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    made = resolve(tiny_folder, tmp_path / "file", pack_as=BF16)
    assert made.folder == tiny_folder.resolve()
    already = shutil.copytree(resolve(tiny_folder, tmp_path, pack_as=BF16).folder, tmp_path / "nf4")
    assert resolve(already, tmp_path, pack_as=BF16).folder == already.resolve()
    monkeypatch.setattr(packing, "check_space", lambda *_: (_ for _ in ()).throw(reported("full")))
    shutil.rmtree(tmp_path / "models")
    assert resolve(tiny_folder, tmp_path, pack_as=BF16).folder == tiny_folder.resolve()


def test_no_more_than_a_piece_is_unpacked_at_once(ggufs, tmp_path, monkeypatch):
    monkeypatch.setattr(packing, "READ_STEP", 1)
    longest = []
    one = packing._packed

    def watched(name, plan, weight, *rest):
        parts = packing.parts_of(weight.shape)
        longest.append(max(len(weight.read(part)) for part in parts))
        return one(name, plan, weight, *rest)

    monkeypatch.setattr(packing, "_packed", watched)
    made = resolve(ggufs["llama"], tmp_path, pack_as=BF16)
    assert max(longest) == packing.ROWS
    assert_same(raw(made), raw(resolve(ggufs["llama"], tmp_path)))
    assert is_complete(
        made.folder, json.loads((made.folder / "complete.json").read_text())["recipe"]
    )


def test_nf4_is_what_bitsandbytes_makes_of_the_same_weights():
    from bitsandbytes.functional import get_4bit_type, quantize_4bit

    code = get_4bit_type("nf4", "cpu")
    between = (code[:-1] + code[1:]) / 2
    torch.manual_seed(0)
    weights = torch.randn(300, 640)
    weights[0] = 0
    weights[1, :15], weights[1, 15] = between, 1  # bounds between neighbouring codes
    weights[2, :15], weights[2, 15] = between.nextafter(torch.tensor(1.0)), 1
    weights[3] *= 1e-39
    weights[4] *= 1e30
    for one in (weights, weights.bfloat16(), weights.half()[5:], weights[5:, :33]):
        codes, scales = packing.quantise_nf4(one)
        wanted, state = quantize_4bit(one.contiguous(), blocksize=64, quant_type="nf4")
        assert torch.equal(codes, wanted)
        assert torch.equal(scales, state.absmax)


def test_a_vector_keeps_no_weight_file_mapped(ggufs, tmp_path):
    model = raw(resolve(ggufs["qwen2"], tmp_path, pack_as=BF16))
    vectors = [one for one in model.parameters() if one.ndim == 1]
    assert vectors
    assert all(one.untyped_storage().nbytes() == one.nbytes for one in vectors)
