"""Signals that wait, work in a thread of its own, processes that end with their use."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark import SparkContext

from everwhen.engine.interruption import apart
from everwhen.errors import InputError
from everwhen.spark.api.handle import Handle
from everwhen.spark.api.launch import children, ended_on_failure, heard_by, kept_signals
from everwhen.spark.api.run_files import session_for


def test_signals_wait_until_they_are_asked_for() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with kept_signals() as check:
        check()
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(SystemExit) as ended:
            check()
        assert ended.value.code == 143
    with kept_signals() as check:
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            check()
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("answers", [False, True])
def test_a_jvm_that_was_ended_first_hides_no_signal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answers: bool
) -> None:
    class Gone:
        def stop(self) -> None:
            raise Py4JNetworkError("Error while sending or receiving")

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr("everwhen.spark.internals.jvm_reach._answers", lambda: answers)  # it may be on its way out
    monkeypatch.setattr("everwhen.spark.api.session.session", lambda *_, **__: Gone())
    with pytest.raises(SystemExit), session_for(tmp_path, lambda: None):
        raise SystemExit(143)


def test_a_wrong_row_that_the_reader_of_a_source_names_is_an_input_error() -> None:
    handle = Handle.__new__(Handle)
    handle._runner = SimpleNamespace(error=None)  # type: ignore[assignment]
    told = "Traceback (most recent call last):\n  File x\neverwhen.errors.InputError: 3.csv:2: 'one' is no number\n"
    found = handle._explained(ValueError(told))
    assert isinstance(found, InputError) and str(found) == "3.csv:2: 'one' is no number"


def test_signals_are_left_alone_in_other_threads() -> None:
    said: list[str] = []

    def work() -> None:
        with kept_signals() as check:
            check()
            said.append("done")

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert said == ["done"]


def test_work_apart_returns_raises_and_is_given_up() -> None:
    assert apart(lambda: 5, lambda: None) == 5
    with pytest.raises(ZeroDivisionError):
        apart(lambda: 1 // 0, lambda: None)

    def give_up() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        apart(lambda: time.sleep(1), give_up)


def test_processes_end_if_what_started_them_fails(tmp_path: Path) -> None:
    log = tmp_path / "log"
    sleep = [sys.executable, "-c", "import sys, time; print('oh', file=sys.stderr, flush=True); time.sleep(60)"]
    with pytest.raises(KeyboardInterrupt), heard_by(log), ended_on_failure():
        process = subprocess.Popen(sleep)
        while not log.read_text():
            time.sleep(0.01)
        assert process.pid in children()
        raise KeyboardInterrupt
    assert process.wait(30) == -signal.SIGTERM and log.read_text() == "oh\n"
