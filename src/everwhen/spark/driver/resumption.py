"""Whether the parts of a query that is started again fit together: Spark's checkpoint, our journal and the sinks.

Each knows the epochs that it has.  They may differ by the one epoch that was under way; by more only if somebody has
deleted a part, or has restored an older copy of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from everwhen.errors import SinkError, SinkLostError, StateError
from everwhen.sinks.base import EpochSink
from everwhen.spark.driver.epoch_log import EpochLog


def check_sink(name: str, sink: EpochSink, journal: EpochLog) -> None:
    """A sink and a checkpoint belong together: the sink has the epochs that are done, all but perhaps the last.

    Else it would take an epoch for one that it has, or lack the events that later ones adjust."""
    done, taken = journal.newest(), sink.committed()
    forgets = not sink.lasting and taken == -1  # what a process holds goes with it
    if taken not in (done - 1, done) and not forgets:
        has = f"epochs up to {taken}" if taken >= 0 else "no epochs"
        raise SinkError(
            f"the sink of {name!r} has {has}, and the checkpoint {journal.place} has "
            f"{f'epochs up to {done}' if done >= 0 else 'none'}: they do not belong together; use the sink that was "
            "written with this checkpoint, or a new checkpoint and a new sink"
        )


def check_first_epoch(epoch: int, journal: EpochLog, sinks: Mapping[str, EpochSink]) -> None:
    """The first epoch of a run is the last one that was done, or the one after; and the sinks have all before it."""
    newest = journal.newest()
    if epoch < newest:
        raise StateError(
            f"{journal.place}: Spark begins with epoch {epoch}, and epoch {newest} is done already: Spark's "
            "part of the checkpoint was deleted or is an older copy; restore it, or start with a new checkpoint "
            "and new sinks"
        )
    if epoch > newest + 1:
        raise StateError(
            f"{journal.place}: Spark begins with epoch {epoch}, and the last one that is done here is {newest}: this "
            "part of the checkpoint was deleted or is an older copy than Spark's; restore the whole checkpoint from "
            "one backup, or start with a new checkpoint and new sinks"
        )
    for name, sink in sinks.items():
        taken = sink.committed()
        if taken < epoch - 1 and (sink.lasting or taken >= 0):
            raise SinkLostError(
                f"the sink of {name!r} has {f'epochs up to {taken}' if taken >= 0 else 'no epochs'}, and Spark begins "
                f"with epoch {epoch}: the sink has lost what lies between; restore it from a backup, or start with a "
                "new checkpoint and a new sink"
            )
