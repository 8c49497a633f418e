"""The graph of a session: every part once, with what it did; and its picture."""

from __future__ import annotations

import everwhen as ew
from everwhen.core.time import INF, NEVER
from everwhen.engine.observe.graph_html import layers, places

TEXT = """
CREATE STREAM Bid (item INT, price INT);
CREATE STREAM Sale (item INT, buyer TEXT);
CREATE STREAM Best AS SELECT item, MAX(price) AS price FROM Bid WINDOW(RANGE 10) GROUP BY item;
SELECT * FROM Best;
SELECT item FROM Best WHERE price > 5;
SELECT B.item, S.buyer FROM Best B, Sale S WHERE B.item = S.item;
"""


def session() -> ew.SqlSession:
    made = ew.SqlSession()
    made.execute(TEXT)
    bids = [ew.Insert(1, 2, {"item": 7, "price": 9}), ew.Insert(4, 5, {"item": 8, "price": 3}), ew.Cti(3)]
    made.push({"Bid": ew.ElementBatch.of(bids, made.schema_of("Bid"))})
    return made


def test_every_part_stands_there_once_after_its_inputs() -> None:
    nodes = session().graph()
    names = [node.id for node in nodes]
    assert len(set(names)) == len(names)
    for at, node in enumerate(nodes):
        assert set(node.inputs) <= set(names[:at]), node
    assert [node.id for node in nodes if node.kind == "query"] == ["query q1", "query q2", "query q3"]
    (best,) = [node for node in nodes if node.name == "aggregate" and "q1" in node.queries]
    assert best.queries == ("q1", "q2") and (best.rows_in, best.rows_out) == (2, 2)


def test_it_tells_promises_what_is_kept_and_who_waits_for_whom() -> None:
    made = session()
    nodes = {node.id: node for node in made.graph()}
    assert (nodes["source Bid"].progress, nodes["source Bid"].largest_start) == (3, 4)
    assert nodes["source Sale"].progress == NEVER and nodes["source Sale"].silent is None
    (join,) = [node for node in nodes.values() if "source Sale" in node.waits_for]
    assert join.queries == ("q3",) and join.progress == NEVER
    assert nodes["query q1"].progress == 3 and nodes["query q1"].state_rows > 0
    made.close_input("Bid")
    ended = {node.id: node for node in made.graph()}["source Bid"]
    assert ended.ended and ended.progress == INF
    made.stop("q3")
    assert "source Sale" not in {node.id for node in made.graph()}


def test_events_that_a_level_gave_up_are_counted_at_their_source() -> None:
    made = ew.SqlSession()
    made.execute("CREATE STREAM S (x INT); SELECT MAX(x) AS m FROM S WINDOW(RANGE 5) CONSISTENCY WEAK")
    rows = [ew.Insert(t, t + 1, {"x": t}) for t in (50, 3)]
    made.push({"S": ew.ElementBatch.of(rows, made.schema_of("S"))})
    (source,) = [node for node in made.graph() if node.kind == "source"]
    assert source.dropped == 1 and source.name == "S"


def test_no_two_nodes_stand_in_one_place_and_all_stand_behind_their_inputs() -> None:
    nodes = session().graph()
    at = places(nodes)
    assert len(set(at.values())) == len(nodes)
    assert all(at[name][0] < at[node.id][0] for node in nodes for name in node.inputs)
    assert [name for name in layers(nodes)[-1] if name.startswith("query")] == layers(nodes)[-1]


def test_the_picture_of_a_query_has_its_part_only_and_escapes_what_it_is_told() -> None:
    made = ew.Session()
    s = ew.source("<b>S", {"x": "int64"})
    query = made.register("one & two", s.where(ew.col("x") > 1))
    made.register("other", ew.source("T", {"x": "int64"}))
    html = query._repr_html_()
    assert "&lt;b&gt;S" in html and "<b>" not in html and "one &amp; two" in html and ">T<" not in html
    assert ">T<" in made._repr_html_() and "2 queries run" in made._repr_html_()
