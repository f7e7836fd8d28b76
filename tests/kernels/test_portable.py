"""Products for any processor: the same numbers, on a plain x86-64 and, as far as code is generated, on ARM; and teams of our own."""

import ctypes
import threading

import numpy as np
import pytest
import torch

pytest.importorskip("numba")

import llvmlite.binding as llvm
from numba import carray, cfunc, njit, types

from specdemo.kernels import cpu_features, matmul_vectors, packing, parts, simd, team
from specdemo.kernels import job as jobs

INTEL = ("llvm.x86.", "pshufb", "vpmaddwd")
COUNTED_DOWN = "@llvm.x86.atomic.sub.cc"
ROWS, WIDTH, OUTPUTS, GROUP = 3, 128, 64, 32

pytestmark = [
    pytest.mark.skipif(
        not team.runs_here(), reason="the compiled pass does not run on this processor or system"
    ),
    pytest.mark.xdist_group("portable"),  # compiled once
]


@pytest.fixture(scope="module")
def compiled():
    """A product and a softmax, compiled for a processor without the features of `cpu_features`."""
    patch = pytest.MonkeyPatch()
    patch.setattr(cpu_features, "features", frozenset)
    # Compiled anew: these functions may have been compiled for this processor before.
    quantize, product = (
        njit(nogil=True, error_model="numpy")(one.py_func)
        for one in (matmul_vectors.quantize_inputs, matmul_vectors.product)
    )

    @cfunc(types.void(*[types.intp] * 7), nopython=True)
    def run(x, y, about, layer, table, into, own):
        quantize(x, WIDTH * 4, y, about, ROWS, WIDTH, GROUP, True)
        matrix, blocks = parts.layer_at(layer).qkv, OUTPUTS // 32
        product(y, about, ROWS, WIDTH, matrix, table, GROUP, into, OUTPUTS, 0, blocks, own)
        simd.softmax(x, 7, np.float32(0.5))

    yield run
    patch.undo()


def products(run) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Computed and expected: products of random rows and levels, and the softmax of the first values of each row."""
    torch.manual_seed(0)
    levels = torch.randint(0, 16, (OUTPUTS, WIDTH))
    scale, zero = (torch.randn(OUTPUTS, WIDTH // GROUP).bfloat16() for _ in range(2))
    matrix = packing.pack_codes(levels, scale, zero)
    spread = [one.float().repeat_interleave(GROUP, dim=1) for one in (scale, zero)]
    x, record = torch.randn(ROWS, WIDTH), jobs.LayerStructure()
    matrix.write(record.qkv)
    table, _ = matmul_vectors.meanings(packing.AFFINE)
    y, about = torch.zeros(16, WIDTH, dtype=torch.int16), torch.zeros(2, ROWS, WIDTH // GROUP)
    into, own = torch.zeros(ROWS, OUTPUTS), torch.zeros(8192, dtype=torch.uint8)
    wanted = x @ ((levels - 8) * spread[0] + spread[1]).T
    shares = (x.flatten()[: 7 * 16].view(7, 16) / 2).softmax(dim=0)
    run(*(one.data_ptr() for one in (x, y, about)), ctypes.addressof(record), *(one.data_ptr() for one in (table, into, own)))  # fmt: skip
    found = x.flatten()[: 8 * 16].view(8, 16)
    return into, wanted, found[:7] / found[7], shares


def near(found, wanted, softmax, shares) -> None:
    assert float((found - wanted).norm() / wanted.norm()) < 2e-4
    torch.testing.assert_close(softmax, shares, rtol=1e-5, atol=1e-7)


def test_products_without_the_processors_own_instructions_are_right(compiled):
    assert "llvm.x86" not in compiled.inspect_llvm()
    near(*products(compiled.ctypes))


def for_target(run, triple: str, processor: str = "generic"):
    """The code of a compiled function for another processor: its LLVM module, and the machine that it is for."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    machine = llvm.Target.from_triple(triple).create_target_machine(
        cpu=processor, opt=2, jit=True, codemodel="jitdefault"
    )
    given = [one for one in run.inspect_llvm().splitlines() if not one.startswith("target ")]
    # Numba links its counting of references, which this processor's code generator has changed already.
    own = [one.replace(" immarg", "") if COUNTED_DOWN in one else one for one in given]
    module = llvm.parse_assembly("\n".join(own).replace(COUNTED_DOWN, "@counted_down"))
    module.triple, module.data_layout = triple, str(machine.target_data)
    module.verify()
    return module, machine


