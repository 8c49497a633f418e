"""Planning takes time in proportion to the columns, not to their square."""

from __future__ import annotations

import time

import pytest

import everwhen as ew


def seconds(text: str) -> float:
    """Of CPU time, the best of three: a collection of garbage in between is nobody's planning."""

    def once() -> float:
        started = time.process_time()
        ew.sql(text)
        return time.process_time() - started

    return min(once() for _ in range(3))


def starred(columns: int) -> str:
    declared = ", ".join(f"c{i} INT" for i in range(columns))
    return f"CREATE STREAM S ({declared}); SELECT * FROM S WHERE c0 > 0"


def listed(columns: int) -> str:
    declared = ", ".join(f"c{i} INT" for i in range(columns))
    return f"CREATE STREAM S ({declared}); SELECT {', '.join(f'c{i}' for i in range(1, columns))} FROM S"


@pytest.mark.parametrize("query", [starred, listed])
def test_planning_is_linear_in_the_columns(query) -> None:  # type: ignore[no-untyped-def]
    seconds(query(10))
    assert seconds(query(8_000)) < 25 * seconds(query(1_000))  # 8 if linear, 64 if quadratic
