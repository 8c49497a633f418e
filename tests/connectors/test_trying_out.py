"""Sinks for trying out: what the console shows, and that nothing is kept."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from everwhen.connectors.registry import SinkPlace, sink_connector, sink_options
from everwhen.core.schema import Schema
from everwhen.sinks.rows import PUT, RowChanges

SCHEMA = Schema.of([("n", pa.int64())])


def opened(name, **named):
    connector = sink_connector(name)
    return connector.rows(sink_options(connector, (), named), SinkPlace("s", SCHEMA, "append"))


def epoch(count):
    rows = pa.RecordBatch.from_pydict({"n": list(range(count))}, pa.schema([("n", pa.int64())]))
    return RowChanges("append", np.full(count, PUT, np.uint8), rows, 0)


def test_the_console_shows_some_rows_and_says_how_many_more(capsys):
    sink = opened("console", rows=2, form="append")
    sink.prepare(SCHEMA)
    sink.commit(0, epoch(3))
    sink.commit(0, epoch(3))
    sink.commit(1, epoch(0))
    assert capsys.readouterr().out == '{"n":0}\n{"n":1}\n… and 1 more of epoch 0\n'
    assert sink.committed() == 1 and not sink.lasting


def test_nothing_is_kept(capsys):
    sink = opened("discard")
    sink.prepare(SCHEMA)
    sink.commit(4, epoch(3))
    assert sink.committed() == 4 and capsys.readouterr().out == ""
