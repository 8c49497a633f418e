"""A table's changes in a job: its state is the checkpoint's, and a table at rest makes progress."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from everwhen.connectors.options import OptionError
from everwhen.connectors.registry import SourcePlace, source_connector, source_options
from everwhen.core.schema import Schema
from everwhen.core.time import INF
from everwhen.errors import SourceError
from everwhen.jobs.local_job import LocalJob
from everwhen.jobs.plan import job_plan
from everwhen.jobs.status import ask_to_stop
from everwhen.stream.element_batch import CTI, ElementBatch
from everwhen.stream.history import History

SCHEMA = Schema.of([("item", pa.int64()), ("name", pa.string())])
Client = psycopg.Connection[Any]
TEXT = """
    CREATE STREAM Price (item BIGINT, name TEXT) SOURCE postgres('{server}', 'prices', key = 'item', {more});
    CREATE SINK final INTO file('{place}/final.jsonl', form = 'append');
    INSERT INTO final SELECT name, COUNT(*) AS n FROM Price GROUP BY name"""


def opened(server: str, folder: Path, **options: Any) -> Any:
    connector = source_connector("postgres")
    place = SourcePlace("Price", SCHEMA, state=str(folder))
    return connector.open(source_options(connector, (server, "prices"), {"key": "item", **options}), place)


def until_said(feed: Any, seconds: float = 10.0) -> ElementBatch:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (batch := feed.take(1000)) is not None:
            return batch
        time.sleep(0.005)
    raise AssertionError("it went silent")


def now(client: Client) -> int:
    (found,) = client.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint").fetchone() or (0,)
    return int(found)


def test_a_table_at_rest_promises(server: str, client: Client, tmp_path: Path) -> None:
    feed = opened(server, tmp_path, heartbeat="20 ms")
    began = now(client)
    first = until_said(feed)
    assert first.op.tolist() == [CTI] and abs(int(first.vs[0]) - began) < 10_000  # an empty table, as of the start
    for _ in range(3):
        asked = now(client)
        while True:
            beat = until_said(feed)
            assert beat.op.tolist() == [CTI] and int(beat.vs[0]) <= now(client)
            if int(beat.vs[0]) >= asked:
                break
    client.execute("INSERT INTO prices VALUES (0, 1, 'a')")
    row = until_said(feed)
    assert int(row.vs[0]) >= int(beat.vs[0]) and row.columns[1][0].as_py() == "a"
    feed.close()


def test_the_slot_moves_on_while_other_tables_change(server: str, client: Client, tmp_path: Path) -> None:
    client.execute("CREATE TABLE other (n int)")
    feed = opened(server, tmp_path, heartbeat="20 ms")
    until_said(feed)

    def confirmed() -> int:
        (lsn,) = client.execute("SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots").fetchone() or (0,)
        return int(lsn)

    feed.leave_word("job", feed.position, 0)
    before = confirmed()
    client.execute("INSERT INTO other SELECT generate_series(1, 5000)")
    (after,) = client.execute("SELECT pg_current_wal_flush_lsn() - '0/0'").fetchone() or (0,)
    end = time.monotonic() + 10
    while confirmed() < int(after) and time.monotonic() < end:
        until_said(feed)
        feed.leave_word("job", feed.position, 0)
    assert before < int(after) <= confirmed()
    assert len(list(tmp_path.glob("table-*.arrow"))) == 1  # a table at rest is copied once
    position, notes = feed.position, json.loads((tmp_path / "table-0.json").read_text())
    assert len(notes) <= 2
    feed.close()
    other = opened(server, tmp_path)
    other.seek(position)
    assert other.position == position
    other.close()


def test_a_clock_that_is_put_back_moves_nothing_before_a_promise(
    server: str, client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's clock is ten seconds fast while a beat is read, and then right again."""
    from everwhen.connectors.postgres import slot

    feed = opened(server, tmp_path, heartbeat="20 ms")
    said, positions = [until_said(feed)], [feed.position]
    with monkeypatch.context() as fast:
        fast.setattr(slot, "CLOCK", slot.CLOCK.replace("clock_timestamp()", "clock_timestamp() + interval '10 s'"))
        feed.log._noted = None
        said.append(until_said(feed))
        positions.append(feed.position)
    promised = int(said[-1].vs[-1])
    assert promised > now(client) + 5_000
    for i in range(3):
        client.execute("INSERT INTO prices VALUES (0, %s, 'x')", [i])
        said.append(until_said(feed))
        positions.append(json.loads(json.dumps(feed.position)))
    assert len(positions[-1]["log"]["moved"]) == 1
    starts = [vs for vs, _, _ in History.of(said, SCHEMA).multiset]
    assert starts == [promised] * 3
    whole = opened(server, tmp_path)  # all in one stretch: the same rows at the same times
    again = whole.take_to(positions[-1])
    assert sorted(History.of([again], SCHEMA).multiset) == sorted(History.of(said, SCHEMA).multiset)
    assert whole.position == positions[-1]
    for feed_ in (feed, whole):
        feed_.close()


