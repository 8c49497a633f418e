"""One cluster for all tests of a worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from connectors.kafka_cluster import Cluster, mock_cluster


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    with mock_cluster() as found:
        yield found
