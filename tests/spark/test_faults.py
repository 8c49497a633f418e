"""An error of a task arrives at the driver as the same error: its kind, its message, its place."""

from __future__ import annotations

import pytest

from everwhen.errors import (
    EvaluationError,
    EverwhenError,
    InputError,
    QueryError,
    SinkError,
    SinkLostError,
    StateError,
    TimeRangeError,
)
from everwhen.spark.exchange.messages import Failure, RowsBehind, WrongRows, decode, encode, kind_of


def arrived(error: EverwhenError) -> EverwhenError:
    found = decode(kind_of(Failure), encode(Failure.of(error, 3)))
    assert isinstance(found, Failure) and found.stage == 3
    return found.raised()


@pytest.mark.parametrize(
    "error",
    [
        QueryError("no"), StateError("gone"), SinkError("full"), TimeRangeError("far"), EvaluationError("1/0"),
        EverwhenError("plain"), InputError("wrong"), InputError("wrong", source="S"),
        InputError("wrong", source="S", line=7, remedy="mend it"), WrongRows("2 rows", source="S"),
        RowsBehind("late", source="S"),
    ],
    ids=str,
)  # fmt: skip
def test_an_error_arrives_as_it_was(error: EverwhenError) -> None:
    found = arrived(error)
    assert type(found) is type(error) and str(found) == str(error)
    if isinstance(error, InputError) and isinstance(found, InputError):
        assert (found.problem, found.source, found.line, found.remedy) == (
            error.problem,
            error.source,
            error.line,
            error.remedy,
        )


def test_a_kind_that_is_not_known_is_the_next_one_above() -> None:
    assert type(arrived(SinkLostError("gone"))) is SinkError
    assert type(Failure("SystemExit", "made up", 1).raised()) is EverwhenError
    assert str(Failure("InputError", "S: wrong", 1).raised()) == "S: wrong"
