"""What a query declares of its sources (ORDERED BY, WITHIN, IDLE AFTER, LATE ROWS), as the description of a DataFrame.

What is said of a frame by hand goes before what the query declares.  The column of ORDERED BY is the time if the frame
has it, and no column `vs`.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark.sql.types import StructType

from everwhen.algebra.nodes import Source
from everwhen.spark.sources.source import Disorder, SparkSource, describe


def declared_source(source: Source, schema: StructType, given: SparkSource | None) -> SparkSource | None:
    """The description of a source's frame: the given one, completed by the declaration; None: the frame tells all."""
    policy = source.policy
    if given is None and policy.time is not None and "vs" not in schema.names:
        column = next((name for name in schema.names if name.lower() == policy.time.lower()), None)
        if column is not None:
            by_lower = {name.lower(): name for name in schema.names}
            there = [by_lower.get(name.lower(), name) for name in source.schema.names]
            given = SparkSource(column, columns=there)
    if not policy.says_something:
        return given
    found = describe(schema, source.name) if given is None else given
    if policy.within is not None and not isinstance(found.progress, Disorder):
        found = replace(found, progress=Disorder(policy.within))
    if policy.idle is not None and found.idle is None:
        found = replace(found, idle=policy.idle)
    return replace(found, late=policy.late) if found.late == "error" else found
