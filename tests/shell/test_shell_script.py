"""`everwhen shell` without a terminal: a script from the standard input or a file, its output and its exit status."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from everwhen.cli.program import main
from everwhen.demo.nexmark import NexmarkConfig, generate
from everwhen.stream.element_batch import INSERT

BIDS = [
    {"vs": 1, "row": {"item": 7, "price": 2.5}},
    {"vs": 3, "row": {"item": 7, "price": 4.5}},
    {"vs": 4, "row": {"item": 8, "price": 1.5}},
    {"op": "cti", "t": 5},
    {"vs": 6, "row": {"item": 8, "price": 9.0}},
]
BEST = "SELECT item, MAX(price) AS top FROM Bid WINDOW(RANGE 3) GROUP BY item"


class Desk:
    """A directory with a file of bids, and the shell run over a script."""

    def __init__(self, place: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.place, self.capsys, self.monkeypatch = place, capsys, monkeypatch
        self.bids = self.lines("bids.jsonl", BIDS)

    def lines(self, name: str, elements: list[dict[str, object]]) -> str:
        path = self.place / name
        path.write_text("".join(json.dumps(element) + "\n" for element in elements))
        return str(path)

    def shell(self, script: str, *arguments: str) -> tuple[int, str, str]:
        self.monkeypatch.setattr("sys.stdin", io.StringIO(script))
        status = main(["shell", *arguments])
        out, err = self.capsys.readouterr()
        assert "Traceback" not in out + err
        return status, out, err

    def good(self, script: str, *arguments: str) -> str:
        status, out, err = self.shell(script, *arguments)
        assert (status, err) == (0, ""), err
        return out


@pytest.fixture
def desk(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, capsys, monkeypatch)


def test_a_query_alone_is_run_to_the_end(desk: Desk) -> None:
    assert desk.good(BEST, "--in", f"bid={desk.bids}").splitlines() == [
        "started query q1",
        "q1: insert [1, 3) item=7 top=2.5",
        "q1: insert [3, 6) item=7 top=4.5",
        "q1: insert [4, 6) item=8 top=1.5",
        "q1: insert [6, ∞) item=8 top=9.0",
        "q1: adjust [6, ∞ -> 9) item=8 top=9.0",
    ]


def test_epochs_are_pushed_one_by_one_and_the_answer_shown(desk: Desk) -> None:
    script = f"CREATE STREAM Best AS {BEST};\nSELECT * FROM Best;\n\\step\n\\show\n\\step 9\n\\show q1\n\\step"
    out = desk.good(script, "--in", f"Bid={desk.bids}", "--batch", "2").splitlines()
    assert out[:9] == [
        "created derived stream Best",
        "started query q1",
        "q1: insert [1, 3) item=7 top=2.5",
        "q1: insert [3, ∞) item=7 top=4.5",
        "item  top",
        "────  ───",
        "   7  4.5",
        "1 row at 3",
        "q1: insert [4, ∞) item=8 top=1.5",
    ]
    assert out[-3:] == ["   8  9.0", "1 row at 6, final", "all that is read has ended"]


def test_final_answers_are_shown_as_far_as_they_are_final(desk: Desk) -> None:
    out = desk.good(f"{BEST};\n\\step 2\n\\show", "--in", f"Bid={desk.bids}", "--batch", "2", "--emit", "final")
    assert out.splitlines()[-3:] == ["   7  4.5", "   8  1.5", "2 rows at 4, final before 5"]


def test_a_script_in_a_file(desk: Desk) -> None:
    script = desk.place / "script.sql"
    script.write_text(f"\ufeff{BEST};\n\\run until end\n\\queries", encoding="utf-8")
    out = desk.good("this is not read", str(script), "--in", f"Bid={desk.bids}")
    assert out.splitlines()[-1] == f"q1     running            0  -∞          Bid    {BEST}"


@pytest.mark.parametrize(
    ("script", "message"),
    [
        ("SELECT item FROM Bid;\n\n  SELECT wrong FROM Bid;", "line 3, column 10: unknown column 'wrong'"),
        ("SELECT item FROM Nothing", "line 1, column 18: unknown stream 'Nothing'"),
        ("SELECT item FROM Bid; SELECT 'unfinished", "line 1, column 30"),
        ("SELECT item FROM Bid;\nDROP STREAM Bid", "line 2, column 13: Bid cannot be dropped: the query q1 reads it"),
        ("\\shwo q1", "there is no command \\shwo; did you mean \\show?"),
        ("\\st", "\\st may be any of streams, step, state, stop, start"),
        ("\\open Bid", "write \\open NAME FILE"),
        ("\\open Bid /nowhere/at/all", "/nowhere/at/all: No such file or directory"),
        ("\\step", "no query is running"),
        ("\\show", "no query yet"),
        ("\\show q7", "there is no query 'q7'"),
        ("\\step many", "write \\step, or \\step N"),
        ("\\nexmark speed=9", "NEXMark has no setting 'speed'"),
        ("\\nexmark rate=fast", "NEXMark: rate is a number, not 'fast'"),
        ("\\nexmark\nSELECT * FROM Person;\n\\run", "NEXMark has no end"),
        ("CREATE STREAM S (x INT); SELECT x FROM S;\n\\run", "S comes from nowhere yet: \\open S FILE"),
        ("SELECT item FROM Bid; \n\\open bid bids.jsonl", "Bid is being read"),
        ("EXPLAIN SELECT wrong FROM Bid", "line 1, column 16: unknown column 'wrong'"),
    ],
)
def test_the_first_error_ends_a_script_with_status_2(desk: Desk, script: str, message: str) -> None:
    status, out, err = desk.shell(f"{script}\n;\n\\help\n", "--in", f"Bid={desk.bids}")
    assert status == 2
    assert message in err
    assert "this list" not in out


def test_a_file_may_be_opened_for_a_query_that_waits_for_it(desk: Desk) -> None:
    declared = "CREATE STREAM Bid (item INT, price REAL);\nSELECT item FROM Bid;\n"
    out = desk.good(f"{declared}\\open Bid {desk.bids}\n\\run\n\\show q1\n")
    assert "Bid comes from nowhere yet: \\open Bid FILE" in out
    assert "q1: insert" in out


def test_a_wrong_element_is_status_3_and_names_its_line(desk: Desk) -> None:
    late = desk.lines("late.jsonl", [*BIDS, {"vs": 2, "row": {"item": 1, "price": 1.0}}])
    status, _, err = desk.shell(BEST, "--in", f"Bid={late}", "--batch", "2")
    assert status == 3
    assert "late.jsonl:6: an insert that starts at 2, behind the CTI 5" in err


def test_a_query_that_fails_ends_a_script_with_status_1(desk: Desk) -> None:
    big = desk.lines("big.jsonl", [{"vs": 1, "row": {"x": 2**62}}])
    status, _, err = desk.shell("SELECT x * 4 AS y FROM S", "--in", f"S={big}")
    assert status == 1
    assert "the query q1 failed" in err


def test_relations_come_whole_also_to_those_who_join_later(desk: Desk) -> None:
    items = desk.place / "items.csv"
    items.write_text("item,name\n7,seven\n8,eight\n")
    join = "SELECT name, price FROM Bid WINDOW(RANGE 9) B, Item I WHERE B.item = I.item;\n"
    declared = f"CREATE CONSTANT RELATION Item (item INT, name TEXT) SOURCE file('{items}');\n"
    script = declared + join + "\\step 3\n" + join + "\\run\n\\show q1\n\\show q2\n\\stop q1\n\\stop q2\n"
    out = desk.good(script, "--in", f"Bid={desk.bids}", "--batch", "2")
    first, second = out.split("name   price\n")[1:]
    assert first.splitlines()[:5] == second.splitlines()[:5]
    assert "eight    9.0" in first and "4 rows at 6, final" in first


def test_parquet_and_opening_anew(desk: Desk) -> None:
    path = desk.place / "s.parquet"
    pq.write_table(pa.table({"vs": [1, 2], "ve": [4, 9], "x": [10, 20]}), path)
    script = f"\\open S {path}\nSELECT x FROM S;\n\\run\n\\stop q1\n\\open S {path}\n\\start q1\n\\run\n\\show"
    out = desk.good(script)
    assert out.count("q1: insert [1, 4) x=10") == 2
    assert out.splitlines()[-3:] == ["10", "20", "2 rows at 2, final"]


def test_nexmark_with_an_end(desk: Desk) -> None:
    script = "\\nexmark events=5000\nSELECT COUNT(*) AS n FROM Bid WINDOW(RANGE 1 DAY);\n\\run\n\\show\n\\streams"
    out = desk.good(script)
    bids = sum(len(epoch["Bid"].vs[epoch["Bid"].op == INSERT]) for epoch in generate(NexmarkConfig(), 5000))
    assert f"\n{bids}\n1 row at" in out
    assert "NEXMark" in out


def test_looking_around(desk: Desk) -> None:
    script = (
        f"\\help\n\\streams\n\\queries\n\\state\n{BEST};\n\\step\n\\state\n\\explain q1\n"
        "EXPLAIN SELECT item FROM Bid WHERE price > 1;\n\\remove q1\n\\queries\n\\quit\nnot read"
    )
    out = desk.good(script, "--in", f"Bid={desk.bids}")
    assert "Bid will take its columns from" in out
    assert "nothing is running" in out and "aggregate: output" in out
    assert out.count("The plan as written") == 2 and "EXPLAIN q1" in out
    assert out.splitlines()[-2:] == ["removed q1", "no query yet: SELECT … ;"]


def test_unbounded_queries_need_to_be_allowed(desk: Desk) -> None:
    text = "SELECT DISTINCT item FROM Bid WINDOW(UNBOUNDED);\n\\run\n\\show"
    status, _, err = desk.shell(text, "--in", f"Bid={desk.bids}")
    assert status == 2 and "grows without bound" in err
    out = desk.good(text, "--in", f"Bid={desk.bids}", "--allow-unbounded")
    assert "warning: " in out and "2 rows at 6, final" in out


def test_values_that_would_disturb_a_terminal_are_escaped(desk: Desk) -> None:
    odd = desk.lines("odd.jsonl", [{"vs": 1, "row": {"x": "a\u001b[2Jb\nc"}}])
    out = desk.good("SELECT x FROM S;\n\\run\n\\show", "--in", f"S={odd}")
    assert "\x1b" not in out and out.splitlines()[-2] == "a\\x1b[2Jb\\nc"


def test_what_a_weak_query_gives_up_is_said(desk: Desk) -> None:
    late = desk.lines(
        "late.jsonl",
        [
            {"vs": 5, "ve": 12, "row": {"item": 7}},
            {"vs": 8, "row": {"item": 7}},
            {"vs": 2, "row": {"item": 7}},
            {"op": "adjust", "vs": 5, "ve": 12, "vnew": 7, "row": {"item": 7}},
            {"vs": 9, "row": {"item": 7}},
            {"vs": 1, "row": {"item": 8}},
        ],
    )
    text = "SELECT item, COUNT(*) AS n FROM Bid GROUP BY item CONSISTENCY WEAK"
    out = desk.good(text, "--in", f"Bid={late}", "--batch", "3").splitlines()
    assert [line for line in out if "given up" in line] == [
        "q1: given up so far: 1 (1 late in Bid)",
        "q1: given up so far: 3 (2 late in Bid, 1 cut in Bid)",
    ]


def test_promises_about_data_are_said(desk: Desk) -> None:
    done = desk.lines("done.jsonl", [*BIDS[:2], {"op": "punct", "match": {"item": 7}}])
    out = desk.good("SELECT item, COUNT(*) AS n FROM Bid GROUP BY item", "--in", f"Bid={done}")
    assert "q1: punct item = 7" in out.splitlines()


def test_explain_of_queries_that_run(desk: Desk) -> None:
    """By name, or all; a name that does not run is told with its place."""
    start = f"CREATE STREAM Bid (item INT, price DOUBLE); {BEST} CONSISTENCY STRONG; SELECT item FROM Bid;"
    read = ("--in", f"Bid={desk.bids}")
    status, out, _ = desk.shell(f"{start} explain waiting ; EXPLAIN ANALYZE;", *read)
    assert status == 0 and "q1: nothing has come in yet" in out and "q2: nothing has come in yet" in out
    assert out.count("elements read") == 2 and "\nq2:\n" in out
    for word in ("WAITING", "ANALYZE"):
        status, _, err = desk.shell(f"{start} EXPLAIN {word} nix;", *read)
        assert status != 0 and f"EXPLAIN {word} takes the name of a query that runs: there is q1, q2" in err
        assert "nix;\n" in err and err.rstrip().endswith(" ^^^")
        stopped = f"{start}\n\\stop q1\nEXPLAIN {word} q1;"
        assert "there is q2; 'q1' is stopped" in desk.shell(stopped, *read)[2]
    assert "the query 'q1' is stopped" in desk.shell(f"{start}\n\\stop q1\n\\waiting q1", *read)[2]
    assert "none runs: start one" in desk.shell("EXPLAIN WAITING;")[2]
