"""Jobs in process: what they write is the answer, once; restarts, refusals, words."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

import everwhen as ew
from everwhen.errors import InputError, InUseError, QueryError, SinkError, SinkLostError, SqlError
from everwhen.jobs.local_job import LocalJob
from everwhen.jobs.plan import job_plan
from everwhen.jobs.status import ask_to_stop, read_status
from everwhen.storage.lease import held_by

BID = "CREATE STREAM Bid (item INT, price INT) SOURCE file('{0}/bids.jsonl');"
BEST = BID + "CREATE STREAM Best AS SELECT item, MAX(price) AS price FROM Bid WINDOW(RANGE 10) GROUP BY item;"
ALL = (
    BEST
    + """
    CREATE SINK log FROM Best INTO changelog('{0}/log');
    CREATE SINK final FROM Best INTO file('{0}/final.jsonl');
    CREATE SINK now FROM Best INTO folder('{0}/now', form = 'upsert');
    CREATE SINK changes FROM Best INTO folder('{0}/changes', form = 'retract', format = 'parquet');
    INSERT INTO rows SELECT item FROM Bid WHERE price > 5"""
)
ALL = ALL.replace("INSERT INTO rows", "CREATE SINK rows INTO file('{0}/rows.jsonl'); INSERT INTO rows")


def line(vs: int, item: int, price: int) -> str:
    return json.dumps({"vs": vs, "row": {"item": item, "price": price}}) + "\n"


def cti(t: int | None) -> str:
    return json.dumps({"op": "cti", "t": t}) + "\n"


def add(place: Path, *lines: str) -> None:
    with open(place / "bids.jsonl", "a", encoding="utf-8") as file:
        file.writelines(lines)


def job(place: Path, text: str = ALL, **options) -> LocalJob:
    return LocalJob(job_plan(text.format(place)), place / "state", **options)


def rows_of(path: Path) -> list[dict]:
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines()]


def test_a_job_writes_every_sink_in_its_form_and_ends_with_its_inputs(tmp_path):
    add(tmp_path, line(1, 7, 3), line(4, 7, 9), line(6, 8, 2), cti(30), line(40, 7, 1), cti(None))
    assert job(tmp_path, batch=2).run() == "done"
    said = [e for batch in ew.read_changelog(str(tmp_path / "log")) for e in batch.elements()]
    ew.testing.assert_valid(said)
    assert rows_of(tmp_path / "final.jsonl") == [
        {"item": 7, "price": 3, "valid_from": 1, "valid_to": 4},
        {"item": 7, "price": 9, "valid_from": 4, "valid_to": 14},
        {"item": 8, "price": 2, "valid_from": 6, "valid_to": 16},
        {"item": 7, "price": 1, "valid_from": 40, "valid_to": 50},
    ]
    assert [row["item"] for row in rows_of(tmp_path / "rows.jsonl")] == [7]
    last = [row for file in sorted((tmp_path / "now").glob("epoch-*")) for row in rows_of(file)]
    assert last[-1] == {"op": "delete", "row": {"item": 7}}
    tables = [pq.read_table(file).to_pylist() for file in sorted((tmp_path / "changes").glob("epoch-*"))]
    assert tables[-1][-1]["op"] == "delete"
    found = read_status(tmp_path / "state")
    assert (found.state, found.status["sources"]["Bid"]["rows"]) == ("done", 4)
    assert found.status["sinks"]["final"]["final"] == "inf"
    assert found.status["sinks"]["final"]["written"] == 4


def test_stopped_and_started_again_it_goes_on_and_nothing_is_doubled(tmp_path):
    add(tmp_path, line(1, 7, 3), cti(2))
    run_until(
        tmp_path, lambda: (tmp_path / "rows.jsonl").exists() and read_status(tmp_path / "state").state == "running"
    )
    assert read_status(tmp_path / "state").state == "stopped"
    add(tmp_path, line(4, 7, 9), cti(None))
    assert job(tmp_path).run() == "done"
    assert [(r["price"], r["valid_from"], r["valid_to"]) for r in rows_of(tmp_path / "final.jsonl")] == [
        (3, 1, 4),
        (9, 4, 14),
    ]
    found = read_status(tmp_path / "state").status
    assert (found["restarts"], found["sources"]["Bid"]["rows"], found["sinks"]["final"]["written"]) == (1, 2, 2)
    assert job(tmp_path).run() == "done"  # a job that is done stays so
    assert len(rows_of(tmp_path / "final.jsonl")) == 2


def run_until(place: Path, reached, text: str = ALL) -> float:
    """Runs a job in a thread, asks it to stop once something is so; how long it took to stop."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            job(place, text).run()
        except BaseException as bad:
            failed.append(bad)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    until = time.monotonic() + 30
    while not ((place / "state" / "status.json").exists() and reached()):
        assert thread.is_alive() and time.monotonic() < until, failed
        time.sleep(0.02)
    began = time.monotonic()
    ask_to_stop(place / "state", held_by(place / "state" / "job"))
    thread.join(30)
    assert not failed
    return time.monotonic() - began


