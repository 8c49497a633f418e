"""EXPLAIN as a text: every section, the notes, the numbering, and never wider than 120 columns."""

from __future__ import annotations

import pytest

import everwhen as ew
from everwhen.algebra.explain import WIDTH, explain
from everwhen.core.emit import Emit
from everwhen.demo.nexmark import queries as nexmark
from everwhen.plan.explain import explain_text
from everwhen.plan.stages.stages import cut
from plans import STAGED

BID = ew.source("Bid", {"item": "int64", "price": "int64"}, insert_only=True, chronons=True)
ITEM = ew.source("Item", {"id": "int64", "seller": "string"}, keys="id", kind="constant")

WHOLE = """\
EXPLAIN best.sql
Read a plan from the bottom up: a step reads the steps indented below it.  In brackets is what is known of its stream:
insert-only, nothing is taken back; ordered, by start; chronon, lifetimes of one tick; key(…), no two rows alive
together agree on it; one row, at most one is alive at a time.

The plan as written
  1  Filter best > 5                                         [key(seller)]
  2  └─ Aggregate by seller: best = max(price)               [key(seller)]
  3     └─ Join on item = id
  4        ├─ Window rows 10                                 [ends in order]
  5        │  └─ Source Bid (item int64, price int64), inserts only, one tick each
  6        └─ Constant relation Item (id int64, seller string), key (id)

The plan as rewritten
  by share_common (2 times): equal subplans are computed once
  by drop_now_window: the now-window is the identity
  1  Aggregate by seller: best = max(price)                  [key(seller)]
  2  └─ Join on item = id
  3     ├─ Window rows 10                                    [ends in order]
  4     │  └─ Source Bid (item int64, price int64), inserts only, one tick each
  5     └─ Constant relation Item (id int64, seller string), key (id)

What runs, and what it keeps
  c is the latest CTI, the promise that nothing before it changes; ve is the end of a lifetime.  State goes as promises
  come in.
      source Bid                                        keeps nothing: it is insert-only
      source Item                                       keeps its events until ve < c, to check adjusts
   1  rows window (split left out: chronon) of Bid      keeps per partition the rows at or after the CTI and earlier
                                                          ones whose output end is at or after it
   2  join (hash table by key) of 1, Item               keeps left rows until ve ≤ the right CTI, right rows until ve ≤
                                                          the left CTI
   3  aggregate of 2                                    keeps per group the accumulators at the CTI and the edges after
                                                          it (min, max, …: also live rows until ve ≤ c)
      answer of 3                                       keeps per group the lifetimes said, until ve ≤ c

What may grow for ever
  nothing: every row goes when its lifetime has ended

On Spark
  Stage 1
"""


def test_the_whole_text() -> None:
    written = BID.rows(10).join(ITEM, on={"item": "id"}).group_by("seller").agg(best=ew.max("price"))
    logical = written.where(ew.col("best") > 5).node
    share = ("share_common", "equal subplans are computed once")
    applied = [share, ("drop_now_window", "the now-window is the identity"), share]
    stages = cut({"answer": written.node}, {}, lambda expr, schema: True)
    text = explain_text("best.sql", logical, written.node, applied, stages=stages)
    assert text.startswith(WHOLE)


def test_a_plan_that_is_not_rewritten() -> None:
    text = explain_text("q", BID.range(5).node, BID.range(5).node)
    assert "The plan as rewritten\n  nothing to rewrite\n" in text
    assert "as rewritten" not in explain_text("q", BID.range(5).node)
    assert "On Spark" not in text


def test_what_grows_is_marked() -> None:
    text = explain_text("q", BID.unbounded().select("item").distinct().node)
    assert "! Distinct (line 1 of the plan): it keeps every different row" in text
    assert "- Window rows 3 per item (line 1 of the plan)" in explain_text("q", BID.rows(3, partition_by="item").node)


def test_sweep_areas_of_joins() -> None:
    def area(**how: object) -> str:
        text = explain_text("q", BID.range(9).join(BID.range(5), **how).node)  # type: ignore[arg-type]
        return next(line for line in text.splitlines() if "join (" in line)

    assert "join (hash table by key)" in area(on={"item": "item"})
    assert "join (list sorted by value)" in area(where=ew.col("price") < ew.col("price_right"))
    assert "join (plain list)" in area(where=ew.col("price") + ew.col("price_right") == 7)


def test_a_step_that_is_read_again_is_named_by_its_line() -> None:
    window = BID.range(5)
    text = explain(window.where(ew.col("item") > 1).union(window).node, lambda node: "")
    assert text.splitlines() == [
        "1  Union",
        "2  ├─ Filter item > 1",
        "3  │  └─ Window range 5",
        "4  │     └─ Source Bid (item int64, price int64), inserts only, one tick each",
        "5  └─ (line 3 again)",
    ]


def test_notes_and_long_steps_go_on_in_the_next_line() -> None:
    wide = ew.source("W", {f"a_rather_long_column_{i}": "int64" for i in range(9)})
    lines = explain(wide.where(ew.col("a_rather_long_column_1") > 1).node, lambda node: "a note " * 20).splitlines()
    assert max(map(len, lines)) <= WIDTH
    assert lines[0] == "1  Filter a_rather_long_column_1 > 1"
    assert lines[1].startswith("   │    [a note a note") and lines[2] == "   │    a note a note a note a note]"
    assert lines[3].startswith("2  └─ Source W (a_rather_long_column_0 int64,")
    assert lines[4].startswith("          ")


@pytest.mark.parametrize("emit", [Emit.FINAL, Emit.CURRENT])
def test_every_plan_fits_the_width(emit: Emit) -> None:
    plans = {**{name: plan.build for name, plan in STAGED.items()}, **nexmark.QUERIES}
    for name, build in plans.items():
        node = build().node
        text = explain_text(name, node, node, emit=emit, stages=cut({"answer": node}, {}, lambda expr, schema: True))
        assert max(map(len, text.splitlines())) <= WIDTH, name


def test_a_stream_without_a_bound_is_told() -> None:
    text = "CREATE STREAM T (ts TIMESTAMP, a INT) ORDERED BY ts{}; SELECT a FROM T"
    for bound, told in (("", True), (" WITHIN 5 MINUTES", False)):
        node = ew.sql(text.format(bound)).node
        assert ("- T declares no WITHIN: unless" in explain_text("q", node, node)) == told
