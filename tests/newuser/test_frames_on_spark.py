"""P6 on Spark: a declared column that the frame does not have is named; others are left alone, whatever they hold."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

import everwhen as ew
from everwhen.spark.sources.source import resolve

pytestmark = pytest.mark.spark

COLUMNS = [StructField("ts", TimestampType()), StructField("symbol", StringType())]
ODD = StructField("odd", MapType(StringType(), MapType(StringType(), IntegerType())))
VALUE = StructField("value", LongType())


def test_a_column_that_cannot_be_carried_is_left_alone_unless_it_is_declared() -> None:
    found = resolve(StructType([*COLUMNS, ODD, VALUE]), "T", None, ("symbol", "value"))
    assert found.schema.names == ("symbol", "value") and found.payload == (1, 3)
    with pytest.raises(ew.QueryError, match=r"the column 'odd' is map<.*which a payload cannot carry"):
        resolve(StructType([*COLUMNS, ODD]), "T", None, ("symbol", "odd"))


def test_the_frames_own_description_still_wants_all_columns() -> None:
    with pytest.raises(ew.QueryError, match="the column 'odd'"):
        resolve(StructType([*COLUMNS, ODD]), "T")
