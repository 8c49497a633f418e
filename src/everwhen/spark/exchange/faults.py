"""Errors on their way from a task to the driver: values with a type, never texts in which somebody searches.

A task that gives up sends a control row (`layout.ERROR`) whose note is an object: the kind of the error, its message,
the place in the input where that is known, and the stage.  The driver makes the same error of it again.  What the
driver treats in a way of its own has a kind of its own here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from everwhen import errors
from everwhen.errors import EverwhenError, InputError


class WrongRows(InputError):
    """Rows that cannot be read as elements.  Tasks only count them; the driver looks for the first one."""


class RowsBehind(InputError):
    """Rows that came behind the promise of a source that allows none.  Tasks only see that there are some."""


_KINDS: Final[Mapping[str, type[EverwhenError]]] = {
    kind.__name__: kind
    for kind in (
        InputError, WrongRows, RowsBehind, errors.QueryError, errors.TimeRangeError, errors.EvaluationError,
        errors.StateError, errors.SinkError,
    )
}  # fmt: skip


def fault_text(error: EverwhenError, stage: int) -> str:
    """An error as the note of a control row."""
    kind = next((name for name in (each.__name__ for each in type(error).__mro__) if name in _KINDS), "EverwhenError")
    told: dict[str, Any] = {"kind": kind, "message": str(error), "stage": stage}
    if isinstance(error, InputError):
        told["place"] = {"source": error.source, "line": error.line}
        told["problem"], told["remedy"] = error.problem, error.remedy
    return json.dumps(told)


def fault_of(told: Mapping[str, Any]) -> EverwhenError:
    """The error that such a note tells of, with its kind and its place."""
    kind = _KINDS.get(told["kind"], EverwhenError)
    if issubclass(kind, InputError) and "problem" in told:
        return kind(told["problem"], **told["place"], remedy=told["remedy"])
    return kind(told["message"])
