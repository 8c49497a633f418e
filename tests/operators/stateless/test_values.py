"""Constant rows: said once, with the promise of everything, whatever restarts come between."""

from __future__ import annotations

import pyarrow as pa
import pytest

import everwhen as ew
from everwhen.algebra.table_nodes import Values
from everwhen.core.schema import Schema
from everwhen.core.time import INF, NEVER
from everwhen.errors import QueryError
from everwhen.operators.stateless.values import ValuesOperator
from operators.stepping import Stepped, codec_of, said

SCHEMA = Schema.of([("k", pa.string()), ("x", pa.int64())])
NODE = Values(SCHEMA, (("a", 1), ("a", 1), (None, None)))
CODEC = codec_of({"k": pa.string(), "x": pa.int64()})
ALL = {(0, INF, "a", 1): 2, (0, INF, None, None): 1}


def test_all_rows_come_once_and_everything_is_promised() -> None:
    stepped = Stepped(lambda: ValuesOperator(NODE, CODEC))
    assert stepped.operator.unfinished
    assert stepped.step() == ALL and stepped.frontier.time == INF
    assert not stepped.operator.unfinished
    assert stepped.step() == {} and stepped.frontier.time == INF


def test_a_restart_does_not_say_them_again() -> None:
    stepped = Stepped(lambda: ValuesOperator(NODE, CODEC))
    stepped.restart()
    assert stepped.step() == ALL
    stepped.restart()
    assert stepped.step() == {} and not stepped.operator.unfinished


def test_who_joins_later_sees_all_of_them() -> None:
    operator = ValuesOperator(NODE, CODEC)
    operator.step([], [], NEVER)
    since, changes = operator.standing([])
    assert (since, said(changes)) == (NEVER, ALL)


def test_another_partition_has_none() -> None:
    stepped = Stepped(lambda: ValuesOperator(NODE, CODEC, here=False))
    assert stepped.step() == {} and stepped.frontier.time == INF


def test_rows_are_as_wide_as_the_columns() -> None:
    with pytest.raises(QueryError, match="2 columns, and one of 1"):
        Values(SCHEMA, (("a",),))


def test_a_query_of_constants_alone_needs_no_input() -> None:
    query = ew.sql("SELECT COUNT(*) AS n, MAX(y) AS y FROM (VALUES (1, 'a'), (2, 'b')) AS t(x, y) WHERE x > 1")
    for level in (ew.STRONG, ew.MIDDLE):
        assert [str(e) for e in ew.run(query, {}, level)] == ["insert [0, ∞) n=1 y='b'", "cti ∞"]


def test_queries_of_a_session_share_them_and_join_later() -> None:
    s = ew.source("S", {"k": "string"})
    session = ew.Session()
    text = "SELECT S.k, v FROM S JOIN (VALUES ('a', 1), ('b', 2)) AS t(k, v) ON S.k = t.k"
    first = session.register("first", ew.sql(text, s))
    session.push({"S": ew.ElementBatch.of([ew.Insert(1, 9, {"k": "a"})], s.schema)})
    session.register("second", ew.sql(text + " WHERE v > 1", s))
    alone = session.register("alone", ew.sql("VALUES (7)"))
    answers = session.push({"S": ew.ElementBatch.of([ew.Insert(2, 9, {"k": "b"}), ew.Cti(5)], s.schema)})
    assert first.valid_from == NEVER and alone.valid_from == NEVER
    assert [str(e) for e in answers["first"].elements()] == ["insert [2, 9) k='b' v=2", "cti 5"]
    assert [str(e) for e in answers["second"].elements()] == ["insert [2, 9) k='b' v=2", "cti 5"]
