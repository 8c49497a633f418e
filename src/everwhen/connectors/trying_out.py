"""console() and discard(): sinks for trying a job out.  They remember nothing beyond the process."""

from __future__ import annotations

import sys
from typing import Final

from everwhen.connectors.json_rows import change_lines
from everwhen.connectors.options import Option
from everwhen.connectors.registry import SinkConnector
from everwhen.sinks.base import PlacelessSink
from everwhen.sinks.console import ConsoleSink
from everwhen.sinks.discard import DiscardSink
from everwhen.sinks.rows import FORMS, RowChanges, RowSink


class DiscardRows(PlacelessSink, RowSink):
    """Takes every epoch and keeps nothing."""

    lasting = False

    def commit(self, epoch: int, changes: RowChanges) -> None:
        self._last = max(self._last, epoch)


class ConsoleRows(DiscardRows):
    """Prints the changes of an epoch as JSON lines, at most so many."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def commit(self, epoch: int, changes: RowChanges) -> None:
        if epoch > self._last and len(changes):
            lines = change_lines(changes)
            more = f"… and {len(lines) - self._rows} more of epoch {epoch}\n" * (len(lines) > self._rows)
            sys.stdout.write("\n".join(lines[: self._rows]) + "\n" + more)
            sys.stdout.flush()
        super().commit(epoch, changes)


SOURCES: Final = ()
SINKS: Final = (
    SinkConnector(
        "console",
        "the terminal",
        (Option("rows", "whole", "at most so many of an epoch are shown", default=20, least=1),),
        FORMS,
        lambda options, _: ConsoleSink(options.whole("rows")),
        lambda options, _: ConsoleRows(options.whole("rows")),
        "Shown at least once: after a restart the last epoch may come again.",
    ),
    SinkConnector(
        "discard",
        "nowhere: for measuring",
        (),
        FORMS,
        lambda options, _: DiscardSink(),
        lambda options, _: DiscardRows(),
        "Nothing is kept.",
    ),
)
