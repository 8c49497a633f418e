"""Stable names of operators: an operator is called by what it computes, not by where it stands.

A name is a word for people and a digest: of the logical node (its kind, its parameters, its expressions and, by
induction, all that is below it), of the operator's role in that node (a semi-join is several operators), of what it was
built to say (the form, the policy) and of what feeds it.  So

* the same query gives the same names, in every process and whatever else runs beside it;
* a part that two plans have in common has the same names in both, wherever it stands;
* operators of one name compute the same; where two of them run apart, the second one has a number behind its name.

Python functions count by their qualified names (module and name), not by identity: a restarted program finds its state
again.  What is left out: where a text names something, and how files of a source are read.

    >>> import everwhen as ew
    >>> from everwhen.core.emit import Emit
    >>> from everwhen.plan.lower import lower
    >>> s = ew.source("S", {"x": "int64"})
    >>> one = lower({"q": s.range(10).distinct().node}, Emit.CURRENT)
    >>> two = lower({"q": s.range(10).distinct().where(ew.col("x") > 1).node}, Emit.CURRENT)
    >>> [name.split()[0] for name in operator_names(two.operators).values()]
    ['window', 'distinct', 'filter']
    >>> operator_names(one.operators)[0] == operator_names(two.operators)[0]
    True
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from hashlib import blake2b
from typing import Any, Final
from weakref import WeakKeyDictionary

from everwhen.algebra.expressions.build import Expr, Literal
from everwhen.algebra.node import Node
from everwhen.algebra.nodes import Fixpoint, LoopToken, Recursion, Source, walk
from everwhen.plan.physical import PlacedOperator

_LEFT_OUT: Final = {Source: ("axis", "times"), Recursion: ("place",)}
"""Fields that do not change what is computed."""
_SIZE: Final = 6
"""Bytes of a digest: two of a million different operators agree with a chance of one to five hundred."""
_KNOWN: WeakKeyDictionary[Node, str] = WeakKeyDictionary()


def operator_names(
    placed: Mapping[int, PlacedOperator] | Sequence[PlacedOperator], order: Iterable[int] | None = None
) -> dict[int, str]:
    """The names of operators, by their numbers.  `order`: in which order those that are equal are counted; by default
    that of their numbers."""
    found = placed if isinstance(placed, Mapping) else dict(enumerate(placed))
    seen: Counter[str] = Counter()
    names: dict[int, str] = {}
    for number in sorted(found) if order is None else order:
        if number in names:
            continue
        what = found[number].what
        seen[what] += 1
        names[number] = what if seen[what] == 1 else f"{what} #{seen[what]}"
    return names


def what_it_computes(role: str, node: Node, built: Sequence[Any], inputs: Iterable[str]) -> str:
    """The name of an operator, if no other is equal to it.  `role` says which of a node's operators it is, `built` what
    it was built to say, `inputs` what feeds it."""
    word = role.split(" (")[0]
    return f"{word} {_digest([role, structure(node), *map(told, built), *inputs])}"


def structure(root: Node) -> str:
    """A digest of a plan: what it computes, in all its parameters."""
    if (known := _KNOWN.get(root)) is not None:
        return known
    loops = _loops(root)
    below: dict[Node, str] = {}
    for node in walk(root):
        found = None if loops else _KNOWN.get(node)  # how a loop is numbered depends on where one looks from
        if found is None:
            parts = [_field(node, each.name, below, loops) for each in fields(node) if _counts(node, each.name)]
            found = _digest([type(node).__name__, *parts])
        below[node] = found
        if not loops:
            _KNOWN[node] = found
    _KNOWN[root] = below[root]
    return below[root]


def _loops(root: Node) -> dict[LoopToken, int]:
    """Loops by numbers: tokens are objects of this process."""
    found: dict[LoopToken, int] = {}
    for node in walk(root):
        if isinstance(node, Fixpoint | Recursion):
            found.setdefault(node.token, len(found))
    return found


def _counts(node: Node, field: str) -> bool:
    return all(field not in left_out for kind, left_out in _LEFT_OUT.items() if isinstance(node, kind))


def _field(node: Node, name: str, below: Mapping[Node, str], loops: Mapping[LoopToken, int]) -> str:
    value = getattr(node, name)
    if isinstance(value, Node):
        return below[value]
    if isinstance(value, LoopToken):
        return f"loop {loops[value]}"
    if isinstance(value, tuple) and value and all(isinstance(each, Node) for each in value):
        return f"({', '.join(below[each] for each in value)})"
    return told(value)


def told(value: Any) -> str:
    """A parameter as a text that is the same in every process."""
    match value:
        case Literal(constant, type_, untyped):
            return f"literal({type_}, {untyped}, {type(constant).__name__}, {constant!r})"
        case Node():
            return structure(value)
        case Enum():
            return f"{type(value).__name__}.{value.name}"
        case Expr():
            return _fields_told(value)
        case tuple() | list():
            return f"({', '.join(map(told, value))})"
        case set() | frozenset():
            return f"{{{', '.join(sorted(map(told, value)))}}}"
        case dict():
            return f"{{{', '.join(sorted(f'{told(key)}: {told(each)}' for key, each in value.items()))}}}"
        case partial():
            return f"partial({told(value.func)}, {told(value.args)}, {told(value.keywords)})"
        case type():
            return f"{value.__module__}.{value.__qualname__}"
        case _ if is_dataclass(value):
            return _fields_told(value)
        case _ if callable(value):
            named = value if hasattr(value, "__qualname__") else type(value)
            return f"function {getattr(named, '__module__', '')}.{named.__qualname__}"
        case _ if getattr(type(value), "__repr__", None) is object.__repr__:  # its address is of this process
            return f"{type(value).__module__}.{type(value).__qualname__}"
    return repr(value)


def _fields_told(value: Any) -> str:
    parts = (f"{each.name}={told(getattr(value, each.name))}" for each in fields(value))
    return f"{type(value).__name__}({', '.join(parts)})"


def _digest(parts: Iterable[str]) -> str:
    digest = blake2b(digest_size=_SIZE)
    for part in parts:
        data = part.encode()
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()
