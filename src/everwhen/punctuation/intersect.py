"""Many ports with the same columns: what all of them have promised, as `TwoPortIntersection` says it for two.

The first two meet, what they agree on meets the third, and so on.  A port agrees by a pattern or by its time.  Used
where the partitions of a stage, each with its share of the rows, promise something about the whole of an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from everwhen.core.punctuation import Frontier, Punctuation
from everwhen.core.schema import Schema
from everwhen.punctuation.rules import TwoPortIntersection, compacted


class PortIntersection:
    """So many ports; kept are the promises of each, until all times have passed them.

    >>> import pyarrow as pa
    >>> from everwhen.punctuation.pattern_json import show_promise
    >>> gathering = PortIntersection(Schema.of([("x", pa.int64())]), 3)
    >>> silent, said = Frontier(0), Frontier(0, (Punctuation.constants({"x": 7}),))
    >>> gathering.take([said, silent, said])
    []
    >>> [show_promise(promise) for promise in gathering.take([silent, said, silent])]
    ['punct x = 7']
    """

    def __init__(self, schema: Schema, ports: int) -> None:
        self._schema = schema
        self._meetings = [TwoPortIntersection(schema) for _ in range(ports - 1)]

    def take(self, frontiers: Sequence[Frontier]) -> list[Punctuation]:
        """What holds on all ports now and did not before; a frontier for each port."""
        together = frontiers[0]
        for meeting, frontier in zip(self._meetings, frontiers[1:], strict=True):
            found = meeting.take([together, frontier])
            together = Frontier(min(together.time, frontier.time), compacted(found, self._schema))
        return list(together.promises)

    def __len__(self) -> int:
        return sum(map(len, self._meetings))

    @property
    def nbytes(self) -> int:
        return sum(meeting.nbytes for meeting in self._meetings)

    def snapshot(self) -> list[Any]:
        return [meeting.snapshot() for meeting in self._meetings]

    def restore(self, state: Sequence[Mapping[str, Any]]) -> None:
        for meeting, part in zip(self._meetings, state, strict=True):
            meeting.restore(part)
