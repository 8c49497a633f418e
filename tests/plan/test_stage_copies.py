"""Which inputs of merges may come and go."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.core.time import NEVER
from everwhen.plan.stages.copies import Copies, copies_in

A, B, C = (ew.source(name, {"k": "string", "x": "int64"}) for name in "abc")


def found(query: ew.Stream) -> Copies:
    return copies_in({"out": query.node})


def test_a_copy_that_comes_as_it_is_may_begin_anew() -> None:
    plain = found(ew.lmerge(A.where(ew.col("x") > 0), B.range(3).select("k", "x"), C).distinct())
    assert plain.merged == plain.alone == plain.plain == {"a", "b", "c"}
    assert plain.check_joining("a", None) == NEVER and plain.check_joining("a", 7) == 7


def test_a_copy_that_is_computed_may_leave_only() -> None:
    counted = found(ew.lmerge(*(each.group_by("k").agg(n=ew.count()) for each in (A, B))))
    counted.check_leaving("a", ())
    with pytest.raises(ew.QueryError, match="start that as a query of its own"):
        counted.check_joining("a", None)
    with pytest.raises(ew.QueryError, match="'a' cannot leave: it is the last input"):
        counted.check_leaving("a", {"b"})


def test_what_is_read_elsewhere_stays() -> None:
    used = found(ew.lmerge(A, B).join(A.distinct(), on="k"))
    assert used.merged == {"a", "b"} and used.alone == {"b"}
    with pytest.raises(ew.QueryError, match="reads it elsewhere"):
        used.check_leaving("a", ())
    with pytest.raises(ew.QueryError, match=r"'c' is no input of a merge.*may come and go: b"):
        used.check_joining("c", None)
    assert found(A.distinct()) == Copies()


def test_a_merge_within_a_copy_is_one_that_remembers() -> None:
    nested = found(ew.lmerge(ew.lmerge(A, B), C))
    assert nested.alone == {"a", "b", "c"} and nested.plain == {"c"}
