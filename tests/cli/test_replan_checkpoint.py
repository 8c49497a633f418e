"""`everwhen run --migrate`: checkpoints that it cannot go on from, or that have nothing yet; what is told of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import everwhen as ew
from cli.test_replan import JOIN, SCHEMA, SUMS, Capture, Desk, Stopped
from cli.test_replan_follow import Killed, Live
from everwhen.engine.files import run as files_run
from everwhen.engine.files.live import run as live_run
from everwhen.stream.history import History
from everwhen.testing import assert_valid

OLD, NEW, THIRD = SUMS.format(0), SUMS.format(2), SUMS.format(3)
BEGINS = "nothing was saved yet: the new text counts from the beginning"
MIGRATE = ("--migrate",)


class Ended(Desk):
    """Runs over files that end."""

    stop = Stopped

    def all_said(self) -> list[ew.Element]:
        return self.said()

    def go(self, text: str, *options: str, until: int | None = None) -> tuple[int, str]:
        return self.run(text, "--checkpoint", self.checkpoint, *options, until=until)

    def killed_before_a_state(self, text: str) -> str:
        def killed(*_: object) -> None:
            raise Stopped

        with self.patch.context() as patch:
            patch.setattr(files_run._Work, "saved", killed)
            return self.go(text, *MIGRATE)[1]


class Followed(Live):
    """Runs that go on."""

    stop = Killed

    def all_said(self) -> list[ew.Element]:
        return self.live()

    def go(self, text: str, *options: str, until: int | None = None) -> tuple[int, str]:
        return self.follow(text, *options, until=until)

    def killed_before_a_state(self, text: str) -> str:
        def killed(*_: object) -> None:
            raise Killed

        with self.patch.context() as patch:
            patch.setattr(live_run, "save_live", killed)
            return self.go(text, *MIGRATE)[1]


@pytest.fixture
def desk(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> Ended:
    return Ended(tmp_path, capsys, monkeypatch)


@pytest.fixture
def live(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> Followed:
    found = Followed(tmp_path, capsys, monkeypatch)
    found.end()
    return found


@pytest.fixture(params=[Ended, Followed])
def either(
    request: pytest.FixtureRequest, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> Ended | Followed:
    found = request.param(tmp_path, capsys, monkeypatch)
    if isinstance(found, Live):
        found.end()
    return found


def begun(either: Ended | Followed, text: str = OLD) -> Path:
    """The checkpoint of a run that was killed after some states."""
    assert either.go(text, until=6)[0] == -1
    return Path(either.checkpoint)


def test_a_third_text_waits_although_no_state_is_of_the_second(either: Ended | Followed) -> None:
    begun(either)
    assert "the new text counts from" in either.killed_before_a_state(NEW)
    status, told = either.go(THIRD, *MIGRATE)
    assert status == 2 and "is still going over from a text before the last one to that" in told
    assert told.endswith(f"then --migrate. The last one is:\n{NEW}\n"), "it names what to go on with"
    assert either.go(NEW)[0] == 0


def test_a_third_text_waits_although_no_state_was_saved_at_all(live: Followed) -> None:
    """The steps of a run that goes on are in its output; they are of the first text."""
    live.saves = False
    begun(live)
    assert "the new text counts from" in live.killed_before_a_state(NEW)
    status, told = live.go(THIRD, *MIGRATE)
    assert status == 2 and "is still going over from a text before the last one to that" in told


def test_back_to_the_first_text_before_the_second_has_a_state(either: Ended | Followed) -> None:
    expected = either.answer(OLD)
    begun(either)
    either.killed_before_a_state(NEW)
    status, told = either.go(OLD, *MIGRATE)
    assert status == 0 and "what was saved is of the new text's plan already, so it goes on as it is" in told
    assert either.go(OLD)[0] == 0, "it is the first one's again"
    assert sorted(map(str, either.all_said())) == sorted(map(str, expected))


def test_a_text_that_is_killed_between_the_two_notes(either: Ended | Followed) -> None:
    """The checkpoint has the new text, and is still the old one's: any text may take over from that."""
    from everwhen.engine.files import checkpoint_texts

    def killed(*_: object) -> None:
        raise either.stop

    begun(either)
    with either.patch.context() as patch:
        patch.setattr(checkpoint_texts, "note_run", killed)
        either.go(NEW, *MIGRATE)
    status, told = either.go(THIRD, *MIGRATE)
    assert status == 0 and "the new text counts from" in told


