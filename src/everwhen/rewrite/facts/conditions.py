"""What rules ask about expressions: can they fail, what do they read once columns are replaced.

Whether they can fail is in `algebra/properties/failing.py`, whether they reject nulls in `nullability.py` beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from everwhen.algebra.expressions.build import Expr, Literal, Udf, col, conjuncts, walk
from everwhen.algebra.properties.failing import may_fail as may_fail
from everwhen.core.schema import Schema


def has_udf(expr: Expr) -> bool:
    """Whether a Python function of the user's is called."""
    return any(isinstance(each, Udf) for each in walk(expr))


def is_true(expr: Expr) -> bool:
    """Whether the condition is the constant TRUE."""
    return isinstance(expr, Literal) and expr.constant is True


# -- columns replaced --------------------------------------------------------------------------------------------------


def replaced(expr: Expr, columns: Mapping[str, Expr]) -> Expr:
    """The expression with columns replaced; a constant put in keeps the type that its column had.

    A bare integer constant takes any integer type, a column does not, so it is made a typed one first.
    """
    return expr.substitute({name: _typed(other) for name, other in columns.items()})


def _typed(expr: Expr) -> Expr:
    return replace(expr, untyped=False) if isinstance(expr, Literal) and expr.untyped else expr


def renamed(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression over columns of other names; names that are not listed stay."""
    return expr.substitute({old: col(new) for old, new in names.items()})


def without_repeats(conditions: Iterable[Expr]) -> list[Expr]:
    """The conditions that are not TRUE, each once, in their order."""
    found: list[Expr] = []
    by_text: dict[str, list[Expr]] = {}  # what is written alike is found at once: there may be thousands
    for each in conditions:
        alike = by_text.setdefault(str(each), [])
        if not is_true(each) and not any(each.equals(other) for other in alike):
            alike.append(each)
            found.append(each)
    return found


def parted(condition: Expr, movable: Iterable[bool], schema: Schema) -> tuple[list[Expr], list[Expr]]:
    """The conjuncts that may be moved away, and those that stay.

    A conjunct that may fail was guarded by the ones before it, so it moves only if all of them move with it.
    """
    all_of = conjuncts(condition)
    wanted = list(movable)
    if all(wanted):
        return all_of, []
    moved: list[Expr] = []
    stay: list[Expr] = []
    for each, want in zip(all_of, wanted, strict=True):
        (moved if want and not may_fail(each, schema) else stay).append(each)
    return moved, stay
