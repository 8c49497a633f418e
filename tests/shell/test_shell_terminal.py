"""`everwhen shell` at a terminal, driven through a pseudo-terminal: typing, TAB, Ctrl-C, Ctrl-D, a live run."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROMPT, CONTINUED = "everwhen> ", "      ..> "
LIMIT = 60.0
_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x07\r]")


def _at_the_terminal() -> None:
    """In the new process: the terminal is its own, and Ctrl-C reaches it, even if the tests run in the background."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A shell in a pseudo-terminal of 100 columns by 30 lines."""

    def __init__(self, state: Path, *arguments: str) -> None:
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
        environment = {
            **os.environ, "XDG_STATE_HOME": str(state), "TERM": "xterm", "PYTHONPATH": str(ROOT / "src"),
            "COLUMNS": "100", "LINES": "30", "INPUTRC": os.devnull,
        }  # fmt: skip
        self.process = subprocess.Popen(
            [sys.executable, "-m", "everwhen.cli", "shell", *arguments],
            stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True, close_fds=True,
            preexec_fn=_at_the_terminal,
        )  # fmt: skip
        os.close(slave)
        self.master, self.seen = master, ""

    def wait_for(self, text: str) -> str:
        """What came until this text did."""
        end = time.monotonic() + LIMIT
        while text not in self.seen:
            assert time.monotonic() < end, f"{text!r} did not come; there is:\n{self.seen}"
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.seen += _CODES.sub("", os.read(self.master, 65536).decode(errors="replace"))
                except OSError:  # the other side is closed
                    assert text in self.seen, f"it ended without {text!r}:\n{self.seen}"
        found, _, self.seen = self.seen.partition(text)
        return found

    def type(self, text: str, until: str = PROMPT) -> str:
        os.write(self.master, text.encode())
        return self.wait_for(until)

    def interrupt(self) -> None:
        """Ctrl-C.  One that comes just before Python waits for a key is noticed with the next key: press again."""
        for _ in range(10):
            os.write(self.master, b"\x03")
            if select.select([self.master], [], [], 2.0)[0]:
                break
        self.wait_for("^C")

    def end(self) -> int:
        """The status, when it has ended by itself."""
        end = time.monotonic() + LIMIT
        while self.process.poll() is None and time.monotonic() < end:
            if select.select([self.master], [], [], 0.1)[0]:
                try:
                    os.read(self.master, 65536)
                except OSError:
                    break
        return self.process.wait(timeout=LIMIT)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(timeout=LIMIT)
        os.close(self.master)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    opened = Terminal(tmp_path, "--batch", "200")
    try:
        opened.wait_for(PROMPT)
        yield opened
    finally:
        opened.close()


def test_a_session_at_a_terminal(terminal: Terminal, tmp_path: Path) -> None:
    terminal.type("\\nexmark\n")
    terminal.type("SELECT itemID, COUNT(*) AS bids\n", CONTINUED)
    terminal.type("FROM OpenAu\t WINDOW(RANGE 1 MINUTE) GROUP BY itemID;\n", "started query q1")
    terminal.wait_for(PROMPT)
    said = terminal.type("SELECT wrong FROM Bid;\n")
    assert "error: line 1, column 8: unknown column 'wrong'" in said and "^^^^^" in said
    terminal.type("SELECT half a state", "state")
    terminal.interrupt()  # Ctrl-C: the line is gone, and the shell is not
    terminal.wait_for(PROMPT)
    assert "error" not in terminal.type("\\step 2\n")
    terminal.type("\\run\n", "Ctrl-C goes back to the prompt")
    os.kill(terminal.process.pid, signal.SIGINT)
    said = terminal.wait_for("per second")
    assert "rows at" in said and "stopped: " in said
    terminal.wait_for(PROMPT)
    assert "running" in terminal.type("\\queries\n")
    assert "there is no command" in terminal.type("\\nonsense\n")
    os.write(terminal.master, b"\x04")  # Ctrl-D
    assert terminal.end() == 0
    history = tmp_path / "everwhen" / "history"
    if history.exists():  # a Python without readline has none
        text = history.read_text()
        assert "SELECT itemID, COUNT(*) AS bids FROM OpenAuction WINDOW(RANGE 1 MINUTE) GROUP BY itemID;" in text
