"""ASOF JOIN by neighbours against its definition: all pairs, and the first of each left row.

A condition that relates both sides in another way leaves the text with the definition's plan; here it is one that
holds wherever the inequality does."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen.algebra import nodes as n
from everwhen.algebra.properties.derive import properties
from everwhen.core.time import INF
from everwhen.engine.local import LocalRuntime
from everwhen.operators.join import join as join_module
from everwhen.operators.join.join import JoinOperator
from everwhen.reference import evaluate
from everwhen.stream.element import Cti, Element, Insert
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history
from example_counts import examples_per_case
from operators.differential import EMITS, Trial, streams_of

A = ew.source("A", {"k": "int64", "t": "int64", "f": "double", "s": "string"})
B = ew.source("B", {"k": "int64", "t": "int64", "f": "double", "s": "string", "l": pa.list_(pa.int64())})
ANYHOW: Final = "(A.s IS NULL OR A.s IS NOT NULL OR B.s IS NULL)"
"""True of all pairs, and about both sides."""

CONDITIONS: Final = {
    "not after": "A.k = B.k AND A.t >= B.t",
    "before": "A.k = B.k AND A.t > B.t",
    "not before": "A.k = B.k AND B.t >= A.t",
    "after": "A.t < B.t AND A.k = B.k",
    "floats": "A.k = B.k AND A.f >= B.f",
    "floats, forward": "A.k = B.k AND A.f < B.f",
    "whole numbers and floats": "A.k = B.k AND A.t >= B.f",
    "floats and whole numbers": "A.k = B.k AND A.f <= B.t",
    "texts": "A.k = B.k AND A.s >= B.s",
    "without keys": "A.t >= B.t",
    "two keys": "A.k = B.k AND A.s = B.s AND A.t >= B.t",
    "one column with two keys": "A.k = B.k AND A.t = B.k AND A.f >= B.f",
    "the time is a key, too": "A.k = B.t AND A.t >= B.t",
    "computed keys": "A.k + 1 = B.k + B.t AND A.f >= B.f",
    "keys of other types": "A.k = B.f AND A.t >= B.t",
    "computed times": "A.k = B.k AND A.f * 2 >= B.f - 1",
    "times that may fail": "A.k = B.k AND A.t + 1 >= B.t",
    "equal computed times": "A.k = B.k AND A.f >= abs(B.f)",
    "conditions on one side": "A.k = B.k AND A.t >= B.t AND B.s = 'a' AND A.s IS NOT NULL",
    "a constant": "A.k = B.k AND A.t >= B.t AND 1 = 1",
}


def asked(kind: str, on: str) -> ew.Stream:
    shown = "A.k, A.t, A.f, A.s, B.k AS bk, B.t AS bt, B.f AS bf, B.s AS bs, B.l AS bl"
    return ew.sql(f"SELECT {shown} FROM A {kind} JOIN B ON {on}", A, B)


def ranked(query: ew.Stream) -> bool:
    return any(isinstance(each, n.Rank) for each in n.walk(query.node))


_KEYS: Final = (0, 0, 0, 1, None)
_NUMBERS: Final = (-1, 0, 1, 2, 2, 3, 5, 2**53, 2**53 + 1, None)
_FLOATS: Final = (-math.inf, -1.0, -0.0, 0.0, 0.5, 1.0, 2.0, 2.0, 3.0, 2.0**53, math.inf, math.nan, None)
_LISTS: Final = ([], [1], [1, 2], None)


def events(source: ew.Stream, rng: random.Random) -> History:
    found: list[Element] = []
    for _ in range(rng.randint(0, 14)):
        row: dict[str, Any] = {
            "k": rng.choice(_KEYS),
            "t": rng.choice(_NUMBERS),
            "f": rng.choice(_FLOATS),
            "s": rng.choice(("a", "b", None)),
            "l": rng.choice(_LISTS),
        }
        start = rng.randint(0, 20)
        end = INF if rng.random() < 0.2 else start + rng.randint(1, 12)
        element = Insert(start, end, {name: row[name] for name in source.schema.names})
        found += [element] * rng.choice((1, 1, 1, 2))
    return History.of(found, source.schema)


def cut(streams: Mapping[str, Sequence[Element]], rng: random.Random) -> list[dict[str, ElementBatch]]:
    left = {name: list(elements) for name, elements in streams.items()}
    found: list[dict[str, ElementBatch]] = []
    while any(left.values()):
        epoch: dict[str, ElementBatch] = {}
        for source in (A, B):
            name, size = source.node.name, rng.choice((20, 8, 3, 1, 1, 0))  # type: ignore[attr-defined]
            epoch[name] = batch_of(left[name][:size], source.schema, name)
            del left[name][:size]
        found.append(epoch)
    return found


@pytest.mark.property
@pytest.mark.parametrize("by_value", [False, True], ids=["by lifetime", "by value"])
@pytest.mark.parametrize("kind", ["ASOF", "ASOF LEFT"])
@pytest.mark.parametrize("on", CONDITIONS.values(), ids=list(CONDITIONS))
def test_as_defined_for_any_stream(on: str, kind: str, by_value: bool) -> None:
    query, definition = asked(kind, on), asked(kind, f"{on} AND {ANYHOW}")
    assert not ranked(query) and ranked(definition)

    @settings(max_examples=examples_per_case(2))
    @given(st.integers(0, 2**32))
    def check(seed: int) -> None:
        rng = random.Random(seed)
        histories = {"A": events(A, rng), "B": events(B, rng)}
        with pytest.MonkeyPatch.context() as patch:
            if by_value:
                patch.setattr(join_module, "_FEWEST", 1)
                patch.setattr(join_module, "_MET", 0)
            trial = Trial(query, rng.choice(EMITS), histories)
            trial.oracle = evaluate(definition.node, histories)
            for epoch in cut(streams_of(histories, rng), rng):
                trial.push(epoch)
                if rng.random() < 0.2:
                    trial.restart()
            trial.close()

    check()


@pytest.mark.parametrize("kind", ["ASOF", "ASOF LEFT"])
def test_instants_stay_apart(kind: str) -> None:
    """What lives for single ticks is counted row by row above the join, whatever partners' neighbours do."""
    c = ew.source("C", {"k": "int64", "t": "int64"}, chronons=True)
    text = "SELECT bt, t FROM (SELECT C.t, B.t AS bt FROM C {} JOIN B ON C.k = B.k AND C.t >= B.t{}) P WINDOW(ROWS 3)"
    query, definition = (ew.sql(text.format(kind, more), c, B) for more in ("", " AND (C.k + B.k) IS NOT NULL"))
    assert not ranked(query) and ranked(definition)
    for seed in range(6):
        rng = random.Random(seed)
        single = [
            Insert(t, t + 1, {"k": 0, "t": rng.choice((2, 3))}) for t in range(16) for _ in range(rng.choice((1, 2)))
        ]
        others = [e for e in streams_of({"B": events(B, rng)}, rng)["B"] if not isinstance(e, Cti)]
        answers = []
        for each in (query, definition):
            runtime = LocalRuntime(each, emit=rng.choice(EMITS))
            out = list(runtime.push({"C": batch_of(single, c.schema, "C")})["out"].elements())
            out += runtime.push({"B": batch_of(others, B.schema, "B")})["out"].elements()
            answers.append([*out, *runtime.close()["out"].elements()])
        assert_same_history(*answers)