def test_back_and_forth_between_texts(either: Ended | Followed) -> None:
    """The text of the state stays in the checkpoint, whoever is killed where."""
    from everwhen.engine.files import checkpoint_texts

    def killed(*_: object) -> None:
        raise either.stop

    begun(either)
    either.killed_before_a_state(NEW)
    with either.patch.context() as patch:
        patch.setattr(checkpoint_texts, "note_run", killed)
        either.go(OLD, *MIGRATE)
    either.killed_before_a_state(NEW)
    assert either.go(NEW)[0] == 0


def test_a_new_checkpoint_is_killed_between_its_notes(either: Ended | Followed) -> None:
    """Nothing was saved, so any text may begin."""
    from everwhen.engine.files import checkpoint

    def killed(path: Path, found: object) -> None:
        if path.name == "run.json":
            raise either.stop
        write(path, found)  # type: ignore[arg-type]

    write = checkpoint.write_json
    with either.patch.context() as patch:
        patch.setattr(checkpoint, "write_json", killed)
        either.go(OLD)
    expected = either.answer(NEW)
    status, told = either.go(NEW, *MIGRATE)
    assert status == 0 and BEGINS in told
    assert sorted(map(str, either.all_said())) == sorted(map(str, expected))


@pytest.mark.parametrize("emit", ["current", "final"])
@pytest.mark.parametrize("until", [2, 4, 5, 6, 8])
def test_repeated_changes_of_plan_are_of_the_old_text(live: Followed, until: int, emit: str) -> None:
    """Nothing was saved, so the steps of the old text are repeated, with the plans that took turns in them."""
    text = "SELECT 1 AS k, COUNT(*) AS x, SUM(x) * {} AS y FROM A WINDOW(RANGE 15) WHERE x >= 0"
    options = ("--emit", emit)
    before, after = (live.answer(text.format(times), *options) for times in (1, 2))
    live.saves = False
    assert live.go(text.format(1), "--replan-every", "2", *options, until=until)[0] == -1
    status, told = live.go(text.format(2), *MIGRATE, *options)
    if status:
        assert status == 2 and "without --replan-every, until that is done, then --migrate" in told
        return
    said = live.all_said()
    assert_valid(said)
    at = int(told.split("the new text counts from ")[1].split()[0])
    heard, old, new = (History.of(each, SCHEMA) for each in (said, before, after))
    wrong = [t for t in range(140) if heard.snapshot(t) != (old if t < at else new).snapshot(t)]
    assert not wrong


def test_whose_it_is_has_been_lost(either: Ended | Followed) -> None:
    """The text of the state is still there."""
    place = begun(either)
    (place / "run.json").unlink()
    either.killed_before_a_state(NEW)
    assert json.loads((place / "query.json").read_text())["before"]["text"] == OLD


@pytest.mark.parametrize("left", ["", "[1]", None])
def test_who_asks_the_same_does_without_the_text(either: Ended | Followed, left: str | None) -> None:
    path = begun(either) / "query.json"
    if left is None:
        path.unlink()
    else:
        path.write_text(left)
    assert either.go(OLD, until=6)[0] == -1
    assert json.loads(path.read_text())["text"] == OLD, "it is written anew"
    assert either.go(NEW, *MIGRATE)[0] == 0


@pytest.mark.parametrize("left", ["", '{"query": "Sou', "[1]", '{"query": "", "text": "", "before": 5}', None])
def test_the_text_of_the_checkpoint_is_damaged(either: Ended | Followed, left: str | None) -> None:
    path = begun(either) / "query.json"
    if left is None:
        path.unlink()
    else:
        path.write_text(left)
    status, told = either.go(NEW, *MIGRATE)
    words = f"{path} " + ("is missing, without which" if left is None else "cannot be read: ")
    assert status == 1 and words in told and "restore it, or take a new directory" in told and "--migrate" not in told


def test_a_checkpoint_whose_query_has_no_text(desk: Ended) -> None:
    path = begun(desk) / "query.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "text": ""}))
    status, told = desk.go(NEW, *MIGRATE)
    assert status == 1 and "query.json does not have the text of its query" in told


@pytest.mark.parametrize("options,words", [(("--batch", "5"), "batch: "), (("--emit", "final"), "emit: ")])
def test_only_what_is_refused_is_told(desk: Ended, options: tuple[str, ...], words: str) -> None:
    begun(desk)
    status, told = desk.go(NEW, *MIGRATE, *options)
    assert status == 2 and f"cannot go on from:\n  {words}" in told
    assert "query" not in told and "--migrate" not in told and len(told.splitlines()) == 3
    status, told = desk.go(NEW, *options)
    assert "  query: " in told, "without --migrate that is refused, too"


