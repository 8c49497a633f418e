"""`ew.page`: the page of a session that a program pushes, of a job, and of nothing else."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

import everwhen as ew
from everwhen.jobs.status import write_status
from everwhen.stream.element_batch import batch_of
from serve.test_job_watch import RUNNING

TOKEN = "secret"


def asked(opened: object, path: str) -> dict[str, object]:
    base = opened.address.partition("/#")[0]  # type: ignore[attr-defined]
    response = httpx.get(f"{base}{path}", headers={"Authorization": f"Bearer {TOKEN}"}, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()


def test_a_program_pushes_a_session_whose_page_is_open() -> None:
    session = ew.SqlSession()
    session.execute("CREATE STREAM S (x INT); SELECT MAX(x) AS best FROM S WINDOW(RANGE 10)")
    batch = batch_of([ew.Insert(1, 2, {"x": 7}), ew.Cti(1)], session.schema_of("S"))
    with ew.page(session, token=TOKEN) as opened:
        assert opened.address.startswith("http://127.0.0.1:") and str(opened) == f"the page is at {opened.address}"
        said = opened.push({"S": batch})
        assert [str(each) for each in said["q1"].elements()] == ["insert [1, ∞) best=7", "cti 1"]
        told = asked(opened, "/api/queries/q1/answer")
        assert [each["row"] for each in told["rows"]] == [[7]]  # type: ignore[attr-defined]
        assert asked(opened, "/api/state")["elements"] == 2
        with pytest.raises(ew.InputError):  # the caller's error is the caller's
            opened.push({"S": batch_of([ew.Insert(0, 1, {"x": 7})], session.schema_of("S"))})
    session.push({"S": batch_of([ew.Insert(3, 4, {"x": 9})], session.schema_of("S"))})  # it is the program's again


def test_the_page_of_a_job(tmp_path: Path) -> None:
    write_status(tmp_path, RUNNING)
    with ew.page(tmp_path, token=TOKEN) as opened:
        assert asked(opened, "/api/state")["job"]["job"] == "best.sql"  # type: ignore[index]
        with pytest.raises(ew.QueryError, match="gets its data elsewhere"):
            opened.push({})


def test_what_has_no_page_is_said_in_words(tmp_path: Path) -> None:
    with pytest.raises(ew.QueryError, match="not a int"):
        ew.page(3)  # type: ignore[arg-type]
    with pytest.raises(ew.StateError, match="there is no job"):
        ew.page(tmp_path)
    with ew.page(ew.SqlSession()) as opened:
        port = int(opened.address.partition("/#")[0].rpartition(":")[2])
        with pytest.raises(ew.QueryError, match=f"{port} of 127.0.0.1 cannot be used"):
            ew.page(ew.SqlSession(), port=port)
