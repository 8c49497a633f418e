"""The rows of all inputs in one frame, before any plan has made something of them.

Spark knows the inputs of a streaming query by their places in the frame that it is started with, and finds its offsets
by them.  So once a query has been replaced, it reads this frame: the inputs stand where they stood when it was first
started, whatever the plan that runs now makes of them.  From it come the feeds of each plan that runs, and what a plan
is told of the past has the same form.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from everwhen.core.schema import Schema
from everwhen.plan.stages.model import StagePlan
from everwhen.plan.stages.past import needed_of
from everwhen.spark.exchange.schema import NUMBERS, ExchangeSchema, carried, slots
from everwhen.spark.exchange.source_scan import unioned
from everwhen.spark.sources.source import ResolvedSource

_TIMES: Final = ("vs", "ve", "vnew", "op")
"""What the numbers of the exchange are of an element."""


def laid_out(
    elements: DataFrame, layout: ExchangeSchema, schema: Schema, kind: int, own: Iterable[Column], **more: Column
) -> DataFrame:
    """Normalised elements as rows of the exchange: `own` are the columns of the schema; what is missing is null."""
    given = dict(zip([slot for slot, _ in slots(schema)], own, strict=True))
    given |= {number: F.col(time) for number, time in zip(NUMBERS, _TIMES, strict=True)}
    given |= {"partition": F.lit(0), "kind": F.lit(kind), **more}
    selected = [
        (given[column] if column in given else F.lit(None)).cast(carried(type_)).alias(column)
        for column, type_ in layout.columns
    ]
    return elements.select(*selected)


def elements_of(rows: DataFrame, kind: int, schema: Schema, resolved: ResolvedSource, *more: Column) -> DataFrame:
    """The normalised frame of a source, as `normalise` gives it, of rows of the exchange."""
    named = zip(schema.names, slots(schema), strict=True)
    payload = [F.col(slot).alias(f"p{resolved.schema.index(column)}") for column, (slot, _) in named]
    op = F.col("weight").cast("tinyint").alias("op")
    return rows.where(F.col("kind") == kind).select(op, *lifetime(), *payload, *more)


def lifetime() -> list[Column]:
    """The times of elements by their names."""
    return [F.col(number).alias(time) for number, time in zip(NUMBERS[:3], _TIMES[:3], strict=True)]


@dataclass(frozen=True)
class RawRows:
    """`inputs`: the inputs in the order of their first start, one as often as Spark has it; `schemas`: of each source
    the columns that some plan reads, as its frame has them."""

    inputs: tuple[str, ...]
    resolved: Mapping[str, ResolvedSource]
    schemas: Mapping[str, Schema]

    @staticmethod
    def of(inputs: Sequence[str], resolved: Mapping[str, ResolvedSource], plans: Sequence[StagePlan]) -> RawRows:
        schemas = {}
        for name in dict.fromkeys(inputs):
            read = {column for plan in plans for column in needed_of(plan, name)[0]}
            fields = [(field.name, field.type) for field in resolved[name].schema.fields if field.name in read]
            schemas[name] = Schema.of(fields)
        return RawRows(tuple(inputs), resolved, schemas)

    @property
    def layout(self) -> ExchangeSchema:
        return ExchangeSchema.of(self.schemas.values())

    @property
    def kinds(self) -> dict[str, int]:
        return {name: kind for kind, name in enumerate(self.schemas)}

    def frame(self, elements: Mapping[str, DataFrame]) -> DataFrame:
        """All inputs in one frame, from their normalised frames."""
        seen: set[str] = set()
        branches = []
        for name in self.inputs:
            branch = self._branch(name, elements[name])
            branches.append(branch if name not in seen else branch.where(F.lit(False)))
            seen.add(name)
        return reduce(DataFrame.unionByName, branches)

    def _branch(self, name: str, elements: DataFrame) -> DataFrame:
        schema, resolved = self.schemas[name], self.resolved[name]
        own = [F.col(f"p{resolved.schema.index(column)}") for column in schema.names]
        return laid_out(elements, self.layout, schema, self.kinds[name], own)

    def feeds(self, frame: DataFrame, plan: StagePlan, sources: Mapping[str, ResolvedSource]) -> DataFrame:
        """The frame of all feeds of a plan; `sources`: how it takes them."""
        read = [source.name for source in plan.sources]
        elements = {n: elements_of(frame, self.kinds[n], self.schemas[n], self.resolved[n]) for n in read}
        return unioned(plan, elements, sources)
