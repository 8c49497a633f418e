"""Delta's own source feeds a query, killed and started again; Delta's own reader reads what our sink has written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import everwhen as ew
from connectors.spark_jars.asked import queries
from connectors.spark_jars.delta_query import SAID
from connectors.spark_jars.killed import SPAN, Bids, Row, killed_and_started_again, same_up_to
from everwhen.core.time import INF
from everwhen.sinks import read_changelog
from everwhen.stream.history import History

pytestmark = [pytest.mark.slow, pytest.mark.spark]

AT_A_TIME = 20
FEED = {"delta.enableChangeDataFeed": "true"}


class Table(Bids):
    """Bids in a table, some in each commit."""

    def __init__(self, path: Path, feed: bool) -> None:
        super().__init__(path.name)
        self.path, self._feed = str(path), feed

    def put(self, rows: list[Row]) -> None:
        for i in range(0, len(rows), AT_A_TIME):
            self._append(rows[i : i + AT_A_TIME])
            if self._feed:
                self._correct()

    def _append(self, rows: list[Row]) -> None:
        at, item, price = zip(*rows, strict=True)
        stamps = pa.array(at, pa.int64()).cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
        found = pa.table({"at": stamps, "item": pa.array(item), "price": pa.array(price)})
        write_deltalake(self.path, found, mode="append", configuration=FEED if self._feed else None)
        self.rows += rows

    def _correct(self) -> None:
        """Rows of this feed are deleted, or their price was wrong."""
        gone, wrong = self.rng.sample("abcde", 2)
        at = self.begin + self.rng.randrange(SPAN)
        half, table = f"at >= '{_text(self.begin)}' AND at < '{_text(at)}'", DeltaTable(self.path)
        table.delete(f"item = '{gone}' AND {half}")
        table.update(updates={"price": "price + 0.5"}, predicate=f"item = '{wrong}' AND {half}")

        def corrected(row: Row) -> list[Row]:
            if not self.begin <= row[0] < at or row[1] not in (gone, wrong):
                return [row]
            return [] if row[1] == gone else [(*row[:2], row[2] + 0.5)]

        self.rows = [each for row in self.rows for each in corrected(row)]


def _text(at: int) -> str:
    return str(pa.scalar(at, pa.timestamp("ms")).cast(pa.string())) + "Z"


def history(said: list[dict[str, Any]]) -> History:
    """Of the elements in a table, as Spark's reader has them: columns that are null are left out."""
    schema, elements = queries()["best"].schema, []
    for row in said:
        event = row["vs"], row.get("ve", INF)
        payload = {name: row.get(name) for name in schema.names}
        if row["op"] == "insert":
            elements.append(ew.Insert(*event, payload))
        elif row["op"] == "adjust":
            elements.append(ew.Adjust(*event, row.get("vnew", INF), payload))
    return History.of(elements, schema)


@pytest.mark.parametrize("kind", ["rows", "feed"])
def test_killed_and_started_again_it_answers_as_in_process(kind: str, jars: str, tmp_path: Path) -> None:
    bids = Table(tmp_path / "bids", kind == "feed")
    words = jars, str(tmp_path), bids.path, kind
    report = killed_and_started_again("delta_query", tmp_path, bids, 10 * AT_A_TIME, *words)
    assert report["sources"] == [f"DeltaSource[file:{bids.path}]"]
    elements = [element for batch in read_changelog(tmp_path / "rows") for element in batch.elements()]
    assert any(isinstance(element, ew.Adjust) for element in elements) == (kind == "feed")
    same_up_to(history(report[SAID]), bids.answers()["best"], max(bids.rows)[0])
    order = [(row["_epoch"], row["_sequence"]) for row in report[SAID]]
    assert len(set(order)) == len(order) == DeltaTable(str(tmp_path / SAID)).to_pyarrow_table().num_rows
