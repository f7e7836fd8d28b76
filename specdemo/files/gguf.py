"""Convert a GGUF file once and exactly to a folder in Hugging Face layout, with transformers alone.

Values of the header that transformers ignores are completed, and files that stay partly unread are refused.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from specdemo.config.errors import Phrase, UserError, first_line
from specdemo.config.strings import Json, JsonView
from specdemo.files import folder as families
from specdemo.files.folder import (
    GGUF_PART,
    ModelConfig,
    check_fetched,
    check_rollback,
    few,
    find_family,
    first_part,
)
from specdemo.files.header import Numbers, is_gguf, read_header, read_vector
from specdemo.files.packing import NotReadable, gguf_names
from specdemo.files.progress import Progress, ProgressCallback, silent
from specdemo.files.quiet import quiet_transformers
from specdemo.files.store import check_space

RECIPE = "gguf-3"  # increased when the conversion changes; older folders and packed copies are then made again
EXACT_BELOW = 1_000_000_000  # bytes of GGUF; a larger file is stored as float16 to save disk space
FREQUENCIES = "rope_freqs.weight"  # divisors of rotary frequencies, as Llama 3 has them
LONG = {
    f"{length}_factor": f"rope_factors_{length}.weight" for length in ("short", "long")
}  # LongRoPE's
LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
LONG_KEYS = {
    "original_max_position_embeddings": "original_context_length",
    "attention_factor": "attn_factor",
}
STRETCHED = ("linear", "yarn")  # other methods of position scaling that a file may name
ENDS = tuple(
    f"tokenizer.ggml.{end}_token_id" for end in ("eos", "eot", "eom")
)  # text, turn, message
# Splitting of text before the merges, by the file's name for it: transformers splits as GPT-2 if it does not know the name.
# Tokens are those of llama.cpp, except for combining marks in "tekken" and "gpt-4o", which follow the models' own tokenizers.
SPLITTING: list[Json] = json.loads(
    Path(__file__).with_name("splitting.json").read_text(encoding="utf-8")
)
CAPS = (
    "attn_logit_softcapping",
    "final_logit_softcapping",
)  # left at their default by transformers


def check_gguf(path: Path) -> None:
    """Raise UserError unless the file starts with GGUF's signature and is whole."""
    check_fetched(path, path.name)
    if not is_gguf(path):
        raise UserError("model.not_gguf", name=path.name)
    if GGUF_PART.search(path.name):
        raise UserError("model.gguf_parts", name=path.name, first=first_part(path.name))


def reads(kind: str) -> bool:
    """Return whether files of an architecture are read; only a file itself shows whether all of it is.

    kind: llama.cpp's name. Without transformers, which knows it, the answer is yes: no model is loaded then.
    """
    try:
        from transformers import CONFIG_MAPPING, AutoModelForCausalLM
        from transformers import modeling_gguf_pytorch_utils as reading
    except ImportError:
        return True

    _tell_transformers()
    name = find_family(gguf=kind).name or kind
    if name not in CONFIG_MAPPING or not {kind, name} & {*reading.GGUF_SUPPORTED_ARCHITECTURES}:
        return False
    config = CONFIG_MAPPING[name]()
    with suppress(UserError):
        check_rollback(config)
        return type(config) in AutoModelForCausalLM._model_mapping
    return False


def stored_as(gguf: Path) -> str:
    """Return llama.cpp's name of a file's quantisation, like Q4_K_M; "" for weights of 16 or 32 bits."""
    from gguf import GGMLQuantizationType, LlamaFileType

    with suppress(ValueError):
        header = read_header(gguf)
        with suppress(ValueError, KeyError):
            name = LlamaFileType(header.values["general.file_type"]).name
            return name.removeprefix("MOSTLY_") if header.kinds else ""
        return " and ".join(GGMLQuantizationType(kind).name for kind in sorted(header.kinds))
    return ""


def convert_gguf(gguf: Path, folder: Path, progress: ProgressCallback = silent) -> None:
    """Dequantise a GGUF file into safetensors, config and tokenizer.

    Dequantised 4-bit weights need more bits than float16 has; float32 represents them exactly.
    """
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    check_gguf(gguf)
    size = gguf.stat().st_size
    exact = size < EXACT_BELOW
    needed = size * (7 if exact else 4)  # 4-bit weights become 32-bit or 16-bit ones
    check_space(folder, needed, Phrase("disk.converting", name=gguf.name))
    progress(Progress("convert", None, "once; later starts skip this"))
    with reporting_damage(gguf):
        model = AutoModelForCausalLM.from_pretrained(
            str(gguf.parent),
            config=config_of(gguf),
            dtype=torch.float32 if exact else torch.float16,
            quantization_config=GgufConfig(dequantize=True),
            **_source(gguf),
        )
        model.save_pretrained(str(folder), safe_serialization=True)
        _save_tokenizer(gguf, folder)


