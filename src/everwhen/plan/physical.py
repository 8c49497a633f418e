"""A physical plan: operators with their inputs, in an order in which they can be run, and sinks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from everwhen.algebra import nodes as n
from everwhen.operators.contract import Operator
from everwhen.operators.output.changelog import ChangelogEncoder, EventChangelogEncoder
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
    """An operator in the graph; inputs stand before it."""

    name: str
    operator: Operator
    inputs: tuple[Port, ...]


@dataclass(frozen=True, slots=True)
class Sink:
    """A named output."""

    name: str
    port: Port
    encoder: ChangelogEncoder | GroupChangelogEncoder | EventChangelogEncoder


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
        state and are not known whole from the start."""
        below: list[frozenset[str]] = []
        found: frozenset[str] = frozenset()
        for placed in self.operators:
            ports = [frozenset({p.source}) if p.source is not None else below[p.operator] for p in placed.inputs]
            below.append(frozenset().union(*ports))
            if not placed.operator.stateless:
                found |= below[-1]
        return frozenset(name for name in found if not self.sources[name].is_finite)
