"""The code of a loop with all that is written into it: how much it is, and whether what is on disk was made of it.

Numba keeps compiled code until the file of its function changes.  But functions and constants of other files are
part of that code, too, and they may change alone.  So a loop on disk is also known by a digest of them.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from types import CodeType
from typing import Any, Final

import numpy as np
from numba.core.caching import FunctionCache
from numba.core.registry import CPUDispatcher

_DIGESTS: Final[dict[Any, str]] = {}
_SIZES: Final[dict[Any, int]] = {}


def code_size(function: Any) -> int:
    """Bytes of Python's code of a function and of the compiled ones that it calls."""
    size = _SIZES.get(function)
    if size is None:
        size = len(function.__code__.co_code)
        for _, value in _named(function):
            if isinstance(value, CPUDispatcher):
                size += code_size(value.py_func)
        _SIZES[function] = size
    return size


def code_digest(function: Any) -> str:
    """A digest of a function's code, of the constants that it names, and of the functions that it calls."""
    digest = _DIGESTS.get(function)
    if digest is None:
        _DIGESTS[function] = ""  # a function that calls itself
        code = function.__code__
        parts = [code.co_code.hex(), *map(_constant, code.co_consts), repr(code.co_names)]
        for name, value in _named(function):
            if isinstance(value, CPUDispatcher):
                parts.append(f"{name} {code_digest(value.py_func)}")
            elif isinstance(value, int | float | str | bytes | tuple | np.generic):
                parts.append(f"{name} {value!r}")
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        _DIGESTS[function] = digest
    return digest


class LoopCache(FunctionCache):
    """Numba's folder of compiled loops, where other functions' code counts as well."""

    def stamp(self) -> tuple[int, int] | None:
        """What changes when a loop's index is written; None if there is no index."""
        try:
            status = os.stat(self._cache_file._index_path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return (*super()._index_key(sig, codegen), code_digest(self._py_func))


def _named(function: Any) -> Iterator[tuple[str, Any]]:
    """The names of its module that a function uses, and what they stand for."""
    names = function.__globals__
    for name in function.__code__.co_names:
        if name in names:
            yield name, names[name]


def _constant(value: Any) -> str:
    return value.co_code.hex() if isinstance(value, CodeType) else repr(value)
