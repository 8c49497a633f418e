"""What goes wrong outside: it is named, with what to do, and a job that is started again has lost nothing."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from connectors.forked import forking
from connectors.killed_systems import delta_rows, iceberg_rows
from everwhen.connectors.options import OptionError
from everwhen.connectors.registry import (
    connector_names,
    sink_connector,
    sink_options,
    source_connector,
    source_options,
)
from everwhen.errors import EverwhenError, InputError, SinkError
from everwhen.jobs.local_job import LocalJob
from everwhen.jobs.plan import job_plan


@pytest.mark.parametrize("side", ["source", "sink"])
def test_every_connector_names_an_option_that_it_has_not(side: str) -> None:
    for name in connector_names(side):
        with pytest.raises(OptionError, match=f"{name} has no option 'nonsense'"):
            if side == "source":
                source_options(source_connector(name), (), {"nonsense": "x"})
            else:
                sink_options(sink_connector(name), (), {"nonsense": "x"})


# -- a job that fails, and goes on -------------------------------------------------------------------------------------


class Job:
    """Lines of a file into one sink."""

    def __init__(self, place: Path, into: str, form: str = "append") -> None:
        self.place, self.file, self.count = place, place / "in.jsonl", 0
        self.text = f"""
            CREATE STREAM Bid (item BIGINT, name TEXT) SOURCE file('{self.file}');
            CREATE SINK out INTO {into} AS SELECT item, name FROM Bid"""
        if form != "append":
            self.text = self.text.replace("FROM Bid", "FROM Bid WINDOW(PARTITION BY item ROWS 1)")

    def feed(self, count: int, end: bool = False) -> None:
        with self.file.open("a") as file:
            for i in range(self.count, self.count + count):
                file.write(json.dumps({"vs": i, "row": {"item": i, "name": f"n{i}"}}) + "\n")
            file.write(json.dumps({"op": "cti", "t": None if end else self.count + count}) + "\n")
        self.count += count

    def run(self, check: Any = lambda: None) -> str:
        return LocalJob(job_plan(self.text, unbounded=True), self.place / "state", every=0.0, check=check).run()

    def fails(self, error: type[EverwhenError], *words: str) -> None:
        with pytest.raises(error) as bad:
            self.run()
        for each in words:
            assert each in str(bad.value), bad.value

    @property
    def wanted(self) -> list[tuple[int, str]]:
        return [(i, f"n{i}") for i in range(self.count)]


def until(wanted: int, rows: Any) -> Any:
    """Ends a run when so many rows are there."""

    def look() -> None:
        if len(rows()) >= wanted:
            raise KeyboardInterrupt

    return look


def pairs(rows: list[dict[str, Any]]) -> list[tuple[int, str]]:
    return sorted((row["item"], row["name"]) for row in rows)


@pytest.fixture
def database(server: str) -> Any:
    with psycopg.connect(server, autocommit=True) as client:
        client.execute("DROP TABLE IF EXISTS bad_out, everwhen_epochs, bad_said_history CASCADE")
        yield client


@pytest.mark.parametrize("form", ["append", "upsert"])
def test_a_table_that_is_locked(server: str, database: Any, tmp_path: Path, form: str) -> None:
    job = Job(tmp_path, f"postgres('{server}', 'bad_out', form = '{form}', timeout = '200 ms')", form)
    job.feed(10)

    def rows() -> list[Any]:
        return database.execute("SELECT item, name FROM bad_out ORDER BY 1").fetchall()

    def some() -> list[Any]:
        return rows() if database.execute("SELECT to_regclass('bad_out')").fetchone() != (None,) else []

    with pytest.raises(KeyboardInterrupt):
        job.run(until(1, some))
    job.feed(10, end=True)
    with psycopg.connect(server) as other:
        other.execute("LOCK TABLE bad_out IN ACCESS EXCLUSIVE MODE")
        job.fails(SinkError, "PostgreSQL table public.bad_out", "another job or session uses it", "option timeout")
        other.rollback()
    assert job.run() == "done" and rows() == job.wanted


def test_elements_into_a_table_that_is_locked(server: str, database: Any, tmp_path: Path) -> None:
    job = Job(tmp_path, f"postgres('{server}', 'bad_said', form = 'elements', timeout = '200 ms')")
    job.feed(10)
    with pytest.raises(KeyboardInterrupt):
        job.run(until(1, lambda: list((tmp_path / "state").glob("state-*"))))
    job.feed(10, end=True)
    with psycopg.connect(server) as other:
        other.execute("LOCK TABLE bad_said_history IN ACCESS EXCLUSIVE MODE")
        job.fails(SinkError, "bad_said", "lock timeout")
        other.rollback()
    assert job.run() == "done"
    assert database.execute("SELECT item, name FROM bad_said ORDER BY 1").fetchall() == job.wanted


def test_a_table_of_postgres_whose_columns_change_or_whose_server_is_full(
    server: str, database: Any, tmp_path: Path
) -> None:
    job = Job(tmp_path, f"postgres('{server}', 'bad_out', form = 'append')")
    database.execute("CREATE TABLE bad_out (item bigint, name text, valid_from bigint, valid_to bigint)")
    database.execute("""
        CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
        $$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$""")
    database.execute("CREATE TRIGGER full_disk BEFORE INSERT ON bad_out EXECUTE FUNCTION full_disk()")
    job.feed(10, end=True)
    job.fails(SinkError, "public.bad_out: cannot commit epoch", "the server has no space left", "start again")
    database.execute("DROP FUNCTION full_disk CASCADE")

    def drop() -> None:
        database.execute("ALTER TABLE bad_out DROP COLUMN IF EXISTS name")

    with pytest.raises(SinkError, match=r"public\.bad_out: .*(columns have changed|columns are others)"):
        job.run(drop)
    database.execute("ALTER TABLE bad_out ADD COLUMN name text")
    assert job.run() == "done"
    assert database.execute("SELECT item, name FROM bad_out ORDER BY 1").fetchall() == job.wanted


def test_a_column_of_postgres_that_gets_another_type_under_way(server: str, database: Any, tmp_path: Path) -> None:
    from everwhen.connectors.registry import SourcePlace
    from everwhen.core.schema import Schema

    database.execute("DROP TABLE IF EXISTS typed")
    database.execute("CREATE TABLE typed (item bigint PRIMARY KEY, n int)")
    connector = source_connector("postgres")
    place = SourcePlace("Typed", Schema.of([("item", pa.int64()), ("n", pa.int64())]), state=str(tmp_path))
    feed = connector.open(source_options(connector, (server, "typed"), {"key": "item", "slot": "typed"}), place)
    feed.take(10)
    database.execute("ALTER TABLE typed ALTER n TYPE text USING n::text")
    database.execute("INSERT INTO typed VALUES (1, 'many')")
    before = feed.position
    with pytest.raises(InputError, match=r"public\.typed: a value of the column 'n' is not int64.*declare the column"):
        feed.take(10)
    assert feed.position == before  # nothing is passed over
    feed.close()
    database.execute("SELECT pg_drop_replication_slot('typed')")


# -- Delta ---------------------------------------------------------------------------------------------------------


def test_a_delta_table_whose_columns_change_under_way(tmp_path: Path) -> None:
    """As a sink, and as a source."""
    job = Job(tmp_path, f"delta('{tmp_path}/out')")
    job.feed(10)
    with pytest.raises(KeyboardInterrupt):
        job.run(until(1, lambda: delta_rows(tmp_path / "out")))
    saved = DeltaTable(str(tmp_path / "out")).to_pyarrow_table()
    other = saved.drop_columns(["name"])
    job.feed(10, end=True)
    write_deltalake(str(tmp_path / "out"), other, mode="overwrite", schema_mode="overwrite")
    job.fails(SinkError, f"Delta table {tmp_path}/out", "other columns", "choose another path")
    write_deltalake(str(tmp_path / "out"), saved, mode="overwrite", schema_mode="overwrite")
    assert job.run() == "done" and pairs(delta_rows(tmp_path / "out")) == job.wanted


def test_a_delta_table_that_loses_a_column_while_it_is_read(tmp_path: Path) -> None:
    table, path = pa.table({"item": [1, 2], "name": ["a", "b"]}), str(tmp_path / "in")
    write_deltalake(path, table, configuration={"delta.enableChangeDataFeed": "true"})
    text = f"""
        CREATE STREAM P (item BIGINT, name TEXT) SOURCE delta('{path}', key = 'item');
        CREATE SINK out FROM P INTO delta('{tmp_path}/out', form = 'upsert')"""

    def run(check: Any) -> None:
        LocalJob(job_plan(text, unbounded=True), tmp_path / "state", every=0.0, check=check).run()

    with pytest.raises(KeyboardInterrupt):
        run(until(2, lambda: delta_rows(tmp_path / "out")))
    write_deltalake(path, table.drop_columns(["name"]), mode="overwrite", schema_mode="overwrite")
    with pytest.raises(EverwhenError, match=r"Delta table .*in.*'?name'?"):
        run(lambda: None)
    assert pairs(delta_rows(tmp_path / "out")) == [(1, "a"), (2, "b")]


# -- disks that are full -------------------------------------------------------------------------------------------

_PROCESSES = forking("connectors.limited_job", "connectors.warm_job")


@pytest.mark.parametrize(
    ("into", "what"),
    [
        ("file('{place}/out.jsonl')", "out.jsonl"),
        ("folder('{place}/out', format = 'jsonl')", "out"),
        ("delta('{place}/out')", "Delta table"),
        ("iceberg('shop.out', 'sqlite:///{place}/catalog.db', warehouse = 'file://{place}/w')", "Iceberg table"),
        ("discard(form = 'append')", "state"),  # the checkpoint alone
    ],
)
def test_a_disk_that_is_full(tmp_path: Path, into: str, what: str) -> None:
    """Files cannot grow beyond some size.  What is told names the place; then the job goes on, and all is in once."""
    from connectors import limited_job

    job = Job(tmp_path, into.replace("{place}", str(tmp_path)))
    job.feed(2000, end=True)
    said, failures, told = tmp_path / "said", 0, ""
    for limit in (3_000, 9_000, 200_000, 2**40):
        run = _PROCESSES.Process(
            target=limited_job.run,
            args=(job.text, str(tmp_path / "state"), str(said), limit),
        )
        run.start()
        run.join(120)
        assert run.exitcode == 0
        told = said.read_text()
        failures += told != "done"
        assert told == "done" or "cannot" in told, told
        assert told == "done" or str(tmp_path) in told or what in told, told
    assert told == "done" and failures
    if what == "out.jsonl":
        rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    elif what == "out":
        files = sorted((tmp_path / "out").glob("*.jsonl"))
        rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    elif what == "Delta table":
        rows = delta_rows(tmp_path / "out")
    elif what == "Iceberg table":
        rows = iceberg_rows(tmp_path, "shop.out")
    else:
        return
    assert pairs(rows) == sorted(job.wanted)
    assert Counter(pairs(rows)).most_common(1)[0][1] == 1


# -- Iceberg -------------------------------------------------------------------------------------------------------


def _iceberg(place: Path) -> Any:
    from pyiceberg.catalog import load_catalog

    return load_catalog("everwhen", type="sql", uri=f"sqlite:///{place}/catalog.db")


def test_an_iceberg_table_whose_columns_change_or_whose_catalogue_is_locked(tmp_path: Path) -> None:
    import sqlite3
    import warnings

    job = Job(tmp_path, f"iceberg('shop.out', 'sqlite:///{tmp_path}/catalog.db', warehouse = 'file://{tmp_path}/w')")
    job.feed(10)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(KeyboardInterrupt):
            job.run(until(1, lambda: iceberg_rows(tmp_path, "shop.out") if (tmp_path / "w").exists() else []))
        job.feed(10, end=True)
        with _iceberg(tmp_path).load_table("shop.out").update_schema() as change:
            change.rename_column("name", "title")
        job.fails(SinkError, "Iceberg table shop.out", "other columns", "choose another table")
        with _iceberg(tmp_path).load_table("shop.out").update_schema() as change:
            change.rename_column("title", "name")
        lock = sqlite3.connect(tmp_path / "catalog.db", isolation_level=None)
        lock.execute("BEGIN EXCLUSIVE")
        job.fails(SinkError, "Iceberg table shop.out", "locked", "start again")
        lock.execute("ROLLBACK")
        lock.close()
        assert job.run() == "done"
        assert pairs(iceberg_rows(tmp_path, "shop.out")) == job.wanted


# -- files ---------------------------------------------------------------------------------------------------------


def test_a_line_that_is_no_json_is_named_and_nothing_is_lost(tmp_path: Path) -> None:
    job = Job(tmp_path, f"file('{tmp_path}/out.jsonl')")
    job.feed(5)
    whole = job.file.read_text()
    job.file.write_text(whole + "{no json\n")
    job.fails(InputError, "in.jsonl:7")
    job.file.write_text(whole)
    job.feed(5, end=True)
    assert job.run() == "done"
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert pairs(rows) == job.wanted