def test_a_second_job_is_refused_by_name_and_stop_takes_effect_within_a_second(tmp_path):
    add(tmp_path, line(1, 7, 3))

    def refused() -> bool:
        if read_status(tmp_path / "state").state != "running":
            return False
        with pytest.raises(InUseError, match=r"in use by another run: process \d+ on .+ since \d{4}-"):
            job(tmp_path).run()
        return True

    assert run_until(tmp_path, refused) < 1.0


def test_another_text_is_refused_and_told_what_differs(tmp_path):
    add(tmp_path, line(1, 7, 3), cti(None))
    job(tmp_path).run()
    with pytest.raises(QueryError, match="belongs to another run"):
        job(tmp_path, ALL.replace("price > 5", "price > 6")).run()


def test_a_text_that_has_not_begun_may_be_corrected(tmp_path):
    (tmp_path / "bids.jsonl").write_text("no row\n")
    with pytest.raises(InputError, match="not JSON"):
        job(tmp_path).run()
    (tmp_path / "good.jsonl").write_text(line(1, 7, 3) + line(4, 7, 9) + cti(5) + line(5, 7, 1) + cti(None))
    mended = ALL.replace("bids.jsonl", "good.jsonl").replace("final.jsonl')", "final.jsonl', form = 'retract')")
    mended = mended.replace("format = 'parquet'", "format = 'jsonl'").replace("item FROM", "price FROM")
    assert job(tmp_path, mended, batch=1).run() == "done"
    assert rows_of(tmp_path / "rows.jsonl") == [{"price": 9, "valid_from": 4, "valid_to": 5}]
    assert [row["op"] for row in rows_of(tmp_path / "final.jsonl")] == ["c", "u", "d"]
    with pytest.raises(QueryError, match="belongs to another run"):
        job(tmp_path).run()


def test_a_new_checkpoint_does_not_add_to_what_another_job_wrote(tmp_path):
    add(tmp_path, line(1, 7, 3), cti(None))
    for sink, problem in (
        ("changelog('{0}/x')", "which this checkpoint does not know"),
        ("file('{0}/x.jsonl')", "another job writes there"),
        ("folder('{0}/y')", "another job writes there"),
    ):
        text = BEST + f"CREATE SINK s FROM Best INTO {sink}"
        LocalJob(job_plan(text.format(tmp_path)), tmp_path / f"first {sink[:4]}").run()
        with pytest.raises(SinkError, match=problem):
            LocalJob(job_plan(text.format(tmp_path)), tmp_path / f"second {sink[:4]}").run()


def test_a_sink_that_lost_its_rows_is_noticed(tmp_path):
    add(tmp_path, line(1, 7, 3), cti(2), line(3, 7, 4))
    run_until(tmp_path, lambda: read_status(tmp_path / "state").status["sources"]["Bid"]["rows"] == 2)
    (tmp_path / "final.jsonl").unlink()
    (tmp_path / ".final.jsonl.epochs").unlink()
    with pytest.raises(SinkLostError, match=r"final\.jsonl"):
        job(tmp_path).run()


