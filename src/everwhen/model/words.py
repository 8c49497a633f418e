"""Eight bytes at once: loads and stores of a word at any place of a byte array.

A loop over the bytes of a short string costs more than the string.  Whoever calls these has made sure that all eight
bytes lie within the array: nothing is checked.
"""

from __future__ import annotations

import sys
from typing import Any, Final

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

LITTLE: Final = sys.byteorder == "little"
"""Whether the first byte is a word's lowest; if not, words are read byte by byte."""


def _pointer(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    data = context.make_array(signature.args[0])(context, builder, args[0])
    return builder.bitcast(builder.gep(data.data, [args[1]]), ir.IntType(64).as_pointer())


@intrinsic
def load(typingctx: Any, data: Any, at: Any) -> Any:
    """The word that begins at byte `at` of a byte array."""
    signature = types.uint64(data, types.int64)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_pointer(context, builder, signature, args), align=1)

    return signature, code


@intrinsic
def store(typingctx: Any, data: Any, at: Any, word: Any) -> Any:
    """Write a word from byte `at` of a byte array on."""
    signature = types.void(data, types.int64, types.uint64)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _pointer(context, builder, signature, args), align=1)
        return context.get_dummy_value()

    return signature, code
