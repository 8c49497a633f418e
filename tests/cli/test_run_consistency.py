"""`everwhen run` with levels of consistency: options, clauses, what is given up, checkpoints, and refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from everwhen.cli.program import main
from everwhen.engine.files.run import run_files
from everwhen.engine.run import run
from everwhen.language.program import program

Capture = pytest.CaptureFixture[str]

COUNT = "SELECT item, COUNT(*) AS n FROM Bid GROUP BY item"
BIDS = [
    {"vs": 10, "ve": 20, "row": {"item": 7}},
    {"vs": 14, "ve": 18, "row": {"item": 8}},
    {"vs": 11, "ve": 13, "row": {"item": 8}},  # 3 late
    {"op": "adjust", "vs": 10, "ve": 20, "vnew": 12, "row": {"item": 7}},  # changes at 12
    {"vs": 2, "ve": 30, "row": {"item": 9}},  # 12 late
]


class Desk:
    def __init__(self, place: Path, capsys: Capture) -> None:
        self.place, self.capsys = place, capsys
        self.bids = self.write("bids.jsonl", BIDS)

    def write(self, name: str, elements: list[dict[str, Any]]) -> Path:
        path = self.place / name
        path.write_text("".join(json.dumps(element) + "\n" for element in elements))
        return path

    def run(self, *options: object, text: str = COUNT, engine: str = "local", file: Path | None = None) -> Any:
        query = self.place / "q.sql"
        query.write_text(text)
        where = ["run", str(query), "--in", f"Bid={file or self.bids}", "--engine", engine, "--tick", "1s"]
        status = main([*where, *map(str, options)])
        out, err = self.capsys.readouterr()
        return status, [json.loads(line) for line in out.splitlines()], err

    def history(self, *options: object, **more: Any) -> list[tuple[int, int | None, int, int]]:
        """Start, end, item and count of all that stands in the end."""
        status, elements, err = self.run(*options, **more)
        assert status == 0, err
        found: list[tuple[int, int | None, int, int]] = []
        for e in elements:
            if e.get("op") == "cti":
                continue
            row = (e["row"]["item"], e["row"]["n"])
            if e.get("op") == "adjust":
                found.remove((e["vs"], e["ve"], *row))
            end = e["vnew"] if e.get("op") == "adjust" else e["ve"]
            if end is None or end > e["vs"]:
                found.append((e["vs"], end, *row))
        return sorted(found)


@pytest.fixture
def desk(tmp_path: Path, capsys: Capture) -> Desk:
    return Desk(tmp_path, capsys)


EXACT = [(2, 30, 9, 1), (10, 12, 7, 1), (11, 13, 8, 1), (14, 18, 8, 1)]
WEAK = [(10, 14, 7, 1), (14, 18, 8, 1)]
SOME = [(10, 12, 7, 1), (11, 13, 8, 1), (14, 18, 8, 1)]


def test_the_corners_and_points_between(desk: Desk) -> None:
    assert desk.history() == EXACT
    assert desk.history("--consistency", "strong") == EXACT
    assert desk.history("--consistency", "weak") == WEAK
    assert desk.history("--remember", "0") == WEAK
    assert desk.history("--remember", "5 s") == SOME
    assert desk.history("--remember", "12 s", "--batch", 1) == EXACT
    assert desk.history("--remember", "forever", "--block", "3 s", "--batch", 1) == EXACT
    assert desk.history(text=f"{COUNT} CONSISTENCY WEAK") == WEAK
    assert (
        desk.history(
            text=f"{COUNT} CONSISTENCY (BLOCK 2 SECONDS, REMEMBER 5 SECONDS)",
        )
        == SOME
    )
    assert desk.history("--consistency", "middle", text=f"{COUNT} CONSISTENCY WEAK") == EXACT
    assert desk.history("--consistency", "weak", "--remember", 5) == SOME


def test_what_is_given_up_is_said(desk: Desk) -> None:
    _, _, err = desk.run("--consistency", "weak")
    assert "Bid: 3 elements had to be given up at this level (2 late, 1 cut)" in err
    assert "given up" not in desk.run("--remember", "12 s")[2]


def test_to_block_is_to_say_less(desk: Desk) -> None:
    def adjusts(*options: object) -> int:
        out = desk.run("--batch", 1, "--emit", "ended", *options, file=file)[1]
        return sum(e.get("op") == "adjust" for e in out)

    times = [(1, 3), (10, 11), (2, 5), (13, 14)]
    file = desk.write("late.jsonl", [{"vs": vs, "ve": ve, "row": {"item": 7}} for vs, ve in times])
    assert adjusts() > 0 and adjusts("--block", "8 s") == 0
    open_ = desk.run("--batch", 1, "--block", "5 s", "--open")[1]
    assert [e["vs"] for e in open_ if "row" in e] == [2]  # all others wait: the largest sync time is 14


def test_final_with_forced_progress(desk: Desk) -> None:
    """Nothing is taken back, and answers come without a single CTI of the source."""
    status, out, _ = desk.run("--remember", "5 s", "--emit", "final", "--open", "--batch", 1)
    assert status == 0
    assert [(e["vs"], e["ve"]) for e in out if "row" in e] == []  # everything is at 9 or later
    assert out[-1] == {"op": "cti", "t": 9}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--block", "5 s", "--remember", "1 s"], "to block for 5 ticks and remember 1 is impossible"),
        (["--consistency", "weak", "--block", "5 s"], "to block for 5 ticks and remember 0"),
        (["--consistency", "strong", "--remember", "5 s"], "to block for ∞ ticks and remember 5"),
        (["--block", "a while"], "--block: cannot read the duration"),
        (["--remember", "1 ms"], "--remember: '1 ms' is not a whole number of ticks"),
    ],
)
def test_wrong_bounds_are_status_2(desk: Desk, options: list[str], said: str) -> None:
    status, out, err = desk.run(*options)
    assert (status, out) == (2, []) and said in err


def test_external_ctis_from_a_file(desk: Desk) -> None:
    elements = [
        {"op": "adjust", "vs": 0, "ve": 9, "vnew": 4, "row": {"item": 7}},
        {"op": "external_cti", "vs": 0, "ve": 8, "count": 3},
        {"vs": 0, "ve": 9, "row": {"item": 7}},
        {"vs": 1, "ve": 5, "row": {"item": 8}},
    ]
    file = desk.write("external.jsonl", elements)
    status, out, _ = desk.run("--remember", "forever", "--open", file=file)
    assert status == 0 and out[-1] == {"op": "cti", "t": 8}
    status, _, err = desk.run(file=desk.write("plain.jsonl", elements[1:]))
    assert status == 3 and "plain.jsonl:1: an external CTI" in err and "REMEMBER" in err


def test_an_adjust_that_never_finds_its_insert(desk: Desk) -> None:
    file = desk.write("lost.jsonl", [BIDS[0], {"op": "adjust", "vs": 11, "ve": 15, "vnew": 12, "row": {"item": 8}}])
    target = desk.place / "out.jsonl"
    target.write_text("old")
    status, _, err = desk.run("--remember", "5 s", "--out", target, file=file)
    assert status == 3 and "lost.jsonl:2: an adjust of an event that never came" in err
    assert target.read_text() == "old"


def test_a_checkpoint_keeps_what_waits_and_belongs_to_its_level(desk: Desk) -> None:
    options = ["--block", "3 s", "--remember", "5 s", "--batch", 1]
    plain = desk.run(*options)[1]
    assert desk.run(*options, "--checkpoint", desk.place / "state")[1] == plain
    status, _, err = desk.run("--block", "2 s", "--remember", "5 s", "--batch", 1, "--checkpoint", desk.place / "state")
    assert status == 2 and "bounds" in err


def test_a_checkpoint_does_not_belong_to_a_rate(desk: Desk) -> None:
    options = ["--checkpoint", desk.place / "state", "--batch", 50]
    status, first, err = desk.run(*options, "--rate", 300)
    assert (status, err) == (0, "")
    assert desk.run(*options, "--rate", 200) == desk.run(*options) == (0, first, "")


def test_a_killed_run_goes_on(desk: Desk) -> None:
    """Checkpoints after every epoch; the run is broken off and started again until it is through."""
    import everwhen as ew

    found = program(f"CREATE STREAM Bid (item BIGINT); {COUNT}")
    level = ew.consistency(3, 5)
    whole = [str(e) for e in run(found.query, {"Bid": str(desk.bids)}, level, batch=1)]
    out, losses = desk.place / "out.jsonl", []
    more = {"consistency": level, "batch": 1, "checkpoint": str(desk.place / "state"), "every": 0.0}

    class Stop(Exception):
        pass

    for _ in range(20):
        seen = []

        def stop_soon(progress: Any, seen: list[Any] = seen) -> None:
            seen.append(progress)
            if len(seen) == 3:
                raise Stop

        try:
            run_files(found.query, {"Bid": str(desk.bids)}, str(out), progress=stop_soon, losses=losses.append, **more)
            break
        except Stop:
            continue
    assert len(out.read_text().splitlines()) == len(whole)
    assert [{name: sum(c.values()) for name, c in loss.items()} for loss in losses] == [{"Bid": 1}]
