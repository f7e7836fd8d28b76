"""What products ask of a processor, in LLVM's own operations: for all processors without AVX2, ARM64 above all.

LLVM finds the instructions: NEON's `tbl`, `mla` and `fmla`, or those of an older x86-64.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir

from specdemo.kernels import llvm

TABLE = 16  # entries of a table


def permuted(builder: Any, table: Any, codes: Any) -> Any:
    """Entries of a table by codes of 4 bits. table: bytes, of which TABLE count; codes: as many bytes as are wanted

    One extraction an entry: LLVM makes one look-up of sixteen of them where the processor has it.
    """
    kind = ir.VectorType(llvm.I8, TABLE)
    entries = builder.shuffle_vector(table, table, _lanes(0, TABLE))
    parts = []
    for first in range(0, codes.type.count, TABLE):
        wanted = builder.shuffle_vector(codes, codes, _lanes(first, TABLE))
        found = ir.Constant(kind, ir.Undefined)
        for lane in range(TABLE):
            number = ir.Constant(llvm.I32, lane)
            code = builder.zext(builder.extract_element(wanted, number), llvm.I32)
            entry = builder.extract_element(entries, code)
            found = builder.insert_element(found, entry, number)
        parts.append(found)
    return builder.shuffle_vector(*parts, _lanes(0, codes.type.count))


def _lanes(first: int, count: int) -> Any:
    return ir.Constant(ir.VectorType(llvm.I32, count), list(range(first, first + count)))


def add_pairs(builder: Any, total: Any, codes: Any, inputs: Any) -> Any:
    """16 int32: total += sums of the products of neighbours. codes, inputs: 32 int16

    Both of a pair lie in 32 bits: the first is below the second.
    """
    sixteen = ir.Constant(llvm.INTS, [16] * llvm.LANES)
    pairs = [builder.bitcast(one, llvm.INTS) for one in (codes, inputs)]
    first = [builder.ashr(builder.shl(one, sixteen), sixteen) for one in pairs]
    second = [builder.ashr(one, sixteen) for one in pairs]
    return builder.add(builder.add(total, builder.mul(*first)), builder.mul(*second))
