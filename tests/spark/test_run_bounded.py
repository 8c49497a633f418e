"""`run` over bounded DataFrames gives the oracle's answer, as history, changelog and snapshot."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import everwhen as ew
from everwhen.algebra.nodes import Source, walk
from everwhen.core.schema import Schema
from everwhen.errors import QueryError
from everwhen.formats.parquet import elements_of_table, write_elements
from everwhen.reference.evaluation import evaluate
from everwhen.spark.api.run_bounded import run
from everwhen.stream.element_batch import batch_of
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, reorder
from plans import STAGED, across

SCHEMA = Schema.of([("k", pa.string()), ("x", pa.int64())])
CHOSEN = (
    "filter", "range slide", "union of groups", "strict difference", "holistic aggregates", "scalar aggregate",
    "aggregate of aggregate", "join, regrouped", "inequality join", "theta anti-join", "full join", "partitioned rows",
    "coalesce, grouped", "highest bids", "recursion, regrouped", "flying recursion", "recursion for the smallest",
)  # fmt: skip
OFTEN = (
    "range slide", "holistic aggregates", "join, regrouped", "partitioned rows", "recursion, regrouped",
)  # fmt: skip
"""The others are slow: as streams, `test_spark_parity` has all of them."""
FORMS = ("events", "elements")
"""Each plan reads one of the two; all plans read streams of elements in `test_spark_parity`."""


def random_history(rng: random.Random, finite: bool) -> History:
    events = []
    for _ in range(40):
        vs = rng.randrange(-3, 24)
        ve = ew.INF if not finite and rng.random() < 0.05 else vs + rng.choice([1, 1, 1, 2, 3, 5, 8])
        events.append(ew.Insert(vs, ve, {"k": rng.choice(["a", "b", "c", None]), "x": rng.choice([0, 1, 2, 3, None])}))
    return History.of(events, SCHEMA)


def frame(spark: SparkSession, history: History, rng: random.Random, op: bool, finite: bool, path: Path) -> DataFrame:
    """The history as rows of its events, or as a stream of elements with corrections."""
    if op:
        elements = reorder(history, rng, close=True, disorder=8, infinite=not finite)
        write_elements([batch_of(elements, SCHEMA)], path, SCHEMA)
        return spark.read.parquet(str(path))
    batch = history.batch()
    times = [pa.array(batch.vs), pa.array(batch.ve, mask=batch.ve == ew.INF)]
    return spark.createDataFrame(pa.table([*times, *batch.columns], ["vs", "ve", *SCHEMA.names]))


def rounded(snapshot: dict) -> list:
    return sorted((repr([round(v, 9) if isinstance(v, float) else v for v in row]), n) for row, n in snapshot.items())


@pytest.mark.parametrize(
    ("name", "op"),
    [
        pytest.param(n, at % 2 > 0, id=f"{n}-{FORMS[at % 2]}", marks=[] if n in OFTEN else [pytest.mark.slow])
        for at, n in enumerate(CHOSEN)
    ],
)
def test_a_bounded_run_answers_as_the_oracle_does(spark: SparkSession, tmp_path: Path, name: str, op: bool) -> None:
    rng = random.Random(f"{name} {op}")
    finite = not STAGED[name].infinite
    query = STAGED[name].build()
    if name == "recursion, regrouped":
        query = across(query)  # a bounded run is one pass: it goes round inside one stage
    read = sorted({node.name for node in walk(query.node) if isinstance(node, Source)})
    histories = {s: random_history(rng, finite) for s in read}
    frames = {s: frame(spark, histories[s], rng, op, finite, tmp_path / f"{s}.parquet") for s in read}
    buckets = (1, 2, 5)[CHOSEN.index(name) % 3]
    form = "changelog" if op else "history"
    found = History.of(
        elements_of_table(run(query, frames, form=form, buckets=buckets).toArrow(), query.schema), query.schema
    )
    oracle = evaluate(query.node, histories)
    for t in range(-6, 45):
        assert rounded(found.snapshot(t)) == rounded(oracle.at(t)), t
    if CHOSEN.index(name) % 5 == 0:  # of events, and of elements
        t = rng.randrange(0, 20)
        rows = run(query, frames, form="snapshot", at=t, buckets=buckets).toArrow()
        snapshot: dict = {}
        for row in zip(*(column.to_pylist() for column in rows.columns), strict=True):
            snapshot[row] = snapshot.get(row, 0) + 1
        assert rounded(snapshot) == rounded(oracle.at(t))


def test_wrong_use_is_said_at_once(spark: SparkSession) -> None:
    query = STAGED["filter"].build()
    rows = spark.createDataFrame([(1, 2, "a", 3)], "vs bigint, ve bigint, k string, x bigint")
    with pytest.raises(QueryError, match="form is changelog, history or snapshot"):
        run(query, {"S": rows}, form="table")  # type: ignore[arg-type]
    with pytest.raises(QueryError, match="taken at an instant"):
        run(query, {"S": rows}, form="snapshot")
    with pytest.raises(QueryError, match="no input for S"):
        run(query, {})
    with pytest.raises(QueryError, match="is a streaming DataFrame"):
        run(query, {"S": spark.readStream.format("rate").load()})


def test_an_adjust_of_nothing_is_an_error(spark: SparkSession) -> None:
    rows = spark.createDataFrame(
        [("insert", 1, 5, None, "a", 3), ("adjust", 1, 6, 2, "a", 3)],
        "op string, vs bigint, ve bigint, vnew bigint, k string, x bigint",
    )
    with pytest.raises(Exception, match="source 'S': an adjust of an event that is not there"):
        run(STAGED["filter"].build(), {"S": rows}, buckets=1).toArrow()


def test_structures_and_lists_cross(spark: SparkSession) -> None:
    """Through a source, an exchange that is hashed by one (with zeros of both signs in it), and an answer."""
    rows = [(t, t + 1, t % 2, -0.0 if t % 4 else 0.0) for t in range(8)]
    numbers = spark.createDataFrame(rows, "vs long, ve long, k long, x double")
    given = numbers.selectExpr("vs", "ve", "k", "named_struct('a', k, 'x', x) AS p", "array(x) AS l")
    types = {"k": pa.int64(), "p": pa.struct([("a", pa.int64()), ("x", pa.float64())]), "l": pa.list_(pa.float64())}
    text = "SELECT p, l, COUNT(*) AS n, STRUCT(MAX(k) AS m, [MIN(k)] AS o) AS q FROM S WINDOW(RANGE 3) GROUP BY p, l"
    query = ew.sql(text, ew.source("S", types))
    found = ew.spark.run(query, {"S": given}, form="history", buckets=3).collect()
    elements = [ew.Insert(t, e, {"k": k, "p": {"a": k, "x": x}, "l": [x]}) for t, e, k, x in rows]
    expected = ew.History.of(ew.run(query, {"S": elements}), query.schema)
    said = [ew.Insert(row["vs"], row["ve"], {n: row.asDict(True)[n] for n in query.schema.names}) for row in found]
    assert_same_history(ew.History.of(said, query.schema), expected)
