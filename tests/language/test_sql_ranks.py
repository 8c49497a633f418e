"""LIMIT, DISTINCT ON and OVER in SQL: DuckDB says at every instant what is right, with ties broken as ours are."""

from __future__ import annotations

import random

import pytest

import everwhen as ew
from everwhen.errors import SqlError
from language.duckdb_snapshots import assert_as_duckdb
from language.query_mutations import marked
