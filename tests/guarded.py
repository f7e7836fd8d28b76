"""Memory at the edges of protected pages: compiled code that reads or writes beyond it ends the process.

`guard` moves all memory of compiled passes there, so call it in the child that `in_child` runs its work in.
"""

import ctypes
import faulthandler
import mmap
import os
import traceback
from collections.abc import Callable
from types import SimpleNamespace

import numpy as np
import torch
from torch import Tensor

from specdemo.engine.cache import RollbackLayer
from specdemo.kernels import job, runtime
from specdemo.kernels.runtime import CompiledLayers
from specdemo.models.decoders import packed

PAGE = mmap.PAGESIZE
ADDRESS = Tensor.data_ptr


def at_edge(tensor: Tensor, missing: int) -> Tensor:
    """Copy a tensor to memory between protected pages, where it ends at the second. missing: last bytes that are protected, too"""
    room = -(-tensor.nbytes // PAGE) * PAGE
    behind = (missing // PAGE + 1) * PAGE
    region = mmap.mmap(-1, PAGE + room + behind, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(region))
    offset = PAGE + room - tensor.nbytes + missing
    copy = torch.frombuffer(region, dtype=tensor.dtype, count=tensor.numel(), offset=offset)
    copy = copy.view(tensor.shape).copy_(tensor)
    for address, size in ((begin, PAGE), (begin + PAGE + room, behind)):
        refused = ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(size), 0)
        assert not refused
    return copy


class Guard:
    """The guarded memory of a process. short: memory whose end is protected, too, see `guard`"""

    def __init__(self, short: str) -> None:
        self.short = short
        self.kept: dict[int, Tensor] = {}  # by address

    def keep(self, tensor: Tensor, kind: str, missing: int = runtime.LINE) -> Tensor:
        if not tensor.numel():
            return tensor
        copy = at_edge(tensor, missing if kind == self.short else 0)
        self.kept[ADDRESS(copy)] = copy
        return copy

    def data_ptr(self, tensor: Tensor) -> int:
        if ADDRESS(tensor) in self.kept or not tensor.numel():
            return ADDRESS(tensor)
        assert tensor.is_contiguous()
        return ADDRESS(self.keep(tensor, "inputs"))

    def zeros(self, *shape: int, dtype: torch.dtype) -> Tensor:
        if dtype != torch.uint8:
            return torch.zeros(*shape, dtype=dtype)
        # A pass gets twice the scratch memory that it needs, and a line to align it.
        needed = shape[0] // 2 - runtime.LINE
        return self.keep(torch.zeros(needed, dtype=dtype), "scratch", needed // 2 // PAGE * PAGE)

    def numbers(self, count: int, dtype: type) -> np.ndarray:
        return self.keep(torch.from_numpy(np.zeros(count, dtype)), "job").numpy()

    def made(self, make: Callable[..., Tensor], kind: str = "results") -> Callable[..., Tensor]:
        return lambda *given, **options: self.keep(make(*given, **options), kind)

    def guarded(self, write: Callable[..., object]) -> Callable[..., object]:
        """Return a function that writes addresses of guarded memory."""

        def call(*given: object) -> object:
            Tensor.data_ptr = lambda tensor: self.data_ptr(tensor)
            try:
                return write(*given)
            finally:
                Tensor.data_ptr = ADDRESS

        return call


def guard(short: str = "") -> None:
    """Guard the memory of every compiled pass of this process from now on.

    short: memory whose end is protected, too, as if it were too small: "inputs", "results", "cache" or "scratch"
    """
    own = Guard(short)
    runtime.write_layer = own.guarded(runtime.write_layer)
    for name in ("_fixed", "_write"):
        setattr(CompiledLayers, name, own.guarded(getattr(CompiledLayers, name)))
    RollbackLayer._grown = own.made(RollbackLayer._grown, "cache")
    made = {"empty": own.made(torch.empty), "empty_like": own.made(torch.empty_like)}
    runtime.torch = packed.torch = SimpleNamespace(**vars(torch) | made | {"zeros": own.zeros})
    job.np = SimpleNamespace(**vars(np) | {"zeros": own.numbers})


def in_child(work: Callable[[], None]) -> int:
    """Run a function in a copy of this process. returns: 0, 1 after an error, or the signal that ended it, negative"""
    child = os.fork()
    if not child:
        code = 1
        try:
            faulthandler.disable()
            torch.set_num_threads(1)  # the threads of its parent are not there
            work()
            code = 0
        except Exception:  # noqa: BLE001 - the child has no other way to report it
            traceback.print_exc()
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
