"""`everwhen run --replan-every` and `--migrate`: the answer stays right while the plan changes under it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

import everwhen as ew
from everwhen.cli.program import main
from everwhen.engine.files import run as files_run
from everwhen.formats.parquet import read_elements
from everwhen.testing import assert_same_history, assert_valid

JOIN = """
    SELECT a.k, a.x, b.y FROM A WINDOW(RANGE 20) a JOIN B WINDOW(RANGE 20) b ON a.k = b.k WHERE a.x > {} AND b.y < 4
"""
SUMS = "SELECT k, COUNT(*) AS x, SUM(x) AS y FROM A WINDOW(RANGE 15) WHERE x > {} GROUP BY k"
SCHEMA = ew.source("A", {"k": "int64", "x": "int64", "y": "int64"}).schema
Capture = pytest.CaptureFixture[str]


class Stopped(Exception):
    """The run is killed between two epochs."""


class Desk:
    """A directory with inputs; queries are run in it, to the end or up to an epoch."""

    def __init__(self, place: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
        self.place, self.capsys, self.patch = place, capsys, monkeypatch
        rng = random.Random(7)
        for name, column in (("A", "x"), ("B", "y")):
            lines, cti = [], 0
            for t in range(120):
                vs = max(cti, t - rng.randint(0, 4))
                lines.append({"vs": vs, "ve": vs + 1, "row": {"k": rng.randint(0, 3), column: rng.randint(0, 5)}})
                if t % 5 == 4:
                    cti = t - 4
                    lines.append({"op": "cti", "t": cti})
            (place / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))

    def run(self, text: str, *options: str, until: int | None = None) -> tuple[int, str]:
        """The exit status, and what was told; `until`: it is killed after so many epochs, with a checkpoint of each."""
        query = self.place / "q.sql"
        query.write_text(text)
        read = [name for name in "AB" if f"FROM {name}" in text or f"JOIN {name}" in text]
        inputs = [f"--in={name}={self.place / name}.jsonl" for name in read]
        with self.patch.context() as patch:
            if "--checkpoint" in options:
                patch.setattr(files_run, "_PATIENCE", 0.0)
                patch.setattr(files_run, "_EFFORT", 0)
            if until is not None:
                self._stop_after(until, patch)
            arguments = ["run", str(query), *inputs, "--batch", "10", "--out", str(self.place / "out.jsonl"), *options]
            status = main([*arguments, *([] if "--engine" in options else ["--engine", "local"])])
        if until is not None:
            assert status == 1, "the program says that it was stopped"
            status = -1
        return status, self.capsys.readouterr().err

    def _stop_after(self, until: int, patch: pytest.MonkeyPatch) -> None:
        whole = files_run._Work.epochs
        count = 0

        def some(work: files_run._Work, saved: files_run.Saved):
            nonlocal count
            for found in whole(work, saved):
                yield found
                count += 1
                if count == until:
                    raise Stopped

        patch.setattr(files_run._Work, "epochs", some)

    def said(self) -> list[ew.Element]:
        return [each for batch in read_elements(self.place / "out.jsonl", SCHEMA) for each in batch.elements()]

    def answer(self, text: str, *options: str) -> list[ew.Element]:
        assert self.run(text, *options)[0] == 0
        return self.said()

    @property
    def checkpoint(self) -> str:
        return str(self.place / "state")


@pytest.fixture
def desk(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, capsys, monkeypatch)


@pytest.mark.parametrize("text", [JOIN.format(1), SUMS.format(1)])
@pytest.mark.parametrize("emit", ["final", "current"])
def test_plans_take_turns(desk: Desk, text: str, emit: str) -> None:
    expected = desk.answer(text, "--emit", emit)
    for every in ("1", "3"):
        found = desk.answer(text, "--emit", emit, "--replan-every", every)
        assert_valid(found)
        assert_same_history(found, expected)
        if emit == "final":
            assert not any(isinstance(each, ew.Adjust) for each in found)


def test_plans_do_take_turns(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above would be green if nothing ever changed."""
    went: list[str] = []
    whole = files_run.Replans.go_over

    def told(replans: files_run.Replans, runtime: ew.LocalRuntime, name: str) -> bool:
        goes = whole(replans, runtime, name)
        went.extend([name] * goes)
        return goes

    monkeypatch.setattr(files_run.Replans, "go_over", told)
    desk.answer(JOIN.format(1), "--replan-every", "1")
    assert len(went) > 3 and set(went) == {"as written", "rewritten"}


@pytest.mark.parametrize("again", [(), ("--no-optimize",), ("--replan-every", "2")])
@pytest.mark.parametrize("first", [(), ("--no-optimize",), ("--replan-every", "1")])
def test_a_checkpoint_is_the_querys_whichever_plan_runs(desk: Desk, first: tuple, again: tuple) -> None:
    expected = desk.answer(JOIN.format(1))
    assert desk.run(JOIN.format(1), "--checkpoint", desk.checkpoint, *first, until=7)[0] == -1
    assert desk.run(JOIN.format(1), "--checkpoint", desk.checkpoint, *again, until=5)[0] == -1
    found = desk.answer(JOIN.format(1), "--checkpoint", desk.checkpoint)
    assert_valid(found)
    assert_same_history(found, expected)