def test_nothing_was_saved_yet(either: Ended | Followed) -> None:
    """There is no checkpoint."""
    expected = either.answer(NEW)
    status, told = either.go(NEW, *MIGRATE)
    assert status == 0 and BEGINS in told
    assert sorted(map(str, either.all_said())) == sorted(map(str, expected))
    status, told = either.go(NEW, *MIGRATE)
    assert status == 0 and BEGINS not in told, "all of it was"


def test_a_run_has_no_state_yet(desk: Ended) -> None:
    assert BEGINS in desk.killed_before_a_state(OLD)
    status, told = desk.go(OLD)
    assert status == 0 and BEGINS not in told, "only who asks is told"


def test_another_text_of_a_run_that_has_no_state_yet(desk: Ended) -> None:
    expected = desk.answer(NEW)
    desk.killed_before_a_state(OLD)
    status, told = desk.go(NEW, *MIGRATE)
    assert status == 0 and BEGINS in told and desk.said() == expected


def test_a_run_that_goes_on_and_has_said_nothing_yet(live: Followed) -> None:
    assert live.go(OLD, until=0)[0] == -1
    status, told = live.go(NEW, *MIGRATE, until=0)
    assert status == -1 and BEGINS in told
    status, told = live.go(OLD)
    assert status == 2 and "belongs to another run" in told
    assert live.go(NEW)[0] == 0, "it is the new text's"


@pytest.mark.parametrize("which", ["truncated", "gone", "no state"])
def test_a_part_is_damaged(desk: Ended, which: str) -> None:
    """It is told before the new text counts."""
    place = begun(desk)
    part = min(place.glob("part-*"))
    if which == "truncated":
        part.write_bytes(part.read_bytes()[:200])
    elif which == "gone":
        part.unlink()
    else:
        for state in place.glob("state-*"):
            state.unlink()
    kept = {path.name: path.read_bytes() for path in place.iterdir() if path.name != "lock"}
    for options in MIGRATE, ():
        status, told = desk.go(NEW if options else OLD, *options)
        assert status == 1 and "restore it, or start with a new checkpoint" in told and "counts from" not in told
        assert {path.name: path.read_bytes() for path in place.iterdir() if path.name != "lock"} == kept


def test_a_part_in_lines_is_damaged(desk: Ended) -> None:
    """Parquet has no room for some names of columns."""
    place = begun(desk, "SELECT k, x AS ve FROM A")
    part = min(place.glob("part-*.jsonl"))
    part.write_bytes(part.read_bytes()[:-4])
    status, told = desk.go("SELECT k, x AS ve FROM A WHERE x > 2", *MIGRATE)
    assert status == 1 and f"{part} cannot be read: its last line has no end" in told and "counts from" not in told


def test_a_part_that_is_damaged_within(desk: Ended) -> None:
    """Its end is there: that is noticed when the answer is put together, and is no wrong input."""
    place = begun(desk)
    part = min(place.glob("part-*"))
    data = part.read_bytes()
    part.write_bytes(data[:4] + bytes(200) + data[204:])
    status, told = desk.go(OLD)
    assert status == 1 and f"{part} cannot be read: " in told and "restore it" in told


def test_a_source_is_declared_in_another_way(desk: Ended) -> None:
    columns = "CREATE STREAM A (k BIGINT, x BIGINT)"
    begun(desk, f"{columns}; {OLD}")
    status, told = desk.go(f"{columns} LATE ROWS DROP; {NEW}", *MIGRATE)
    assert status == 2 and "the source 'A' is declared in two ways" in told
    assert "stays as it was where another query takes over" in told


def test_alter_query_is_no_text_of_a_run(desk: Ended) -> None:
    status, told = desk.go(f"ALTER QUERY q AS {NEW}; {OLD}")
    assert status == 2 and "everwhen run goes on with another text if it is given that and --migrate" in told


def test_two_texts_of_one_plan(either: Ended | Followed) -> None:
    """What runs is the rewritten plan of both."""
    begun(either, JOIN.format(1))
    status, told = either.go(JOIN.format(1).replace("WHERE a.x > 1", "WHERE a.x > 1 AND a.x > 1"), *MIGRATE)
    assert status == 0 and "already, so it goes on as it is" in told
