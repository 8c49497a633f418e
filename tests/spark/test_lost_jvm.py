"""When Spark's JVM has died, a handle says so, with an error that has a type."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from spark.fault_driver import SOURCES, TESTS

PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path
from pyspark import SparkContext
from everwhen.sinks import MemorySink
from everwhen.errors import EverwhenError, SparkLostError
from everwhen.spark.api.session import session
from spark.test_bad_input import begin, write

place = Path(sys.argv[1])
write(place / "S", 0, [("insert", 1, 5, None, "a", 2)])
spark = session("local[2]", "lost", **{"spark.driver.memory": "700m"})
handle = begin(spark, place, MemorySink(), trigger=None)
handle.process_available()
found = {"before": handle.status}
jvm = SparkContext._gateway.proc
os.kill(jvm.pid, signal.SIGKILL)
jvm.wait()

def told(ask):
    try:
        return ["answer", str(ask())]
    except Exception as error:
        return [type(error).__name__, str(error)]

found["active"] = handle.is_active
found["status"] = handle.status
found["last_error"] = [type(handle.last_error).__name__, str(handle.last_error)]
found["await"] = told(lambda: handle.await_termination(5))
found["await for ever"] = told(handle.await_termination)
found["available"] = told(handle.process_available)
found["progress"] = told(lambda: handle.progress.epoch)
found["spark progress"] = told(lambda: handle.spark_progress)
found["stop"] = told(handle.stop)
found["lock"] = (place / "checkpoint/everwhen/lock").read_text()
print("found " + json.dumps(found), flush=True)
os._exit(0)  # PySpark would speak with the dead JVM once more
"""


@pytest.mark.slow
def test_a_handle_whose_jvm_has_died(tmp_path: Path) -> None:
    paths = os.pathsep.join([str(SOURCES), str(TESTS)])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("found ")]
    assert lines, done.stderr[-4000:]
    found = json.loads(lines[0].removeprefix("found "))
    words = (
        "Spark's JVM was ended by SIGKILL, and the query has stopped with it. Nothing is lost: start the program again "
        "with the same checkpoint, and the query goes on where it was"
    )
    lost = ["SparkLostError", words]
    assert found["before"] == "running: epoch 0 done"
    assert found["active"] is False
    assert found["status"] == f"failed: {words}"
    for what in ("last_error", "await", "await for ever", "available", "spark progress"):
        assert found[what] == lost, what
    assert found["progress"] == ["answer", "0"], "what the driver knows itself it can say"
    assert found["stop"] == ["answer", "None"]
    assert found["lock"] == "", "the checkpoint is free again"
