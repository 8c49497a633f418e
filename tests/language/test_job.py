"""The text of a job: what it declares, and what is wrong with it at which place."""

from __future__ import annotations

import pytest

from everwhen.algebra import nodes as n
from everwhen.errors import SqlError
from everwhen.language.job import job_program
from everwhen.language.program import program

BID = "CREATE STREAM Bid (item INT, price INT) SOURCE file('bids.jsonl');"
BEST = BID + "CREATE STREAM Best AS SELECT item, MAX(price) AS price FROM Bid WINDOW(RANGE 10) GROUP BY item;"


def wrong(text: str) -> SqlError:
    with pytest.raises(SqlError) as bad:
        job_program(text)
    return bad.value


def test_sources_and_sinks_with_their_options_and_places():
    text = """
        CREATE STREAM Bid (item INT, price INT) SOURCE kafka('localhost:9092', topic = 'bids', most = 5, strict = TRUE);
        CREATE SINK best INTO delta('/lake/best', form = 'upsert', "key" = 'item');
        INSERT INTO best SELECT item, MAX(price) AS price FROM Bid WINDOW(RANGE 10) GROUP BY item CONSISTENCY STRONG"""
    found = job_program(text)
    source = found.sources["Bid"].connector
    assert (source.name, source.arguments) == ("kafka", ("localhost:9092",))
    assert source.options == {"topic": "bids", "most": 5, "strict": True}
    sink = found.sinks["best"]
    assert sink.connector.options == {"form": "upsert", "key": "item"}
    assert sink.consistency.level == "strong"
    assert sink.query.schema.names == ("item", "price")
    start, end = source.places["topic"]
    assert text[start:end] == "topic = 'bids'"
    start, end = source.places[0]
    assert text[start:end] == "'localhost:9092'"
    start, end = sink.connector.places[""]
    assert text[start:end].startswith("delta(")


def test_options_as_other_systems_write_them():
    found = job_program(
        "CREATE STREAM Bid (item INT) WITH ('connector' = 'kafka', 'properties.bootstrap.servers' = 'h:9092', "
        "'topic' = 'bids'); CREATE SINK s FROM Bid WITH ('connector' = 'delta', 'path' = '/lake')"
    )
    assert found.sources["Bid"].connector.options == {"properties.bootstrap.servers": "h:9092", "topic": "bids"}
    assert found.sinks["s"].connector.name == "delta"


def test_a_stream_goes_to_a_sink_as_it_is_and_a_query_behind_as():
    found = job_program(
        BEST + "CREATE SINK a FROM Best INTO changelog('a'); CREATE SINK b INTO discard() AS SELECT item FROM Bid"
    )
    assert isinstance(found.sinks["a"].query.node, n.Aggregate)
    assert found.sinks["b"].query.schema.names == ("item",)
    assert list(found.sources) == ["Bid"]


def test_several_inserts_into_one_sink_are_their_union():
    found = job_program(
        BID
        + "CREATE SINK s INTO discard(); INSERT INTO s SELECT item FROM Bid;"
        + "INSERT INTO S SELECT price AS item FROM Bid"
    )
    assert isinstance(found.sinks["s"].query.node, n.Union)


