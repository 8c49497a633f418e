"""Calls of loops that take named tuples, with the items of the tuples as arguments of their own.

Numba looks at the type of each argument of each call.  For arrays and numbers that takes 20 ns each, for a named tuple
of them a microsecond (measured), which a push of one element has to pay for each tuple of each loop.  So a loop that is
declared to take named tuples (`njit.loop_of`) gets an *entry*: a loop that takes the items, makes the tuples, which
costs compiled code nothing, and calls it.  Who calls from Python sees nothing of it; compiled code calls the loop
itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints


def flat_call(loop: Any, tuples: Mapping[str, type], compiled: Callable[[Any], Any]) -> Callable[..., Any]:
    """What calls a loop's entry, for the named tuples among its parameters and the decorator that makes loops."""
    function = loop.py_func
    names: dict[str, Any] = {"__name__": function.__module__, "_loop": loop}
    parameters = list(inspect.signature(function).parameters)
    taken, made, given = [], [], []
    for name in parameters:
        items, tuple_of_them = _items(name, tuples.get(name), names)
        taken += items
        made.append(tuple_of_them)
        given.append(_splat(name, tuples.get(name)))
    entry = _defined("entry", taken, f"_loop({', '.join(made)})", names, function)
    names["_entry"] = compiled(entry)
    return _defined("call", parameters, f"_entry({', '.join(given)})", names, function)


def _defined(name: str, parameters: list[str], result: str, names: dict[str, Any], function: Any) -> Any:
    """A function with this result, said to stand where the loop's own code stands: Numba's cache goes by the place."""
    text = f"def {name}({', '.join(parameters)}): return {result}"
    code = compile("\n" * (function.__code__.co_firstlineno - 1) + text, function.__code__.co_filename, "exec")
    exec(code, names)
    names[name].__qualname__ = f"{function.__qualname__}.{name}"
    return names[name]


def _items(name: str, kind: Any, names: dict[str, Any]) -> tuple[list[str], str]:
    """The parameters for an argument of a loop, and the expression that makes it of them."""
    if not _is_named_tuple(kind):
        return [name], name
    names[kind.__name__] = kind
    hints = get_type_hints(kind)
    fields = [_items(f"{name}_{field}", hints[field], names) for field in kind._fields]
    return [each for items, _ in fields for each in items], f"{kind.__name__}({', '.join(made for _, made in fields)})"


def _splat(expression: str, kind: Any) -> str:
    """The items of an argument, as they are given to the entry."""
    if not _is_named_tuple(kind):
        return expression
    hints = get_type_hints(kind)
    if not any(_is_named_tuple(hints[field]) for field in kind._fields):
        return f"*{expression}"
    return ", ".join(_splat(f"{expression}[{i}]", hints[field]) for i, field in enumerate(kind._fields))


def _is_named_tuple(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields")
