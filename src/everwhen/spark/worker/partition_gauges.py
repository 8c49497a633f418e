"""What is measured in a partition: the gauges of its operators and of what comes to it, for as long as the epochs ask.

Which windows are asked for stands in every epoch's context.  What was measured goes to the driver with the note of the
epoch, as sums, and is part of the partition's snapshots.  The clock is that of the process, so after a partition has
moved to another worker a window of the clock goes on where the snapshot was.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from everwhen.core.time import NEVER
from everwhen.engine.dataflow import FixedDataflow
from everwhen.engine.observe.gauge import Gauge, Ticking, Window
from everwhen.engine.observe.sample import ITEMS
from everwhen.engine.observe.subjects import InputGauge, OperatorSubject, Subject, operator_labels, sample
from everwhen.operators.contract import Output, StateSize
from everwhen.plan.physical import Port
from everwhen.plan.stages.model import Stage, StreamIn

Plain = dict[str, Any]


class StreamSubject:
    """What comes to a partition, of a source or from the stage before."""

    kind = "input"
    reads: tuple[str, ...] = ()
    keeps = "events that may still be corrected"

    def __init__(self, name: str) -> None:
        self.name = self.key = name
        self.gauge: Gauge | None = None
        self.tau = self.promise = NEVER

    def open(self, window: Window, clock: Ticking) -> None:
        """Measure in a window from now on."""
        self.gauge = self.gauge or InputGauge(clock, lambda: (0, 0))
        self.gauge.open(window, self.tau)

    def close(self, windows: Any) -> None:
        """Nothing is measured in a partition that ends before the epochs ask no more."""

    def state_size(self) -> StateSize:
        return StateSize()

    def key_count(self) -> int | None:
        return None

    def counted(self) -> None:
        return None


def stream_label(stream: StreamIn) -> str:
    """What a stream that comes to a stage is called: by its source, or by its number."""
    return f"exchange {stream.tag}" if stream.feed is None else stream.feed.source.name


class PartitionGauges:
    """The gauges of one partition."""

    def __init__(self, stage: Stage, dataflow: FixedDataflow) -> None:
        self._stage, self._dataflow = stage, dataflow
        self._windows: tuple[Window, ...] = ()
        self._clock = Ticking(time.perf_counter)
        self._streams: dict[str, StreamSubject] = {}
        for stream in stage.inputs:
            if stream_label(stream) not in {each.name for each in self._streams.values()}:
                self._streams[stream.name] = StreamSubject(stream_label(stream))
        nodes = dataflow.flow.nodes
        self.operators = [
            OperatorSubject(node, f"{stage.level}: {label}", self._read(node.placed.inputs))
            for node, label in zip(nodes.values(), operator_labels(nodes).values(), strict=True)
        ]

    def _read(self, ports: Sequence[Port]) -> tuple[str, ...]:
        labels = operator_labels(self._dataflow.flow.nodes)
        named = {stream.name: stream_label(stream) for stream in self._stage.inputs}
        return tuple(
            named[port.source] if port.source is not None else f"{self._stage.level}: {labels[port.operator]}"
            for port in ports
        )

    def observe(self, windows: tuple[Window, ...]) -> None:
        """Measure in these windows from this epoch on, and in no others."""
        if windows:
            self._clock.tick()
        if windows == self._windows:
            return
        self._windows = windows
        for each in self.operators:
            for window in windows:
                each.open(window, self._clock)
            each.close(windows)
        for stream in self._streams.values():
            stream.gauge = None if not windows else stream.gauge
            for window in windows:
                stream.open(window, self._clock)

    def came(self, inputs: Mapping[Port, Output], starts: Mapping[str, int]) -> None:
        """What an epoch brings, before it is stepped; to be told only while something is measured."""
        seen: set[str] = set()
        for port, output in inputs.items():
            subject = self._streams.get(port.source or "")
            if subject is not None and subject.gauge is not None and subject.name not in seen:
                seen.add(subject.name)
                subject.tau, subject.promise = starts.get(port.source or "", NEVER), output.frontier.time
                subject.gauge.take(output.changes, subject.tau)

    def samples(self) -> list[dict[str, Plain]]:
        """What was measured in each window, by name, as JSON has it."""
        wanted = tuple(ITEMS.values())
        named: list[Subject] = [*self._streams.values(), *self.operators]
        return [{each.name: sample(each, w, wanted).to_plain() for each in named} for w in self._windows]
