"""What the tests of this folder share: a folder with files, and the program as a user calls it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from everwhen.cli.program import main

DECLARED = "CREATE STREAM Tweets (timestamp TIMESTAMP, symbol TEXT, value INT) ORDERED BY timestamp;"
TWEETS = """timestamp,symbol,value
2015-02-26 21:42:53,AAPL,3
2015-02-26 21:47:53,AAPL,4
2015-02-26 22:02:53,GOOG,9
2015-02-27 00:02:53,GOOG,1
"""


class Desk:
    """A folder, and what the program says there."""

    def __init__(self, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.place, self._capsys = place, capsys

    def write(self, name: str, text: str) -> str:
        path = self.place / name
        path.write_text(text)
        return str(path)

    def call(self, *words: object) -> tuple[int, str, str]:
        """Status, output and errors of a command."""
        self._capsys.readouterr()
        status = main([str(word) for word in words])
        return status, *self._capsys.readouterr()

    def run(self, query: str, file: str, *options: object, declared: str = DECLARED) -> tuple[int, str, str]:
        """`everwhen run` of a query over one file, in process."""
        text = self.write("q.sql", f"{declared}\n{query}")
        return self.call("run", text, "--in", f"Tweets={self.place / file}", "--engine", "local", *options)

    def answer(self, query: str, file: str, *options: object, declared: str = DECLARED) -> list[dict[str, Any]]:
        """The elements of its answer."""
        status, out, err = self.run(query, file, *options, declared=declared)
        assert (status, err) == (0, "")
        return [json.loads(line) for line in out.splitlines()]