@pytest.mark.parametrize(
    ("text", "problem", "place"),
    [
        (BID + " SELECT item FROM Bid", "a job has no answer of its own", "SELECT"),
        (BID + " CREATE SINK s INTO discard()", "nothing is written to the sink s; write INSERT INTO s", "s INTO"),
        (BID, "the job writes nothing", "CREATE"),
        (BID + " INSERT INTO s SELECT item FROM Bid", "unknown sink 's'; declare it first", "s SELECT"),
        (
            BID + " CREATE SINK best INTO discard(); INSERT INTO bset SELECT item FROM Bid",
            "did you mean 'best'",
            "bset",
        ),
        (BID + " INSERT INTO Bid SELECT item FROM Bid", "Bid is a stream; what is written to is a sink", "Bid SELECT"),
        (BID + " CREATE SINK s FROM Bidd INTO discard()", "unknown stream 'Bidd'; did you mean 'Bid'?", "Bidd"),
        (
            BID + " CREATE SINK s INTO discard(); INSERT INTO s SELECT item FROM s",
            "s is a sink, which is written and not read",
            "s",
        ),
        (BID + " CREATE SINK s FROM Bid INTO discard(); CREATE SINK S FROM Bid INTO discard()", "there is a sink", "S"),
        (
            BID + " CREATE SINK s INTO discard(); INSERT INTO s SELECT item FROM Bid;"
            + "INSERT INTO s SELECT price FROM Bid",
            "has the same columns: before (item int64), here (price int64)",
            "INSERT INTO s SELECT price",
        ),
        (BID + " CREATE SINK s FROM Bid", "expected INTO and where it goes", ""),
        (BID + " CREATE SINK s FROM Bid INTO file", "expected '('", ""),
        (BID + " CREATE SINK s FROM Bid INTO file(a => 1)", "an option as name = value", "a =>"),
        (BID + " CREATE SINK s FROM Bid INTO file(a = 1, 'x')", "stand before those with one", "'x'"),
        (BID + " CREATE SINK s FROM Bid INTO file(a = 1, A = 2)", "the option A stands here twice", "A = 2"),
        (BID + " CREATE SINK s FROM Bid WITH ('path' = '/x')", "which connector?", "WITH"),
        (BID + " CREATE SINK s FROM (SELECT item FROM Bid) INTO file('x')", "FROM names a stream here", "(SELECT"),
        (BID + " CREATE SINK s INTO discard(); INSERT INTO s VALUES (1)", "rows come from a stream's source", "VALUES"),
        (BID + " CREATE SINK s INTO discard(); INSERT INTO s (item) SELECT item FROM Bid", "list of columns", "(item)"),
    ],
)  # fmt: skip
def test_what_is_wrong_has_a_place(text, problem, place):
    bad = wrong(text)
    assert problem in bad.problem
    assert text[bad.start :].startswith(place)


def test_a_sink_is_dropped_unless_it_is_written():
    both = BID + "CREATE SINK a INTO discard(); CREATE SINK b FROM Bid INTO discard();"
    assert list(job_program(both + "DROP SINK A").sinks) == ["b"]
    assert list(job_program(both + "DROP SINK IF EXISTS c; DROP SINK a").sinks) == ["b"]
    again = job_program(both + "DROP SINK a; CREATE SINK a FROM Bid INTO file('x.jsonl')")
    assert again.sinks["a"].connector.name == "file"  # the name is free again
    only = "CREATE SINK c INTO discard() AS SELECT item FROM Bid"
    assert list(job_program(both + "DROP SINK a; DROP SINK b;" + only).sinks) == ["c"]  # with its query
    bad = wrong(both + "\nINSERT INTO a SELECT item FROM Bid;\nDROP SINK a")
    assert bad.problem.startswith("the sink a cannot be dropped: INSERT INTO in line 2 writes to it")
    assert "unknown sink 'c'; there is a, b" in wrong(both + "DROP SINK c").problem
    assert "Bid is a stream" in wrong(both + "DROP SINK Bid").problem
    assert "nothing is written to the sink a" in wrong(both).problem
    with pytest.raises(SqlError, match="make a job"):
        program(BID + "DROP SINK a; SELECT item FROM Bid")


def test_rows_that_replace_each_other_have_a_key_at_every_instant():
    from everwhen.algebra.properties.derive import properties

    found = job_program(BID + "CREATE SINK s FROM Bid INTO discard()", key_of=lambda declared: ("item",))
    node = found.sinks["s"].query.node
    assert node.kind == "varying" and node.keys == (("item",),) and found.sources["Bid"].kind == "varying"
    assert properties(node).keys == {frozenset({"item"})} and not properties(node).history_keys
    same = job_program(BID + "CREATE SINK s FROM Bid INTO discard()", key_of=lambda declared: ("colour",))
    assert same.sinks["s"].query.node.kind == "stream"


def test_a_query_with_sinks_is_told_to_be_a_job():
    with pytest.raises(SqlError, match="make a job, which is started with everwhen start"):
        program(BID + "CREATE SINK s FROM Bid INTO discard(); SELECT item FROM Bid")


def test_a_source_with_named_options_in_a_query():
    found = program("CREATE STREAM Bid (item INT) SOURCE file(path = 'b.jsonl'); SELECT item FROM Bid")
    assert str(found.sources["Bid"].connector) == "file(path = 'b.jsonl')"
