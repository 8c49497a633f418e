"""The source guard: bad elements are errors that name source and line, and leave everything as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.core.punctuation import Nothing, OneOf, Punctuation, Range
from everwhen.core.schema import Schema
from everwhen.core.time import INF, MAX_TIME, MIN_TIME, NEVER
from everwhen.engine.local import LocalRuntime
from everwhen.errors import InputError
from everwhen.operators.ingress.checked_batch import Arrived
from everwhen.operators.ingress.guard import Guard
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner
from everwhen.stream.element import Adjust, Cti, Element, Insert, Punct
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history
from operators.differential import EMITS, SCHEMA, run_all
from plans import S, T
from state_files import through_file

A, B = {"k": "a", "x": 1}, {"k": "b", "x": 2}
GOOD: list[Element] = [Insert(0, 9, A), Insert(2, 5, B), Adjust(0, 9, 7, A), Cti(4)]
REST: list[Element] = [Adjust(0, 7, 6, A), Insert(4, 8, B), Cti(INF)]


def punct(t: int = INF, **match: Any) -> Punct:
    """A promise until `t`; a plain value is a constant."""
    patterns = (Range, OneOf, Nothing)
    return Punct(Punctuation({name: p if isinstance(p, patterns) else OneOf((p,)) for name, p in match.items()}, t))


BAD: dict[str, tuple[list[Element], int, str]] = {
    "an insert behind the CTI": ([Insert(4, 6, A), Insert(3, 9, A)], 2, "an insert that starts at 3, behind the CTI 4"),
    "behind a CTI of the same batch": ([Cti(6), Insert(5, 9, A)], 2, "starts at 5, behind the CTI 6"),
    "an adjust that shrinks behind the CTI": ([Adjust(0, 7, 3, A)], 1, "an adjust that changes at 3, behind the CTI 4"),
    "a removal behind the CTI": ([Adjust(0, 7, 0, A)], 1, "changes at 0, behind the CTI 4"),
    "an adjust of an event that ended": ([Cti(8), Adjust(0, 7, 9, A)], 2, "changes at 7, behind the CTI 8"),
    "an adjust of an unknown row": ([Insert(5, 6, A), Adjust(0, 7, 6, B)], 2, "an event that is not there"),
    "an adjust of an unknown start": ([Adjust(1, 7, 6, A)], 1, "an event that is not there: \\[1, 7\\)"),
    "an adjust of an old end": ([Adjust(0, 9, 6, A)], 1, "an event that is not there: \\[0, 9\\)"),
    "an adjust twice": ([Adjust(0, 7, 6, A), Adjust(0, 7, 5, A)], 2, "an event that is not there"),
    "an adjust before its insert": ([Adjust(5, 9, 6, A), Insert(5, 9, A)], 1, "an event that is not there"),
    "an adjust of a removed event": ([Insert(5, 9, A), Adjust(5, 9, 5, A), Adjust(5, 9, 6, A)], 3, "is not there"),
    "an empty lifetime": ([Insert(5, 6, A), Cti(5), Insert(6, 6, A)], 3, "the lifetime \\[6, 6\\) is empty"),
    "a lifetime that ends before it starts": ([Insert(6, 5, A)], 1, "the lifetime \\[6, 5\\) is empty"),
    "an adjust to before the start": (
        [Insert(6, 9, A), Adjust(6, 9, 5, A)],
        2,
        "an adjust to 5, before the event's start 6",
    ),
    "a start at infinity": ([Insert(INF, INF, A)], 1, "out of range"),
    "a start too late": ([Insert(MAX_TIME + 1, INF, A)], 1, "out of range"),
    "an end too late": ([Insert(5, MAX_TIME + 1, A)], 1, "out of range"),
    "an adjust too late": ([Insert(5, 6, A), Adjust(5, 6, MAX_TIME + 1, A)], 2, "out of range"),
    "a CTI too late": ([Cti(MAX_TIME + 1)], 1, "the CTI .* is out of range"),
    "a punctuation that is broken": ([punct(k="a"), Insert(5, 6, B), Insert(5, 6, A)], 3, "has ruled out"),
    "a range that is broken": ([punct(x=Range(ge=1, lt=2)), Adjust(0, 7, 6, A)], 2, "has ruled out"),
    "a null that was ruled out": ([punct(k=None), Insert(5, 6, {"k": None, "x": 1})], 2, "has ruled out"),
    "a punctuation on an unknown column": ([punct(q=1)], 1, "unknown attribute 'q'"),
}


@pytest.mark.parametrize("emit", EMITS)
@pytest.mark.parametrize("name", BAD)
def test_a_bad_element_changes_nothing(name: str, emit: str) -> None:
    """The error names source, line and problem; then the query goes on as if the batch had never come."""
    bad, line, problem = BAD[name]
    query = S.range(3).group_by("k").agg(n=ew.count(), m=ew.max("x"))
    runtime = LocalRuntime(query, emit=emit)
    out = [*runtime.push({"S": batch_of(GOOD, SCHEMA, "input.jsonl")})["out"].elements()]
    state, progress = runtime.state_size().rows, runtime.progress
    with pytest.raises(InputError, match=problem) as caught:
        runtime.push({"S": batch_of(bad, SCHEMA, "input.jsonl")})
    assert (caught.value.source, caught.value.line) == ("input.jsonl", line)
    assert str(caught.value).startswith(f"input.jsonl:{line}: ")
    assert (runtime.state_size().rows, runtime.progress) == (state, progress)
    out += runtime.push({"S": batch_of(REST, SCHEMA, "input.jsonl")})["out"].elements()
    expected = run_all(query, emit, [{"S": batch_of([*GOOD, *REST], SCHEMA)}], close=False)
    assert_same_history(History.of(out, query.schema), History.of(expected, query.schema))


@pytest.mark.parametrize("bad", ["S", "T"])
def test_an_epoch_with_one_bad_batch_is_refused_as_a_whole(bad: str) -> None:
    """Otherwise the good batch could not be pushed again."""
    runtime = LocalRuntime(S.union(T).distinct(), emit="current")
    batches = {"S": batch_of(GOOD, SCHEMA, "s"), "T": batch_of(GOOD, SCHEMA, "t")}
    wrong = {**batches, bad: batch_of([*GOOD, Insert(3, 9, A)], SCHEMA, bad)}
    with pytest.raises(InputError, match=f"^{bad}:5: "):
        runtime.push(wrong)
    assert runtime.progress == {"S": NEVER, "T": NEVER}
    assert runtime.state_size().rows == 0
    expected = LocalRuntime(S.union(T).distinct(), emit="current").push(batches)["out"]
    assert [*runtime.push(batches)["out"].elements()] == [*expected.elements()]


def test_lines_count_on_over_batches() -> None:
    runtime = LocalRuntime(S)
    whole = batch_of([*GOOD, Insert(5, 6, A), Insert(3, 9, A)], SCHEMA, "file")
    runtime.push({"S": whole.slice(0, 3)})
    runtime.push({"S": whole.slice(3, 1)})
    with pytest.raises(InputError, match=r"^file:6: "):
        runtime.push({"S": whole.slice(4, 2)})


def test_a_source_without_a_file_is_named_by_its_name() -> None:
    with pytest.raises(InputError, match=r"^S:1: "):
        LocalRuntime(S).push({"S": batch_of([Adjust(0, 2, 1, A)], SCHEMA)})


def test_an_adjust_on_an_insert_only_source() -> None:
    source = ew.source("S", SCHEMA, insert_only=True)
    runtime = LocalRuntime(source)
    with pytest.raises(InputError, match=r"^S:2: an adjust on a source that is declared insert-only") as caught:
        runtime.push({"S": batch_of([Insert(0, 5, A), Adjust(0, 5, 3, A)], SCHEMA)})
    assert "insert_only=False" in caught.value.remedy
    assert [str(e) for e in runtime.push({"S": batch_of([Insert(0, 5, A)], SCHEMA)})["out"].elements()] == [
        "insert [0, 5) k='a' x=1"
    ]


WRONG_TYPES: dict[str, Schema] = {
    "another type": Schema.of([("k", pa.string()), ("x", pa.float64())]),
    "a narrower type": Schema.of([("k", pa.string()), ("x", pa.int32())]),
    "another order": Schema.of([("x", pa.int64()), ("k", pa.string())]),
    "a missing column": Schema.of([("k", pa.string())]),
    "another name": Schema.of([("k", pa.string()), ("y", pa.int64())]),
    "large strings": Schema.of([("k", pa.large_string()), ("x", pa.int64())]),
}


@pytest.mark.parametrize("name", WRONG_TYPES)
def test_columns_that_do_not_fit(name: str) -> None:
    schema = WRONG_TYPES[name]
    row = {"k": "a", "x": 1, "y": 1}
    batch = batch_of([Insert(0, 5, {column: row[column] for column in schema.names})], schema, "file")
    with pytest.raises(InputError, match=r"^file:1: .*the source has \(k string, x int64\)"):
        LocalRuntime(S).push({"S": batch})


def test_a_column_that_is_not_what_its_schema_says() -> None:
    good = batch_of([Insert(0, 5, A)], SCHEMA, "file")
    batch = ElementBatch(SCHEMA, good.op, good.vs, good.ve, good.vnew, (good.columns[0], good.columns[0]))
    with pytest.raises(InputError, match="column 'x' is of type string, not int64"):
        LocalRuntime(S).push({"S": batch})


def test_a_value_that_does_not_fit_its_column() -> None:
    with pytest.raises(InputError, match=r"^file:2: 'z' in column 'x' is not of type int64"):
        batch_of([Insert(0, 1, A), Insert(0, 1, {"k": "a", "x": "z"})], SCHEMA, "file")


def test_an_unknown_op() -> None:
    good = batch_of([Insert(0, 5, A)], SCHEMA, "file")
    batch = ElementBatch(SCHEMA, good.op + 9, good.vs, good.ve, good.vnew, good.columns, source="file")
    with pytest.raises(InputError, match=r"^file:1: unknown op 9"):
        LocalRuntime(S).push({"S": batch})


KEPT: dict[str, Callable[[], list[Element]]] = {
    "times at the limits": lambda: [Insert(MIN_TIME, MAX_TIME, A), Adjust(MIN_TIME, MAX_TIME, MAX_TIME - 1, A)],
    "an event that ends at the CTI grows": lambda: [Insert(0, 5, A), Cti(5), Adjust(0, 5, 8, A)],
    "an end without limit shrinks": lambda: [Insert(0, INF, A), Cti(3), Adjust(0, INF, 4, A)],
    "a chain of adjusts in one batch": lambda: [
        Insert(0, 5, A),
        Adjust(0, 5, 9, A),
        Adjust(0, 9, 2, A),
        Adjust(0, 2, 0, A),
        Insert(0, 5, A),
        Adjust(0, 5, 6, A),
    ],
    "equal events are adjusted one by one": lambda: [
        Insert(0, 5, A),
        Insert(0, 5, A),
        Adjust(0, 5, 3, A),
        Adjust(0, 5, 4, A),
        Adjust(0, 4, 3, A),
    ],
    "an adjust that changes nothing": lambda: [Insert(0, 5, A), Adjust(0, 5, 5, A), Adjust(0, 5, 4, A)],
    "a CTI that says nothing new": lambda: [Cti(5), Cti(3), Cti(5), Insert(5, 6, A)],
    "a punctuation of a past time": lambda: [punct(5, k="a"), Insert(5, 6, A), Insert(0, 1, B)],
    "an empty punctuation": lambda: [punct(k=Nothing()), Insert(5, 6, A)],
    "a null and a list of values": lambda: [
        punct(x=OneOf((2, 3))),
        Insert(0, 1, {"k": "a", "x": None}),
        Insert(0, 1, A),
    ],
    "the end of time": lambda: [Insert(0, 5, A), Cti(INF)],
}


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize("name", KEPT)
def test_what_is_legal_passes(name: str, size: int) -> None:
    elements = KEPT[name]()
    pushes = [{"S": batch_of(elements[at : at + size], SCHEMA)} for at in range(0, len(elements), size)]
    assert_same_history(History.of(run_all(S, "current", pushes), SCHEMA), History.of(elements, SCHEMA))


def test_the_guard_forgets_punctuations_that_the_cti_overtook() -> None:
    runtime = LocalRuntime(S)
    runtime.push({"S": batch_of([punct(5, k="a"), punct(k="b"), Cti(6)], SCHEMA)})
    assert [promise.t for promise in runtime._ingress.inputs["S"].intake.guard._promises] == [INF]


# -- ARRIVES IN ORDER --------------------------------------------------------------------------------------------------

IN_ORDER = [Insert(0, 9, A), Insert(2, 5, B), Insert(2, 6, A), Adjust(0, 9, 7, A), Cti(3)]


def arriving(arrives: str) -> LocalRuntime:
    return LocalRuntime(ew.source("S", SCHEMA, arrives=arrives))


@pytest.mark.parametrize("cut", range(5))
def test_an_order_that_is_kept(cut: int) -> None:
    """However it is cut into batches; an adjust names an event that came earlier, so it may go back."""
    runtime = arriving("in order")
    said = [*push(runtime, IN_ORDER[:cut]), *push(runtime, IN_ORDER[cut:])]
    assert_same_history(said, IN_ORDER)


@pytest.mark.parametrize(
    ("arrives", "first", "then", "line", "message"),
    [
        ("in order", [Insert(5, 9, A)], [Insert(4, 5, A)], 1, "starts at 4, before 5, where the one before it starts"),
        ("in order", [], [Insert(5, 9, A), Cti(3), Insert(4, 9, B)], 3, "starts at 4, before 5"),
        ("in order", [Insert(5, 9, A), Adjust(5, 9, 5, A)], [Insert(4, 9, B)], 1, "starts at 4, before 5"),
        ("strictly", [Insert(5, 9, A)], [Insert(6, 9, A), Insert(6, 7, B)], 2, "starts at 6, not after 6"),
        (
            "strictly",
            [Insert(5, 9, A)],
            [Cti(5), Insert(5, 6, B)],
            2,
            "come in order .ARRIVES IN ORDER STR",
        ),
    ],
)
def test_an_order_that_is_broken(
    arrives: str, first: list[Element], then: list[Element], line: int, message: str
) -> None:
    """It names the element and the one before, nothing of the epoch is taken, and the source goes on."""
    runtime = arriving(arrives)
    push(runtime, first)
    state = runtime.snapshot()
    for again in (runtime, arriving(arrives)):
        if again is not runtime:
            again.restore(state)
        with pytest.raises(InputError, match=message) as caught:
            push(again, then)
        assert (caught.value.source, caught.value.line) == ("S", line)
        assert "declare the source without it" in (caught.value.remedy or "")
        assert texts(push(again, [Insert(7, 8, A)])) == ["insert [7, 8) k='a' x=1"], "as if nothing had come"


def test_an_order_in_sql_and_in_explain() -> None:
    query = ew.sql("CREATE STREAM S (x INT) ARRIVES IN ORDER INSERT ONLY; SELECT x FROM S")
    assert "arrives in order" in str(query)
    with pytest.raises(InputError, match=r"S:2: .* starts at 1, before 4"):
        list(ew.run(query, {"S": [Insert(4, 5, {"x": 1}), Insert(1, 5, {"x": 1})]}))
    with pytest.raises(ew.QueryError, match="is no order"):
        ew.source("S", SCHEMA, arrives="sorted")  # type: ignore[arg-type]
    with pytest.raises(ew.QueryError, match="known whole"):
        ew.source("S", SCHEMA, kind="temporal", arrives="in order")
    with pytest.raises(ew.QueryError, match="declared in two ways"):
        ew.LocalRuntime({"a": ew.source("S", SCHEMA), "b": ew.source("S", SCHEMA, arrives="in order")})


def push(runtime: LocalRuntime, elements: list[Element]) -> list[Element]:
    return list(runtime.push({"S": ElementBatch.of(elements, SCHEMA)})["out"].elements())


def texts(elements: list[Element]) -> list[str]:
    return [str(e) for e in elements]


# --- the floor --------------------------------------------------------------------------------------------------------


def guarded(*batches: list[Element], floor: int | None = None, at: int = 0) -> tuple[Guard, list[tuple[int, ...]]]:
    """A guard whose floor is raised before a batch, and what it lets through: op, vs, ve, vnew."""
    guard = Guard("S", RowCodec(SCHEMA, Interner()))
    found: list[tuple[int, ...]] = []
    for number, elements in enumerate(batches):
        if number == at and floor is not None:
            guard.raise_floor(floor)
        out = guard.step(batch_of(elements, SCHEMA))
        guard.settle()
        found += zip(*(each.tolist() for each in (out.op, out.vs, out.ve, out.vnew)), strict=True)
    return guard, found


def test_below_the_floor_nothing_is_read() -> None:
    """What says something of later instants goes on as it is; progress and the largest start are of all."""
    elements = [Insert(1, 9, A), Insert(2, 10, A), Insert(3, 11, B), Cti(2), Insert(30, 31, A), Insert(12, 13, B)]
    guard, found = guarded(elements, floor=10)
    assert found == [(0, 3, 11, 0), (0, 30, 31, 0), (0, 12, 13, 0)]
    assert (guard.cti, guard.tau, guard.state_size().rows) == (2, 30, 3)


def test_a_few_below_the_floor() -> None:
    """Whether rows are picked before they are read or afterwards."""
    elements = [*(Insert(at, at + 20, {"k": f"k{at}", "x": at}) for at in range(10)), Cti(0), Insert(3, 4, A)]
    guard = Guard("S", RowCodec(SCHEMA, Interner()))
    guard.raise_floor(10)
    out = guard.step(batch_of([*elements, Insert(9, 12, B)], SCHEMA))
    assert out.vs.tolist() == [*range(10), 9] and guard.codec.column(out.rows, 1).to_pylist() == [*range(10), 2]


def test_adjusts_at_the_floor() -> None:
    """Those that name an end before it go unchecked, and are left out if they stay there."""
    before = [Insert(0, 20, A), Insert(1, 8, B)]
    after = [Adjust(1, 8, 9, B), Adjust(1, 9, 15, B), Adjust(2, 5, 12, A), Adjust(0, 20, 4, A), Adjust(0, 4, 7, A)]
    guard, found = guarded(before, after, floor=10, at=1)
    assert found[2:] == [(1, 1, 9, 15), (1, 2, 5, 12), (1, 0, 20, 4)]
    kept = guard.standing()
    assert kept is not None and sorted(zip(kept.lo.tolist(), kept.hi.tolist(), strict=True)) == [(1, 15), (2, 12)]
    guard.step(batch_of([Adjust(1, 15, 14, B), Adjust(2, 12, 2, A)], SCHEMA))
    guard.settle()
    assert guard.state_size().rows == 1


def test_above_the_floor_all_is_checked() -> None:
    guard, _ = guarded([Insert(0, 20, A)], floor=10)
    with pytest.raises(InputError, match="not there: \\[0, 19\\)") as caught:
        guard.step(batch_of([Insert(1, 2, B), Cti(0), Insert(2, 4, A), Adjust(0, 19, 30, A)], SCHEMA))
    assert caught.value.line == 4
    guard.undo()
    with pytest.raises(InputError, match="behind the CTI 3"):
        guard.step(batch_of([Cti(3), Insert(1, 2, B)], SCHEMA))


def test_an_event_that_ends_at_the_floor_and_the_cti_may_grow() -> None:
    _, found = guarded([Insert(0, 10, A), Cti(10)], [Adjust(0, 10, 15, A)], [Adjust(0, 15, 12, A)], floor=10, at=1)
    assert found == [(0, 0, 10, 0), (1, 0, 10, 15), (1, 0, 15, 12)]


def test_a_floor_that_is_passed_costs_nothing() -> None:
    guard, found = guarded([Insert(0, 30, A), Cti(20)], [Insert(20, 21, A), Adjust(0, 30, 25, A)], floor=10)
    assert found[1:] == [(0, 20, 21, 0), (1, 0, 30, 25)]
    assert guard._after_floor(Arrived(*([np.empty(0, np.int64)] * 4), (), 0, np.empty(0, np.int64))) is None


def test_a_guard_that_keeps_everything_has_no_floor() -> None:
    guard = Guard("S", RowCodec(SCHEMA, Interner()), whole=True)
    guard.raise_floor(10)
    assert guard.floor == NEVER


def test_the_floor_is_part_of_the_state() -> None:
    guard, _ = guarded([Insert(0, 20, A), Insert(1, 5, A)], floor=10)
    other = Guard("S", RowCodec(SCHEMA, Interner()))
    other.restore(through_file(guard.snapshot()))
    out = other.step(batch_of([Adjust(1, 5, 12, A), Adjust(0, 20, 15, A), Insert(3, 4, B)], SCHEMA))
    assert out.vs.tolist() == [1, 0]
