"""The instants that a plan speaks for while a query is being replaced: the old plan before T, the new one from T on.

Two plans run side by side and each has its own output.  An output that speaks for a span cuts every change at the ends
of the span, so each instant of the answer belongs to one of the two.  The two changelogs together are one: an event of
the old plan starts before T and one of the new plan does not, so no adjust of one can name an event of the other.

The old plan stops at T in one step: what it has said of instants from T on is taken back, and what waits for them is
dropped.  Nothing of this was promised, because T is not before the promise given at the output.  From then on an
encoder that knows groups takes segments by rows, since it does not know half of a piece.

`cap` is what an output promises at most.  While both plans run it is T for both: the old one has nothing to say beyond,
and what the new one says there is not final before the old one has come so far.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from everwhen.core.emit import Emit
from everwhen.core.punctuation import Frontier
from everwhen.core.time import INF, NEVER
from everwhen.engine.change_emit import Standing, standing_at
from everwhen.engine.dataflow import FixedDataflow
from everwhen.engine.node import cut
from everwhen.engine.output_port import OutputPort, by_rows
from everwhen.operators.output.changelog import ChangelogEncoder, EventChangelogEncoder
from everwhen.operators.output.emit_filter import EmitFilter
from everwhen.operators.signed_bag import after, before
from everwhen.plan.physical import Port
from everwhen.rows.changes import Changes, concat, no_changes
from everwhen.stream.element_batch import ElementBatch


@dataclass(frozen=True, slots=True)
class AnswerSpan:
    """From `since` on, before `until`; promised is at most `cap`."""

    since: int = NEVER
    until: int = INF
    cap: int = INF

    def to_plain(self) -> list[int]:
        return [self.since, self.until, self.cap]


WHOLE = AnswerSpan()


@dataclass
class SpanOutput(OutputPort):
    """An output that speaks for a part of time."""

    span: AnswerSpan = field(default=WHOLE)

    def encode(self, changes: Changes, tau: int, frontier: Frontier) -> ElementBatch:
        """The elements of the span."""
        changes = cut(changes, self.span.since)
        if self.span.until < INF:
            changes = before(changes, self.span.until)
        return super().encode(changes, tau, Frontier(min(frontier.time, self.span.cap), frontier.promises))

    def change_emit(self, emit: Emit, standing: Standing, known: int = NEVER) -> None:
        """Events that began before the span were said from its start on."""

        def spanned(port: Port) -> Changes | None:
            found = standing(port)
            return None if found is None else before(cut(found, self.span.since), self.span.until)

        super().change_emit(emit, spanned if isinstance(self.encoder, EventChangelogEncoder) else standing, known)

    def stop_at(self, t: int, said: Changes) -> ElementBatch:
        """Say nothing from an instant on, and take back what was said of it."""
        encoder = self.encoder
        if self.filter is not None:
            self.filter.stop_at(t)
        if isinstance(encoder, EventChangelogEncoder):  # events are named, so each is said again up to the instant
            beyond = said.take(said.hi > t)
            taken = concat(beyond.negated(), before(beyond, t))
        else:
            taken = after(said, t).negated()
            if not isinstance(encoder, ChangelogEncoder):
                self.encoder = encoder = by_rows(encoder, said, ordered=True)
            encoder.takes_all(False)
            self.nets = True
        codec = encoder.codec
        return encoder.step(Changes(codec, taken.lo, taken.hi, taken.weight, taken.rows), encoder.cti)

    def begin_at(self, emit: Emit) -> None:
        """Begin at an instant.  What operators say when it is final waits here for the other plan, so that what is
        final comes in the order of time."""
        if emit is Emit.FINAL and self.filter is None:
            self.encoder = by_rows(self.encoder, no_changes(self.encoder.codec), ordered=True)
            self.filter, self.nets = EmitFilter(self.encoder.codec, emit), True


def speak_for(
    dataflow: FixedDataflow, span: AnswerSpan, emit: Emit, standing: Standing | None
) -> dict[str, ElementBatch]:
    """Let all outputs speak for a span from now on: what they take back.  `emit`: the policy at the start; `standing`
    tells what sources have brought that stands; None: nothing has been said yet."""
    taken = dataflow.nothing_new()
    outputs = dataflow.flow.outputs
    for name, was in list(outputs.items()):
        output = was if isinstance(was, SpanOutput) else _spanned(was)
        if output is not was and span.since > NEVER:
            output.begin_at(emit)
        if span.until < INF and output.span.until == INF:
            said = None if standing is None else said_by(output, dataflow, standing)
            said = no_changes(output.encoder.codec) if said is None else cut(said, output.span.since)
            taken[name] = output.stop_at(span.until, said)
        output.span = span
        outputs[name] = output
    return taken


def said_by(output: OutputPort, dataflow: FixedDataflow, standing: Standing) -> Changes | None:
    """The events that an output has said and that may still change; None if nobody knows."""
    encoder = output.encoder
    if isinstance(encoder, ChangelogEncoder):
        return encoder.standing()[1]
    found = standing_at(output.port, dataflow.flow.nodes, standing)
    if found is None or isinstance(encoder, EventChangelogEncoder):
        return found
    return encoder.said(found) if len(found) else found


def span_of(plain: Any) -> AnswerSpan:
    return WHOLE if plain is None else AnswerSpan(*plain)


def _spanned(output: OutputPort) -> SpanOutput:
    given: Mapping[str, Any] = {name: getattr(output, name) for name in OutputPort.__dataclass_fields__}
    return SpanOutput(**given)
