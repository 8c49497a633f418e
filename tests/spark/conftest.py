"""A small Spark session for the tests of this directory, one in each worker of pytest-xdist.

Starting Spark costs seconds and half a gigabyte, so the tests of a worker share a session.  Those of a file stay in one
worker, and so share what its fixtures have started (`tests/conftest.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from everwhen.spark.api.session import session

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


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session of two threads and two shuffle partitions."""
    running = session("local[2]", "everwhen-tests", spark_sql_shuffle_partitions=2, **{"spark.driver.memory": "1g"})
    yield running
    running.stop()
