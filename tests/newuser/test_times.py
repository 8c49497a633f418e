"""Times as people write them (P3, P11, P12 of the first tries by a new user)."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import everwhen as ew
from newuser.desk import DECLARED, Desk

HOURS = "SELECT symbol, SUM(value) AS total FROM Tweets WINDOW(RANGE 1 HOUR) GROUP BY symbol"
DAYS = "SELECT symbol, SUM(value) AS total FROM Tweets LIFETIME(HOP 1 DAY LENGTH 1 DAY) GROUP BY symbol"
PLAIN = "SELECT symbol, value FROM Tweets"


# -- timestamps in, timestamps out -------------------------------------------------------------------------------------


def test_where_a_source_has_timestamps_so_has_the_answer(desk: Desk) -> None:
    found = desk.answer(HOURS, "tweets.csv", "--consistency", "strong")
    assert found[0] == {
        "op": "insert",
        "vs": "2015-02-26T21:42:53Z",
        "ve": "2015-02-26T21:47:53Z",
        "row": {"symbol": "AAPL", "total": 3},
    }
    assert found[-1] == {"op": "cti", "t": None}
    going_on = desk.answer(HOURS, "tweets.csv", "--open")
    assert [e["ve"] for e in going_on if e["op"] == "insert"][-1] is None  # infinity stays null


def test_numbers_are_there_where_they_are_asked_for(desk: Desk) -> None:
    found = desk.answer(PLAIN, "tweets.csv", "--times", "ticks")
    assert [e["vs"] for e in found[:2]] == [1424986973000, 1424987273000]


def test_a_query_over_numbers_stays_as_it_is(desk: Desk) -> None:
    line = '{"op":"insert","vs":1,"ve":5,"row":{"symbol":"A","value":2}}\n{"op":"cti","t":3}\n'
    desk.write("n.jsonl", line)
    for declared in ("", "CREATE STREAM Tweets (symbol TEXT, value INT);", DECLARED):
        status, out, err = desk.run(PLAIN, "n.jsonl", "--open", declared=declared)
        if declared != DECLARED:  # there a row lives for one tick
            assert (status, out, err) == (0, line, "")
    chronons = line.replace('"ve":5', '"ve":2')
    desk.write("n.jsonl", chronons)
    assert desk.run(PLAIN, "n.jsonl", "--open") == (0, chronons, "")  # a TIMESTAMP is declared, numbers are there
    status, out, _ = desk.run(PLAIN, "n.jsonl", "--open", "--times", "iso")
    assert json.loads(out.splitlines()[0])["vs"] == "1970-01-01T00:00:00.001Z"


def test_a_parquet_answer_has_timestamps_and_tells_its_tick(desk: Desk) -> None:
    out = desk.place / "a.parquet"
    assert desk.run(HOURS, "tweets.csv", "--out", out)[0] == 0
    schema = pq.read_schema(out)
    assert [schema.field(name).type for name in ("vs", "ve", "vnew")] == [pa.timestamp("ms", "UTC")] * 3
    assert schema.metadata[b"everwhen.tick"] == b"1ms"
    assert pq.read_table(out)["vs"][0].as_py() == datetime(2015, 2, 26, 21, 42, 53, tzinfo=UTC)
    assert desk.run(HOURS, "tweets.csv", "--out", out, "--tick", "10ms", "--times", "iso")[0] == 0
    schema = pq.read_schema(out)
    assert (schema.field("vs").type, schema.metadata[b"everwhen.tick"]) == (pa.timestamp("ms", "UTC"), b"10ms")
    assert desk.run(HOURS, "tweets.csv", "--out", out, "--times", "ticks")[0] == 0
    assert pq.read_schema(out).field("vs").type == pa.int64()


def test_pandas_reads_whole_numbers_as_such_although_a_cti_has_none(desk: Desk) -> None:
    out = desk.place / "a.parquet"
    assert desk.run(PLAIN, "tweets.csv", "--out", out, "--times", "ticks")[0] == 0
    found = pd.read_parquet(out)
    assert found["op"].iloc[-1] == "cti" and found["value"].isna().iloc[-1]
    assert str(found["value"].dtype) == "Int64" and str(found["vs"].dtype) == "Int64"
    assert found["value"].dropna().tolist() == [3, 4, 9, 1]


@pytest.mark.parametrize("form", ["jsonl", "parquet", "csv"])
@pytest.mark.parametrize("tick", ["1ms", "1us", "10ms", "1s"])
def test_an_answer_is_an_input_again(desk: Desk, form: str, tick: str) -> None:
    if form == "csv":
        rows = "op,vs,ve,symbol\ninsert,2015-02-26 21:00:00,2015-02-26T22:00:00Z,A\ninsert,2015-02-26 21:00:00,,B\n"
        desk.write("a.csv", rows)
    else:
        assert desk.run(HOURS, "tweets.csv", "--out", desk.place / f"a.{form}", "--tick", tick)[0] == 0
    found = desk.answer("SELECT * FROM Tweets", f"a.{form}", "--tick", tick, declared="")
    assert found[0]["vs"].startswith("2015-02-26T21:") and found[0]["vs"].endswith("Z")
    if form != "csv":
        text = "".join(json.dumps(element) + "\n" for element in found)
        assert desk.call("diff", desk.place / f"a.{form}", desk.write("again.jsonl", text))[0] == 0


def test_everything_that_reads_elements_reads_timestamps(desk: Desk) -> None:
    for name in ("a.jsonl", "b.parquet", "c/"):
        assert desk.run(HOURS, "tweets.csv", "--out", f"{desk.place}/{name}")[0] == 0
    files = [f"{desk.place}/{name}" for name in ("a.jsonl", "b.parquet", "c/")]
    shown = set()
    for file in files:
        assert "closed up to  ∞" in desk.call("check", file)[1]
        for other in files:
            assert desk.call("diff", file, other)[:2] == (0, "equal at every instant\n")
        shown.add(desk.call("history", file)[1])
    assert len(shown) == 1 and '"vs":"2015-02-26T21:42:53Z"' in shown.pop()
    assert '"vs":1424986973000' in desk.call("history", files[0], "--times", "ticks")[1]
    query = ew.source("A", {"symbol": "string", "total": "int64"})
    for file in files[:2]:
        assert next(iter(ew.run(query, {"A": file}))).vs == 1424986973000
    header = json.loads(Path(files[2], "_changelog.json").read_text())
    assert header["times"] == {"tick": "1ms"}
    assert desk.run("SELECT * FROM Tweets", "c/", "--tick", "1us", declared="")[0] == 3  # it has other ticks


def test_a_run_that_goes_on_reads_and_writes_timestamps(desk: Desk) -> None:
    lines = [{"timestamp": "2015-02-26 21:42:53", "symbol": "A", "value": 1}, {"op": "cti", "t": None}]
    desk.write("t.jsonl", "".join(json.dumps(line) + "\n" for line in lines))
    for _ in range(2):  # the second time it is done already
        assert desk.run(PLAIN, "t.jsonl", "--follow", "--out", desk.place / "out")[0] == 0
    assert '"vs":"2015-02-26T21:42:53Z"' in desk.call("history", f"{desk.place}/out/")[1]
    text = desk.write("again.sql", "SELECT * FROM Said")
    assert desk.call("run", text, "--follow", "--in", f"Said={desk.place}/out/", "--out", desk.place / "more")[0] == 0
    assert desk.call("diff", f"{desk.place}/out/", f"{desk.place}/more/")[0] == 0


def test_history_is_asked_for_an_instant_as_people_write_it(desk: Desk) -> None:
    out = desk.place / "a.jsonl"
    desk.run(HOURS, "tweets.csv", "--out", out)
    rows = [
        [json.loads(line)["row"] for line in desk.call("history", out, "--at", at)[1].splitlines()]
        for at in ("2015-02-26 21:45", "2015-02-26T21:45:00Z", "2015-02-26 22:45+01:00", "1424987100000", "2015-02-27")
    ]
    assert rows == [[{"symbol": "AAPL", "total": 3}]] * 4 + [[]]
    ticks = desk.place / "ticks.jsonl"
    desk.run(HOURS, "tweets.csv", "--out", ticks, "--times", "ticks")
    assert '"AAPL"' in desk.call("history", ticks, "--at", "2015-02-26 21:45")[1]  # a tick is a millisecond
    status, _, err = desk.call("history", out, "--at", "yesterday")
    assert status == 2 and "'yesterday' is no time: a whole number of ticks, or a date or a timestamp such as" in err


def test_tables_and_messages_have_timestamps(desk: Desk) -> None:
    late = [
        {"timestamp": "2015-03-04 08:22:53", "symbol": "A", "value": 1},
        {"op": "cti", "t": "2015-03-04T09:00:00Z"},
        {"timestamp": "2015-03-04 08:22:54", "symbol": "A", "value": 1},
    ]
    desk.write("late.jsonl", "".join(json.dumps(line) + "\n" for line in late))
    status, _, err = desk.run(PLAIN, "late.jsonl")
    assert (
        status == 3
        and "late.jsonl:3: an insert that starts at 2015-03-04 08:22:54, behind the CTI 2015-03-04 09:00:00" in err
    )
    desk.run(PLAIN, "tweets.csv", "--out", desk.place / "a.jsonl")
    desk.run("SELECT symbol, value + 1 AS value FROM Tweets", "tweets.csv", "--out", desk.place / "b.jsonl")
    status, out, _ = desk.call("diff", desk.place / "a.jsonl", desk.place / "b.jsonl")
    assert status == 1 and "differ first at instant 2015-02-26 21:42:53" in out
    assert (
        "instant 1424986973000"
        in desk.call("diff", desk.place / "a.jsonl", desk.place / "b.jsonl", "--times", "ticks")[1]
    )
    bad = '{"vs":"2015-02-26T21:00:00Z","ve":null,"row":{"x":1}}\n{"op":"cti","t":"2015-02-27"}\n'
    desk.write("bad.jsonl", bad + '{"vs":"2015-02-26T22:00:00Z","row":{"x":1}}\n')
    status, out, err = desk.call("check", desk.place / "bad.jsonl")
    assert status == 3 and "changes instant 2015-02-26 22:00:00, but cti 2015-02-27 00:00:00 came before" in err


def test_the_shell_has_timestamps(desk: Desk) -> None:
    script = desk.write("s.sql", f"{DECLARED}\n{HOURS};\n\\run\n\\show\n")
    status, out, _ = desk.call("shell", script, "--in", f"Tweets={desk.place / 'tweets.csv'}")
    assert status == 0 and "1 row at 2015-02-27 00:02:53, final" in out
    assert "q1: insert [2015-02-26 21:42:53, 2015-02-26 21:47:53) symbol='AAPL' total=3" in out
    status, out, _ = desk.call("shell", script, "--in", f"Tweets={desk.place / 'tweets.csv'}", "--times", "ticks")
    assert status == 0 and "1 row at 1424995373000, final" in out


def test_of_mixed_sources_timestamps_win(desk: Desk) -> None:
    desk.write("n.jsonl", '{"vs":1424986973000,"row":{"symbol":"Z"}}\n')
    text = desk.write("m.sql", f"{DECLARED} SELECT symbol FROM Tweets UNION ALL SELECT symbol FROM N")
    inputs = ("--in", f"Tweets={desk.place / 'tweets.csv'}", "--in", f"N={desk.place / 'n.jsonl'}")
    status, out, _ = desk.call("run", text, *inputs, "--engine", "local")
    found = [json.loads(line) for line in out.splitlines()]
    assert status == 0 and {e["vs"] for e in found if e.get("row") == {"symbol": "Z"}} == {"2015-02-26T21:42:53Z"}


def test_a_time_beyond_the_years_of_text_is_a_number(desk: Desk) -> None:
    desk.write("far.jsonl", '{"vs":"2015-02-26T21:00:00Z","ve":4611686018427387903,"row":{"x":1}}\n')
    (insert, _) = desk.answer("SELECT x FROM Tweets", "far.jsonl", declared="")
    assert (insert["vs"], insert["ve"]) == ("2015-02-26T21:00:00Z", 4611686018427387903)


# -- days begin at midnight --------------------------------------------------------------------------------------------


def test_days_begin_at_midnight(desk: Desk) -> None:
    found = desk.answer(DAYS, "tweets.csv", "--consistency", "strong")
    assert [(e["vs"], e["ve"], e["row"]["total"]) for e in found[:-1]] == [
        ("2015-02-26T00:00:00Z", "2015-02-27T00:00:00Z", 7),
        ("2015-02-26T00:00:00Z", "2015-02-27T00:00:00Z", 9),
        ("2015-02-27T00:00:00Z", "2015-02-28T00:00:00Z", 1),
    ]


def test_days_of_a_zone_with_a_fixed_offset_begin_at_its_midnight(desk: Desk) -> None:
    aligned = DAYS.replace("HOP 1 DAY", "HOP 1 DAY ALIGN 23 HOURS")  # +01:00
    found = desk.answer(aligned, "tweets.csv", "--consistency", "strong")
    assert {(e["vs"], e["ve"]) for e in found[:-1]} == {
        ("2015-02-25T23:00:00Z", "2015-02-26T23:00:00Z"),
        ("2015-02-26T23:00:00Z", "2015-02-27T23:00:00Z"),
    }
    status, _, err = desk.run(DAYS.replace("HOP 1 DAY", "ALIGN 23 HOURS"), "tweets.csv")
    assert status == 2 and "ALIGN tells where hops begin: it goes with HOP and LENGTH" in err


@pytest.mark.parametrize(("hop", "align", "length"), [(5, 2, 5), (5, 0, 5), (4, 3, 9), (3, 7, 3)])
def test_hops_begin_where_align_says(hop: int, align: int, length: int) -> None:
    source = ew.source("S", {"x": "int64"})
    query = ew.sql(f"SELECT x FROM S LIFETIME(HOP {hop} ALIGN {align} LENGTH {length})", source)
    found = ew.run(query, {"S": [ew.Insert(t, t + 1, {"x": t}) for t in range(-12, 13)]})
    starts = {t: (t - align) // hop * hop + align for t in range(-12, 13)}
    lived = {e.row["x"]: (e.vs, e.ve) for e in found if isinstance(e, ew.Insert)}
    assert lived == {t: (start, start + length) for t, start in starts.items()}


def test_a_sliding_window_speaks_when_its_slide_is_complete(desk: Desk) -> None:
    """The thesis's definition: the last instant of a slide is the first one at which all of it has been seen."""
    window = "SELECT COUNT(*) AS n FROM Tweets WINDOW(RANGE 1 DAY SLIDE 1 DAY)"
    found = desk.answer(window, "tweets.csv", "--consistency", "strong")
    assert [(e["vs"], e["row"]["n"]) for e in found[:-1]] == [
        ("2015-02-26T23:59:59.999Z", 3),
        ("2015-02-27T23:59:59.999Z", 1),
    ]


