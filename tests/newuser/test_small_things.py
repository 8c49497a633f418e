"""The smaller things that a new user met (P13)."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

import everwhen as ew
from everwhen.core.replay import Replay, ReplayClock
from everwhen.engine.session.sql_session import SqlSession
from everwhen.errors import QueryError, SqlError
from everwhen.shell.completion import KEYWORDS, candidates, names_of
from newuser.desk import DECLARED, Desk

PLAIN = "SELECT symbol, value FROM Tweets"


def test_a_text_compared_with_a_number_is_told_to_be_cast_to_a_number(desk: Desk) -> None:
    status, _, err = desk.run("SELECT value FROM Tweets WHERE symbol = 5", "tweets.csv")
    assert status == 2 and "symbol = 5" in err and "CAST(x AS INT)" in err and "TIMESTAMP)," not in err


def test_a_window_of_a_month_is_refused_with_the_reason(desk: Desk) -> None:
    status, _, err = desk.run("SELECT value FROM Tweets WINDOW(RANGE 1 MONTH)", "tweets.csv")
    assert status == 2 and "a month has no fixed length; write days or weeks" in err


def test_tab_offers_what_the_language_has() -> None:
    names = names_of(SqlSession(), [], [])
    assert candidates("SELECT ", "QUA", names) == candidates("SELECT ", "qua", names)
    assert "quantile(" in candidates("SELECT ", "QUA", names)
    assert not {"QUALIFY", "qualify"} & {*candidates("SELECT ", "QUA", names), *candidates("SELECT ", "qua", names)}


@pytest.mark.parametrize("word", KEYWORDS)
def test_no_word_that_tab_offers_is_refused_as_no_part_of_the_language(word: str) -> None:
    stream = ew.source("S", {"x": "int64"})
    for text in (f"SELECT x FROM S {word} x", f"SELECT x FROM S WHERE x {word} x"):
        try:
            ew.sql(text, stream)
        except (SqlError, QueryError) as error:
            assert f"{word} is not part of" not in str(error)


@pytest.mark.parametrize("name", ["x.jsonl", "x.parquet", "x/"])
def test_a_place_that_cannot_be_written_is_named_without_temporary_names(desk: Desk, name: str) -> None:
    if not Path("/proc/self").exists():
        pytest.skip("no file system here on which nobody can write")
    status, out, err = desk.run(PLAIN, "tweets.csv", "--out", f"/proc/{name}")
    assert status in (1, 2) and out == ""
    assert ".part" not in err and "None" not in err and "moved or deleted" not in err
    assert f"/proc/{name}".rstrip("/") in err and "choose another place" in err


def test_an_empty_csv_is_like_an_empty_file_of_lines(desk: Desk) -> None:
    desk.write("empty.csv", "")
    desk.write("empty.jsonl", "")
    for declared in (None, ""):
        options = {} if declared is None else {"declared": declared}
        query = PLAIN if declared is None else "SELECT * FROM Tweets"
        found = [desk.run(query, f"empty.{form}", **options) for form in ("csv", "jsonl")]
        assert found[0] == found[1] == (0, '{"op":"cti","t":null}\n', "")


def test_dir_lists_every_name_once() -> None:
    names = dir(ew)
    assert len(names) == len(set(names)) and set(ew.__all__) <= set(names)


# -- replay ------------------------------------------------------------------------------------------------------------


class Clock:
    """A clock that goes on only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_a_replay_waits_until_what_has_come_is_due() -> None:
    clock = Clock()
    rated = ReplayClock(Replay(rate=10), 10**6, clock, clock.sleep)
    for read in (1, 11, 21):
        rated.wait(read, 0, lambda: False)
    assert clock.now == pytest.approx(102.0)
    clock = Clock()
    fast = ReplayClock(Replay(speed=60), 10**6, clock, clock.sleep)
    for latest in (0, 60_000, 120_000):  # ticks of a millisecond
        fast.wait(1, latest, lambda: False)
    assert clock.now == pytest.approx(102.0)
    fast.wait(1, 10**9, lambda: True)  # Ctrl-C
    assert clock.now == pytest.approx(102.0)


def test_run_replays_its_inputs_slowly(desk: Desk) -> None:
    began = time.monotonic()
    found = desk.answer(PLAIN, "tweets.csv", "--rate", 10)  # four rows, the first at once
    assert time.monotonic() - began >= 0.3 and len(found) == 5
    began = time.monotonic()
    desk.answer(PLAIN, "tweets.csv", "--speed", 8400 * 4, "--batch", 1)  # 8,400 seconds of data
    assert time.monotonic() - began >= 0.25


def test_run_follow_and_the_shell_replay_their_inputs_slowly(desk: Desk) -> None:
    header, *rows = (line.split(",") for line in (desk.place / "tweets.csv").read_text().splitlines())
    lines = [json.dumps({**dict(zip(header, row, strict=True)), "value": int(row[2])}) for row in rows]
    desk.write("tweets.jsonl", "\n".join([*lines, '{"op":"cti","t":null}\n']))  # a CSV that is followed never ends
    began = time.monotonic()
    assert desk.run(PLAIN, "tweets.jsonl", "--follow", "--out", desk.place / "out", "--rate", 10)[0] == 0
    assert time.monotonic() - began >= 0.3
    script = desk.write("s.sql", f"{DECLARED}\n{PLAIN};\n\\run rate=10\n")
    began = time.monotonic()
    status, out, _ = desk.call("shell", script, "--in", f"Tweets={desk.place / 'tweets.csv'}")
    assert status == 0 and out.count("q1: insert") == 4 and time.monotonic() - began >= 0.3
    wrong = desk.write("w.sql", f"{DECLARED}\n{PLAIN};\n\\run haste=10\n")
    status, _, err = desk.call("shell", wrong, "--in", f"Tweets={desk.place / 'tweets.csv'}")
    assert status == 2 and "speed=60" in err


def test_a_replay_is_asked_for_in_one_way_and_in_process(desk: Desk) -> None:
    status, _, err = desk.run(PLAIN, "tweets.csv", "--rate", 1, "--speed", 1)
    assert status == 2 and "a rate or a speed, not both" in err
    status, _, err = desk.run(PLAIN, "tweets.csv", "--rate", 0)
    assert status == 2 and "a rate is more than 0" in err
    text = desk.write("q.sql", "SELECT * FROM S")
    status, _, err = desk.call("run", text, "--in", "S=s.jsonl", "--engine", "spark", "--rate", 1)
    assert status == 2 and "leave --engine spark" in err
