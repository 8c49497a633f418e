"""Columns and functions that the JVM has been given once, for frames that are made anew every epoch.

A column is built by a call to the JVM per function in it, and given to a frame by some more.  An epoch does the same as
the one before to another frame, so the lists are kept on the other side, and each step is a single call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.classic.column import _to_java_column, _to_seq
from pyspark.sql.classic.dataframe import DataFrame as ClassicFrame
from pyspark.sql.pandas.functions import pandas_udf
from pyspark.sql.types import StructType
from pyspark.util import PythonEvalType


class JvmColumns:
    """A list of columns."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._first = _to_java_column(columns[0])
        self._all = _seq(columns)
        self._rest = _seq(columns[1:])

    def of(self, frame: DataFrame) -> DataFrame:
        """The columns, computed from a frame."""
        return ClassicFrame(frame._jdf.select(self._all), frame.sparkSession)

    def over(self, frame: DataFrame, groups: JvmColumns | None = None) -> DataFrame:
        """The columns, which are aggregates, of the groups of a frame (after the columns of the groups), or of all."""
        grouped = frame._jdf.groupBy(_seq(()) if groups is None else groups._all)
        return ClassicFrame(grouped.agg(self._first, self._rest), frame.sparkSession)

    def counted(self, frame: DataFrame) -> DataFrame:
        """The frame as it is; the columns, which are aggregates of all its rows, are computed as they pass by."""
        return ClassicFrame(frame._jdf.observe("counted", self._first, self._rest), frame.sparkSession)


def _seq(columns: Sequence[Column]) -> Any:
    context = SparkContext._active_spark_context
    assert context is not None
    return _to_seq(context, columns, _to_java_column)


class JvmMap:
    """A function over the Arrow batches of frames with certain columns, pickled once."""

    def __init__(
        self,
        function: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
        columns: Sequence[str],
        returns: StructType,
    ) -> None:
        kind = PythonEvalType.SQL_MAP_ARROW_ITER_UDF
        mapped: Any = pandas_udf(function, returnType=returns, functionType=kind)  # type: ignore[call-overload]
        self._column = _to_java_column(mapped(*(F.col(name) for name in columns)))

    def of(self, frame: DataFrame) -> DataFrame:
        """What the function makes of a frame."""
        return ClassicFrame(frame._jdf.mapInArrow(self._column, False, None), frame.sparkSession)