def test_the_plan_is_told_beside_the_state(desk: Desk) -> None:
    desk.run(JOIN.format(1), "--checkpoint", desk.checkpoint, until=3)
    asked = json.loads((desk.place / "state" / "run.json").read_text())["query"]
    assert json.loads((desk.place / "state" / "query.json").read_text())["text"] == JOIN.format(1)
    saved = files_run.Checkpoint(desk.checkpoint, SCHEMA)._newest()
    assert saved.state["plan"] != asked, "the rewritten one"


@pytest.mark.parametrize("old,new", [(JOIN.format(1), JOIN.format(3)), (SUMS.format(0), SUMS.format(2))])
def test_another_text_goes_on_from_a_checkpoint(desk: Desk, old: str, new: str) -> None:
    before, after = desk.answer(old), desk.answer(new)
    assert desk.run(old, "--checkpoint", desk.checkpoint, until=6)[0] == -1
    status, told = desk.run(new, "--checkpoint", desk.checkpoint)
    assert status == 2 and "or --migrate, if the new query has the same columns" in told
    status, told = desk.run(new, "--checkpoint", desk.checkpoint, "--migrate", until=3)
    assert status == -1 and "the new text counts from" in told
    at = int(told.split("the new text counts from ")[1].split()[0])
    assert desk.run(new, "--checkpoint", desk.checkpoint, until=2)[0] == -1, "it is the new one's now"
    status, told = desk.run(old, "--checkpoint", desk.checkpoint)
    assert status == 2 and "belongs to another run" in told
    found = desk.answer(new, "--checkpoint", desk.checkpoint)
    assert_valid(found)
    for t in range(150):
        expected = before if t < at else after
        assert ew.History.of(found).at(t) == ew.History.of(expected).at(t), t


def test_nothing_is_half_applied(desk: Desk) -> None:
    """Other columns, a past that is not kept, a finished run: refused, and the old text goes on."""
    expected = desk.answer(JOIN.format(1))
    desk.run(JOIN.format(1), "--checkpoint", desk.checkpoint, until=6)
    other = "SELECT a.k FROM A WINDOW(RANGE 20) a JOIN B WINDOW(RANGE 20) b ON a.k = b.k"
    status, told = desk.run(other, "--checkpoint", desk.checkpoint, "--migrate")
    assert status == 2 and "is of a query with the columns (k int64, x int64, y int64); one with (k int64)" in told
    rows = "SELECT a.k, a.x, b.y FROM A WINDOW(ROWS 3) a JOIN B WINDOW(ROWS 3) b ON a.k = b.k"
    status, told = desk.run(rows, "--checkpoint", desk.checkpoint, "--migrate")
    assert status == 2 and "the operator 'rows window" in told and "needs all of the past" in told
    found = desk.answer(JOIN.format(1), "--checkpoint", desk.checkpoint)
    assert_same_history(found, expected)
    status, told = desk.run(JOIN.format(2), "--checkpoint", desk.checkpoint, "--migrate")
    assert status == 2 and "is finished: there is nothing to go on from" in told


@pytest.mark.parametrize("old,new", [(JOIN.format(1), SUMS.format(1)), (SUMS.format(1), JOIN.format(1))])
def test_a_text_that_reads_other_inputs_is_refused_with_what_can_be_done(desk: Desk, old: str, new: str) -> None:
    expected = desk.answer(old)
    desk.run(old, "--checkpoint", desk.checkpoint, until=6)
    (before, after) = ("A, B" if text.startswith("\n") else "A" for text in (old, new))
    extra = [] if after == "A, B" else [f"--in=B={desk.place / 'B'}.jsonl"]
    for given in ([], extra):
        status, told = desk.run(new, "--checkpoint", desk.checkpoint, "--migrate", *given)
        assert (
            status == 2 and f"reads {before}, and this one {after}: --migrate is for texts that read the same" in told
        )
    found = desk.answer(old, "--checkpoint", desk.checkpoint)
    assert_same_history(found, expected)


def test_options_that_do_not_go_together(desk: Desk) -> None:
    for options, words in (
        (("--migrate",), "say which, --checkpoint DIR"),
        (("--buckets", "2"), "--buckets is for runs on Spark"),
        (
            ("--replan-every", "2", "--follow", "--copies", "2", "--out", f"{desk.place}/out/", "--checkpoint", "c"),
            "--replan-every is for one run; leave --copies out",
        ),
    ):
        status, told = desk.run(JOIN.format(1), *options)
        assert status == 2 and words in told, told


@pytest.mark.parametrize(
    ("option", "counted"), [("--replan-every", "epochs"), ("--buckets", "partitions"), ("--batch", "elements")]
)
def test_a_wrong_number_is_told_with_what_it_counts(desk: Desk, option: str, counted: str) -> None:
    status, told = desk.run(SUMS.format(0), option, "0")
    assert status == 2 and f"'0' is no number of {counted}: 1 or more" in told
