"""Which key an upsert has: that of its query, or of a table whose rows replace each other; and what to write else."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from everwhen.errors import SqlError
from everwhen.jobs.local_job import LocalJob
from everwhen.jobs.plan import job_plan

KEYED = "CREATE STREAM P (item BIGINT, price BIGINT) SOURCE delta('/lake', key = 'Item');"
PLAIN = "CREATE STREAM P (item BIGINT, price BIGINT) SOURCE file('p.jsonl');"
SINK = "CREATE SINK k INTO folder('k', form = 'upsert'{key}) AS "


@pytest.mark.parametrize(
    ("query", "key"),
    [
        (KEYED + "CREATE SINK k FROM P INTO folder('k', form = 'upsert')", ("item",)),
        (KEYED + SINK + "SELECT item AS i, price + 1 AS p FROM P WHERE price > 3", ("i",)),
        (KEYED + SINK + "SELECT P.item, name FROM P JOIN Q ON P.item = Q.item", ("item",)),
        (PLAIN + SINK + "SELECT item, price FROM P WINDOW(PARTITION BY item ROWS 1)", ("item",)),
        (PLAIN + SINK.replace("{key}", ", key = 'id'") + "SELECT 'all' AS id, COUNT(*) AS n FROM P", ("id",)),
    ],
)
def test_the_key_is_derived(query: str, key: tuple[str, ...]) -> None:
    more = "CREATE STREAM Q (item BIGINT, name TEXT) SOURCE kafka('h', 'q', format = 'debezium', key = 'item');"
    assert job_plan(more + query.replace("{key}", ""), unbounded=True).sinks["k"].key == key


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        (PLAIN + SINK + "SELECT COUNT(*) AS n FROM P", "the answer is one row, so give it one: SELECT 'all' AS id, …"),
        (PLAIN + SINK + "SELECT SUM(price) AS s FROM P GROUP BY item", "item would be one, and is not in the answer"),
        (KEYED + SINK + "SELECT price FROM P", "SELECT item, …"),
        (PLAIN + SINK + "SELECT item FROM P", "GROUP BY it, declare it as the KEY of the stream, or keep the last"),
        (KEYED + SINK + "SELECT item FROM P WINDOW(RANGE 10)", "the query has none"),
        (
            KEYED + "CREATE SINK k INTO folder('k', form = 'upsert'); INSERT INTO k SELECT item FROM P WHERE price > 3;"
            "INSERT INTO k SELECT item FROM P WHERE price < 3",
            "several INSERT INTO, may agree",
        ),
        (KEYED + SINK.replace("{key}", ", key = 'price'") + "SELECT item, price FROM P", "two rows of one instant may"),
    ],
)
def test_what_to_write_where_there_is_none(query: str, problem: str) -> None:
    with pytest.raises(SqlError) as bad:
        job_plan(query.replace("{key}", ""), unbounded=True)
    assert problem in bad.value.problem


def test_a_table_straight_into_another(tmp_path: Path) -> None:
    """Rows that replace each other, and a row that goes; the job is stopped in between."""
    config = {"delta.enableChangeDataFeed": "true"}
    place, text = str(tmp_path / "in"), (
        f"CREATE STREAM P (item BIGINT, price BIGINT) SOURCE delta('{tmp_path}/in', key = 'item');"
        f"CREATE SINK k FROM P INTO delta('{tmp_path}/out', form = 'upsert')"
    )  # fmt: skip
    write_deltalake(place, pa.table({"item": [1, 2, 3], "price": [10, 20, 30]}), configuration=config)

    def run(until: list[dict[str, int]]) -> None:
        def look() -> None:
            out = tmp_path / "out"
            if (out / "_delta_log").exists() and rows(out) == until:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            LocalJob(job_plan(text, unbounded=True), tmp_path / "state", every=0.0, check=look).run()

    def rows(out: Path) -> list[dict[str, int]]:
        return DeltaTable(str(out)).to_pyarrow_table().sort_by("item").to_pylist()

    run([{"item": 1, "price": 10}, {"item": 2, "price": 20}, {"item": 3, "price": 30}])
    table = DeltaTable(place)
    table.delete("item = 3")
    table.update(updates={"price": "price + 1"}, predicate="item = 1")
    run([{"item": 1, "price": 11}, {"item": 2, "price": 20}])
    assert list((tmp_path / "state" / "sources" / "P").glob("table-*.arrow"))
