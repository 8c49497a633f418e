"""Ports with the same columns: what all of them have promised, each by a pattern or by its time.

The first two meet, what they agree on meets the third, and so on.  Kept is the punctuation of each port, until all
times have passed it.  Used also where the partitions of a stage, each with its share of the rows, promise something
about the whole of an answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from everwhen.core.punctuation import Frontier
from everwhen.core.schema import Schema
from everwhen.core.time import NEVER
from everwhen.punctuation.read import read_promises
from everwhen.punctuation.store import PunctuationStore
from everwhen.punctuation.table import PunctuationTable, joined

MOST_RESTATED: Final = 10_000
"""When the other port's time moves on, so many standing punctuations are said again with it, not more."""


class Intersection:
    """Two ports.  Columns meet by position, as in SQL's sets: the second may have other names for them (`second`)."""

    def __init__(self, schema: Schema, second: Schema | None = None) -> None:
        self._second = schema if second is None else second
        self._names = {} if second is None else dict(zip(second.names, schema.names, strict=True))
        self._said = (PunctuationStore(schema), PunctuationStore(schema))
        self._nothing = PunctuationTable(schema)
        self._times = [NEVER, NEVER]

    def intersect(self, frontiers: Sequence[Frontier]) -> PunctuationTable:
        """What holds on both ports now and did not before."""
        one, two = frontiers
        if not (one.promises or two.promises or self._said[0] or self._said[1]):
            return self._nothing
        schema = self._said[0].schema
        first, second = read_promises(one.promises, schema), read_promises(two.promises, self._second)
        if self._names:
            second = second.renamed(self._names, schema)
        m = min(one.time, two.time)
        found = [self._said[0].meet(second)]
        self._said[1].add(second)
        found.append(self._said[1].meet(first))
        for port, fresh in enumerate((first, second)):
            other = frontiers[1 - port].time
            if other > m:
                again = other > self._times[1 - port] and len(self._said[port]) <= MOST_RESTATED
                said = [fresh, self._said[port].said()] if again else [fresh]
                found += [each.until(other) for each in said if each]
        self._said[0].add(first)
        for said_by in self._said:
            said_by.forget(m)
        self._times = [one.time, two.time]
        return joined(found).after(m).narrowed(first, second).united()

    def __len__(self) -> int:
        return sum(map(len, self._said))

    @property
    def nbytes(self) -> int:
        return sum(said.nbytes for said in self._said)

    def snapshot(self) -> dict[str, Any]:
        return {"said": [said.snapshot() for said in self._said], "times": list(self._times)}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._times = list(state["times"])
        for said, part in zip(self._said, state["said"], strict=True):
            said.restore(part)


class PortIntersection:
    """So many ports: the partitions of a stage, each with its share of the rows, speak of the whole of an answer.

    >>> import pyarrow as pa
    >>> from everwhen.core.punctuation import Punctuation
    >>> from everwhen.punctuation.pattern_json import show_promise
    >>> ports = PortIntersection(Schema.of([("x", pa.int64())]), 3)
    >>> silent, said = Frontier(0), Frontier(0, (Punctuation.constants({"x": 7}),))
    >>> list(ports.intersect([said, silent, said]))
    []
    >>> [show_promise(promise) for promise in ports.intersect([silent, said, silent])]
    ['punct x = 7']
    """

    def __init__(self, schema: Schema, ports: int) -> None:
        self._schema = schema
        self._pairs = [Intersection(schema) for _ in range(ports - 1)]

    def intersect(self, frontiers: Sequence[Frontier]) -> PunctuationTable:
        """What holds on all ports now and did not before; a frontier for each port."""
        together = frontiers[0]
        for pair, frontier in zip(self._pairs, frontiers[1:], strict=True):
            together = Frontier(min(together.time, frontier.time), pair.intersect([together, frontier]))
        return read_promises(together.promises, self._schema)

    def __len__(self) -> int:
        return sum(map(len, self._pairs))

    @property
    def nbytes(self) -> int:
        return sum(pair.nbytes for pair in self._pairs)

    def snapshot(self) -> list[Any]:
        return [pair.snapshot() for pair in self._pairs]

    def restore(self, state: Sequence[Mapping[str, Any]]) -> None:
        for pair, part in zip(self._pairs, state, strict=True):
            pair.restore(part)