# -- the plan ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "on",
    [
        "A.k = B.k AND A.t >= B.t AND A.s <> B.s",
        "A.k = B.k AND A.f >= B.f AND A.t + B.t > 1",
        "A.k = B.k AND A.t >= B.t + 1",
        "A.k = B.k AND A.t >= B.t AND B.k / B.t > CAST(B.s AS INT)",
    ],
)
def test_candidates_that_differ_from_row_to_row_are_ranked(on: str) -> None:
    """So are those of which something is computed that may fail: it has been for pairs only."""
    assert ranked(asked("ASOF", on))


def test_a_row_has_one_partner_so_a_key_stays_one() -> None:
    text = "CREATE STREAM A (k INT KEY, t INT); CREATE STREAM B (k INT, t INT); SELECT A.k, B.t FROM A {} JOIN B {}"
    for kind in ("ASOF", "ASOF LEFT"):
        assert properties(ew.sql(text.format(kind, "USING (k, t)")).node).keys == {frozenset({"k"})}
    assert not properties(ew.sql(text.format("", "USING (k)")).node).keys


def test_nothing_is_said_of_rows_whose_partner_stays() -> None:
    query = ew.sql("SELECT A.t, B.t AS u FROM A ASOF JOIN B ON A.k = B.k AND A.t >= B.t", A, B)
    runtime = LocalRuntime(query, emit="all")

    def push(source: ew.Stream, *times: int) -> list[str]:
        name = source.node.name  # type: ignore[attr-defined]
        rows = [Insert(t, INF, dict.fromkeys(source.schema.names) | {"k": 1, "t": t}) for t in times]
        return [str(e) for e in runtime.push({name: batch_of(rows, source.schema, name)})["out"].elements()]

    assert push(B, 1) == [] and push(A, 2, 3) == ["insert [2, ∞) t=2 u=1", "insert [3, ∞) t=3 u=1"]
    assert push(B, 5) == [] and push(B, 8) == []
    assert push(A, 6) == ["insert [6, ∞) t=6 u=5"]


def test_the_work_goes_with_the_rows() -> None:
    """Of one key, with nothing that ends: candidates that are looked at one by one."""
    looked_at = []
    for count in (400, 1600):
        seen = 0

        def checked(self: JoinOperator, pairs: Any, condition: Any, original: Any = JoinOperator._checked) -> Any:
            nonlocal seen
            seen += len(pairs.mine)
            return original(self, pairs, condition)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(JoinOperator, "_checked", checked)
            rows = {
                name: [Insert(t, INF, dict.fromkeys(source.schema.names) | {"k": 1, "t": t}) for t in range(count)]
                for name, source in (("A", A), ("B", B))
            }
            query = ew.sql("SELECT A.t, B.t AS u FROM A ASOF JOIN B ON A.k = B.k AND A.t >= B.t", A, B)
            assert len(list(ew.run(query, rows, emit="final"))) == count + 1
        looked_at.append(seen)
    assert looked_at[1] < 6 * looked_at[0]