def test_a_sink_that_had_nothing_to_say_for_some_epochs_has_lost_nothing(tmp_path):
    text = (
        BID
        + """
        CREATE SINK large INTO delta('{0}/large', form = 'elements') AS SELECT item, price FROM Bid WHERE price > 5;
        CREATE SINK every INTO file('{0}/all.jsonl') AS SELECT item FROM Bid"""
    )
    for rows, price in ((1, 9), (2, 1), (3, 2), (4, 8)):
        add(tmp_path, line(rows, 7, price))
        run_until(tmp_path, lambda n=rows: read_status(tmp_path / "state").status["sources"]["Bid"]["rows"] == n, text)
    add(tmp_path, cti(None))
    assert job(tmp_path, text).run() == "done"
    found = DeltaTable(str(tmp_path / "large")).to_pyarrow_table().to_pylist()
    assert sorted(row["price"] for row in found if row["op"] == "insert") == [8, 9]


def test_levels_side_by_side(tmp_path):
    add(tmp_path, line(1, 7, 3), line(4, 7, 9), cti(30), cti(None))
    text = (
        BEST
        + """
        CREATE SINK a INTO changelog('{0}/a'); INSERT INTO a SELECT item, price FROM Best CONSISTENCY STRONG;
        CREATE SINK b INTO changelog('{0}/b'); INSERT INTO b SELECT item, price FROM Best CONSISTENCY MIDDLE"""
    )
    job(tmp_path, text).run()
    a, b = (list(ew.read_changelog(str(tmp_path / name))) for name in "ab")
    ew.testing.assert_same_history([e for x in a for e in x.elements()], [e for x in b for e in x.elements()])


def test_a_folder_of_files_and_a_changelog_between_two_jobs(tmp_path):
    (tmp_path / "in").mkdir()
    for n in range(3):
        (tmp_path / "in" / f"{n}.jsonl").write_text(line(n, n, n))
    (tmp_path / "in" / "3.jsonl").write_text(cti(None))
    bid = "CREATE STREAM Bid (item INT, price INT) SOURCE "
    first = bid + "folder('{0}/in', files = '*.jsonl'); CREATE SINK s FROM Bid INTO changelog('{0}/wire')"
    LocalJob(job_plan(first.format(tmp_path)), tmp_path / "a").run()
    second = bid + "changelog('{0}/wire'); CREATE SINK s FROM Bid INTO file('{0}/out.jsonl')"
    LocalJob(job_plan(second.format(tmp_path)), tmp_path / "b").run()
    assert [row["item"] for row in rows_of(tmp_path / "out.jsonl")] == [0, 1, 2]


def test_nexmark_runs_to_its_end(tmp_path):
    text = """
        CREATE STREAM Bid (itemID INT, bid_price REAL, bidderID INT)
        SOURCE nexmark(events = 5000, late = 0.1, corrections = 0.05);
        CREATE SINK s INTO discard(form = 'upsert');
        INSERT INTO s SELECT itemID, MAX(bid_price) AS best FROM Bid WINDOW(RANGE 10 SECONDS) GROUP BY itemID"""
    assert job(tmp_path, text).run() == "done"
    found = read_status(tmp_path / "state").status
    assert found["sources"]["Bid"]["rows"] > 4000
    assert found["sinks"]["s"]["corrections"] > 0
    assert found["sinks"]["s"]["waiting_rows"] == 0


def test_figures_of_operators_are_there_on_request(tmp_path):
    add(tmp_path, line(1, 7, 3), line(2, 7, 3), cti(None))
    job(tmp_path, BEST + "CREATE SINK s FROM Best INTO discard()", operators=True).run()
    found = {each["name"]: each for each in read_status(tmp_path / "state").status["operators"]}
    assert any(each["rows_in"] == 2 for each in found.values())
    assert all(each["final"] == "inf" for each in found.values())


def test_an_append_without_promises_says_who_is_silent(tmp_path, monkeypatch):
    monkeypatch.setattr("everwhen.jobs.local_job._SILENT", 0.1)
    add(tmp_path, line(1, 7, 3))
    told: list[str] = []
    text = BID + "CREATE SINK s FROM Bid INTO file('{0}/s.jsonl')"
    thread = threading.Thread(target=lambda: job(tmp_path, text, tell=told.append).run(), daemon=True)
    thread.start()
    until = time.monotonic() + 20
    while not told and time.monotonic() < until:
        time.sleep(0.02)
    ask_to_stop(tmp_path / "state", held_by(tmp_path / "state" / "job"))
    thread.join()
    assert told and "s: nothing was written yet; Bid has promised nothing yet" in told[0]


