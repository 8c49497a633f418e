"""Asking for memory before it is needed.

State of many keys does not fit the caches, and a loop that decides by what it reads waits for each line in turn.  A
loop that asks for the records of keys some steps ahead finds them there when it comes to them.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from everwhen.compiled.interpreted import stands_for


@intrinsic
def prefetch(typingctx: Any, array: Any, row: Any) -> Any:
    """Bring the memory of a row of an array nearer; any number is fine as a row, since nothing is read."""
    signature = types.void(array, row)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0])
        stride = builder.extract_value(data.strides, 0)
        byte, word, flag = ir.IntType(8).as_pointer(), ir.IntType(64), ir.IntType(32)
        at = builder.add(builder.ptrtoint(data.data, word), builder.mul(stride, args[1]))
        kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
        function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(function, [builder.inttoptr(at, byte), flag(0), flag(3), flag(1)])
        return context.get_dummy_value()

    return signature, code


@stands_for(prefetch)
def _nothing(array: Any, row: Any) -> None:
    """Python has no use for it."""
