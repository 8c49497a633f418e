"""`everwhen run` in process: every option, every exit status, and an output that is whole or untouched."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from everwhen.cli import run as cli_run
from everwhen.cli.program import main
from everwhen.core.consistency import MIDDLE
from everwhen.core.emit import Emit
from everwhen.engine.files.run import Progress
from everwhen.formats.parquet import read_elements
from everwhen.stream.validity import check

ROOT = Path(__file__).resolve().parents[2]
BIDS = [
    {"vs": 1, "row": {"item": 7, "price": 2.5}},
    {"vs": 3, "row": {"item": 7, "price": 4.5}},
    {"vs": 4, "row": {"item": 8, "price": 1.5}},
    {"op": "cti", "t": 5},
    {"vs": 6, "row": {"item": 8, "price": 9.0}},
]
BEST = "SELECT item, MAX(price) AS top FROM Bid WINDOW(RANGE 3) GROUP BY item"
FINAL = [(1, 3, {"item": 7, "top": 2.5}), (3, 5, {"item": 7, "top": 4.5}), (4, 5, {"item": 8, "top": 1.5})]

Capture = pytest.CaptureFixture[str]


class Desk:
    """A directory with a query and a file, and the program run in it."""

    def __init__(self, place: Path, capsys: Capture) -> None:
        self.place, self.capsys = place, capsys
        self.bids = self.write("bids.jsonl", BIDS)
        self.best = self.sql(BEST)

    def sql(self, text: str, name: str = "query.sql") -> str:
        path = self.place / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    def write(self, name: str, elements: list[dict[str, Any]]) -> str:
        path = self.place / name
        path.write_text("".join(json.dumps(element) + "\n" for element in elements))
        return str(path)

    def run(self, *arguments: object, engine: str = "local") -> tuple[int, str, str]:
        status = main(["run", *map(str, arguments), "--engine", engine])
        out, err = self.capsys.readouterr()
        assert "Traceback" not in err
        return status, out, err

    def answer(self, *arguments: object) -> list[Any]:
        status, out, err = self.run(*arguments)
        assert (status, err) == (0, "")
        return [json.loads(line) for line in out.splitlines()]


@pytest.fixture
def desk(tmp_path: Path, capsys: Capture) -> Desk:
    return Desk(tmp_path, capsys)


def is_final(found: list[Any]) -> bool:
    """Whether it is what is final of the bids, ordered by start, and nothing else."""
    *inserts, promise = found
    starts = [element["vs"] for element in inserts if element["op"] == "insert"]
    if promise != {"op": "cti", "t": 5} or len(starts) < len(inserts) or starts != sorted(starts):
        return False
    said = {(t, *e["row"].values()) for e in inserts for t in range(e["vs"], 5 if e["ve"] is None else e["ve"])}
    return said == {(t, *row.values()) for vs, ve, row in FINAL for t in range(vs, ve)}


# -- answers -----------------------------------------------------------------------------------------------------------


def test_strong_waits_and_middle_answers_at_once(desk: Desk) -> None:
    bid = f"Bid={desk.bids}"
    assert is_final(desk.answer(desk.best, "--in", bid, "--consistency", "strong", "--open"))
    assert is_final(desk.answer(desk.best, "--in", bid, "--emit", "final", "--open"))
    middle = desk.answer(desk.best, "--in", bid, "--open")
    assert middle == desk.answer(desk.best, "--in", bid, "--open", "--consistency", "middle")
    assert middle == desk.answer(desk.best, "--in", bid, "--open", "--emit", "current")
    assert {"op": "insert", "vs": 6, "ve": None, "row": {"item": 8, "top": 9.0}} in middle
    assert middle != desk.answer(desk.best, "--in", bid, "--open", "--emit", "ended")
    assert desk.answer(desk.best, "--in", bid)[-1] == {"op": "cti", "t": None}


def test_the_query_says_its_consistency_and_the_option_overrides_it(desk: Desk) -> None:
    query, bid = desk.sql(f"{BEST} CONSISTENCY STRONG;"), f"Bid={desk.bids}"
    assert is_final(desk.answer(query, "--in", bid, "--open"))
    assert not is_final(desk.answer(query, "--in", bid, "--open", "--consistency", "middle"))
    assert not is_final(desk.answer(query, "--in", bid, "--open", "--emit", "current"))


@pytest.mark.parametrize("name", ["out.jsonl", "out.parquet"])
def test_the_answer_goes_to_a_file(desk: Desk, name: str) -> None:
    out = desk.place / name
    assert desk.run(desk.best, "--in", f"Bid={desk.bids}", "--out", out) == (0, "", "")
    assert check(read_elements(out)).valid
    if name.endswith("parquet"):
        assert pq.read_schema(out).names == ["op", "vs", "ve", "vnew", "item", "top"]


def test_batches_and_rewriting_change_no_history(desk: Desk) -> None:
    files = []
    for i, options in enumerate([[], ["--batch", 1], ["--no-optimize"], ["--batch", 2, "--consistency", "strong"]]):
        files.append(desk.place / f"{i}.jsonl")
        assert desk.run(desk.best, "--in", f"Bid={desk.bids}", "--out", files[-1], *options)[0] == 0
    for file in files[1:]:
        assert main(["diff", str(files[0]), str(file)]) == 0


def test_names_are_found_as_in_sql(desk: Desk) -> None:
    query = desk.sql("SELECT a.item FROM BID a, bid b WHERE a.item = b.item")
    assert [e["row"] for e in desk.answer(query, "--in", f"Bid={desk.bids}") if e["op"] == "insert"] != []


def test_the_same_file_may_stand_for_two_streams(desk: Desk) -> None:
    query = desk.sql("SELECT a.item FROM A a, B b WHERE a.item = b.item")
    found = desk.answer(query, "--in", f"A={desk.bids}", "--in", f"B={desk.bids}", "--consistency", "strong")
    assert [e["row"]["item"] for e in found if e["op"] == "insert"] == [7, 7, 8, 8]


def test_declared_streams_and_relations(desk: Desk) -> None:
    query = desk.sql(
        """CREATE STREAM Bid (item INT, price DOUBLE, ts TIMESTAMP) ORDERED BY ts;
           CREATE RELATION Item (item INT, name VARCHAR);
           CREATE RELATION Owner (item INT, owner VARCHAR, since INT, until INT, PERIOD (since, until));
           CREATE STREAM Dear AS SELECT item, price FROM Bid WHERE price > 2;
           SELECT name, owner, price FROM Dear D, Item I, Owner O WHERE D.item = I.item AND I.item = O.item"""
    )
    bids = desk.write(
        "b.jsonl", [{"item": 7, "price": p, "ts": f"1970-01-01T00:00:0{t}"} for t, p in [(1, 3), (2, 1), (9, 5)]]
    )
    items = desk.place / "items.csv"
    items.write_text("item,name\n7,chair\n8,lamp\n")
    owners = desk.write(
        "o.jsonl",
        [{"item": 7, "owner": "Ann", "since": 0, "until": 5}, {"item": 7, "owner": "Bob", "since": 5, "until": None}],
    )
    inputs = ["--in", f"Bid={bids}", "--in", f"Item={items}", "--in", f"Owner={owners}"]
    found = desk.answer(query, *inputs, "--tick", "1s", "--batch", 1, "--open")
    assert [(e["vs"], e["row"]) for e in found if e["op"] == "insert"] == [
        ("1970-01-01T00:00:01Z", {"name": "chair", "owner": "Ann", "price": 3.0}),
        ("1970-01-01T00:00:09Z", {"name": "chair", "owner": "Bob", "price": 5.0}),
    ]


def test_arrival_numbers_order_the_inputs(desk: Desk) -> None:
    query = desk.sql("SELECT item FROM A UNION ALL SELECT item FROM B")
    a = desk.write("a.jsonl", [{"vs": 1, "row": {"item": 1}, "at": 5}, {"vs": 2, "row": {"item": 2}, "at": 9}])
    b = desk.write("b.jsonl", [{"vs": 1, "row": {"item": 3}, "at": 1}, {"vs": 2, "row": {"item": 4}, "at": 7}])
    found = desk.answer(query, "--in", f"A={a}", "--in", f"B={b}", "--batch", 1)
    assert [e["row"]["item"] for e in found if e["op"] == "insert"] == [3, 1, 4, 2]
    c = desk.write("c.jsonl", [{"vs": 1, "row": {"item": 3}}])
    status, _, err = desk.run(query, "--in", f"A={a}", "--in", f"B={c}")
    assert status == 3 and f'{c}:1: there is no "at" here, and {a} has it' in err


def test_the_standard_input_is_a_query_or_an_input(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    def stdin(text: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))

    expected = desk.answer(desk.best, "--in", f"Bid={desk.bids}")
    stdin(BEST)
    assert desk.answer("-", "--in", f"Bid={desk.bids}") == expected
    stdin(Path(desk.bids).read_text())
    assert desk.answer(desk.best, "--in", "Bid=-") == expected
    declared = desk.sql(f"CREATE STREAM Bid (item BIGINT, price DOUBLE); {BEST}", "declared.sql")
    stdin(Path(desk.bids).read_text())
    assert desk.answer(declared, "--in", "Bid=-") == expected
    for query in (desk.best, declared):
        stdin('{"vs":1,"row":{"item":7,"price":2.5}}\n{"vs":"x","row":{}}\n')
        status, out, err = desk.run(query, "--in", "Bid=-")
        assert (status, out) == (3, "") and err.startswith('everwhen: <stdin>:2: "vs" must be')
    assert desk.run("-", "--in", "Bid=-")[0] == 2
    assert desk.run(desk.best, "--in", "Bid=-", "--in", "C=-")[0] == 2
    stdin("")
    status, _, err = desk.run(declared, "--in", "Bid=-", "--checkpoint", desk.place / "c")
    assert status == 2 and "cannot go on from the standard input" in err


def test_a_pipe_is_an_input(desk: Desk) -> None:
    expected = desk.answer(desk.best, "--in", f"Bid={desk.bids}")
    pipe = desk.place / "pipe"
    os.mkfifo(pipe)
    with subprocess.Popen(["cp", desk.bids, str(pipe)]):
        assert desk.answer(desk.best, "--in", f"Bid={pipe}") == expected


def test_a_declared_source_may_name_its_file(desk: Desk) -> None:
    query = desk.sql(f"CREATE STREAM Bid (item BIGINT, price DOUBLE) SOURCE file('{desk.bids}'); {BEST}")
    assert desk.answer(query) == desk.answer(desk.best, "--in", f"Bid={desk.bids}")


# -- errors ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SELEC item FROM Bid", "line 1, column 1"),
        ("SELECT item\nFROM Bid\nWHERE prise > 1", "line 3, column 7"),
        ("SELECT item FROM Bit", "unknown stream 'Bit'"),
        ("", "there is no query"),
        ("CREATE STREAM S (x INT);", "without a query"),
        ("SELECT item FROM Bid WINDOW(RANGE 1 PARSEC)", "PARSEC"),
    ],
)
def test_wrong_sql_is_status_2_with_its_place(desk: Desk, text: str, said: str) -> None:
    out = desk.place / "out.jsonl"
    out.write_text("old")
    status, printed, err = desk.run(desk.sql(text), "--in", f"Bid={desk.bids}", "--out", out)
    assert (status, printed) == (2, "") and said in err and out.read_text() == "old"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["{q}"], "--in NAME=FILE\n"),
        (["{q}", "--in", "Bids={b}"], "--in NAME=FILE; --in names Bids\n"),
        (["{q}", "--in", "Bid={b}", "--in", "Ask={b}"], "the query does not read Ask; it reads Bid"),
        (["{q}", "--in", "Bid={b}", "--in", "bid={b}"], "given twice"),
        (["{q}", "--in", "Bid"], "NAME=FILE"),
        (["{q}", "--in", "=x"], "NAME=FILE"),
        (["{q}", "--in", "Bid={b}.none"], "{b}.none: No such file"),
        (["{q}.none", "--in", "Bid={b}"], "{q}.none: No such file"),
        (["{q}", "--in", "Bid={b}", "--batch", "0"], "no number of elements"),
        (["{q}", "--in", "Bid={b}", "--batch", "many"], "no number of elements"),
        (["{q}", "--in", "Bid={b}", "--tick", "0 s"], "a tick is longer than nothing"),
        (["{q}", "--in", "Bid={b}", "--tick", "soon"], "cannot read the duration"),
        (["{q}", "--in", "Bid={b}", "--block", "5 s", "--remember", "1 s"], "to block for 5000 ticks"),
        (["{q}", "--in", "Bid={b}", "--block", "a while"], "--block: cannot read the duration"),
        (["{q}", "--in", "Bid={b}", "--emit", "never"], "invalid choice"),
        (["{q}", "--in", "Bid={b}", "--out", "{b}.none/out"], "{b}.none"),
        (["{q}", "--in", "Bid={b}", "--out", "{d}"], "is a directory"),
        (["{q}", "--in", "Bid={d}"], "Is a directory"),
    ],
)
def test_a_wrong_command_is_status_2(desk: Desk, arguments: list[str], said: str) -> None:
    names = {"q": desk.best, "b": desk.bids, "d": str(desk.place)}
    status, out, err = desk.run(*(argument.format(**names) for argument in arguments))
    assert (status, out) == (2, "") and said.format(**names) in err


def test_a_declared_stream_without_a_file(desk: Desk) -> None:
    query = desk.sql(f"CREATE STREAM Bid (item BIGINT, price DOUBLE); {BEST}")
    status, _, err = desk.run(query)
    assert status == 2 and "no input for Bid; the query reads Bid; give --in Bid=FILE" in err


def test_a_declared_stream_that_is_not_read_is_warned_of(desk: Desk) -> None:
    query = desk.sql(f"CREATE STREAM Ask (item BIGINT); {BEST}")
    status, _, err = desk.run(query, "--in", f"Bid={desk.bids}", "--in", f"Ask={desk.bids}")
    assert status == 0 and err == "everwhen: warning: the query does not read Ask, so its file is not read either\n"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"vs": 2, "row": {"item": 7, "price": 1.0}}, "behind the CTI 5"),
        ({"op": "adjust", "vs": 6, "ve": 7, "vnew": 6, "row": {"item": 1, "price": 1.0}}, "not there"),
        ({"vs": 9, "row": {"item": 7, "price": 1.0}, "colour": 1}, "unknown field 'colour'"),
        ({"vs": 9, "ve": 9, "row": {"item": 7, "price": 1.0}}, "is empty"),
        ({"vs": 9, "row": {"item": "chair", "price": 1.0}}, 'the text "chair"'),
    ],
)
@pytest.mark.parametrize("batch", [1, 10_000])
def test_a_wrong_element_is_status_3_with_its_line(desk: Desk, line: dict[str, Any], said: str, batch: int) -> None:
    bids = desk.write("wrong.jsonl", [*BIDS, line])
    out = desk.place / "out.jsonl"
    out.write_text("old")
    status, printed, err = desk.run(desk.best, "--in", f"Bid={bids}", "--out", out, "--batch", batch)
    assert (status, printed) == (3, "") and f"{bids}:6: " in err and said in err
    assert out.read_text() == "old" and desk.run(desk.best, "--in", f"Bid={bids}", "--batch", batch)[1] == ""


def test_an_unreadable_file_is_status_2_or_3(desk: Desk) -> None:
    broken = desk.place / "broken.parquet"
    broken.write_bytes(b"nothing")
    status, _, err = desk.run(desk.best, "--in", f"Bid={broken}")
    assert status == 3 and str(broken) in err
    query = desk.place / "latin.sql"
    query.write_bytes(b"SELECT '\xe9' FROM Bid")
    status, _, err = desk.run(query, "--in", f"Bid={desk.bids}")
    assert status == 2 and "not UTF-8" in err


def test_state_without_bounds_is_refused_unless_allowed(desk: Desk) -> None:
    query = desk.sql("SELECT item, COUNT(*) AS n FROM Bid WINDOW(UNBOUNDED) GROUP BY item")
    status, out, err = desk.run(query, "--in", f"Bid={desk.bids}")
    assert (status, out) == (2, "") and "Aggregate by item" in err and "--allow-unbounded" in err
    status, out, err = desk.run(query, "--in", f"Bid={desk.bids}", "--allow-unbounded")
    assert status == 0 and out and "warning" in err


def test_a_failing_expression_is_status_1(desk: Desk) -> None:
    query = desk.sql("SELECT item * 9223372036854775807 AS x FROM Bid")
    out = desk.place / "out.jsonl"
    out.write_text("old")
    status, _, err = desk.run(query, "--in", f"Bid={desk.bids}", "--out", out)
    assert status == 1 and err.startswith("everwhen: ") and out.read_text() == "old"


# -- checkpoints, terminals, signals -----------------------------------------------------------------------------------


def test_a_checkpoint_is_taken_up(desk: Desk) -> None:
    out, place = desk.place / "out.jsonl", desk.place / "c"
    arguments = [desk.best, "--in", f"Bid={desk.bids}", "--out", out, "--checkpoint", place, "--batch", 1]
    assert desk.run(*arguments) == (0, "", "")
    first = out.read_text()
    out.unlink()
    assert desk.run(*arguments) == (0, "", "") and out.read_text() == first
    status, _, err = desk.run(*arguments[:-1], 2)
    assert status == 2 and "batch: 1 before, 2 now" in err
    status, _, err = desk.run(*arguments, engine="spark")
    assert status == 2 and "engine: local before, spark now" in err


def test_the_engine_that_is_asked_for_gets_the_options(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    def engine(name: str) -> Any:
        def run(node: object, inputs: object, out: str, **options: Any) -> int:
            asked.append((name, {"out": out, **options}))
            return 0

        return run

    monkeypatch.setattr(cli_run, "_engine", engine)
    assert main(["run", desk.best, "--in", f"Bid={desk.bids}", "--engine", "spark"]) == 0
    assert main(["run", desk.best, "--in", f"Bid={desk.bids}", "--open", "--batch", "5", "--emit", "ended",
                 "--engine", "local", "--checkpoint", "c", "--out", "o"]) == 0  # fmt: skip
    for _, options in asked:
        options.pop("progress")
        options.pop("losses")
        assert callable(options.pop("tell"))
    assert [name for name, _ in asked] == ["spark", "local"]
    spark = {"buckets": None, "migrate": False, "replan_every": None}
    assert asked[0][1] == {
        "out": "-", "consistency": MIDDLE, "batch": 10_000, "open": False, "checkpoint": None, **spark
    }  # fmt: skip
    level = replace(MIDDLE, emit=Emit.ENDED)
    assert asked[1][1] == {"out": "o", "consistency": level, "batch": 5, "open": True, "checkpoint": "c"}


ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}


def program(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "everwhen.cli", "run", *map(str, arguments), "--engine", "local"]


@pytest.mark.parametrize(("asked", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_stopped_leaves_the_output_as_it_was(desk: Desk, asked: signal.Signals, status: int) -> None:
    pipe, out = desk.place / "pipe", desk.place / "out.jsonl"
    os.mkfifo(pipe)
    out.write_text("old")
    query = desk.sql(f"CREATE STREAM Bid (item BIGINT, price DOUBLE); {BEST}")
    with subprocess.Popen(
        program(query, "--in", f"Bid={pipe}", "--out", out),
        stderr=subprocess.PIPE,
        env=ENVIRONMENT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # tests in the background ignore it
    ) as process:
        with open(pipe, "w") as writer:  # opens when the program reads
            writer.write('{"vs":1,"row":{"item":7,"price":2.5}}\n')
            writer.flush()
            time.sleep(0.2)
            process.send_signal(asked)
            assert process.wait(60) == status
        assert process.stderr is not None
        assert process.stderr.read() == b"everwhen: interrupted; the output is as it was\n"
    assert out.read_text() == "old"
    assert sorted(path.name for path in desk.place.iterdir()) == ["bids.jsonl", "out.jsonl", "pipe", "query.sql"]


def test_a_terminal_shows_elements_as_they_come(desk: Desk) -> None:
    pipe = desk.place / "pipe"
    os.mkfifo(pipe)
    query = desk.sql("CREATE STREAM Bid (item BIGINT, price DOUBLE); SELECT item FROM Bid")
    terminal, other = pty.openpty()
    command = program(query, "--in", f"Bid={pipe}", "--batch", 1)
    with subprocess.Popen(command, stdout=other, stderr=other, env=ENVIRONMENT) as process, open(pipe, "w") as writer:
        os.close(other)
        writer.write("".join(f'{{"vs":{i},"row":{{"item":{i}}}}}\n' for i in range(2_000)))
        writer.flush()
        assert b'{"op":"insert","vs":0,"ve":1,"row":{"item":0}}' in os.read(terminal, 1000)
        process.kill()
    os.close(terminal)


def test_progress_is_shown_on_a_terminal_from_the_second_on() -> None:
    from everwhen.cli.progress import _Line, line

    class Status:
        def __init__(self) -> None:
            self.said: list[str] = []

        def update(self, text: str) -> None:
            self.said.append(text)

        def start(self) -> None:
            self.said.append("start")

        def stop(self) -> None:
            self.said.append("stop")

    class Console:
        def __init__(self) -> None:
            self.shown = Status()

        def status(self, text: str) -> Status:
            return self.shown

    console, moments = Console(), iter([0.0, 0.5, 1.5, 1.55, 3.0])
    with _Line(console, lambda: next(moments)) as shown:
        for read in range(4):
            shown(Progress("running", read, 2, {"S": 9}))
    assert console.shown.said[1:] == ["start", line(Progress("running", 3, 2, {"S": 9}), 3.0), "stop"]
    assert console.shown.said[0].startswith("running: 1 elements read")
