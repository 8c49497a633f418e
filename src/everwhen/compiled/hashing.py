"""Eight bytes at once: loads and stores of a word at any place of a byte array, and the bits of a word.

A loop over the bytes of a short string costs more than the string.  Whoever calls these has made sure that all eight
bytes lie within the array: nothing is checked.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from everwhen.compiled.interpreted import stands_for
from everwhen.compiled.njit import njit

_MIX: Final = np.uint64(0x9E3779B97F4A7C15)
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


@intrinsic
def lowest_bit(typingctx: Any, word: Any) -> Any:
    """The place of the lowest bit that is set in a word, which is not zero."""
    signature = types.int64(types.uint64)

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.cttz(args[0], ir.IntType(1)(1))

    return signature, code


@stands_for(load)
def _load(data: Any, at: Any) -> Any:
    return data[at : at + 8].view(np.uint64)[0]


@stands_for(store)
def _store(data: Any, at: Any, word: Any) -> None:
    data[at : at + 8].view(np.uint64)[0] = word


@stands_for(lowest_bit)
def _lowest_bit(word: Any) -> Any:
    return (int(word) & -int(word)).bit_length() - 1


@njit(cache=True, inline="always")
def word_at(data, a, b):
    """Up to eight bytes as one number."""
    if LITTLE and a + 8 <= len(data):
        word = load(data, a)
        return word if b - a >= 8 else word & ((np.uint64(1) << np.uint64(8 * (b - a))) - np.uint64(1))
    word = np.uint64(0)
    for j in range(min(b - a, 8)):
        word |= np.uint64(data[a + j]) << np.uint64(8 * j)
    return word


@njit(cache=True, inline="always")
def mixed(h, word):
    """A hash with one word more."""
    h = (h ^ word) * _MIX
    return h ^ (h >> np.uint64(29))
