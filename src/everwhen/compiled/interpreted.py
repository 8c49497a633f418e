"""Compiled loops run by Python itself, with the same results.

The functions that Numba compiles are plain Python, but not every difference between the two is without effect.  Each
is met here, and what is left is a rule for those who write loops:

* Functions that are called are Python functions, too, and not ways to compiled ones: a loop is interpreted with a copy
  of its module's names in which every compiled function stands for its interpreted self.  As in Numba, constants of a
  module are read once.
* Intrinsics have no Python code: `stands_for` names what does the same.
* Integers of NumPy wrap around as compiled ones do; NumPy's warnings about it are off.  Plain integers of Python do
  not: a loop may count and index with them, but hashes and bits must come from arrays or be converted
  (`np.uint64(x)`).
* Items of arrays narrower than 64 bits are computed with as they are, while Numba widens them: a loop converts
  them first (`np.int64(x)`).
* Two comparisons that are added are a truth value to NumPy, and a number to Numba: a loop converts them first.
* `np.argsort` takes equal items in the order in which Numba's own quicksort leaves them.
* Numbers are given back as Python's, as Numba does it.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numba.core.dispatcher import OmittedArg
from numba.core.registry import CPUDispatcher
from numba.misc.quicksort import make_py_quicksort

_STAND_INS: Final[dict[int, Callable[..., Any]]] = {}
_NAMES: Final[dict[int, dict[str, Any]]] = {}
"""The names that the interpreted functions of a module see, by the identity of the module's own."""


def stands_for(intrinsic: Any) -> Callable[[Any], Any]:
    """Mark a Python function as what an intrinsic of Numba does."""

    def mark(function: Any) -> Any:
        _STAND_INS[id(intrinsic)] = function
        return function

    return mark


def interpreted(loop: Any) -> Callable[..., Any]:
    """What calls a compiled function's Python code, in the way that the compiled one is called."""
    function = _plain_function(loop.py_func)

    def call(*args: Any) -> Any:
        if any(type(arg) is OmittedArg for arg in args):
            args = tuple(arg.value if type(arg) is OmittedArg else arg for arg in args)
        with np.errstate(all="ignore"):
            return _plain(function(*args))

    return call


def _plain_function(function: Any) -> Callable[..., Any]:
    plain = types.FunctionType(
        function.__code__, _names(function.__globals__), function.__name__, function.__defaults__, function.__closure__
    )
    plain.__kwdefaults__ = function.__kwdefaults__
    return plain


def _names(module: dict[str, Any]) -> dict[str, Any]:
    names = _NAMES.get(id(module))
    if names is None:
        names = dict(module)
        _NAMES[id(module)] = names  # before the others are looked at: two modules may name each other's functions
        for name, value in module.items():
            if value is np:
                names[name] = _NUMPY
            elif isinstance(value, CPUDispatcher):
                names[name] = _plain_function(value.py_func)
            elif id(value) in _STAND_INS:
                names[name] = _STAND_INS[id(value)]
    return names


def _plain(value: Any) -> Any:
    """Numbers as compiled code gives them back."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, tuple):
        items = [_plain(item) for item in value]
        return tuple(items) if type(value) is tuple else type(value)(*items)
    return value


_quicksort: Final = make_py_quicksort(is_argsort=True, is_np_array=True)


def _argsort(items: Any, kind: str = "quicksort") -> Any:
    return _quicksort.run_quicksort(items) if kind == "quicksort" else np.argsort(items, kind="stable")


_NUMPY: Final = types.SimpleNamespace(**{**vars(np), "argsort": _argsort})