def test_a_slot_of_somebody_else_is_left_alone(server: str, client: Client, tmp_path: Path) -> None:
    first = opened(server, tmp_path / "one")
    first.take(1)
    second = opened(server, tmp_path / "two")
    with pytest.raises(SourceError, match=r"there is a slot 'everwhen_price' already.*option slot another name"):
        second.take(1)
    client.execute("INSERT INTO prices VALUES (0, 1, 'a')")
    assert first.take(10) is not None
    third = opened(server, tmp_path / "three", slot="mine")
    assert third.take(10) is not None
    for each in (first, second, third):
        each.close()


def test_a_job_killed_while_it_made_its_slot_makes_it_again(server: str, client: Client, tmp_path: Path) -> None:
    client.execute("INSERT INTO prices VALUES (0, 1, 'a')")
    feed = opened(server, tmp_path)
    feed.take(1)
    feed.close()
    (tmp_path / "initial.arrow").unlink()
    client.execute("INSERT INTO prices VALUES (0, 2, 'b')")
    again = opened(server, tmp_path)
    assert sorted(History.of([again.take(10)], SCHEMA).multiset.values()) == [1, 1]
    again.close()


def test_in_a_job_the_state_is_its_checkpoints(server: str, client: Client, tmp_path: Path) -> None:
    """Also: its answers become final while the table is at rest, and it goes on after a stop."""
    client.execute("INSERT INTO prices VALUES (0, 1, 'a'), (0, 2, 'a')")
    text = TEXT.format(server=server, place=tmp_path, more="heartbeat = '50 ms'")
    out = tmp_path / "final.jsonl"

    def run(change: str, wanted: int) -> None:
        job = LocalJob(job_plan(text), tmp_path / "state", every=0.1)
        worker = threading.Thread(target=job.run)
        worker.start()
        end = time.monotonic() + 30
        try:
            while job.epoch < 0 and time.monotonic() < end:
                time.sleep(0.02)
            client.execute(change)
            while time.monotonic() < end and (not out.exists() or len(out.read_text().splitlines()) < wanted):
                time.sleep(0.02)
        finally:
            ask_to_stop(tmp_path / "state", job._lease.holder)
            worker.join(30)

    run("UPDATE prices SET name = 'b' WHERE item = 2", 1)
    run("DELETE FROM prices WHERE item = 1", 2)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [(row["name"], row["n"]) for row in rows] == [("a", 2), ("a", 1)]
    assert rows[0]["valid_to"] == rows[1]["valid_from"] and rows[1]["valid_to"] < INF
    assert (tmp_path / "state" / "sources" / "Price" / "initial.arrow").exists()
    with pytest.raises(OptionError, match="a job keeps this in its checkpoint; leave the option state out"):
        opened(server, tmp_path, state="elsewhere")