@pytest.mark.parametrize(
    ("text", "problem", "place"),
    [
        (BID + "CREATE SINK s FROM Bid INTO flie('x')", "there is no sink 'flie'; did you mean 'file'?", "flie"),
        (BID + "CREATE SINK s FROM Bid INTO file(pth = 'x')", "file has no option 'pth'; did you mean 'path'?", "pth"),
        (BID + "CREATE SINK s FROM Bid INTO file()", "file needs the option 'path'", "file()"),
        (BID + "CREATE SINK s FROM Bid INTO file('x', form = 'elements')", "'form' is one of append", "form ="),
        (BID + "CREATE SINK s FROM Bid INTO folder('x', format = 5)", "'format' is a text", "format = 5"),
        (BID + "CREATE SINK s FROM Bid INTO file('x', form = 'upsert')", "an upsert needs a key", "form ="),
        (
            BID + "CREATE SINK s FROM Bid INTO file('x', form = 'upsert', key = 'item')",
            "two rows of one instant may agree on item",
            "key =",
        ),
        (BEST + "CREATE SINK s FROM Best INTO file('x', form = 'upsert', key = 'itm')", "has no column 'itm'", "key ="),
        (BEST + "CREATE SINK s FROM Best INTO file('x', key = 'item')", "form 'append' has no key", "key ="),
        (
            "CREATE STREAM B (x INT) SOURCE nexmark(rate = -1); CREATE SINK s FROM B INTO discard()",
            "at least 0",
            "rate =",
        ),
        ("CREATE STREAM B (x INT) SOURCE discard(); CREATE SINK s FROM B INTO discard()", "is no source", "discard"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_an_option_has_its_place(text, problem, place):
    text = text.format("/data")
    with pytest.raises(SqlError) as bad:
        job_plan(text)
    assert problem in bad.value.problem
    assert text[bad.value.start :].startswith(place)


def test_a_stream_without_a_source_is_told():
    with pytest.raises(QueryError, match="the stream Bid has no source"):
        job_plan("CREATE STREAM Bid (item INT); CREATE SINK s FROM Bid INTO discard()")


TWO = """
    CREATE STREAM Bid (item INT, price INT) SOURCE file('{0}/bids.jsonl');
    CREATE STREAM Quiet (item INT) SOURCE file('{0}/quiet.jsonl') IDLE AFTER 200 MILLISECONDS;
    CREATE SINK both INTO file('{0}/both.jsonl') AS
    SELECT item FROM Bid UNION ALL SELECT item FROM Quiet"""


def test_a_source_that_rests_holds_nobody_back_also_after_a_restart(tmp_path):
    add(tmp_path, line(1, 7, 3), cti(5))
    (tmp_path / "quiet.jsonl").write_text('{"vs":0,"row":{"item":9}}\n', encoding="utf-8")
    both = tmp_path / "both.jsonl"
    run_until(tmp_path, lambda: both.exists() and len(rows_of(both)) == 2, TWO)
    add(tmp_path, line(6, 8, 3), cti(9))
    run_until(tmp_path, lambda: len(rows_of(both)) == 3, TWO)
    assert sorted(row["item"] for row in rows_of(both)) == [7, 8, 9]


def test_late_rows_are_in_the_status(tmp_path):
    text = """
        CREATE STREAM Bid (item INT, price INT) SOURCE file('{0}/bids.jsonl') ORDERED BY price WITHIN 2 LATE ROWS DROP;
        CREATE SINK kept INTO file('{0}/kept.jsonl') AS SELECT item FROM Bid"""
    for item, at in ((1, 10), (2, 11), (3, 3)):
        add(tmp_path, json.dumps({"item": item, "price": at}) + "\n")
        run_until(tmp_path, lambda item=item: bids(tmp_path)["rows"] == item, text)
    assert bids(tmp_path)["late"] == 1


def bids(place: Path) -> dict:
    """What the status says of the source Bid."""
    return json.loads((place / "state" / "status.json").read_text(encoding="utf-8"))["sources"].get("Bid", {"rows": 0})
