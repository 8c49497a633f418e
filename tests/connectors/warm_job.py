"""What jobs need is loaded and compiled by importing this: for a server of forks, before anything is forked.

Tests do not import it.  Without compiled loops on disk it takes a minute, which every worker of pytest would spend
while it collects tests.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa

from connectors.killed_job import run
from everwhen.connectors.changes.live_rows import LiveRows, TableChanges
from everwhen.core.schema import Schema


def _warm() -> None:
    rows = LiveRows(Schema.of([("item", pa.int64()), ("name", pa.string())]), ["item"])
    columns = (pa.array([1, 1]), pa.array(["a", None]))
    rows.take(TableChanges(np.array([1, 2]), np.array([False, True]), columns))
    with tempfile.TemporaryDirectory() as folder:
        lines = ['{"vs":1,"row":{"item":1,"price":2}}', '{"vs":2,"row":{"item":1,"price":3}}', '{"op":"cti","t":null}']
        Path(folder, "in.jsonl").write_text("\n".join(lines) + "\n")
        text = f"""
            CREATE STREAM Bid (item BIGINT, price BIGINT) SOURCE file('{folder}/in.jsonl');
            CREATE STREAM Best AS
                SELECT item, MAX(price) AS price FROM Bid WINDOW(UNBOUNDED) WHERE price >= 0 GROUP BY item;
            CREATE SINK a FROM Bid INTO discard(form = 'append');
            CREATE SINK b FROM Best INTO discard(form = 'upsert');
            CREATE SINK c FROM Best INTO discard(form = 'retract')"""
        run(text, f"{folder}/state", 0.0)


_warm()
