"""`everwhen serve`: the address, what is refused before it starts, and how it ends."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

from everwhen.cli.program import main


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--port", "99999"], "a port is a number from 0 to 65535"),
        (["--rate", "0"], "a rate is more than 0"),
        (["--in", "S=none.jsonl"], "none.jsonl"),
        (["none.sql"], "none.sql"),
    ],
)
def test_what_is_wrong_is_said_before_it_starts(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["serve", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_port_that_is_taken_is_said_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", "--port", str(port)]) == 2
    told = capsys.readouterr().err
    assert f"--port {port} of 127.0.0.1 cannot be used" in told and "--port 0" in told


def test_a_text_that_is_wrong_names_its_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "q.sql"
    file.write_text("CREATE STREAM S (x INT);\nSELECT y FROM S")
    assert main(["serve", str(file)]) == 2
    assert "line 2, column 8" in capsys.readouterr().err


def test_an_input_that_nothing_reads_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "q.sql").write_text("CREATE STREAM S (x INT); SELECT x FROM S")
    (tmp_path / "s.jsonl").write_text('{"vs":1,"row":{"x":1}}')
    words = ["serve", f"{tmp_path}/q.sql", "--in", f"Foo={tmp_path}/s.jsonl", "--in", f"s={tmp_path}/s.jsonl"]
    assert main([*words, "--read-only"]) == 2
    assert f"no query of {tmp_path}/q.sql reads Foo; they read S\n" in capsys.readouterr().err
    served = []
    monkeypatch.setattr("everwhen.serve.program.serve", lambda *given, **_: served.append(given))
    assert main(words) == 0 and served
    assert "reads Foo; they read S; a query that is written on the page may" in capsys.readouterr().err
    assert main(["serve", "--in", f"Foo={tmp_path}/s.jsonl"]) == 0  # its queries come on the page
    assert "reads" not in capsys.readouterr().err


def test_without_the_extra_it_says_what_to_install(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("everwhen.serve.", "starlette", "uvicorn"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "starlette", None)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    assert main(["serve"]) == 2
    assert "pip install 'everwhen[page]'" in capsys.readouterr().err


def test_it_prints_its_address_answers_and_ends_with_ctrl_c(tmp_path: Path) -> None:
    (tmp_path / "q.sql").write_text("CREATE STREAM S (x INT); SELECT x FROM S WHERE x > 1")
    element = {"op": "insert", "vs": 1, "ve": 5, "row": {"x": 3}}
    (tmp_path / "s.jsonl").write_text(json.dumps(element))
    words = [sys.executable, "-m", "everwhen.cli", "serve", "q.sql", "--in", "S=s.jsonl", "--port", "0", "--read-only"]
    child = subprocess.Popen(words, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert child.stderr is not None
    try:
        found = re.search(r"(http://127\.0\.0\.1:\d+)/#token=(\S+)", child.stderr.readline())
        assert found is not None
        headers = {"Authorization": f"Bearer {found[2]}"}
        request = urllib.request.Request(f"{found[1]}/api/state", headers=headers)
        with urllib.request.urlopen(request, timeout=60) as response:
            told = json.load(response)
        assert told["read_only"] and told["queries"][0]["name"] == "q1"
        child.send_signal(signal.SIGINT)
        assert child.wait(60) in (0, 130)
        rest = child.stderr.read()
        assert "Traceback" not in rest and "closed" in rest
    finally:
        child.kill()
        child.wait()
        child.stderr.close()