# -- times that a tick cannot tell -------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csv", "jsonl", "parquet"])
def test_microseconds_that_the_tick_would_cut_are_refused_with_the_remedy(desk: Desk, form: str) -> None:
    stamp, file = "2015-02-26T21:00:00.123456Z", f"fine.{form}"
    if form == "csv":
        desk.write(file, f"timestamp,symbol,value\n{stamp},A,1\n")
    elif form == "jsonl":
        desk.write(file, json.dumps({"timestamp": stamp, "symbol": "A", "value": 1}) + "\n")
    else:
        moment = pa.array([1424984400123456], pa.timestamp("us"))
        pq.write_table(pa.table({"timestamp": moment, "symbol": ["A"], "value": [1]}), desk.place / file)
    status, out, err = desk.run(PLAIN, file)
    assert (status, out) == (3, "")
    assert "the time in 'timestamp' is no whole number of ticks of 1 ms" in err and "--tick 1us" in err
    assert "21:00:00.123456" in err
    assert desk.answer(PLAIN, file, "--tick", "1us")[0]["vs"] == stamp


def test_elements_with_microseconds_are_read_at_their_own_tick_by_history(desk: Desk) -> None:
    line = '{"op":"insert","vs":"2015-02-26T21:00:00.123456Z","ve":"2015-02-26T21:00:01Z","row":{"x":1}}\n'
    file = desk.write("fine.jsonl", line)
    assert desk.call("history", file)[:2] == (0, line)
    status, _, err = desk.run("SELECT x FROM Tweets", "fine.jsonl", declared="")
    assert status == 3 and "fine.jsonl:1: the time in 'vs' is no whole number of ticks of 1 ms" in err
    coarse = desk.write("coarse.jsonl", line.replace(".123456", ""))
    assert "differ first at instant 2015-02-26 21:00:00" in desk.call("diff", file, coarse)[1]


