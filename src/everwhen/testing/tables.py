"""Streams as table literals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from everwhen.core.punctuation import OneOf, Punctuation
from everwhen.core.scalars import python_values
from everwhen.core.schema import RESERVED, Schema
from everwhen.core.time import INF
from everwhen.errors import InputError
from everwhen.stream.element import Adjust, Cti, Element, Insert, Punct
from everwhen.stream.element_batch import ElementBatch, batch_of
from everwhen.stream.history import History


@dataclass(frozen=True)
class TableStream:
    """A stream read from a table: elements in arrival order, and their schema.

    >>> stream = stream_from_table('''
    ...     vs | ve | x
    ...     1  | 5  | 7
    ... ''')
    >>> len(stream), stream.batch().vs.tolist()
    (1, [1])
    >>> print(stream.history())
    [1, 5) x=7
    """

    elements: list[Element]
    schema: Schema

    def __iter__(self) -> Iterator[Element]:
        return iter(self.elements)

    def __len__(self) -> int:
        return len(self.elements)

    def history(self) -> History:
        """What the stream says once all its adjusts are applied."""
        return History.of(self.elements, self.schema)

    def batch(self) -> ElementBatch:
        """All elements as one batch."""
        return batch_of(self.elements, self.schema)


def stream_from_table(text: str, schema: Schema | None = None) -> TableStream:
    """A stream from a table literal: a header, then one element per line.

    Columns `op` (left out: all are inserts), `vs`, `ve` (empty: a chronon), `vnew`; every other column is an attribute.
    Times may be `inf` or `∞`.  An empty cell is null; text that looks like something else stands in quotes.  Without a
    schema a column is int64, float64 or bool if all its cells are, else a string.  A `cti` has its time in `vs`.  A
    `punct` promises something about the values in its row (empty: any value), for ever unless `vs` gives a time.

    >>> stream = stream_from_table('''
    ...     op     | vs | ve | vnew | item | price
    ...     insert | 1  | 5  |      | 7    | 2.5
    ...     adjust | 1  | 5  | 3    | 7    | 2.5
    ...     cti    | 4  |    |      |      |
    ... ''')
    >>> for element in stream: print(element)
    insert [1, 5) item=7 price=2.5
    adjust [1, 5 -> 3) item=7 price=2.5
    cti 4
    >>> print(stream.schema, stream.history(), sep=chr(10))
    (item int64, price double)
    [1, 3) item=7 price=2.5
    """
    numbered = [(i, line.strip()) for i, line in enumerate(text.splitlines(), start=1) if line.strip()]
    if not numbered:
        raise InputError("an empty table", remedy="the first line names the columns, for example 'vs | ve | item'")
    if numbered[0][1].startswith("|"):  # a table with borders
        numbered = [(i, line.removeprefix("|").removesuffix("|")) for i, line in numbered]
    lines = [(i, [cell.strip() for cell in line.split("|")]) for i, line in numbered]
    header = lines[0][1]
    if "vs" not in header:
        raise InputError(f"a table of elements needs a column 'vs'; there is {', '.join(header)}", line=lines[0][0])
    cells: list[tuple[int, dict[str, str]]] = []
    for i, line in lines[1:]:
        if len(line) > len(header):
            raise InputError(f"{len(line)} cells under {len(header)} column names", line=i)
        line += [""] * (len(header) - len(line))
        cells.append((i, dict(zip(header, line, strict=True))))
    attributes = [name for name in header if name not in RESERVED]
    if schema is None:
        schema = Schema.of([(name, _type_of(row[name] for _, row in cells)) for name in attributes])
    elif sorted(schema.names) != sorted(attributes):
        raise InputError(f"the table has the attributes {attributes}, the schema is {schema}", line=lines[0][0])
    return TableStream([_element(i, row, schema) for i, row in cells], schema)


def _element(line: int, row: Mapping[str, str], schema: Schema) -> Element:
    values = {field.name: _value(row[field.name], field.type, line) for field in schema}
    op = row.get("op") or "insert"
    if op == "punct":
        match = {name: OneOf((value,)) for name, value in values.items() if value is not None}
        return Punct(Punctuation(match, _time(row, "vs", line, INF)))
    vs = _time(row, "vs", line, None)
    match op:
        case "insert":
            return Insert(vs, _time(row, "ve", line, vs + 1), values)
        case "adjust":
            return Adjust(vs, _time(row, "ve", line, vs + 1), _time(row, "vnew", line, None), values)
        case "cti":
            return Cti(vs)
    raise InputError(f"unknown op {op!r}", line=line, remedy="there are insert, adjust, cti and punct")


def _time(row: Mapping[str, str], name: str, line: int, default: int | None) -> int:
    cell = row.get(name, "")
    if cell in ("inf", "∞"):
        return INF
    if not cell and default is not None:
        return default
    try:
        return int(cell)
    except ValueError:
        raise InputError(f"{cell!r} in column {name!r} is no time", line=line, remedy="a whole number or ∞") from None


def _type_of(cells: Iterable[str]) -> pa.DataType:
    there = [cell for cell in cells if cell]
    for type_ in (pa.int64(), pa.float64(), pa.bool_()):
        if there and all(_reads(cell, type_) for cell in there):
            return type_
    return pa.string()


def _reads(cell: str, type_: pa.DataType) -> bool:
    try:
        _value(cell, type_, 0)
    except InputError:
        return False
    return True


def _value(cell: str, type_: pa.DataType, line: int) -> Any:
    if not cell:
        return None
    if cell[0] == cell[-1] and cell[0] in "'\"" and len(cell) > 1:
        if pa.types.is_string(type_):
            return cell[1:-1]
    elif pa.types.is_string(type_):
        return cell
    elif not pa.types.is_boolean(type_) or cell in ("true", "false"):
        try:
            return python_values(pa.array([cell]).cast(type_))[0]
        except pa.ArrowException:
            pass
    raise InputError(f"{cell!r} is not of type {type_}", line=line)
