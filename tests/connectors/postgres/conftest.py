"""An empty database with one table, for each test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest


@pytest.fixture
def client(server: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(server, autocommit=True) as connection:
        for (slot,) in connection.execute("SELECT slot_name FROM pg_replication_slots").fetchall():
            connection.execute("SELECT pg_drop_replication_slot(%s)", [slot])
        for (name,) in connection.execute("SELECT pubname FROM pg_publication").fetchall():
            connection.execute(f"DROP PUBLICATION {name}")
        connection.execute("DROP SCHEMA public CASCADE")
        connection.execute("CREATE SCHEMA public")
        connection.execute("CREATE TABLE prices (other int, item bigint PRIMARY KEY, name text)")
        yield connection
