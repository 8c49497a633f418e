"""The floors of a dataflow's ports."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from everwhen.core.time import NEVER
from everwhen.engine.forward.port_floor import EventPortFloor, PortFloor
from everwhen.operators.contract import Output, StateSize
from everwhen.plan.physical import Port
from everwhen.rows.changes import Changes
from everwhen.rows.codec import RowCodec

CodecOf = Callable[[str], RowCodec]
"""The codec of a source by its name."""


class Floors:
    """By port, what is cut; most dataflows have none."""

    def __init__(self) -> None:
        self.ports: dict[Port, PortFloor] = {}

    def raise_to(self, port: Port, time: int, codec_of: CodecOf) -> None:
        """Let nothing before `time` come from a port of a source any more."""
        if time > NEVER:
            self._of(port, codec_of).raise_to(time)

    def _of(self, port: Port, codec_of: CodecOf) -> PortFloor:
        if port not in self.ports:
            made = EventPortFloor if port.form == "events" else PortFloor
            self.ports[port] = made(codec_of(port.source or ""))
        return self.ports[port]

    def applied(self, outputs: Mapping[Port, Output]) -> Mapping[Port, Output]:
        """What sources bring, without what is cut."""
        return {port: self.ports[port].apply(each) if port in self.ports else each for port, each in outputs.items()}

    def time(self, port: Port) -> int:
        """What is promised at a port because it is cut there."""
        return self.ports[port].time if port in self.ports else NEVER

    def forced(self) -> set[Port]:
        """The ports that have promised more than their sources."""
        return {port for port, floor in self.ports.items() if floor.forces}

    def known(self, port: Port, events: Changes | None) -> Changes | None:
        """Events of a source under the starts by which a port has brought them."""
        return events if events is None or port not in self.ports else self.ports[port].known(events)

    def keep(self, sources: Collection[str]) -> None:
        """Forget all other sources."""
        self.ports = {port: floor for port, floor in self.ports.items() if port.source in sources}

    def copy(self, was: Port, port: Port, codec_of: CodecOf) -> None:
        """Let a port go on as another one does."""
        if was in self.ports:
            self._of(port, codec_of).restore(self.ports[was].snapshot())

    def state_size(self) -> StateSize:
        return sum((floor.state_size() for floor in self.ports.values()), StateSize())

    def snapshot(self) -> list[dict[str, Any]]:
        """Plain data, by source and form."""
        return [{"source": p.source, "form": p.form, "floor": floor.snapshot()} for p, floor in self.ports.items()]

    def restore(self, parts: Iterable[Mapping[str, Any]], codec_of: CodecOf) -> None:
        for part in parts:
            self._of(Port(part["source"], part["form"]), codec_of).restore(part["floor"])
