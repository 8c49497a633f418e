"""The form retract in a table that is only appended to: one row per change, in the words of Delta's change feed.

    _epoch, _sequence    the order of the changes: by epoch, then within it
    op                   insert, delete; update_preimage and update_postimage, one behind the other, where a row of a
                         key takes the place of another
    …                    the columns of the answer

Rows before and after a change are rows of their own, not two structs in one: so columns keep their types and
statistics, and `WHERE item = 7` reads few files.  The answer as of now is, of each row, what came less what went.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from everwhen.core.schema import Schema
from everwhen.errors import SinkError
from everwhen.sinks.rows import AFTER, BEFORE, DELETE, PUT, RowChanges

EPOCH, SEQUENCE, OP = "_epoch", "_sequence", "op"
WORDS: Final = {
    PUT: "insert",
    DELETE: "delete",
    BEFORE: "update_preimage",
    AFTER: "update_postimage",
}


def changed_schema(schema: Schema, shown: str) -> Schema:
    """The columns of the table, for rows of a schema."""
    for name in (EPOCH, SEQUENCE, OP):
        if name in schema:
            raise SinkError(f"{shown}: form retract adds a column {name!r}, and the query has one (rename it)")
    added = [(EPOCH, pa.int64()), (SEQUENCE, pa.int64()), (OP, pa.string())]
    return Schema.of([*added, *((field.name, field.type) for field in schema)])


def changed_rows(epoch: int, changes: RowChanges) -> pa.Table:
    """The changes of an epoch as rows."""
    count = len(changes)
    words = pa.array([WORDS[op] for op in sorted(WORDS)]).take(pa.array(changes.op))
    columns = {EPOCH: pa.array(np.full(count, epoch)), SEQUENCE: pa.array(np.arange(count)), OP: words}
    names = changes.rows.schema.names
    return pa.table({**columns, **dict(zip(names, changes.rows.columns, strict=True))})