@pytest.mark.parametrize("text", ["99999999999999999999", "-99999999999999999999", "4611686018427387904"])
def test_a_number_too_large_for_a_time_is_named_with_its_line(desk: Desk, text: str) -> None:
    desk.write("far.csv", f"timestamp,symbol,value\n1,A,1\n{text},A,1\n")
    status, out, err = desk.run(PLAIN, "far.csv")
    assert (status, out) == (3, "")
    assert f"far.csv:3: the time in 'timestamp' is out of range: the text \"{text}\"" in err


# -- in Python ---------------------------------------------------------------------------------------------------------


def test_elements_in_python_print_as_timestamps_and_are_still_numbers(desk: Desk) -> None:
    found = ew.run(ew.sql(f"{DECLARED} {HOURS}"), {"Tweets": str(desk.place / "tweets.csv")})
    first = next(found)
    assert isinstance(first, ew.Insert) and first.vs == 1424986973000
    assert str(first) == "insert [2015-02-26 21:42:53, 2015-02-26 21:47:53) symbol='AAPL' total=3"
    assert "2015-02-26 21:42:53" in repr(first) and "14249" not in f"{first} {first!r}"
    again = ew.run(ew.sql(f"{DECLARED} {HOURS}"), {"Tweets": str(desk.place / "tweets.csv")})
    assert list(again.elements()) == [first, *found]
