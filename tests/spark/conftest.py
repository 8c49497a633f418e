"""A small Spark session for the tests of this directory, in each of two workers of pytest-xdist.

Starting Spark costs seconds and half a gigabyte, so the tests share a session and, with `--dist loadgroup`, a process:
half of them in one, half in another.  Tests that need no session may run anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from everwhen.spark.api.session import session

HERE = Path(__file__).parent
COMPILING = ("test_operators_oracle.py", "test_punctuated_plans.py", "test_group_join.py", "test_unordered_guard.py")
SECOND_HALF = ("test_bad_input.py", "test_batch_parity.py", "test_expressions.py", "test_spark_files.py")

# Warnings are errors here.  These come out of PySpark itself, whatever the caller does.
PYSPARK_WARNINGS = (
    # PySpark speaks to Java and to its workers over sockets that it leaves to the garbage collector.
    "ignore:unclosed <socket.socket:ResourceWarning",
    "ignore:subprocess [0-9]+ is still running:ResourceWarning",
    "ignore::DeprecationWarning:pyspark.*",
    "ignore::DeprecationWarning:py4j.*",
    # A version of pandas that PySpark was not released with; we hand it Arrow only.
    "ignore:.*[pP]andas.*:UserWarning:pyspark.*",
    "ignore:.*[pP]andas.*:FutureWarning:pyspark.*",
)


def pytest_configure(config: pytest.Config) -> None:
    for line in PYSPARK_WARNINGS:
        config.addinivalue_line("filterwarnings", line)
    # pytest-xdist registers this mark itself; without it the mark is there all the same and says nothing.
    config.addinivalue_line("markers", "xdist_group(name): tests that run in the same worker of pytest-xdist")


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the marks in the same hook
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        shares = "spark" in getattr(item, "fixturenames", ()) or item.path.name == "test_exactly_once.py"
        if HERE in item.path.parents and shares:
            half = "spark, too" if item.path.name in SECOND_HALF else "spark"
            item.add_marker(pytest.mark.xdist_group(half))
    # The longest early, so that no worker is left alone with them in the end; but behind tests that compile the
    # kernels, which Spark's workers would otherwise all do at once.
    items.sort(key=lambda item: item.path.name not in COMPILING and (1 if HERE in item.path.parents else 2))


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session of two threads and two shuffle partitions."""
    running = session("local[2]", "everwhen-tests", spark_sql_shuffle_partitions=2, **{"spark.driver.memory": "1g"})
    yield running
    running.stop()
