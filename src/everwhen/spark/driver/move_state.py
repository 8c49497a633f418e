"""State that moves to another number of partitions, while a query does not run.

    state before epoch n + 1 ─▶ split by key (`split_state.py`) ─▶ snapshots after epoch n in a folder of their own

Where a row goes is computed by Spark, as the exchange computes it.  The state passes through the driver.  The new
folder counts once the record of plans names it, which is written after it, in one piece; so whatever dies on the way,
the old state is that of the checkpoint until the new one is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from everwhen.core.schema import Schema
from everwhen.plan.stages.model import Stage
from everwhen.spark.driver.epoch_log import EpochLog
from everwhen.spark.driver.plan_log import state_name
from everwhen.spark.driver.plan_run import PlanRun
from everwhen.spark.exchange.punctuation_rows import partition_of
from everwhen.spark.exchange.schema import carried, slots
from everwhen.spark.state.state_store import PartitionStore
from everwhen.spark.worker.split_state import Where, moved_state
from everwhen.spark.worker.stage_program import StageProgram
from everwhen.spark.worker.state_host import state_before


def move_state(
    session: SparkSession,
    journal: EpochLog,
    old: PlanRun,
    new: PlanRun,
    program: Callable[[PlanRun, Stage], StageProgram],
    epoch: int,
) -> None:
    """Write the state after an epoch for a plan in another number of partitions; `program`: what a stage does."""
    place = journal.folder.place(state_name(new.number))
    moved = []
    for stage in old.plan.stages:
        mine = program(old, stage)
        stores = [PartitionStore(mine.state.root, stage.level, at) for at in range(old.partitions)]
        kept = [state_before(mine, epoch + 1, store) for store in stores]
        moved.append(
            moved_state(stage, kept, program(new, stage).fresh, new.partitions, placed_by(session, new.partitions))
        )
    for stage, partitions in zip(old.plan.stages, moved, strict=True):
        for at, partition in enumerate(partitions):
            PartitionStore(place, stage.level, at, durable=True).publish_snapshot(epoch, partition.snapshot())


def placed_by(session: SparkSession, partitions: int) -> Where:
    """The partitions of rows, as the exchange finds them."""

    def places(schema: Schema, columns: Sequence[pa.Array]) -> np.ndarray:
        if not len(columns[0]):
            return np.empty(0, np.int64)
        named = [slot for slot, _ in slots(schema)]
        rows = pa.table([pa.array(np.arange(len(columns[0]))), *columns], ["at", *named])
        carrying = [F.col(slot).cast(carried(type_)).alias(slot) for slot, type_ in slots(schema)]
        frame = session.createDataFrame(rows).select("at", *carrying)
        found = frame.select("at", partition_of(schema, schema.names, partitions).alias("partition")).toArrow()
        order, where = (found.column(name).to_numpy() for name in ("at", "partition"))
        placed = np.empty(len(order), np.int64)
        placed[order] = where
        return placed

    return places
