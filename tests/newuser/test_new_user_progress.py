"""What a new user met with files of timestamps: progress, late rows, silence, the first file.  One test per sentence
of the problems P1, P9 and P10; those on Spark, and P8, are in `tests/spark/test_declared_progress.py`."""

from __future__ import annotations

import io
import json
import logging
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import everwhen as ew
from everwhen.cli.program import main

COLUMNS = "timestamp TIMESTAMP, symbol TEXT, value INT"
HOURS = "SELECT symbol, SUM(value) AS total FROM Tweets WINDOW(RANGE 1 HOUR SLIDE 1 HOUR) GROUP BY symbol"
STRONG = f"{HOURS} CONSISTENCY STRONG"
BEGIN = datetime(2015, 2, 26, 21, 2, 53)
OFFSETS = [0, 5, 10, 4, 15, 20, 25, 12, 30, 35, 40, 33, 45, 70, 75, 61, 80, 130, 135, 140]  # minutes


class Desk:
    """A directory with a file of timestamps, and the program run in it."""

    def __init__(self, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.place, self.capsys = place, capsys
        rows = [f"{BEGIN + timedelta(minutes=at)},{'IBM' if at % 2 else 'AAPL'},{at}" for at in OFFSETS]
        self.tweets = self.write("tweets.csv", "timestamp,symbol,value\n" + "\n".join(rows) + "\n")
        self.out = place / "out.jsonl"

    def write(self, name: str, text: str) -> str:
        path = self.place / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    def lines(self, name: str, objects: list[dict[str, Any]]) -> str:
        return self.write(name, "".join(json.dumps(each) + "\n" for each in objects))

    def run(self, sql: str, *arguments: str) -> tuple[int, str]:
        """The exit status, and what was said on the standard error."""
        query = self.write("q.sql", sql)
        status = main(["run", query, "--engine", "local", "--out", str(self.out), *arguments])
        said = self.capsys.readouterr().err
        assert "Traceback" not in said
        return status, said

    @property
    def answer(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.out.read_text().splitlines()]

    def rows(self) -> list[tuple[str, int]]:
        return [(each["row"]["symbol"], each["row"]["total"]) for each in self.answer if each["op"] == "insert"]


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Desk:
    return Desk(tmp_path, capsys)


def declared(behind: str, query: str = STRONG) -> str:
    return f"CREATE STREAM Tweets ({COLUMNS}) {behind};\n{query}"


# -- P1: a file without CTIs -------------------------------------------------------------------------------------------


def test_p1_strong_over_a_file_that_never_promises_is_told_and_not_mute(desk: Desk) -> None:
    status, said = desk.run(declared("ORDERED BY timestamp"), "--in", f"Tweets={desk.tweets}", "--open")
    assert (status, desk.answer) == (0, [])
    assert said == (
        "everwhen: warning: Tweets has promised nothing yet, so nothing is final and STRONG says nothing; let it "
        "promise: ORDERED BY column WITHIN 30 MINUTES behind CREATE STREAM Tweets (…), --within Tweets=30m, or CTI "
        "elements in the input\n"
    )


def test_p1_of_two_streams_the_one_without_promises_is_named(desk: Desk) -> None:
    other = desk.lines("other.jsonl", [{"vs": 1, "row": {"symbol": "IBM"}}, {"op": "cti", "t": 5}])
    sql = declared("ORDERED BY timestamp", "SELECT Tweets.symbol FROM Tweets, Other CONSISTENCY STRONG")
    status, said = desk.run(sql, "--in", f"Tweets={desk.tweets}", "--in", f"Other={other}", "--open")
    assert status == 0
    assert "Tweets has promised nothing yet" in said
    assert "Other" not in said.split("so nothing")[0]


def test_p1_explain_says_that_strong_needs_promises(desk: Desk) -> None:
    def explained(behind: str, *options: str) -> str:
        query = desk.write("q.sql", declared(behind))
        assert main(["explain", query, "--engine", "local", *options]) == 0
        return desk.capsys.readouterr().out

    found = explained("ORDERED BY timestamp")
    assert "What it waits for\n  an answer is said when it is final: when Tweets has promised it" in found
    assert "What it waits for" not in explained("ORDERED BY timestamp WITHIN 30 MINUTES")
    assert "What it waits for" not in explained("ORDERED BY timestamp", "--consistency", "middle")
    assert "one tick each, within 1800000" in explained("ORDERED BY timestamp WITHIN 30 MINUTES")


@pytest.mark.parametrize(
    ("columns", "behind"),
    [
        (COLUMNS, "ORDERED BY timestamp WITHIN 30 MINUTES"),
        (f"{COLUMNS}, WATERMARK FOR timestamp AS timestamp - INTERVAL '30' MINUTE", ""),
    ],
)
def test_p1_sql_can_say_the_bound_and_reads_flinks_watermark(desk: Desk, columns: str, behind: str) -> None:
    sql = f"CREATE STREAM Tweets ({columns}) {behind}; {STRONG}"
    status, said = desk.run(sql, "--in", f"Tweets={desk.tweets}", "--open", "--batch", "3")
    assert (status, said) == (0, "")
    assert desk.answer[-1]["op"] == "cti"
    closed = desk.rows()
    desk.run(declared("ORDERED BY timestamp"), "--in", f"Tweets={desk.tweets}")
    whole = desk.rows()
    assert closed
    assert Counter(closed) <= Counter(whole)
    assert len(closed) < len(whole)


def test_p1_the_command_line_says_the_same_without_a_declaration(desk: Desk) -> None:
    options = ("--in", f"Tweets={desk.tweets}", "--open", "--batch", "3")
    assert desk.run(declared("ORDERED BY timestamp WITHIN 30 MINUTES"), *options) == (0, "")
    wanted = desk.answer
    assert desk.run(STRONG, *options, "--ordered-by", "Tweets=timestamp", "--within", "Tweets=30m") == (0, "")
    assert desk.answer == wanted
    assert desk.run(STRONG, *options, "--ordered-by", "timestamp", "--within", "30 minutes") == (0, "")
    assert desk.answer == wanted


def test_p1_memory_is_freed_as_promises_come() -> None:
    schema = {"symbol": "string", "value": "int64"}
    sizes = {}
    for within in (None, 10):
        source = ew.source("Tweets", schema, chronons=True, within=within)
        runtime = ew.LocalRuntime(source.range(20).join(source.range(20), on="symbol"))
        for start in range(0, 2_000, 100):
            rows = [ew.Insert(t, t + 1, {"symbol": f"s{t % 7}", "value": t}) for t in range(start, start + 100)]
            runtime.push({"Tweets": ew.ElementBatch.of(rows, source.schema)})
        sizes[within] = runtime.state_size().rows
    assert sizes[10] * 10 < sizes[None]


def test_p1_in_python_it_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    source = ew.source("Tweets", {"value": "int64"})
    rows = [ew.Insert(1, 2, {"value": 1})]
    with caplog.at_level(logging.WARNING):
        assert list(ew.run(source, {"Tweets": rows}, ew.STRONG, open=True)) == []
    assert "Tweets has promised nothing yet" in caplog.text


def test_p1_the_old_ways_of_trying_have_answers(desk: Desk) -> None:
    status, said = desk.run(
        f"CREATE STREAM Tweets ({COLUMNS}) WATERMARK FOR timestamp AS timestamp; {STRONG}",
        "--in", f"Tweets={desk.tweets}",
    )  # fmt: skip
    assert status == 2
    assert "WATERMARK" in said
    status, said = desk.run(
        declared("ORDERED BY timestamp PUNCTUATE (SORTED BY timestamp WITHIN 30 MINUTES)"),
        "--in", f"Tweets={desk.tweets}",
    )  # fmt: skip
    assert status == 2
    assert "ORDERED BY timestamp WITHIN" in said


# -- P9: late rows in process ------------------------------------------------------------------------------------------

LATE = [
    {"vs": 1000, "row": {"x": 1}},
    {"op": "cti", "t": 900},
    {"vs": 500, "ve": 950, "row": {"x": 2}},
    {"vs": 600, "row": {"x": 3}},
    {"vs": 1100, "row": {"x": 4}},
]


def test_p9_the_error_names_file_line_and_every_remedy(desk: Desk) -> None:
    late = desk.lines("late.jsonl", LATE)
    status, said = desk.run("SELECT x FROM T", "--in", f"T={late}")
    assert status == 3
    assert f"{late}:3: an insert that starts at 500, behind the CTI 900" in said
    assert "LATE ROWS DROP behind CREATE STREAM T (…), --late T=drop, or late='drop' in ew.source" in said
    assert "Finalize" not in said


@pytest.mark.parametrize("options", [(), ("--consistency", "weak"), ("--remember", "1s")])
def test_p9_late_rows_are_dropped_counted_and_kept(desk: Desk, options: tuple[str, ...]) -> None:
    late, kept = desk.lines("late.jsonl", LATE), desk.place / "kept.jsonl"
    arguments = ("--in", f"T={late}", "--late", "T=drop", "--late-rows", str(kept), *options)
    status, said = desk.run("SELECT x FROM T", *arguments)
    assert status == 0
    assert [each["row"]["x"] for each in desk.answer if each["op"] == "insert"] == [1, 4]
    assert said == (
        "everwhen: warning: T: 2 of 4 rows (50 %) came behind what the stream had promised: 2 dropped; those that were "
        f"dropped are in {kept}\n"
    )
    assert desk.run("SELECT x FROM T", "--in", f"T={kept}") == (0, "")  # they can be read again
    assert [(each["vs"], each["ve"], each["row"]["x"]) for each in desk.answer[:-1]] == [(500, 950, 2), (600, 601, 3)]


def test_p9_late_rows_are_moved_to_the_promise_that_they_broke(desk: Desk) -> None:
    late = desk.lines("late.jsonl", LATE)
    status, said = desk.run("SELECT x FROM T", "--in", f"T={late}", "--late", "adjust")
    assert status == 0
    assert sorted((e["vs"], e["ve"], e["row"]["x"]) for e in desk.answer if e["op"] == "insert") == [
        (900, 901, 3), (900, 950, 2), (1000, 1001, 1), (1100, 1101, 4),
    ]  # fmt: skip
    assert "2 of 4 rows (50 %) came behind what the stream had promised: 2 moved to the promise" in said


def test_p9_the_declaration_says_it_too(desk: Desk) -> None:
    options = ("--in", f"Tweets={desk.tweets}", "--batch", "1")
    status, said = desk.run(declared("ORDERED BY timestamp WITHIN 5 MINUTES"), *options)
    assert status == 3
    assert f"{desk.tweets}:5: a row that starts at" in said
    assert "widen WITHIN by 1m or more" in said
    for policy in ("DROP", "ADJUST"):
        status, said = desk.run(declared(f"ORDERED BY timestamp WITHIN 5 MINUTES LATE ROWS {policy}"), *options)
        assert (status, said.count("came behind what the stream had promised")) == (0, 1)
    assert desk.run(declared("ORDERED BY timestamp WITHIN 14 MINUTES"), *options) == (0, "")


def test_p9_who_drops_rows_is_told_how_to_keep_them(desk: Desk) -> None:
    late = desk.lines("late.jsonl", LATE)
    for policy, hint in (("drop", "2 dropped; --late-rows FILE keeps them\n"), ("adjust", "2 moved to the promise\n")):
        status, said = desk.run("SELECT x FROM T", "--in", f"T={late}", "--late", policy)
        assert status == 0
        assert said.endswith(hint)


def test_p9_many_late_rows_are_told_at_once(desk: Desk) -> None:
    rows = [{"vs": 10_000 + i, "row": {"x": i}} for i in range(300)] + [{"vs": i, "row": {"x": i}} for i in range(300)]
    late = desk.lines("late.jsonl", rows)
    status, said = desk.run("SELECT x FROM T", "--in", f"T={late}", "--late", "drop", "--within", "5", "--batch", "100")
    assert status == 0
    first, *_, last = said.splitlines()
    assert "100 of 400 rows (25 %)" in first
    assert "so far; widen the bound of the disorder" in first
    assert "300 of 600 rows (50 %)" in last


def test_p9_late_rows_survive_a_restart_once(desk: Desk) -> None:
    from everwhen.engine.files.run import run_files
    from everwhen.formats.input_file import InputFile

    class Killed(Exception):
        pass

    rows = [{"vs": 100 + i - (50 if i % 10 == 9 else 0), "row": {"x": i}} for i in range(100)]
    source = ew.source("T", {"x": "int64"}, within=5, late="drop")
    kept = desk.place / "kept.jsonl"
    given = {"T": InputFile(desk.lines("t.jsonl", rows), source.schema, late_rows=str(kept))}
    watched: list[int] = []

    def kill(progress: Any) -> None:
        watched.append(progress.read)
        if len(watched) == 17:
            raise Killed

    told: list[str] = []
    place = str(desk.place / "state")

    def run(watch: Any) -> None:
        run_files(source, given, str(desk.out), batch=4, checkpoint=place, every=0, progress=watch, tell=told.append)

    with pytest.raises(Killed):
        run(kill)
    run(None)
    whole = run_files(source, given, str(desk.place / "again.jsonl"), batch=4, tell=told.append)
    assert len(desk.answer) == whole
    totals = [words for words in told if "so far" not in words]
    assert totals == [told[-1]] * 2
    assert "10 of 100 rows (10 %)" in told[-1]
    assert [json.loads(line)["row"]["x"] for line in kept.read_text().splitlines()] == list(range(9, 100, 10))


def test_p9_options_that_make_no_sense_are_refused(desk: Desk) -> None:
    tweets = ("--in", f"Tweets={desk.tweets}", "--ordered-by", "timestamp")
    for options, says in (
        (("--late", "keep"), "--late is one of error, drop, adjust, not 'keep'"),
        (("--within", "Twets=3m"), "the query does not read 'twets'"),
        (("--within", "3 months"), "--within: a month has no fixed length"),
        (("--within", "3m", "--within", "4m"), "--within is given twice"),
        (("--within", "Tweets="), "says nothing"),
        (("--ordered-by", "Tweets=nope"), "Tweets has no column 'nope'; there is timestamp, symbol, value"),
    ):
        status, said = desk.run(STRONG, *tweets, *options)
        assert status == 2, said
        assert says in said


# -- P10: a first file without vs --------------------------------------------------------------------------------------

WRITE = f"CREATE STREAM Tweets ({COLUMNS}) ORDERED BY timestamp WITHIN 30 MINUTES;"


def test_p10_a_plain_csv_gets_the_declaration_to_write(desk: Desk) -> None:
    status, said = desk.run("SELECT symbol, value FROM Tweets", "--in", f"Tweets={desk.tweets}")
    assert status == 3
    assert f"\n\n    {WRITE}\n\n" in said
    assert "--ordered-by Tweets=timestamp --within Tweets=30m" in said
    assert desk.run(f"{WRITE} SELECT symbol, value FROM Tweets", "--in", f"Tweets={desk.tweets}") == (0, "")
    assert sum(each["op"] == "insert" for each in desk.answer) == len(OFFSETS)


def test_p10_plain_json_lines_and_parquet_do_so_too(desk: Desk) -> None:
    rows = [{"timestamp": str(BEGIN + timedelta(minutes=at)), "symbol": "IBM", "value": at} for at in sorted(OFFSETS)]
    table = pa.table({
        "timestamp": [BEGIN + timedelta(minutes=at) for at in sorted(OFFSETS)],
        "symbol": ["IBM"] * len(OFFSETS),
        "value": sorted(OFFSETS),
    })  # fmt: skip
    parquet = desk.place / "tweets.parquet"
    pq.write_table(table, parquet)
    for file in (desk.lines("tweets.jsonl", rows), str(parquet)):
        status, said = desk.run("SELECT symbol, value FROM Tweets", "--in", f"Tweets={file}")
        assert (status, WRITE in said) == (3, True), said
        assert desk.run(f"{WRITE} {HOURS}", "--in", f"Tweets={file}") == (0, "")
        wanted = desk.answer
        options = ("--ordered-by", "timestamp", "--within", "30m")
        assert desk.run(HOURS, "--in", f"Tweets={file}", *options) == (0, "")
        assert desk.answer == wanted


def test_p10_where_no_column_is_a_time_a_relation_is_offered(desk: Desk) -> None:
    people = desk.write("people.csv", "id,name,order\n1,ann,2\n")
    status, said = desk.run("SELECT name FROM Person", "--in", f"Person={people}")
    assert status == 3
    assert 'CREATE RELATION Person (id INT, name TEXT, "order" INT);' in said
    assert "--ordered-by Person=COLUMN" in said


def test_p10_what_is_printed_can_be_read(desk: Desk) -> None:
    header, row = 'at,"a b",from,flag,price,day\n', "2020-01-01T00:00:00,x,y,true,1.5,2020-01-01\n"
    odd = desk.write("odd.csv", header + row)
    status, said = desk.run('SELECT * FROM "my file"', "--in", f"my file={odd}")
    assert status == 3
    text = next(line.strip() for line in said.splitlines() if line.startswith("    CREATE"))
    assert text == (
        'CREATE STREAM "my file" (at TIMESTAMP, "a b" TEXT, "from" TEXT, flag BOOLEAN, price REAL, day DATE) '
        "ORDERED BY at WITHIN 30 MINUTES;"
    )
    assert desk.run(f'{text} SELECT * FROM "my file"', "--in", f"my file={odd}") == (0, "")


def shell(desk: Desk, monkeypatch: pytest.MonkeyPatch, script: str) -> tuple[int, str, str]:
    monkeypatch.setattr("sys.stdin", io.StringIO(script))
    status = main(["shell", "--in", f"Tweets={desk.tweets}"])
    return status, *desk.capsys.readouterr()


def test_p10_in_the_shell_the_query_fails_when_it_is_started(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    status, out, err = shell(desk, monkeypatch, "SELECT symbol FROM Tweets;")
    assert status == 3
    assert WRITE in err
    assert "started query" not in out


def test_p10_in_the_shell_the_stream_can_be_declared_after_that(desk: Desk) -> None:
    from everwhen.engine.session.sql_session import SqlSession
    from everwhen.shell.input import Feeds
    from everwhen.shell.session import Shell

    feeds, out = Feeds(), io.StringIO()
    feeds.attach("Tweets", desk.tweets)
    lines = iter(["SELECT symbol FROM Tweets;", WRITE, f"{HOURS};", "\\run"])

    def read(_prompt: str) -> str:
        line = next(lines, None)
        if line is None:
            raise EOFError
        return line

    Shell(SqlSession(found=feeds.found), feeds, out).interact(read)
    said = out.getvalue()
    assert said.count("error:") == 1
    assert "created stream Tweets" in said
    assert "total=" in said or "total" in said


def test_p10_late_rows_are_told_in_the_shell(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    script = declared("ORDERED BY timestamp WITHIN 5 MINUTES LATE ROWS DROP", f"{HOURS};\n\\step\n\\step 30")
    monkeypatch.setattr("sys.stdin", io.StringIO(script))
    assert main(["shell", "--in", f"Tweets={desk.tweets}", "--batch", "1"]) == 0
    assert "4 of 16 rows (25 %) came behind what the stream had promised: 4 dropped" in desk.capsys.readouterr().out
