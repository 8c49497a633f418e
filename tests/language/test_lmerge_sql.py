"""LMERGE in FROM: what is read, what it becomes, what is refused and where."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.algebra.nodes import LMerge, walk
from everwhen.core.merge_policy import MergePolicy
from everwhen.core.time import NEVER
from everwhen.errors import SqlError
from everwhen.language.program import program

STREAMS = """
CREATE STREAM a (k INT, v INT);
CREATE STREAM b (k INT, v INT);
CREATE STREAM c (x INT, y INT);
CREATE STREAM d (k INT, v TEXT);
CREATE STREAM i (k INT, v INT) INSERT ONLY;
CREATE STREAM j (k INT, v INT) INSERT ONLY;
"""


def merge(text: str, tick: str = "1ms") -> LMerge:
    (found,) = [n for n in walk(program(STREAMS + text, tick=tick).query.node) if isinstance(n, LMerge)]
    return found


@pytest.mark.parametrize(
    ("words", "policy"),
    [
        ("", MergePolicy(leader=True)),
        ("WITH FIRST", MergePolicy()),
        ("WITH LEADER, LAZY", MergePolicy(leader=True, lazy=True)),
        ("WITH quorum 2, eager", MergePolicy(quorum=2)),
        ("WITH FINAL", MergePolicy(final=True)),
        ("WITH AUDIT", MergePolicy(leader=True, audit=True)),
        ("WITH LAZY, AUDIT, FIRST, R4", MergePolicy(lazy=True, audit=True, kernel="R4")),
    ],
)
def test_the_words_of_a_merge(words: str, policy: MergePolicy) -> None:
    assert merge(f"SELECT * FROM LMERGE(a, b {words}) m").policy == policy


def test_streams_that_are_never_corrected_are_followed_at_once() -> None:
    assert merge("SELECT * FROM LMERGE(i, j)").policy == MergePolicy()
    assert merge("SELECT * FROM LMERGE(i, b)").policy == MergePolicy(leader=True)


def test_copies_may_be_right_from_an_instant_on() -> None:
    assert merge("SELECT * FROM LMERGE(a, b SINCE 40)").since == (NEVER, 40)
    assert merge("SELECT * FROM LMERGE(a SINCE -7, b SINCE 0)").since == (-7, 0)
    at = merge("SELECT * FROM LMERGE(a, b SINCE TIMESTAMP '1970-01-01 00:01:00')", tick="1s")
    assert at.since == (NEVER, 60)


def test_since_is_still_a_name() -> None:
    assert merge("SELECT since.k FROM LMERGE(a since, b) since").names == ("since", "b")


def test_columns_are_called_as_in_the_first_copy() -> None:
    found = merge("SELECT k, v FROM LMERGE(a, c, (SELECT v, k FROM b) x, (SELECT k, v FROM b WHERE k > 1)) m")
    assert found.schema.names == ("k", "v")
    assert found.names == ("a", "c", "x", "input 4")


def test_a_merge_has_windows_and_stands_in_conversions_joins_and_merges() -> None:
    text = "SELECT p.k, COUNT(*) AS n FROM LMERGE(a, b) p WINDOW(RANGE 5), LMERGE(b, c) q WHERE p.k = q.k GROUP BY p.k"
    assert len([n for n in walk(program(STREAMS + text).query.node) if isinstance(n, LMerge)]) == 2
    assert merge("SELECT k FROM ISTREAM(LMERGE(a, b)) x").names == ("a", "b")
    nested = program(STREAMS + "SELECT k FROM LMERGE(LMERGE(a, b) ab, b) x").query.node
    assert sum(isinstance(n, LMerge) for n in walk(nested)) == 2


@pytest.mark.parametrize(
    ("text", "message", "at"),
    [
        ("LMERGE(a)", "name at least two", "LMERGE(a)"),
        ("LMERGE(a, zz)", "unknown stream 'zz'", "zz"),
        ("LMERGE(a, d)", "the first has the columns (k int64, v int64), this one (k int64, v string)", "d"),
        ("LMERGE(a, b WITH QUORUM 3)", "a quorum is of 1 to 2 inputs", "QUORUM 3"),
        ("LMERGE(a, b WITH QUORUM 0)", "a quorum is of 1 to 2 inputs", "QUORUM 0"),
        ("LMERGE(a, b WITH QUORUM x)", "how many inputs must say it", "x"),
        ("LMERGE(a, b WITH EAGER, LAZY)", "LAZY does not go with EAGER", "LAZY"),
        ("LMERGE(a, b WITH AUDIT, AUDIT)", "AUDIT is there already", "AUDIT)"),
        ("LMERGE(a, b WITH FINAL, LAZY)", "nothing to be LAZY with", "LAZY"),
        ("LMERGE(a, b WITH SOME)", "expected FIRST or LEADER", "SOME"),
        ("LMERGE(a, b SINCE 1.5)", "an instant in ticks", "1.5"),
        ("LMERGE(a, b SINCE TIMESTAMP 'noon')", "a timestamp such as", "b SINCE"),
        ("LMERGE(a, b SINCE TIMESTAMP 5)", "a timestamp in quotation marks", "5"),
        ("LMERGE(a, b) m(x, y)", "columns are renamed in a subquery", "x"),
        ("LMERGE(a, a JOIN b ON a.k = b.k)", "put the join into (SELECT …)", "a JOIN"),
    ],
)
def test_what_is_refused_has_its_place(text: str, message: str, at: str) -> None:
    query = f"SELECT k FROM {text}"
    with pytest.raises(SqlError) as bad:
        program(STREAMS + query)
    assert message in str(bad.value)
    place = (STREAMS + query).rindex(text) + text.index(at)
    assert bad.value.start == place


def test_lmerge_is_no_function() -> None:
    with pytest.raises(SqlError, match="stands in FROM"):
        program(STREAMS + "SELECT LMERGE(a, b) FROM a")


def test_one_stream_out_of_copies() -> None:
    query = ew.sql(STREAMS + "SELECT k, COUNT(*) AS n FROM LMERGE(a, b WITH FINAL) WINDOW(RANGE 3) GROUP BY k")
    row = {"k": 1, "v": 1}
    inputs = {
        "a": [ew.Insert(0, 1, row), ew.Insert(2, 3, row), ew.Cti(9)],
        "b": [ew.Insert(2, 3, row), ew.Insert(0, 1, row), ew.Cti(5)],
    }
    assert [str(each) for each in ew.run(query, inputs, emit="final", batch=1)] == [
        "insert [0, 2) k=1 n=1",
        "insert [2, 3) k=1 n=2",
        "insert [3, 5) k=1 n=1",
        "cti 9",
        "cti ∞",
    ]
