"""`everwhen explain`: its sections, and that it needs no more than the text where streams are declared."""

from __future__ import annotations

from pathlib import Path

import pytest

from everwhen.cli.program import main

QUERY = """CREATE STREAM Bid (item BIGINT, price DOUBLE, bidder VARCHAR);
CREATE STREAM Item (item BIGINT, name VARCHAR);
SELECT B.item, MAX(B.price) AS top
FROM Bid WINDOW(RANGE 10 MINUTES) B, Item WINDOW(RANGE 1 HOUR) I
WHERE B.item = I.item AND I.name = 'chair'
GROUP BY B.item"""

Capture = pytest.CaptureFixture[str]


def explain(capsys: Capture, *arguments: object) -> tuple[int, str, str]:
    status = main(["explain", *map(str, arguments)])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    return status, out, err


@pytest.fixture
def query(tmp_path: Path) -> Path:
    path = tmp_path / "best.sql"
    path.write_text(QUERY)
    return path


def sections(text: str) -> dict[str, str]:
    parts = (part.split("\n", 1) for part in text.strip().split("\n\n"))
    return {part[0]: part[1] if len(part) > 1 else "" for part in parts}


def test_the_sections(capsys: Capture, query: Path) -> None:
    status, out, err = explain(capsys, query)
    assert (status, err) == (0, "")
    found = sections(out)
    written, rewritten, runs, grows, on_spark = (
        "The plan as written", "The plan as rewritten", "What runs, and what it keeps", "What may grow for ever",
        "On Spark",
    )  # fmt: skip
    assert list(found) == ["EXPLAIN best.sql", written, rewritten, runs, grows, on_spark]
    lines = found[written].splitlines()
    assert "Aggregate by item" in out and "Window range 600000" in found[written]
    assert any("Filter" in line for line in lines[:4])
    assert "by " in found[rewritten] and "Join on item" in found[rewritten]
    assert "source Bid" in found[runs] and "keeps" in found[runs]
    assert "Stage 1" in found[on_spark] and "by item" in found[on_spark]
    assert max(map(len, out.splitlines())) <= 120


def test_options(capsys: Capture, query: Path) -> None:
    local = sections(explain(capsys, query, "--engine", "local")[1])
    assert "On Spark" not in local and "The plan as rewritten" in local
    plain = sections(explain(capsys, query, "--no-optimize")[1])
    assert "The plan as rewritten" not in plain and "On Spark" in plain
    ticks = explain(capsys, query, "--tick", "1s")[1]
    assert "Window range 600 " in ticks or "Window range 600\n" in ticks
    assert explain(capsys, query, "--consistency", "weak")[0] == 0
    assert explain(capsys, query, "--consistency", "weaker")[0] == 2


