"""The code of a loop with all that is written into it: how much it is, and whether what is on disk was made of it.

Numba keeps compiled code until the file of its function changes.  But functions and constants of other files are
part of that code, too, and they may change alone.  So a loop on disk is also known by a digest of them, and by the
fields of the named tuples that it takes: compiled code knows them by their places.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any, Final

import numpy as np
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numba.core.registry import CPUDispatcher
from numba.types import BaseTuple, NamedTuple, NamedUniTuple

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
            elif isinstance(value, type) and issubclass(value, tuple):
                parts.append(f"{name} {_shape(value)}")
        digest = hashlib.sha256("\n".join(parts).encode()).hexdigest()
        _DIGESTS[function] = digest
    return digest


class _Index(IndexDataCacheFile):
    """Numba's index of the compiled versions of a loop."""

    def _load_index(self) -> dict[Any, str]:
        """Types of arguments are looked up by their names; an index with types that are no longer there is none."""
        try:
            found: dict[Any, str] = super()._load_index()
        except (AttributeError, ImportError):
            return {}
        return found


class LoopCache(FunctionCache):
    """Numba's folder of compiled loops, where other functions' code counts as well."""

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache_file.__class__ = _Index

    def stamp(self) -> tuple[int, int] | None:
        """What changes when a loop's index is written; None if there is no index."""
        try:
            status = os.stat(self._cache_file._index_path)
        except OSError:
            return None
        return status.st_mtime_ns, status.st_size

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        return (*super()._index_key(sig, codegen), code_digest(self._py_func), *_shapes(sig))


def _named(function: Any) -> Iterator[tuple[str, Any]]:
    """The names of its module that a function uses, and what they stand for."""
    names = function.__globals__
    for name in function.__code__.co_names:
        if name in names:
            yield name, names[name]


def _shapes(types: Iterable[Any]) -> Iterator[str]:
    """The named tuples among types of arguments, and inside of them."""
    for type_ in types:
        if isinstance(type_, NamedTuple | NamedUniTuple):
            yield _shape(type_.instance_class)
        if isinstance(type_, BaseTuple):
            yield from _shapes(type_)


def _shape(tuple_class: Any) -> str:
    return f"{tuple_class.__module__}.{tuple_class.__qualname__} {getattr(tuple_class, '_fields', ())}"


def _constant(value: Any) -> str:
    return value.co_code.hex() if isinstance(value, CodeType) else repr(value)
