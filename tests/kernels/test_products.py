"""Products of packed matrices, softmax and gates of the compiled pass are those of torch."""

import ctypes
from functools import cache

import numpy as np
import pytest
import torch
from passes import error
from torch.nn import functional as F

from specdemo.kernels import cpu_features, packing, runtime
from specdemo.kernels import job as jobs

pytestmark = [
    pytest.mark.usefixtures("compiled_pass"),
    pytest.mark.xdist_group("products"),  # compiled once
]


@pytest.mark.parametrize(("bits", "group"), [(4, 32), (4, 64), (8, 64)])
@pytest.mark.parametrize("rows", [1, 5, 16, 17, 40])
def test_products_are_those_of_the_decoded_matrix(bits, group, rows):
    torch.manual_seed(0)
    width, outputs = 128, 96
    matrix, weight = of_levels(outputs, width, group) if bits == 4 else of_bytes(outputs, width)
    assert matrix.bits == bits
    x = torch.randn(rows, width)
    found = product(x, matrix, outputs, group)
    # Round the inputs: to bfloat16, or to integers of fifteen bits in each group.
    assert error(found, x @ weight.T) < (0.003 if cpu_features.has_tiles() else 2e-4)
    alone = torch.cat([product(one[None], matrix, outputs, group) for one in x])
    assert torch.equal(found, alone)


def of_levels(outputs: int, width: int, group: int) -> tuple[packing.Packed, torch.Tensor]:
    levels = torch.randint(0, 16, (outputs, width))
    scale, zero = torch.rand(outputs, width // group), torch.randn(outputs, width // group)
    matrix = packing.pack_codes(levels, scale, zero)
    scale, zero = (one.bfloat16().float().repeat_interleave(group, dim=1) for one in (scale, zero))
    return matrix, (levels - 8) * scale + zero


def of_bytes(outputs: int, width: int) -> tuple[packing.Packed, torch.Tensor]:
    """A random 8-bit matrix with very different scales, and its values."""
    codes = torch.randint(-127, 128, (outputs, width // packing.GROUP_INPUTS, packing.GROUP_INPUTS))
    codes[..., 5] = 127
    scales = 2.0 ** torch.randint(-9, 9, (outputs, width // packing.GROUP_INPUTS, 1))
    weight = (codes * scales).flatten(1)
    matrix = packing.whole_numbers(weight)
    assert torch.equal(matrix.values(32, outputs), weight[32:])
    return matrix, weight


def product(x, matrix: packing.Packed, outputs: int, group: int) -> torch.Tensor:
    rows, width = x.shape
    padded = -(-rows // 16) * 16
    y = torch.zeros(padded, width, dtype=torch.bfloat16)
    about = torch.zeros(2, padded, width // group)
    into, own = torch.zeros(rows, outputs), torch.zeros(8192 + 128 * padded, dtype=torch.uint8)
    record = jobs.LayerStructure()
    matrix.write(record.qkv)
    table, _ = runtime.meanings(packing.AFFINE)
    shapes = runtime._tile_shapes()[min(rows, 16)]
    compiled_product()(
        shapes.ctypes.data, x.data_ptr(), y.data_ptr(), about.data_ptr(), ctypes.addressof(record),
        table.data_ptr(), into.data_ptr(), own.data_ptr(), rows, width, group, outputs // 32,
    )  # fmt: skip
    return into


@cache
def compiled_product():
    from numba import njit

    from specdemo.kernels.attention import products
    from specdemo.kernels.parts import layer_at

    @njit
    def run(shapes, x, y, about, layer, table, into, own, rows, width, group, blocks):
        products.begin(shapes)
        products.quantize_inputs(x, width * 4, y, about, rows, width, group, True)
        matrix = layer_at(layer).qkv
        products.product(
            y, about, rows, width, matrix, table, group, into, blocks * 32, 0, blocks, own
        )
        products.end()

    return run


def test_softmax_and_gates_are_torchs():
    from numba import njit

    from specdemo.kernels import simd

    torch.manual_seed(0)
    scores = 30 * torch.randn(41, 16)
    scores[7, 3] = -1e30  # hidden
    found = scores.clone()
    gates, up = 20 * torch.randn(4, 16), torch.randn(4, 16)
    into = torch.zeros(4, 16)

    @njit
    def run(scores_, gates_, up_, into_):
        simd.softmax(scores_, 40, np.float32(0.25))
        simd.gate(gates_, up_, into_, 4)

    run(found.data_ptr(), gates.data_ptr(), up.data_ptr(), into.data_ptr())
    wanted = (scores[:40] * 0.25).softmax(dim=0)
    torch.testing.assert_close(found[:40] / found[40], wanted, rtol=1e-5, atol=1e-9)
    assert found[7, 3] == 0
    torch.testing.assert_close(into, F.silu(gates) * up)
