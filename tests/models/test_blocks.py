"""A GGUF file in the precision `file`: its own weights, in every pass."""

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from passes import error, on_one_worker
from tiny_files import make_tiny_tokenizer
from tiny_gguf import random_blocks, tiny_gguf

from specdemo.config.errors import UserError
from specdemo.config.settings import AppSettings
from specdemo.engine.attention import ModuleDecoder
from specdemo.engine.target import CachedModel
from specdemo.engine.types import Proposal
from specdemo.files import sources
from specdemo.files.blocks import SIZES, lay, read_blocks
from specdemo.files.catalogue import find
from specdemo.files.header import BLOCK_BYTES
from specdemo.files.sources import resolve
from specdemo.kernels import cpu_features, runtime
from specdemo.models.decoders.blocks import BlockLinear
from specdemo.models.devices import choose_device
from specdemo.models.loading import load_model, pack_as, place_model
from specdemo.models.networks.folders import read_layer
from specdemo.models.pair import model_files

pytestmark = pytest.mark.usefixtures("compiled_pass")


@pytest.fixture(scope="module", params=on_one_worker(["llama", "qwen2", "phi3", "gemma3"]))
def loaded(request, tmp_path_factory):
    """A model in blocks of five kinds, and the same in float32."""
    folder = tmp_path_factory.mktemp(request.param)
    path = tiny_gguf(folder / "tiny.gguf", request.param, make_tiny_tokenizer(size=288))
    files = resolve(path, folder / "cache", pack_as=pack_as("file", "auto"), forms=["file"])
    plain = resolve(path, folder / "cache")
    return load_model(files, "file", "cpu"), load_model(plain, "fp32", "cpu")


def test_the_weights_are_those_of_the_file_bit_by_bit(loaded):
    model, plain = (one.model for one in loaded)
    layers = {name: one for name, one in model.named_modules() if isinstance(one, BlockLinear)}
    assert len(layers) == (4 if plain.model.config.model_type == "phi3" else 7)
    for name, layer in layers.items():
        wanted = plain.get_submodule(name).weight
        assert torch.equal(layer.part.values(0, layer.out_features), wanted)
    head = model.lm_head.blocks.parts[0]
    wanted = plain.get_output_embeddings().weight
    assert torch.equal(head.values(0, len(wanted)), wanted)


def test_a_layer_is_read_from_its_folder(loaded):
    model, plain = loaded
    layer = read_layer(model.files.folder, 0)
    wanted = plain.model.model.layers[0].state_dict()
    assert layer.keys() == wanted.keys()
    for name, one in layer.items():
        rounded = one.ndim == 1  # vectors are stored in bfloat16
        assert torch.equal(one, wanted[name].bfloat16().float() if rounded else wanted[name])


def test_the_compiled_pass_computes_with_them_and_the_run_says_so(loaded):
    own, plain = loaded
    said = "Q4_1 and Q5_0 and Q8_0 and Q4_K and Q6_K: the file's own blocks, 8-bit activations"
    assert own.info.kernel.startswith(f"{said}, compiled pass on ")
    assert own.info.precision == "file"
    assert own.info.parameters == plain.info.parameters
    exact = logits_of(ModuleDecoder(plain.model))
    for decoder in (own.decoder, ModuleDecoder(own.model)):
        assert error(logits_of(decoder), exact) < 0.03


def logits_of(decoder) -> torch.Tensor:
    """After a text, and after a chain behind it."""
    conversation = CachedModel(decoder)
    last = conversation.read([3 + n % 30 for n in range(24)])
    return torch.cat([last[None], conversation.forward(7, Proposal.chain([8, 9, 10])).logits])


def test_auto_uses_the_blocks_of_own_files_that_the_compiled_pass_reads(
    tiny_folder, tmp_path, monkeypatch
):
    settings = AppSettings(cache_dir=tmp_path / "cache", device="cpu", precision="auto")

    def chosen(path) -> str:
        return place_model(
            model_files(str(path), settings), settings.precision, "cpu"
        ).info.precision

    own = tiny_gguf(tmp_path / "own.gguf", "qwen2")
    assert chosen(own) == "file"
    assert chosen(tiny_folder) == "nf4"
    assert chosen(tiny_gguf(tmp_path / "other.gguf", "qwen2", quantised=["IQ4_NL"])) == "nf4"
    with monkeypatch.context() as patch:
        patch.setattr(sources, "known_as", lambda *_: (find("smollm2-135m-instruct"), True))
        assert chosen(own) == "nf4"
    with monkeypatch.context() as patch:
        patch.setattr(cpu_features, "compiles", lambda: False)
        assert chosen(own) == "nf4"
    monkeypatch.setattr(runtime, "fits", lambda _: False)
    assert chosen(tiny_gguf(tmp_path / "sizes.gguf", "llama")) == "nf4"


def test_the_header_knows_the_memory_of_all_blocks():
    found = {}
    for kind in SIZES:
        stored = GGMLQuantizationType[kind]
        raw = random_blocks(np.random.default_rng(0), 32, 512, stored)
        laid = lay(read_blocks(raw, kind)).values()
        found[int(stored)] = sum(one.nbytes for one in laid) / (32 * 512)
    assert found == BLOCK_BYTES


def test_blocks_need_a_gguf_file_and_a_cpu(tiny_folder, tmp_path, monkeypatch):
    with pytest.raises(UserError, match="no GGUF file"):
        resolve(tiny_folder, tmp_path, pack_as=torch.bfloat16, forms=["file"])
    assert choose_device("auto", "file").type == "cpu"
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(UserError, match="on the processor only"):
        choose_device("cuda", "file")
