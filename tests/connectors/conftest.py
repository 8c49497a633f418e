"""For all tests of a worker: Kafka inside its client library, a real broker where its jars are, PostgreSQL; jars."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from connectors.kafka_broker import Broker, real_broker
from connectors.kafka_broker import jars as broker_jars
from connectors.kafka_cluster import Cluster, mock_cluster
from connectors.postgres_server import logical_server


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    with mock_cluster() as found:
        yield found


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    if broker_jars() is None:
        pytest.skip("left out: there is no Kafka broker here (make test-connectors fetches its jars with mvn)")
    with real_broker(tmp_path_factory.mktemp("broker")) as found:
        yield found


@pytest.fixture(scope="session")
def jars() -> str:
    """Those of Spark's own sources, as `spark.jars` takes them."""
    from connectors.spark_jars.jars import found_jars

    found = found_jars()
    if found is None:
        pytest.skip("left out: no jars of Spark's Kafka source and of Delta for this PySpark (make test-connectors)")
    print(*(jar.name for jar in found))
    return ",".join(map(str, found))


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """Not in pytest's own folder: each start of pytest makes that unreadable for the server's user."""
    folder = tempfile.TemporaryDirectory(prefix="everwhen-postgres-", ignore_cleanup_errors=True)
    with folder as place, logical_server(Path(place) / "data") as uri:
        yield uri
