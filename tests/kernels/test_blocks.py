"""Matrices in blocks have the values that were stored, and a row's products with them are exact, whatever the other rows are."""

import ctypes
import sys
from functools import cache

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from tiny_gguf import random_blocks

from specdemo.files.blocks import SIZES, Blocks, read_blocks
from specdemo.kernels import blocks, cpu_features, matmul_blocks
from specdemo.models.decoders.blocks import part_of_blocks

pytestmark = [
    pytest.mark.usefixtures("compiled_pass"),
    pytest.mark.xdist_group("blocks"),  # compiled once
]
OUTPUTS, WIDTH = 96, 512
KINDS = [*sorted(SIZES), "NF4", "I4"]
AVX2 = {"avx2", "fma", "f16c"}
FORMS = {
    "portable": set(),
    "AVX2": AVX2,
    "AVX-VNNI": {*AVX2, "avxvnni"},
    "AVX-512": {*AVX2, "avx512f", "avx512bw"},
}


def of_codes(kind: str) -> tuple[blocks.Part, torch.Tensor]:
    """A random matrix of a kind that no file has, and its values."""
    torch.manual_seed(5)
    found = blocks.KINDS[blocks.NAMES[kind]]
    codes = torch.randint(0, 16, (OUTPUTS, WIDTH), dtype=torch.uint8)
    units = (torch.rand(OUTPUTS, WIDTH // found.span) * 10 - 5).half()
    zeros = torch.randn(units.shape).half() if found.zeros else None
    numbers = Blocks(kind, codes.numpy(), units.numpy(), None if zeros is None else zeros.numpy())
    means = torch.tensor(found.values or [code - found.offset for code in range(16)])
    weight = means[codes.int()] * found.value * units.float().repeat_interleave(found.span, dim=1)
    if found.zeros:
        weight += zeros.float().repeat_interleave(found.span, dim=1)
    return part_of_blocks(numbers), weight


def matrix_of(kind: str) -> tuple[blocks.Part, torch.Tensor]:
    """A random matrix, and its values; those of a file by gguf's own reader."""
    if kind not in SIZES:
        return of_codes(kind)
    stored = GGMLQuantizationType[kind]
    raw = random_blocks(np.random.default_rng(3), OUTPUTS, WIDTH, stored)
    return part_of_blocks(read_blocks(raw, kind)), torch.from_numpy(dequantize(raw, stored))


@pytest.mark.parametrize("kind", KINDS)
def test_expanded_weights_are_those_that_were_stored_bit_by_bit(kind):
    part, wanted = matrix_of(kind)
    assert torch.equal(part.values(0, OUTPUTS), wanted)
    assert torch.equal(part.values(32, 64), wanted[32:64])


@pytest.mark.parametrize("kind", KINDS)
def test_products_are_exact_and_rows_do_not_depend_on_their_company(kind):
    part, weight = matrix_of(kind)
    torch.manual_seed(1)
    x = torch.randn(21, WIDTH) * torch.logspace(-2, 2, WIDTH)
    x[3, 64:128] = 0
    found = product(x, part)
    groups = x.double().view(len(x), -1, 32)
    step = groups.abs().amax(-1, keepdim=True).clamp(min=1e-30) / 127
    exact = ((groups / step).round() * step).flatten(1) @ weight.double().T
    size = x.double().abs() @ weight.double().abs().T
    assert ((found - exact).abs() / size).max() < 1e-6
    for rows in (1, 2, 3, 4, 5, 6, 16):
        assert torch.equal(product(x[:rows], part), found[:rows])
    assert torch.equal(product(x[20:], part), found[20:])


@pytest.mark.parametrize("form", FORMS)
def test_products_of_every_form_have_the_same_bits(form, monkeypatch):
    if not cpu_features.has(*FORMS[form]):
        pytest.skip("this processor has no such instructions")
    torch.manual_seed(2)
    x = torch.randn(2, WIDTH) * torch.logspace(-2, 2, WIDTH)
    parts = [matrix_of(kind)[0] for kind in KINDS]
    wanted = [product(x, part) for part in parts]
    monkeypatch.setattr(cpu_features, "features", lambda: frozenset(FORMS[form]))
    monkeypatch.setattr(matmul_blocks, "CALL_ROWS", 1)  # less to compile
    monkeypatch.setattr(
        sys.modules[__name__], "compiled_product", cache(compiled_product.__wrapped__)
    )
    for part, one in zip(parts, wanted, strict=True):
        assert torch.equal(product(x, part), one), part.kind.name


def product(x, part: blocks.Part) -> torch.Tensor:
    """(rows, OUTPUTS), in two runs of blocks."""
    rows = len(x)
    y, about = torch.zeros(rows, WIDTH, dtype=torch.int8), torch.zeros(rows, WIDTH // 32, 4)
    into, matrix = torch.zeros(rows, OUTPUTS), blocks.BlockMatrix((part,))
    compiled_product()(
        x.contiguous().data_ptr(), y.data_ptr(), about.data_ptr(), ctypes.addressof(matrix.records),
        into.data_ptr(), rows, WIDTH, OUTPUTS // 32,
    )  # fmt: skip
    return into


@cache
def compiled_product():
    """For the current features of the processor; functions of the module may be compiled for others."""
    from numba import njit

    from specdemo.kernels.parts import block_part_at

    quantize, multiply = (
        njit(error_model="numpy")(one.py_func)
        for one in (matmul_blocks.quantize_inputs, matmul_blocks.product)
    )

    @njit
    def run(x, y, about, record, into, rows, width, blocks_):
        quantize(x, width * 4, y, about, rows, width)
        part = block_part_at(record)
        multiply(y, about, rows, width, part, into, blocks_ * 32, 0, 1)
        multiply(y, about, rows, width, part, into, blocks_ * 32, 1, blocks_)

    return run