@contextmanager
def reporting_damage(gguf: Path) -> Iterator[None]:
    """Turn any error of reading a damaged GGUF file into a UserError."""
    from unittest.mock import patch

    from transformers import modeling_gguf_pytorch_utils as reading

    no_bar = patch.object(reading, "tqdm", lambda items, **_: items)
    with quiet_transformers(), no_bar:
        try:
            yield
        except (UserError, MemoryError, NotReadable):
            raise
        except Exception as error:  # the reader uses damaged values as lengths and offsets
            if getattr(error, "errno", None) is not None:  # the system's own, as for a full disk
                raise
            reason = first_line(error)
            raise UserError("model.gguf_unreadable", name=gguf.name, error=reason) from error


def describe_gguf(gguf: Path, folder: Path) -> None:
    """Write the files that describe a GGUF file's model: config.json, generation_config.json and the tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM

    config = config_of(gguf)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(str(folder))
    model.generation_config.save_pretrained(str(folder))
    _save_tokenizer(gguf, folder)


def _save_tokenizer(gguf: Path, folder: Path) -> None:
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import ByteLevel, Sequence, Split
    from transformers import AutoTokenizer

    said = read_header(gguf).values
    splitting = _splitting(said) or {}
    default = (
        {"add_bos_token": True} if "bos" in splitting else {}
    )  # unless the file says otherwise
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), **_source(gguf), **default)
    if splitting:
        splits = [Split(Regex(pattern), "isolated") for pattern in splitting["patterns"]]
        in_bytes = ByteLevel(add_prefix_space=False, use_regex=False)
        backend = tokenizer.backend_tokenizer
        backend.pre_tokenizer = Sequence([*splits, in_bytes])
        backend.model.ignore_merges = "whole_words" in splitting
    if said.get("tokenizer.ggml.model") == "llama" and "gemma" not in said["general.architecture"]:
        _mark_spaces(tokenizer.backend_tokenizer, said.get("tokenizer.ggml.add_space_prefix", True))
    tokenizer.save_pretrained(str(folder))


def _mark_spaces(backend: Any, prefix: bool) -> None:  # noqa: FBT001 - as the file says it
    """Mark spaces as sentencepiece does; transformers does it in another way, and as if each file had a prefix.

    prefix: whether a space is added before each text between control tokens
    """
    from tokenizers import decoders, normalizers

    added, removed = [], []
    if prefix:
        added, removed = [normalizers.Prepend("\u2581")], [decoders.Strip(" ", 1, 0)]
    backend.normalizer = normalizers.Sequence([*added, normalizers.Replace(" ", "\u2581")])
    backend.pre_tokenizer = None
    bytes_joined = [decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), *bytes_joined, *removed])


def _splitting(said: JsonView) -> Json | None:
    """Return the entry of `SPLITTING` for a file's header; None for a tokenizer that is not byte-level BPE. Raises Unread."""
    if said.get("tokenizer.ggml.model") != "gpt2":
        return None
    name = said.get("tokenizer.ggml.pre", "default")
    for entry in SPLITTING:
        if name in entry["names"]:
            return entry
    raise Unread(f"text is split in an unknown way ({name})")


def _source(gguf: Path) -> Json:
    """Return the arguments that make transformers read this file and nothing else."""
    return {"gguf_file": gguf.name, "trust_remote_code": False, "local_files_only": True}


class Unread(Exception):
    """A file describes its model by a value that no reader here supports."""


def config_of(gguf: Path) -> ModelConfig:
    """Return the transformers configuration of a GGUF file's model.

    Raises UserError for a model without rollback, one that is not a causal language model, and a file with a part that would
    stay unread: its model would load and compute other logits.
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    _tell_transformers()
    header = read_header(gguf)
    said, kind, stored = header.values, header.family, header.tensors
    if int(said.get("split.count", 1)) > 1:
        raise UserError("model.gguf_parts", name=gguf.name, first=first_part(gguf.name))
    config = AutoConfig.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, trust_remote_code=False, local_files_only=True
    )
    if type(config) not in AutoModelForCausalLM._model_mapping:
        raise UserError("model.not_causal", name=gguf.name, kind=config.model_type)
    check_rollback(config)
    own = {key.removeprefix(f"{kind}."): value for key, value in said.items()}
    try:
        _splitting(said)
        _complete(config, kind, own)
        ends = [said[key] for key in ENDS if key in said]
        config.eos_token_id = ends or config.eos_token_id
        if FREQUENCIES in stored:
            _stretch_as_llama3(config, read_vector(gguf, stored[FREQUENCIES]))
        read = {FREQUENCIES}
        if set(LONG.values()) <= stored.keys():
            read |= set(LONG.values())
            divisors = {key: read_vector(gguf, stored[name]).tolist() for key, name in LONG.items()}
            known = {key: own[f"rope.scaling.{name}"] for key, name in LONG_KEYS.items()}
            _rope(config).update(divisors, **known, rope_type="longrope")
        _check_tensors(config, kind, stored.keys() - read)
    except Unread as reason:
        raise UserError("model.gguf_ambiguous", name=gguf.name, reason=reason) from None
    return config


def _tell_transformers() -> None:
    """Register a reader for each family that transformers has none for."""
    from transformers import modeling_gguf_pytorch_utils as reading

    tables: Json = reading.GGUF_TO_TRANSFORMERS_MAPPING
    configs, processors = tables["config"], reading.TENSOR_PROCESSORS
    for one in families.FAMILIES:
        if one.read_as and one.gguf not in reading.GGUF_SUPPORTED_ARCHITECTURES:
            reading.GGUF_SUPPORTED_ARCHITECTURES.append(one.gguf)
            configs[one.gguf] = configs[one.read_as]
            processors[one.gguf] = processors[one.read_as]


def _complete(config: ModelConfig, kind: str, own: JsonView) -> None:
    """Set the values that transformers does not read. own: the file's values, without the prefix of their family"""
    family = find_family(gguf=kind)
    for key, name in ({cap: cap for cap in CAPS} | {**family.header}).items():
        if key in own and hasattr(config, name):
            setattr(config, name, own[key] or None)
    if family.largest == config.num_hidden_layers:
        config.query_pre_attn_scalar = config.hidden_size // config.num_attention_heads
    head = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    rotated = own.get("rope.dimension_count", head)
    if rotated != head:
        _rope(config)["partial_rotary_factor"] = rotated / head
    way = own.get("rope.scaling.type", "none")
    if way in STRETCHED:
        rope = _rope(config)
        rope.update(rope_type=way, factor=own["rope.scaling.factor"])
        if way == "yarn":
            rope["original_max_position_embeddings"] = own["rope.scaling.original_context_length"]
    elif way != "none":
        raise Unread(f"positions stretched in another way ({way})")


