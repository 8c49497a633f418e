"""Streams of elements for Spark: one Parquet file per epoch and input, in the contract's columns."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from everwhen.core.schema import Schema
from everwhen.formats.parquet import write_elements
from everwhen.spark.translate.expressions import spark_type
from everwhen.stream.element_batch import ElementBatch


def write_epochs(folder: Path, epochs: Sequence[ElementBatch], first: int = 0) -> None:
    """File n is epoch n: Spark's file source takes the oldest first."""
    folder.mkdir(parents=True, exist_ok=True)
    for at, batch in enumerate(epochs, first):
        hidden, target = folder / f"_{at:06d}.parquet", folder / f"{at:06d}.parquet"
        write_elements([batch], hidden, batch.schema)
        os.utime(hidden, (1_700_000_000 + at, 1_700_000_000 + at))
        hidden.rename(target)


def read_epochs(spark: SparkSession, folder: Path, schema: Schema) -> DataFrame:
    """The files as a stream, one per epoch."""
    fields = [StructField("op", StringType()), *(StructField(name, LongType()) for name in ("vs", "ve", "vnew"))]
    fields += [StructField(field.name, spark_type(field.type)) for field in schema.fields]
    return spark.readStream.schema(StructType(fields)).option("maxFilesPerTrigger", 1).parquet(str(folder))