def is_neon(run, triple: str) -> None:
    """A compiled function becomes vector instructions of ARM64, without any of x86."""
    module, machine = for_target(run, triple)
    code = machine.emit_assembly(module)
    assert not any(name in str(module) + code for name in INTEL)
    lines = [line.split() for line in code.splitlines()]
    found = {words[0].split(".")[0] for words in lines if words}
    # 16 table lookups, products of 4 integers, and fused products of 4 float32 per instruction.
    assert {"tbl", "mla", "fmla"} <= found


@pytest.mark.parametrize("triple", ["aarch64-apple-darwin", "aarch64-unknown-linux-gnu"])
def test_on_arm_they_are_neons_instructions(compiled, triple):
    is_neon(compiled, triple)


@pytest.mark.skipif(
    cpu_features.has_vectors(), reason="the pass is compiled for AVX2: set NUMBA_CPU_NAME=generic"
)
def test_the_whole_pass_is_neons_instructions():
    from specdemo.kernels.draft_loop import run_in_team

    # Compile again: the cache on disk contains machine code only.
    anew = cfunc(types.void(types.intp), nopython=True)(run_in_team.__wrapped__)
    is_neon(anew, "aarch64-apple-darwin")


@pytest.mark.skipif(
    cpu_features.platform.machine() not in cpu_features.X86, reason="this is no x86-64"
)
def test_on_a_plain_x86_they_give_the_same(compiled):
    """As the first processors of that family had it, with SSE2 alone."""
    module, machine = for_target(compiled, llvm.get_default_triple(), "x86-64")
    assert "ymm" not in machine.emit_assembly(module)
    engine = llvm.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    address = engine.get_function_address(compiled.native_name)
    near(*products(ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 7)(address)))


@cfunc(types.void(types.intp), nopython=True)
def count_rounds(address):
    """Each thread writes its round, waits, and counts the threads that have not come as far; then waits again."""
    part = carray(simd.int64s_at(address), 3)
    job, thread, threads = part[0], part[1], part[2]
    places = carray(simd.int64s_at(job), 2 + threads)
    for number in range(300):
        places[2 + thread] = number
        parts.meet(job, threads)
        for other in range(threads):
            if parts.now_at(job + 16 + other * 8) != number:
                parts.add_one(job + 8)
        parts.meet(job, threads)


@pytest.mark.parametrize(("threads", "callers"), [(3, 2), (1, 1)])
def test_threads_of_our_own_wait_for_each_other(threads, callers):
    """Three threads with two concurrent callers, and a team of one, which runs in its caller."""
    own, places = team.OwnTeam(threads), np.zeros((callers, 2 + threads), dtype=np.int64)
    running = [
        threading.Thread(target=own.run, args=(count_rounds.ctypes, place.ctypes.data))
        for place in places
    ]
    for one in running:
        one.start()
    for one in running:
        one.join(60)
    assert places.tolist() == [[600 * threads, 0, *[299] * threads]] * callers


def test_teams_of_our_own_can_be_asked_for(monkeypatch):
    monkeypatch.setenv(team.OWN_TEAM, "1")
    assert not team.is_borrowed.__wrapped__()
    monkeypatch.setenv(team.OWN_TEAM, "0")
    assert team.is_borrowed.__wrapped__() == (team.openmp() is not None)
