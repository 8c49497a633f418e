"""A physical plan: operators with their inputs, in an order in which they can be run, and sinks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from everwhen.algebra import nodes as n
from everwhen.core.schema import Schema
from everwhen.operators.contract import Operator
from everwhen.operators.merge.event_pool import MOST_COPIES
from everwhen.operators.merge.lmerge import LMergeOperator
from everwhen.operators.merge.shared_log import CopyLog, SharedLog
from everwhen.operators.output.changelog import ChangelogEncoder, EventChangelogEncoder
from everwhen.operators.output.emit_filter import EmitFilter
from everwhen.operators.output.group_changelog import GroupChangelogEncoder
from everwhen.rows.codec import RowCodec
from everwhen.rows.interner import Interner

Form = Literal["segments", "events"]


@dataclass(frozen=True, slots=True)
class Port:
    """Where an operator's input comes from: a source in a form, or another operator (by position)."""

    source: str | None = None
    form: Form = "segments"
    operator: int = -1


@dataclass(frozen=True, slots=True)
class PlacedOperator:
    """An operator in the graph; inputs stand before it.  `what` tells what it computes (`names.py`), `node` for which
    part of the plan it was placed."""

    name: str
    operator: Operator
    inputs: tuple[Port, ...]
    what: str
    node: n.Node


def ports_below(port: Port, placed: Callable[[int], PlacedOperator]) -> Iterator[Port]:
    """A port and all that it needs, each once; users before inputs."""
    seen = {port: None}
    waiting = [port]
    while waiting:
        at = waiting.pop()
        yield at
        for each in placed(at.operator).inputs if at.source is None else ():
            if each not in seen:
                seen[each] = None
                waiting.append(each)


@dataclass(frozen=True, slots=True)
class Sink:
    """A named output.  `filter`: None where the operators emit just what the policy does."""

    name: str
    port: Port
    encoder: ChangelogEncoder | GroupChangelogEncoder | EventChangelogEncoder
    filter: EmitFilter | None = None


@dataclass(frozen=True, slots=True)
class Handed:
    """What is handed to another stage as it is, without a chain."""

    name: str
    port: Port
    codec: RowCodec


@dataclass(frozen=True, slots=True)
class PhysicalPlan:
    """The graph: sources by name, operators in an order in which they can be run, sinks."""

    pool: Interner
    sources: Mapping[str, n.Source]
    codecs: Mapping[str, RowCodec]
    operators: tuple[PlacedOperator, ...]
    sinks: tuple[Sink, ...]
    handed: tuple[Handed, ...] = ()

    def waiting_sources(self) -> frozenset[str]:
        """The sources whose elements wait or are forgotten at a level that does so: those that feed an operator with
        state, or wait at an output, and are not known whole from the start."""
        below = self._sources_below()
        ports = [port for placed in self.operators if not placed.operator.stateless for port in placed.inputs]
        ports += [sink.port for sink in self.sinks if sink.filter is not None]
        return frozenset(name for port in ports for name in below(port) if not self.sources[name].is_finite)

    def merged_sources(self) -> frozenset[str]:
        """The sources of copies that are merged: their frontiers are never forced, because a merge follows them."""
        below = self._sources_below()
        ports = [port for placed in self.operators if placed.name == "lmerge" for port in placed.inputs]
        return frozenset(name for port in ports for name in below(port))

    def unmerged_sources(self) -> frozenset[str]:
        """The sources that are read by something else than merges."""
        merges = {at for at, placed in enumerate(self.operators) if placed.name == "lmerge"}
        found: set[str] = set()
        waiting = [each.port for each in self.sinks] + [each.port for each in self.handed]
        seen: set[Port] = set()
        while waiting:
            port = waiting.pop()
            if port in seen:
                continue
            seen.add(port)
            if port.source is not None:
                found.add(port.source)
            elif port.operator not in merges:
                waiting += self.operators[port.operator].inputs
        return frozenset(found)

    def sources_below(self, port: Port) -> frozenset[str]:
        """The sources that a port needs."""
        return self._sources_below()(port)

    def shared_logs(self) -> dict[str, CopyLog]:
        """Where the guards of sources keep their events that are copies of one stream: together; with those of the
        merge, if nothing else reads them."""
        below = self._sources_below()
        found: dict[str, CopyLog] = {}
        for placed in self.operators:
            if placed.name != "lmerge":
                continue
            found |= self._merged_logs(placed)
            alike: dict[Schema, list[str]] = {}
            for name in sorted(frozenset().union(*map(below, placed.inputs)) - found.keys()):
                source = self.sources.get(name)
                if source is not None and not (source.insert_only or source.is_finite):
                    alike.setdefault(source.columns, []).append(name)
            for names in alike.values():
                if 1 < len(names) <= MOST_COPIES:
                    shared = SharedLog(self.codecs[names[0]], len(names))
                    found |= {name: shared.copy() for name in names}
        return found

    def _merged_logs(self, merge: PlacedOperator) -> dict[str, CopyLog]:
        """The logs of sources that are inputs of a merge themselves, in its index."""
        if not isinstance(merge.operator, LMergeOperator):
            return {}
        read = [port.source for placed in self.operators for port in placed.inputs]
        read += [each.port.source for each in self.sinks] + [each.port.source for each in self.handed]
        found = {}
        for at, port in enumerate(merge.inputs):
            source = self.sources.get(port.source or "")
            if source is None or source.insert_only or source.is_finite or read.count(port.source) > 1:
                continue
            if source.columns == merge.operator.codec.schema and (log := merge.operator.log(at)) is not None:
                found[source.name] = log
        return found

    def _sources_below(self) -> Callable[[Port], frozenset[str]]:
        known: list[frozenset[str]] = []

        def below(port: Port) -> frozenset[str]:
            return known[port.operator] if port.source is None else frozenset({port.source})

        for placed in self.operators:
            known.append(frozenset().union(*map(below, placed.inputs)))
        return below
