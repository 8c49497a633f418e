"""Jobs that are killed with SIGKILL at any moment: nothing is lost, nothing is doubled.

The job runs in a process that was forked from this one, so that nothing has to be loaded again.  What it writes is
compared with what a job writes that nobody killed.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

import everwhen as ew
from everwhen.core.time import INF
from everwhen.jobs.local_job import LocalJob
from everwhen.jobs.plan import job_plan

TEXT = """
    CREATE STREAM Bid (item INT, price INT) SOURCE file('{bids}');
    CREATE STREAM Extra (item INT, price INT) SOURCE folder('{extra}');
    CREATE STREAM Best AS SELECT item, MAX(price) AS price FROM Bid GROUP BY item;
    CREATE STREAM Counted AS SELECT item, COUNT(*) AS n FROM Extra WINDOW(RANGE 20) GROUP BY item;
    CREATE SINK log FROM Best INTO changelog('{out}/log');
    CREATE SINK file FROM Counted INTO file('{out}/counted.jsonl');
    CREATE SINK folder FROM Best INTO folder('{out}/best', format = 'parquet');
    CREATE SINK now FROM Best INTO folder('{out}/now', form = 'upsert');
    CREATE SINK strong INTO file('{out}/strong.jsonl');
    INSERT INTO strong SELECT item, price FROM Bid WHERE price > 3 CONSISTENCY STRONG"""


def job(place: Path, out: str, every: float) -> LocalJob:
    text = TEXT.format(bids=place / "bids.jsonl", extra=place / "extra", out=place / out)
    return LocalJob(job_plan(text, unbounded=True), place / f"state {out}", batch=40, every=every)


def bids(rng: random.Random, begin: int, count: int) -> list[str]:
    """Rows with ends and without, some of which are corrected, and promises."""
    lines = []
    for t in range(begin, begin + count):
        row = {"item": rng.randint(0, 5), "price": rng.randint(0, 9)}
        end = rng.choice([t + 1, t + rng.randint(1, 30), None])
        lines.append({"vs": t, "ve": end, "row": row})
        if rng.random() < 0.3 and (end is None or end > t + 1):
            lines.append({"op": "adjust", "vs": t, "ve": end, "vnew": t + 1, "row": row})
        if rng.random() < 0.1:
            lines.append({"op": "cti", "t": t - 2})
    return [json.dumps(line) + "\n" for line in lines]


def feed(place: Path, rng: random.Random, number: int) -> None:
    with open(place / "bids.jsonl", "a", encoding="utf-8") as file:
        text = "".join(bids(rng, number * 100, 100))
        cut = rng.randint(0, len(text))  # a line comes in two pieces
        file.write(text[:cut])
        file.flush()
        file.write(text[cut:])
    rows = [json.dumps({"vs": number * 100 + i, "row": {"item": i % 3, "price": i}}) for i in range(20)]
    aside = place / "extra" / f".{number:05d}"
    aside.write_text("\n".join([*rows, json.dumps({"op": "cti", "t": number * 100})]) + "\n")
    aside.rename(place / "extra" / f"{number:05d}.jsonl")


def end(place: Path) -> None:
    for file in (place / "bids.jsonl", place / "extra" / "99999.jsonl"):
        with open(file, "a", encoding="utf-8") as out:
            out.write('{"op":"cti","t":null}\n')


APPENDED = {"strong", "best", "counted"}


def forked(place: Path, out: str, every: float) -> int:
    child = os.fork()
    if child == 0:
        status = 1
        try:
            job(place, out, every).run()
            status = 0
        finally:
            os._exit(status)
    return child


def written(place: Path, out: str) -> dict:
    folder = place / out
    import pyarrow.parquet as pq

    lines = {name: Counter((folder / f"{name}.jsonl").read_text().splitlines()) for name in ("counted", "strong")}
    best = Counter(
        json.dumps(row)
        for file in sorted((folder / "best").glob("*.parquet"))
        for row in pq.read_table(file).to_pylist()
    )
    table: dict = {}
    for file in sorted((folder / "now").glob("*.jsonl")):
        for line in file.read_text().splitlines():
            change = json.loads(line)
            table.pop(change["row"]["item"], None)
            if change["op"] == "put":
                table[change["row"]["item"]] = change["row"]["price"]
    return {**lines, "best": best, "now": table}


def history(lines: Counter[str]) -> list[ew.Insert]:
    """Appended rows as events."""
    found = []
    for line, count in lines.items():
        row = json.loads(line)
        vs, ve = row.pop("valid_from"), row.pop("valid_to")
        found += [ew.Insert(vs, INF if ve is None else ve, row)] * count
    return found


def killed(place: Path, rng: random.Random, times: int, longest: float) -> int:
    """Feeds and kills a job in turn; then lets it end.  How often it was killed while it worked."""
    (place / "extra").mkdir()
    (place / "bids.jsonl").touch()
    hits = 0
    for number in range(times):
        feed(place, rng, number)
        child = forked(place, "killed", rng.choice([0.0, 0.05, 5.0]))
        time.sleep(rng.random() * longest)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        hits += os.WIFSIGNALED(status)
    end(place)
    _, status = os.waitpid(forked(place, "killed", 0.5), 0)
    assert status == 0
    _, status = os.waitpid(forked(place, "quiet", 5.0), 0)
    assert status == 0
    return hits


def check(place: Path) -> None:
    a, b = written(place, "killed"), written(place, "quiet")
    # In which pieces a lifetime is appended depends on the promises that came meanwhile; what they cover does not.
    for name in APPENDED:
        ew.testing.assert_same_history(history(a[name]), history(b[name]))
    for name in b.keys() - APPENDED:
        assert a[name] == b[name], name
    assert sum(b["counted"].values()) > 0 and sum(b["strong"].values()) > 0 and b["now"] and b["best"]
    said = {
        out: [e for batch in ew.read_changelog(str(place / out / "log")) for e in batch.elements()]
        for out in ("killed", "quiet")
    }
    ew.testing.assert_valid(said["killed"])
    ew.testing.assert_same_history(said["killed"], said["quiet"])


@pytest.fixture(scope="module", autouse=True)
def compiled(tmp_path_factory):
    """All loops are compiled before processes are forked."""
    place = tmp_path_factory.mktemp("warm")
    (place / "extra").mkdir()
    feed(place, random.Random(0), 0)
    end(place)
    job(place, "warm", 0.0).run()


def test_killed_twenty_times(tmp_path):
    assert killed(tmp_path, random.Random(7), 20, 0.25) == 20
    check(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_killed_a_hundred_times(tmp_path, seed):
    assert killed(tmp_path, random.Random(seed), 100, 0.6) >= 95
    check(tmp_path)
