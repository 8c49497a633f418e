"""The schema of a JSON-lines file that comes without one: types that hold every value of an attribute.

Whole numbers are int64; with fractions among them float64; text string; true and false bool; arrays of one of these a
list of it; always null: string.  The texts "NaN", "Infinity" and "-Infinity" stand for floats where the attribute has
numbers as well.  Anything else that does not go together is an `InputError` at the first line that breaks the rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from types import NoneType
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.core.scalars import NOT_FINITE, Unfit, describe
from everwhen.core.schema import Schema
from everwhen.core.time_axis import TICKS, TimeAxis
from everwhen.errors import InputError
from everwhen.formats.json.arrow_reader import decode, may_be_deep, safe_floats
from everwhen.formats.time_columns import FINER, tick_needed

_LOWEST, _HIGHEST = -(2**63), 2**63 - 1
_WORDS: Final = {
    "whole": "a whole number",
    "number": "a number",
    "text": "text",
    "truth": "true or false",
    "array": "an array",
}
_KINDS: Final[dict[type, str]] = {int: "whole", float: "number", str: "text", bool: "truth", list: "array"}
_NUMBERS: Final = {"whole", "number"}
_TIMES: Final = ("vs", "ve", "vnew", "t")


class _Attribute:
    """The kinds of values that an attribute has had so far."""

    def __init__(self) -> None:
        self.kinds: set[str] = set()
        self.items: _Attribute | None = None

    def take(self, values: Sequence[Any]) -> None:
        """Adds values; `Unfit` has the position of the first that does not go with the others."""
        before = self.copy()
        for type_ in set(map(type, values)) - {NoneType}:
            kind = _KINDS.get(type_, "object")
            if type_ is str and all(value in NOT_FINITE for value in values if type(value) is str):
                kind = "not finite"
            if kind in self.kinds and kind not in ("whole", "array"):
                continue
            if type_ is list:
                self._take_items(values)
            elif type_ is int:
                ints = [value for value in values if type(value) is int]
                if min(ints) < _LOWEST or max(ints) > _HIGHEST:
                    break
            if not self.add(kind):
                break
        else:
            return
        if len(values) == 1:
            raise before._misfit(values[0])
        for index, value in enumerate(values):  # the one that breaks the rule is the first that fails on its own
            try:
                before.take((value,))
            except Unfit as bad:
                raise Unfit(bad.problem, bad.remedy, index) from None

    def add(self, kind: str) -> bool:
        """Whether the kind goes with the others; if so it counts from now on."""
        kinds = self.kinds | {kind}
        if "object" in kinds or (len(kinds) > 1 and not kinds <= {*_NUMBERS, "not finite"} and kinds != _TEXTS):
            return False
        self.kinds = kinds
        return True

    def copy(self) -> _Attribute:
        other = _Attribute()
        other.kinds, other.items = set(self.kinds), self.items
        return other

    def _take_items(self, values: Sequence[Any]) -> None:
        self.items = self.items or _Attribute()
        for index, value in enumerate(values):
            if type(value) is list:
                try:
                    if any(type(item) is list for item in value):
                        raise Unfit(
                            f"{describe(value)} has arrays within", "an attribute is a scalar or an array of them"
                        )
                    self.items.take(value)
                except Unfit as bad:
                    raise Unfit(bad.problem, bad.remedy, index) from None

    def _misfit(self, value: Any) -> Unfit:
        if isinstance(value, int) and not isinstance(value, bool) and not _LOWEST <= value <= _HIGHEST:
            return Unfit(
                f"{describe(value)} does not fit 64 bits", "declare the stream with a decimal type, or write text"
            )
        if type(value) not in _KINDS:
            return Unfit(f"{describe(value)} is no scalar", "split it into attributes of their own")
        before = " or ".join(sorted(_WORDS[kind] for kind in self.kinds if kind in _WORDS))
        return Unfit(
            f"{describe(value)}, but {before} before", "an attribute has one type; declare the stream to fix it"
        )

    def type(self) -> pa.DataType:
        if self.items is not None:
            return pa.list_(self.items.type())
        if self.kinds & _NUMBERS:
            return pa.int64() if self.kinds == {"whole"} else pa.float64()
        return pa.bool_() if "truth" in self.kinds else pa.string()


_TEXTS: Final = {"text", "not finite"}


@dataclass(frozen=True, slots=True)
class Contents:
    """What a file of elements holds."""

    schema: Schema
    axis: TimeAxis = TICKS


class Inference:
    """Takes a file piece by piece; `contents` is what holds all of it."""

    def __init__(self, source: str) -> None:
        self.source = source
        self._axis = TICKS
        self._rows: dict[str, _Attribute] = {}
        self._patterns: dict[str, _Attribute] = {}
        self._any_row = False

    def contents(self) -> Contents:
        return Contents(self.schema(), self._axis)

    def _take_times(self, texts: pa.Array) -> None:
        """Text that stands for times: the axis has dates, and ticks that are short enough."""
        if len(texts) > texts.null_count:
            self._axis = TimeAxis(tick_needed(texts, self._axis.tick), dated=True)

    def _take_column(self, times: pa.ChunkedArray) -> None:
        """Times as Arrow has read them: it makes timestamps of most texts."""
        if pa.types.is_string(times.type):
            self._take_times(times.combine_chunks())
        elif pa.types.is_timestamp(times.type):
            fine = times.cast(pa.timestamp("ns", times.type.tz)).cast(pa.int64()).drop_null().to_numpy()
            finest = next(length for length in FINER if not (fine % length).any())
            self._axis = TimeAxis(min(finest, self._axis.tick), dated=True)

    def schema(self) -> Schema:
        if not self._any_row:
            return Schema.of((name, attribute.type()) for name, attribute in self._patterns.items())
        return Schema.of((name, self._with_patterns(name).type()) for name in self._rows)

    def _with_patterns(self, name: str) -> _Attribute:
        """An attribute of rows that is also good for its patterns; where that cannot be, the reader complains."""
        attribute = self._rows[name].copy()
        if name in self._patterns and attribute.items is None:
            for kind in sorted(self._patterns[name].kinds - {"array"}):
                attribute.add(kind)
        return attribute

    def take(self, elements: list[dict[str, Any]], lines: np.ndarray) -> None:
        """Adds elements; what is no row is left to the reader to complain about."""
        rows, numbers = [], []
        self._take_times(
            pa.array(
                [t for element in elements for name in _TIMES if isinstance(t := element.get(name), str)], pa.string()
            )
        )
        for element, line in zip(elements, lines.tolist(), strict=True):
            if isinstance(row := element.get("row"), dict):
                rows.append(row)
                numbers.append(line)
            elif isinstance(match := element.get("match"), dict):
                self._take_patterns(match)
        self._any_row = self._any_row or bool(rows)
        worst: Unfit | None = None
        for name in dict.fromkeys(chain.from_iterable(rows)):
            try:
                self._rows.setdefault(name, _Attribute()).take([row.get(name) for row in rows])
            except Unfit as bad:
                if worst is None or bad.index < worst.index:
                    worst = Unfit(f"attribute {name!r}: {bad.problem}", bad.remedy, bad.index)
        if worst is not None:
            raise InputError(worst.problem, source=self.source, line=numbers[worst.index], remedy=worst.remedy)

    def _take_patterns(self, match: dict[str, Any]) -> None:
        for name, pattern in match.items():
            constants: Iterable[Any] = (pattern,)
            if isinstance(pattern, dict):
                constants = pattern["in"] if isinstance(pattern.get("in"), list) else pattern.values()
            try:
                self._patterns.setdefault(name, _Attribute()).take(
                    [value for value in constants if not isinstance(pattern, dict) or pattern.get("none") is not value]
                )
            except Unfit:
                continue  # the reader says what is wrong, with its line

    def take_fast(self, piece: list[bytes], first: int) -> bool:
        """Adds a piece of text by way of Arrow, if that is sure to be the same; else says False and adds nothing."""
        text = b"".join(piece)
        if any(map(may_be_deep, piece)) or any(
            special in text for special in (b'"match"', b'"NaN"', b'Infinity"', b"\\u")
        ):
            return False
        table = decode(text, len(piece), None)
        if table is not None:
            for name in _TIMES:
                if name in table.column_names:
                    self._take_column(table.column(name))
        if table is None or "row" not in table.column_names:
            return table is not None
        type_ = table.schema.field("row").type
        if not pa.types.is_struct(type_) or any(pa.types.is_nested(field.type) for field in type_):
            return False
        rows = table.column("row").combine_chunks()
        found: dict[str, str | None] = {}
        for name, column in zip((field.name for field in type_), rows.flatten(), strict=True):
            if column.type == pa.float64() and not safe_floats(column):
                return False
            found[name] = _arrow_kind(column.type)
        trial = {name: self._rows[name].copy() if name in self._rows else _Attribute() for name in found}
        if not all(kind is None or trial[name].add(kind) for name, kind in found.items()):
            return False
        self._rows.update(trial)
        self._any_row = self._any_row or rows.null_count < len(rows)
        return True


def _arrow_kind(type_: pa.DataType) -> str | None:
    if pa.types.is_null(type_):
        return None
    if pa.types.is_boolean(type_):
        return "truth"
    if pa.types.is_integer(type_):
        return "whole"
    return "number" if pa.types.is_floating(type_) else "text"  # Arrow makes timestamps of some texts
