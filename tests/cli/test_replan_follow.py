"""`everwhen run --follow` with `--replan-every` and `--migrate`: exactly once, killed anywhere."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import everwhen as ew
from cli.test_replan import JOIN, SUMS, Capture, Desk
from everwhen.cli.program import main
from everwhen.engine.files.live import run as live_run
from everwhen.formats.changelog.layout import epochs_there, read_manifest
from everwhen.formats.changelog.reading import read_changelog
from everwhen.storage.folder import LocalFolder
from everwhen.testing import assert_same_history, assert_valid


class Killed(BaseException):
    """The run ends as after a kill -9, as far as files are concerned."""


class Live(Desk):
    """Runs that go on, killed after some steps or at a point on the way."""

    saves = True

    def run(self, text: str, *options: str, until: int | None = None) -> tuple[int, str]:
        if "--follow" not in options:
            return super().run(text, *options, until=until)
        read = [name for name in "AB" if f"FROM {name}" in text or f"JOIN {name}" in text]
        query = self.place / "q.sql"
        query.write_text(text)
        inputs = [f"--in={name}={self.place / name}.jsonl" for name in read if f"{name}=" not in " ".join(options)]
        with self.patch.context() as patch:
            patch.setattr(live_run, "_PATIENCE", 0.0 if self.saves else 1e9)
            patch.setattr(live_run, "_EFFORT", 0)
            if until is not None:
                self._kill_after(until, patch)
            arguments = ["run", str(query), *inputs, "--batch", "10", "--out", f"{self.place}/live/", *options]
            try:
                status = main(arguments)
            except Killed:
                status = -1
        return status, self.capsys.readouterr().err

    def _kill_after(self, until: int, patch: pytest.MonkeyPatch) -> None:
        whole, count = live_run.LiveSteps.look, 0

        def some(steps: live_run.LiveSteps, most: int, forward: int | None = None) -> live_run.Step | None:
            nonlocal count
            if count == until:
                raise Killed
            found = whole(steps, most, forward)
            count += found is not None
            return found

        patch.setattr(live_run.LiveSteps, "look", some)

    def end(self) -> None:
        """Everything is promised."""
        for name in "AB":
            with open(self.place / f"{name}.jsonl", "a", encoding="utf-8") as file:
                file.write('{"op":"cti","t":null}\n')

    def live(self) -> list[ew.Element]:
        return [each for batch in read_changelog(self.place / "live") for each in batch.elements()]

    def follow(self, text: str, *options: str, until: int | None = None) -> tuple[int, str]:
        return self.run(text, "--follow", "--checkpoint", self.checkpoint, *options, until=until)


@pytest.fixture
def desk(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> Live:
    found = Live(tmp_path, capsys, monkeypatch)
    found.end()
    return found


def steps(desk: Live) -> list[dict]:
    folder = LocalFolder(str(desk.place / "live"))
    return [step for epoch in epochs_there(folder) for step in read_manifest(folder, epoch).run["steps"]]


@pytest.mark.parametrize("emit", ["final", "current"])
@pytest.mark.parametrize("saves", [True, False])
def test_plans_take_turns_and_every_turn_is_repeated(desk: Live, emit: str, saves: bool) -> None:
    """Killed after every second step; without a state all of it is repeated, whatever N is by then."""
    expected = desk.answer(JOIN.format(1), "--emit", emit)
    desk.saves = saves
    for every in ("1", "3", "2", "1"):
        assert desk.follow(JOIN.format(1), "--emit", emit, "--replan-every", every, until=2)[0] == -1
    assert desk.follow(JOIN.format(1), "--emit", emit, "--replan-every", "2")[0] == 0
    found = desk.live()
    assert_valid(found)
    assert_same_history(found, expected)
    assert {step["plan"] for step in steps(desk) if "plan" in step} == {"as written", "rewritten"}
    if emit == "final":
        assert not any(isinstance(each, ew.Adjust) for each in found)


@pytest.mark.parametrize("saves", [True, False])
@pytest.mark.parametrize("old,new", [(JOIN.format(1), JOIN.format(3)), (SUMS.format(0), SUMS.format(2))])
def test_another_text_goes_on(desk: Live, old: str, new: str, saves: bool) -> None:
    before, after = desk.answer(old), desk.answer(new)
    desk.saves = saves
    assert desk.follow(old, until=6)[0] == -1
    status, told = desk.follow(new)
    assert status == 2 and "or --migrate, if the new query has the same columns" in told
    status, told = desk.follow(new, "--migrate", until=2)
    assert status == -1 and "the new text counts from" in told
    at = int(told.split("the new text counts from ")[1].split()[0])
    status, told = desk.follow(old)
    assert status == 2 and "belongs to another run" in told
    assert desk.follow(new, until=1)[0] == -1, "it is the new one's now"
    assert desk.follow(new, "--migrate")[0] == 0
    found = desk.live()
    assert_valid(found)
    for t in range(150):
        expected = before if t < at else after
        assert ew.History.of(found).at(t) == ew.History.of(expected).at(t), t


@pytest.mark.parametrize("where", ["_note", "note_run", "save_live", "after"])
def test_killed_while_the_text_changes(desk: Live, where: str) -> None:
    """Before the texts are noted, between that and whose checkpoint it is, before the state and right behind it."""
    old, new = SUMS.format(0), SUMS.format(2)
    before, after = desk.answer(old), desk.answer(new)
    assert desk.follow(old, until=6)[0] == -1
    from everwhen.engine.files import checkpoint_texts

    def killed(*_: object) -> None:
        raise Killed

    with desk.patch.context() as patch:
        if where == "after":
            patch.setattr(live_run.LiveRun, "_work", killed)
        else:
            patch.setattr(live_run if where == "save_live" else checkpoint_texts, where, killed)
        status, told = desk.follow(new, "--migrate")
    assert status == -1 and "the new text counts from" in told
    at = int(told.split("the new text counts from ")[1].split()[0])
    assert desk.follow(new, "--migrate")[0] == 0
    found = desk.live()
    assert_valid(found)
    for t in range(150):
        assert ew.History.of(found).at(t) == ew.History.of(before if t < at else after).at(t), t


def test_what_differs_is_said_at_once(desk: Live) -> None:
    """No input has to come for it."""
    (desk.place / "A.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in (
            *({"vs": 0, "ve": 9, "row": {"k": k, "x": k}} for k in range(4)), {"op": "cti", "t": 5},
        ))
    )  # fmt: skip
    text = "SELECT k, x FROM A WHERE x > {}"
    assert desk.follow(text.format(2), until=1)[0] == -1
    assert [str(each) for each in desk.live()] == ["insert [0, 9) k=3 x=3", "cti 5"]
    assert desk.follow(text.format(1), "--migrate", until=1)[0] == -1
    assert "insert [5, 9) k=2 x=2" in [str(each) for each in desk.live()]


def test_nothing_is_half_applied(desk: Live) -> None:
    expected = desk.answer(JOIN.format(1))
    assert desk.follow(JOIN.format(1), until=6)[0] == -1
    other = "SELECT a.k FROM A WINDOW(RANGE 20) a JOIN B WINDOW(RANGE 20) b ON a.k = b.k"
    status, told = desk.follow(other, "--migrate")
    assert status == 2 and "is of a query with the columns (k int64, x int64, y int64); one with (k int64)" in told
    rows = "SELECT a.k, a.x, b.y FROM A WINDOW(ROWS 3) a JOIN B WINDOW(ROWS 3) b ON a.k = b.k"
    status, told = desk.follow(rows, "--migrate")
    assert status == 2 and "the operator 'rows window" in told and "needs all of the past" in told
    assert desk.follow(JOIN.format(1))[0] == 0
    assert_same_history(desk.live(), expected)
    status, told = desk.follow(JOIN.format(2), "--migrate")
    assert status == 2 and "is finished: there is nothing to go on from" in told


def test_the_checkpoint_of_a_run_that_ends_is_refused(desk: Live) -> None:
    assert desk.run(SUMS.format(0), "--checkpoint", desk.checkpoint)[0] == 0
    status, told = desk.follow(SUMS.format(0), "--migrate")
    assert status == 2 and "engine: local before, local, following now" in told


def test_a_csv_grows_too(desk: Live) -> None:
    """Rows that are appended are answered, half a row waits, and the run goes on from where it was."""
    text = "CREATE STREAM T (ts BIGINT, k TEXT) ORDERED BY ts WITHIN 2; SELECT k FROM T"
    path = desk.place / "t.csv"
    path.write_text("ts,k\n1,a\n5,b\n6,")
    first = ["insert [1, 2) k='a'", "insert [5, 6) k='b'", "cti 3"]
    assert desk.follow(text, f"--in=T={path}", until=1)[0] == -1
    assert [str(each) for each in desk.live()] == first
    with open(path, "a", encoding="utf-8") as file:
        file.write("c\n9,d\n")
    assert desk.follow(text, f"--in=T={path}", until=1)[0] == -1
    assert [str(each) for each in desk.live()] == [*first, "insert [6, 7) k='c'", "insert [9, 10) k='d'", "cti 7"]
    path.write_text(path.read_text() + '10,"e\n')
    status, told = desk.follow(text, f"--in=T={path}")
    assert status == 3 and f"{path}:6: a quotation mark is opened in this line" in told
