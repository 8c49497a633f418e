"""Delta's own streaming sink before a query and behind its changelog; Delta's own reader over what our sinks write."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

import everwhen as ew
from connectors.spark_jars.asked import queries
from connectors.spark_jars.killed import SPAN, Bids, Row, ended, running, same_up_to
from everwhen.jobs.local_job import LocalJob
from everwhen.jobs.plan import job_plan
from everwhen.stream.history import History

pytestmark = [pytest.mark.slow, pytest.mark.spark]

FORMS = ("append", "upsert", "retract", "elements")
CAME = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1}


class Files(Bids):
    """Bids as JSON files in a folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder.name)
        self._folder, self._count = folder, 0
        folder.mkdir()

    def put(self, rows: list[Row]) -> None:
        for part in (rows[::2], rows[1::2]):
            self._count += 1
            written = [{"at": _text(at), "item": item, "price": price} for at, item, price in part]
            (self._folder / f"{self._count}.json").write_text("\n".join(map(json.dumps, written)))
        self.rows += rows


def _text(at: int) -> str:
    return str(pa.scalar(at, pa.timestamp("ms")).cast(pa.string())) + "Z"


def make(place: Path) -> None:
    """Tables of every form, by a job in process: prices that are corrected, in many epochs."""
    rng, lines = random.Random(3), []
    now: dict[int, tuple[int, int]] = {}
    for t in range(1, 60):
        item, price = rng.randrange(5), rng.randrange(100)
        if item in now:
            vs, before = now[item]
            lines.append({"op": "adjust", "vs": vs, "ve": None, "vnew": t, "row": {"item": item, "price": before}})
        lines += [{"vs": t, "ve": None, "row": {"item": item, "price": price}}, {"op": "cti", "t": t}]
        now[item] = t, price
    (place / "prices.jsonl").write_text("\n".join(map(json.dumps, lines)) + '\n{"op":"cti","t":null}\n')
    table = f"delta('{place}/made/%s', form = '%s')"
    sinks = ";\n".join(f"CREATE SINK {form}s FROM Best INTO {table % (form, form)}" for form in FORMS)
    text = f"""
        CREATE STREAM Price (item BIGINT, price BIGINT) SOURCE file('{place}/prices.jsonl');
        CREATE STREAM Best AS SELECT item, MAX(price) AS price FROM Price GROUP BY item;
        {sinks}"""
    assert LocalJob(job_plan(text, unbounded=True), place / "made-state", batch=7).run() == "done"


def counted(rows: list[Mapping[str, Any]]) -> Counter[str]:
    """Rows without the columns that are null, which Spark's JSON leaves out."""
    return Counter(json.dumps({k: v for k, v in row.items() if v is not None}, sort_keys=True) for row in rows)


def now_of(feed: list[dict[str, Any]]) -> Counter[str]:
    """The rows that a change feed leaves."""
    found: Counter[str] = Counter()
    for row in feed:
        for text in counted([{name: value for name, value in row.items() if not name.startswith("_c")}]):
            found[text] += CAME[row["_change_type"]]
    assert min(found.values()) >= 0
    return +found


def test_delta_s_own_sinks_and_reader_take_what_everwhen_reads_and_writes(jars: str, tmp_path: Path) -> None:
    make(tmp_path)
    bids = Files(tmp_path / "in")
    for later in (0, 0, 3_600_000):
        bids.feed(40, later)
        if later:
            (tmp_path / "last").touch()
        with running("delta_chain", tmp_path, jars, str(tmp_path)) as process:
            report = ended(process, tmp_path)
    stored = {form: DeltaTable(str(tmp_path / "made" / form)).to_pyarrow_table().to_pylist() for form in FORMS}
    assert all(len(stored[form]) >= 5 for form in FORMS)
    for form in FORMS:
        assert counted(report["read"][form]) == counted(stored[form]), form
        assert now_of(report["feeds"][form]) == counted(stored[form]), form
    assert any(row["_change_type"] == "update_preimage" for row in report["feeds"]["upsert"])
    best = queries()["best"]
    written = DeltaTable(str(tmp_path / "answers")).to_pyarrow_table().to_pylist()
    said = [
        ew.Insert(row["vs"], row["ve"], {name: row[name] for name in best.schema.names})
        for row in written
        if row["op"] == "insert"
    ]
    assert {row["op"] for row in written} == {"insert", "cti"}
    final = max(row["vs"] for row in written if row["op"] == "cti")
    assert final >= bids.begin - 2 * SPAN
    same_up_to(History.of(said, best.schema), bids.answers()["best"], final - 1)
