"""Rows as the texts of messages: JSON objects, and Debezium's envelopes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import pyarrow as pa

from everwhen.core.scalars import json_texts
from everwhen.sinks.rows import AFTER, BEFORE, DELETE, RowChanges

Message = tuple[bytes | None, bytes | None]
"""Key and value."""


def row_texts(names: Sequence[str], columns: Sequence[pa.Array], count: int) -> list[str]:
    """Rows as JSON objects."""
    if not names:
        return ["{}"] * count
    keys = ",".join(json.dumps(name, ensure_ascii=False).replace("%", "%%") + ":%s" for name in names)
    template = "{" + keys + "}"
    return [template % values for values in zip(*map(json_texts, columns), strict=True)]


def messages_of(changes: RowChanges, key: Sequence[str], stamp: int) -> Iterable[Message]:
    """The messages of an epoch.  An append is a row, an upsert a row with its key, or nothing but the key; a retract is
    an envelope.  `stamp`: the milliseconds that envelopes carry."""
    rows = changes.rows
    count = len(changes)
    texts = row_texts(rows.schema.names, rows.columns, count)
    keys: list[bytes] | list[None] = [None] * count
    if key:
        keys = [text.encode() for text in row_texts(key, [rows.column(name) for name in key], count)]
    ops = changes.op.tolist()
    if changes.form != "retract":
        for op, each, text in zip(ops, keys, texts, strict=True):
            yield each, None if op == DELETE else text.encode()
        return
    tail = f'"source":{{"connector":"everwhen","ts_ms":{stamp}}},"ts_ms":{stamp}}}'
    before = "null"
    for op, each, text in zip(ops, keys, texts, strict=True):
        if op == BEFORE:
            before = text
            continue
        if op == AFTER:
            said = f'{{"before":{before},"after":{text},"op":"u",'
        elif op == DELETE:
            said = f'{{"before":{text},"after":null,"op":"d",'
        else:
            said = f'{{"before":null,"after":{text},"op":"c",'
        yield each, (said + tail).encode()
