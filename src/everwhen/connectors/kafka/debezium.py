"""Debezium's JSON envelope: what a message says of a row, and the other way round.

    {"before": {"id": 1, …} | null, "after": {"id": 1, …} | null, "op": "c" | "u" | "d" | "r", "source": {"ts_ms": …}}

The time of a change is `source.ts_ms`, else `ts_ms`, in milliseconds.  An envelope may stand in `payload`, beside its
schema.  Of a deleted row the key columns of `before` count.  Messages without a value (tombstones) say nothing.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.connectors.changes.live_rows import TableChanges
from everwhen.connectors.kafka.messages import as_lines
from everwhen.core.scalars import Unfit, describe, read_values
from everwhen.core.schema import Schema
from everwhen.errors import InputError
from everwhen.formats.json.arrow_reader import decode, may_be_deep, safe_floats
from everwhen.formats.json.python_reader import decode_lines

_PLAIN: Final = (pa.int64(), pa.float64(), pa.string(), pa.bool_())
_WRITES: Final = ("c", "u", "r")
_MILLISECOND: Final = 10**6
_OTHERS: Final = 'an envelope has "op": "c", "u", "r" or "d"; a table that is truncated is read anew: new checkpoint'


class EnvelopeReader:
    """Reads envelopes of one table.  `tick` is the length of a tick in nanoseconds."""

    def __init__(self, schema: Schema, key: tuple[str, ...], tick: int, shown: str) -> None:
        self.schema, self.key, self.shown = schema, key, shown
        self._scale = (_MILLISECOND // tick, 1) if tick <= _MILLISECOND else (1, tick // _MILLISECOND)
        self._plain = all(type_ in _PLAIN for type_ in schema.types)
        row = pa.struct(list(schema.to_arrow()))
        when = pa.field("source", pa.struct([("ts_ms", pa.int64())]))
        self._arrow = pa.schema([("before", row), ("after", row), ("op", pa.string()), ("ts_ms", pa.int64()), when])

    def decode(self, messages: list[Any]) -> list[tuple[str, TableChanges]]:
        """The changes in messages, by partition; `messages` are in the order of their partitions."""
        parts = np.array([message.partition() for message in messages], np.int64)
        found: list[tuple[str, TableChanges]] = []
        for part in np.unique(parts).tolist():
            here = [messages[i] for i in np.flatnonzero(parts == part).tolist()]
            try:
                found.append((str(part), self.read([message.value() for message in here])))
            except InputError as bad:
                offset = here[(bad.line or 1) - 1].offset()
                place = f"{self.shown}, partition {part}, offset {offset}"
                raise InputError(bad.problem, source=place, remedy=bad.remedy) from None
        return found

    def read(self, values: list[bytes | None]) -> TableChanges:
        """The changes in values of messages; the line of an error is the number of the message, from 1."""
        lines = as_lines([value for value in values if value is not None])
        quick = self._quick(lines) if lines and len(lines) == len(values) else None
        return quick or self._careful(as_lines(values))

    def _quick(self, lines: list[bytes]) -> TableChanges | None:
        if not self._plain or any(map(may_be_deep, lines)):
            return None
        table = decode(b"".join(lines), len(lines), self._arrow, more=True)
        if table is None or "payload" in table.column_names:
            return None
        piece = table.combine_chunks().to_batches()[0]
        op, when = piece.column("op"), piece.column("source")
        stamps = pc.coalesce(pc.struct_field(when, "ts_ms"), piece.column("ts_ms"))
        gone = pc.equal(op, "d")
        if op.null_count or stamps.null_count or not pc.all(pc.or_(gone, pc.is_in(op, pa.array(_WRITES)))).as_py():
            return None
        dead = gone.to_numpy(zero_copy_only=False)
        before, after = piece.column("before"), piece.column("after")
        missing = np.where(
            dead, before.is_null().to_numpy(zero_copy_only=False), after.is_null().to_numpy(zero_copy_only=False)
        )
        if missing.any():
            return None
        columns = []
        for name in self.schema.names:
            column = pc.if_else(gone, pc.struct_field(before, name), pc.struct_field(after, name))
            if (name in self.key and column.null_count) or (column.type == pa.float64() and not safe_floats(column)):
                return None
            columns.append(column)
        return TableChanges(self._ticks(stamps.to_numpy()), dead, tuple(columns))

    def _careful(self, lines: list[bytes]) -> TableChanges:
        objects, numbers = decode_lines(lines, 1, self.shown)
        times, gone, rows = [], [], []
        for i, found in enumerate(objects):
            try:
                envelope = found.get("payload") if isinstance(found.get("payload"), dict) else found
                assert isinstance(envelope, dict)
                time, dead, row = self._change(envelope)
            except Unfit as bad:
                raise InputError(bad.problem, source=self.shown, line=int(numbers[i]), remedy=bad.remedy) from None
            times.append(time)
            gone.append(dead)
            rows.append(row)
        columns = []
        for field in self.schema:
            try:
                columns.append(read_values([row.get(field.name) for row in rows], field.type))
            except Unfit as bad:
                line, problem = int(numbers[bad.index]), f"attribute {field.name!r}: {bad.problem}"
                raise InputError(problem, source=self.shown, line=line, remedy=bad.remedy) from None
        return TableChanges(self._ticks(np.array(times, np.int64)), np.array(gone, np.bool_), tuple(columns))

    def _change(self, envelope: dict[str, Any]) -> tuple[int, bool, dict[str, Any]]:
        op = envelope.get("op")
        if op not in (*_WRITES, "d"):
            raise Unfit(f'the envelope\'s "op" is {describe(op)}', _OTHERS)
        side = "before" if op == "d" else "after"
        row = envelope.get(side)
        if not isinstance(row, dict):
            remedy = "the table needs a primary key, or REPLICA IDENTITY FULL" if op == "d" else "is it an envelope?"
            raise Unfit(f'an envelope with "op": {describe(op)} has no object {side!r}', remedy)
        if missing := [name for name in self.key if row.get(name) is None]:
            raise Unfit(f"{side!r} has no value in the key column {missing[0]!r}", "check the option key")
        source = envelope.get("source")
        stamp = source.get("ts_ms") if isinstance(source, dict) else None
        stamp = envelope.get("ts_ms") if stamp is None else stamp
        if type(stamp) is not int:
            raise Unfit(f"the envelope has no time: ts_ms is {describe(stamp)}", "source.ts_ms is a whole number")
        return stamp, op == "d", row

    def _ticks(self, stamps: np.ndarray) -> np.ndarray:
        times, by = self._scale
        return stamps.astype(np.int64) * times // by
