"""Changes of rows as JSON lines.

append     {"item":7,"price":2.5,"valid_from":1,"valid_to":5}
upsert     {"op":"put","row":{"item":7,"price":2.5}}       {"op":"delete","row":{"item":7}}
retract    {"op":"c","before":null,"after":{…}}            u: both, d: before alone; as Debezium has it
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from everwhen.core.scalars import json_texts
from everwhen.sinks.rows import AFTER, BEFORE, DELETE, PUT, RowChanges


def row_texts(rows: pa.RecordBatch, names: Sequence[str] | None = None) -> pa.Array:
    """Each row as the text of a JSON object, of some of the columns if they are named."""
    chosen = list(rows.schema.names if names is None else names)
    parts: list[pa.Array | str] = []
    for i, name in enumerate(chosen):
        parts.append(("{" if i == 0 else ",") + json.dumps(name) + ":")
        parts.append(pa.array(json_texts(rows.column(name)), pa.string()))
    if not parts or not rows.num_rows:
        return pa.array(["{}"] * rows.num_rows, pa.string())
    return pc.binary_join_element_wise(*parts, "}", "")


def change_lines(changes: RowChanges, key: Sequence[str] = ()) -> list[str]:
    """The changes of an epoch, a line each; an update of a retract is one line."""
    texts = np.array(row_texts(changes.rows).to_pylist(), object)
    op = changes.op
    if changes.form == "append":
        return list(texts)
    if changes.form == "upsert":
        keys = np.array(row_texts(changes.rows, key or None).to_pylist(), object)
        put = op == PUT
        return list(np.where(put, '{"op":"put","row":' + texts + "}", '{"op":"delete","row":' + keys + "}"))
    following = np.append(texts[1:], [""]) if len(texts) else texts
    lines = np.select(
        [op == PUT, op == DELETE, op == BEFORE],
        [
            '{"op":"c","before":null,"after":' + texts + "}",
            '{"op":"d","before":' + texts + ',"after":null}',
            '{"op":"u","before":' + texts + ',"after":' + following + "}",
        ],
        "",
    )
    return list(lines[op != AFTER])
