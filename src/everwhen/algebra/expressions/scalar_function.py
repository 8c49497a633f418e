"""An entry of the table of scalar functions, and the checks on arguments that entries share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from everwhen.algebra.expressions.compute import Compiled, Rule
from everwhen.errors import QueryError

Thunk = Callable[[], Any]


@dataclass(frozen=True)
class ScalarFunction:
    """One function: `usage` is how to call it, `rule` its columnar form, `definition` its meaning for values.

    It takes `least` to `most` arguments (None: any number).  A strict one is null where an argument is, and its
    definition gets values; the definition of another gets its arguments unevaluated.
    """

    usage: str
    rule: Rule
    definition: Callable[..., Any]
    least: int = 1
    most: int | None = 1
    strict: bool = True

    @property
    def name(self) -> str:
        return self.usage.partition("(")[0]

    def check_count(self, count: int) -> None:
        if count < self.least or (self.most is not None and count > self.most):
            raise QueryError(f"{self.name} does not take {count} arguments; write {self.usage}")


def require(args: Sequence[Compiled], where: str, wanted: str, *kinds: str) -> None:
    """QueryError unless every argument is of one of the kinds (or null)."""
    for arg in args:
        if arg.kind not in (*kinds, "null"):
            raise QueryError(f"{where} needs {wanted}; {arg.text} is of type {arg.type}")


def constant_value(arg: Compiled, where: str, wanted: str, accept: Callable[[Any], bool]) -> Any:
    """The value of an argument that must be a constant, and one that `accept` takes."""
    if arg.constant is None:
        raise QueryError(f"{where} needs {wanted} as a constant; {arg.text} is computed")
    value = arg.constant.as_py()
    if value is None or not accept(value):
        raise QueryError(f"{where} needs {wanted}, not {arg.text}")
    return value