def test_what_may_grow_is_told_and_not_refused(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "grows.sql"
    path.write_text("CREATE STREAM S (k INT); SELECT k, COUNT(*) AS n FROM S WINDOW(UNBOUNDED) GROUP BY k")
    status, out, _ = explain(capsys, path)
    assert status == 0 and "! Aggregate by k" in out and "--allow-unbounded" in out


def test_a_stream_that_is_not_declared_takes_its_columns_from_its_file(capsys: Capture, tmp_path: Path) -> None:
    path, file = tmp_path / "q.sql", tmp_path / "s.jsonl"
    path.write_text("SELECT x FROM S")
    file.write_text('{"vs":1,"row":{"x":1}}\n')
    status, out, err = explain(capsys, path)
    assert (status, out) == (2, "") and "unknown stream 'S'" in err and "--in NAME=FILE" in err
    status, out, _ = explain(capsys, path, "--in", f"S={file}")
    assert status == 0 and "Source S (x int64)" in out
    file.write_text('{"vs":1,"row":{"x":[{}]}}\n')
    assert explain(capsys, path, "--in", f"S={file}")[0] == 3


def test_expressions_that_stay_in_python_are_shown_there(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "q.sql"
    path.write_text("CREATE STREAM S (x DOUBLE); SELECT x FROM S WHERE x > 1 AND LN(x) > 2")
    found = sections(explain(capsys, path)[1])["On Spark"]
    feed = found[: found.index("answer out")]
    assert "ln" not in feed and "ln" in found


AUCTION = """CREATE STREAM Auction (item BIGINT, seller VARCHAR) PUNCTUATE (UNIQUE (item), CLUSTERED BY seller);
CREATE STREAM Bid (item BIGINT, inc BIGINT){bid};
SELECT A.item, SUM(B.inc) AS price FROM Auction WINDOW(UNBOUNDED) A, Bid WINDOW(UNBOUNDED) B
WHERE A.item = B.item GROUP BY A.item"""


def test_punctuation(capsys: Capture, tmp_path: Path) -> None:
    silent, given = tmp_path / "silent.sql", tmp_path / "given.sql"
    silent.write_text(AUCTION.format(bid=""))
    given.write_text(AUCTION.format(bid=" PUNCTUATE (GIVEN item)"))
    status, out, err = explain(capsys, silent, "--engine", "local", "--punctuation")
    assert (status, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 120
    words = " ".join(out[out.index("What punctuation would do") :].split())
    assert "keeps its left rows, for ever, if nothing is promised - would be freed by punctuation from Bid" in words
    assert 'Bid: {"op":"punct","match":{"item":7}}' in words
    assert "Auction: CLUSTERED BY seller goes no further than" in words
    assert "Bid PUNCTUATE (GIVEN item)" in " ".join(out.split())  # what may grow for ever names the remedy
    _, out, _ = explain(capsys, given, "--engine", "local", "--punctuation")
    assert "freed by what is declared: GIVEN item of Bid" in " ".join(out.split())
    assert "would be freed" not in out
    assert "nothing: every row goes" in sections(out)["What may grow for ever"]
    assert "What punctuation would do" not in explain(capsys, given, "--engine", "local")[1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("--json", "--json is for what was measured: give --analyze or --waiting with it"),
        ("--batch 10", "--batch is for files that are read: give --analyze or --waiting with it"),
        ("--waiting --punctuation", "--punctuation is about the plan, and --waiting shows none: leave one of them out"),
        ("--analyze --waiting --punctuation", "and --analyze shows none"),
        ("--waiting --engine spark", "--waiting reads the files in this process: leave --engine spark out"),
        ("--analyze --engine spark --json", "--analyze reads the files in this process"),
        ("--late-rows late.jsonl", "explain keeps none: leave it out"),
        ("--analyze --late-rows late.jsonl", "explain keeps none: leave it out"),
    ],
)
def test_an_option_without_effect_is_refused(capsys: Capture, query: Path, options: str, words: str) -> None:
    status, out, err = explain(capsys, query, *options.split())
    assert (status, out) == (2, "") and words in err


def test_the_engine_that_measures_may_be_named(capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("SELECT x FROM S")
    (tmp_path / "s.jsonl").write_text('{"vs":1,"row":{"x":1}}\n')
    options = ("--in", f"S={tmp_path}/s.jsonl", "--waiting", "--engine", "local", "--batch", "1")
    status, out, _ = explain(capsys, tmp_path / "q.sql", *options)
    assert status == 0 and out.startswith("EXPLAIN WAITING")


def test_a_recursion_that_is_not_legal(capsys: Capture, tmp_path: Path) -> None:
    path = tmp_path / "loop.sql"
    path.write_text(
        "CREATE STREAM S (n BIGINT);\nWITH RECURSIVE r(n) AS (\n  SELECT n FROM S\n  UNION\n"
        "  SELECT COUNT(*) FROM r\n)\nSELECT n FROM r"
    )
    for more in ([], ["--no-optimize"]):
        status, out, err = explain(capsys, path, *more)
        assert (status, out) == (2, "")
        assert "line 5, column 24: count(*) over r inside its own recursion" in err