def _rope(config: ModelConfig) -> Json:
    """Return the position parameters of layers that attend over the whole text."""
    rope: Json = config.rope_parameters
    everywhere: Json = rope.get("full_attention", rope)
    return everywhere


def _stretch_as_llama3(config: ModelConfig, divisors: Numbers) -> None:
    """Set Llama 3's position scaling, which a file stores only as the resulting divisors. divisors: (head_dim / 2,) float32"""
    rope = _rope(config)
    factor = float(divisors.max())
    waves = 2 * math.pi * rope["rope_theta"] ** (np.arange(len(divisors)) / len(divisors))
    turns = LLAMA3["original_max_position_embeddings"] / waves
    low, high = LLAMA3["low_freq_factor"], LLAMA3["high_freq_factor"]
    share = np.clip((turns - low) / (high - low), 0.0, 1.0)
    if not np.allclose(divisors, 1 / ((1 - share) / factor + share), rtol=1e-3):
        raise Unread("frequencies of positions that are not Llama 3's")
    rope.update(LLAMA3, rope_type="llama3", factor=factor)


def _check_tensors(config: ModelConfig, kind: str, names: set[str]) -> None:
    """Raise Unread unless the tensors of the file and of the model correspond one to one."""
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    places = _places(model.state_dict(), kind, config.num_hidden_layers)
    # Stacked experts have no suffix.
    stored = {name if name in places else name.removesuffix(".weight") for name in names}
    if unknown := sorted(stored - places.keys()):
        raise Unread(f"{few(unknown)} has no place in it")
    given = {places[name] for name in stored if name in places}
    if missing := sorted({*places.values()} - given - {*model.all_tied_weights_keys}):
        raise Unread(f"{few(missing)} is not in it")


def _places(own: Iterable[str], kind: str, layers: int) -> dict[str, str]:
    """Map the file's names of tensors to the model's."""
    from transformers import modeling_gguf_pytorch_utils as reading

    known = gguf_names(kind, layers)
    # Experts have their own names, several of which may be one tensor of the model.
    processors: Json = reading.TENSOR_PROCESSORS
    processor = processors.get(kind, reading.TensorProcessor)(config={})
    places: dict[str, str] = {}
    for full in own:
        name = processor.preprocess_name(full)
        suffix = next((end for end in (".weight", ".bias") if name.endswith(end)), "")
        stem = name.removesuffix(suffix)
        if found := known.get_name(stem) or known.get_name(stem.partition(".")[2]):
            places[found + suffix] = full
        else:
            processor.perform_fallback_tensor_mapping(places, "", "", name)
    return places


@contextmanager
def read_once() -> Iterator[None]:
    """Let transformers read the description of a file once, and several times as fast."""
    from unittest.mock import patch

    import gguf
    from transformers import modeling_gguf_pytorch_utils as reading

    reader: Any = gguf.GGUFReader
    described = cache(reading.load_gguf_checkpoint)

    class Reader(reader):  # type: ignore[misc]
        """Read from an array: slices of a NumPy memory map are several times slower."""

        @property
        def data(self) -> Any:
            return self._data

        @data.setter
        def data(self, mapped: Numbers) -> None:
            self._data = mapped.view(np.ndarray)

    def describe(*file: str, **options: bool) -> Any:
        return copy.deepcopy(described(*file, **options))

    quick = patch.object(gguf, "GGUFReader", Reader)
    with quick, patch.object(reading, "load_gguf_checkpoint", describe):
        yield
