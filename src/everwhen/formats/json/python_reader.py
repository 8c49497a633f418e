"""The careful way to read JSON lines: text as objects, one per line, and these as elements; what is wrong is named with
its line.

Stricter than JSON where it would be silent: a name twice in an object and the literal NaN are refused.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import numpy as np
import pyarrow as pa

from everwhen.core.punctuation import Punctuation
from everwhen.core.scalars import Unfit, describe, read_values
from everwhen.core.schema import Schema
from everwhen.core.time import INF, MAX_TIME, MIN_TIME, is_time
from everwhen.core.time_axis import TICKS
from everwhen.errors import InputError
from everwhen.formats.json.arrow_reader import DEEPEST, may_be_deep
from everwhen.formats.time_columns import nanoseconds_of_text, ticks_of_text
from everwhen.punctuation.api import read_match
from everwhen.stream.batch_punctuation import punctuations
from everwhen.stream.element import ExternalCti, Punct
from everwhen.stream.element_batch import ADJUST, CTI, IN_RANGE, OPS, PUNCT, ElementBatch, lifetime_problem

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKET: Final = re.compile(r"[\[\]{}]")
_CODES: Final = {name: code for code, name in enumerate(OPS)}
_FIELDS: Final = (
    frozenset({"op", "vs", "ve", "row", "at"}),
    frozenset({"op", "vs", "ve", "vnew", "row", "at"}),
    frozenset({"op", "t", "at"}),
    frozenset({"op", "match", "t", "at"}),
    frozenset({"op", "vs", "ve", "count", "at"}),
)
_NOTHING: Final[dict[str, Any]] = {}
_NOTE: Final = frozenset({"op", "t", "what", "of", "value", "at"})


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise Unfit(
            f"{next(n for n in names if names.count(n) > 1)!r} is there twice in one object", "keep one of them"
        )
    return found


def _no_literal(name: str) -> Any:
    raise Unfit(f"{name} is no JSON number", f'write it as text: "{name}"')


_DECODER: Final = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_no_literal)


def decode_lines(piece: list[bytes], first: int, source: str) -> tuple[list[dict[str, Any]], np.ndarray]:
    """The objects of a piece of a file and their line numbers."""
    text = b",".join(piece)
    deep = any(map(may_be_deep, piece))
    # If every line starts an object, a value that runs over a line's end is an array of objects or broken text: the
    # former is refused later wherever it stands, the latter here, since line ends stay within the text.
    if not deep and text.startswith(b"{") and text.count(b"\n,{") == len(piece) - 1:
        try:
            objects = _DECODER.decode(f"[{text.decode('utf-8')}]")
        except (ValueError, Unfit, RecursionError):
            pass
        else:
            if len(objects) == len(piece):
                return objects, np.arange(first, first + len(piece))
    found: list[dict[str, Any]] = []
    numbers: list[int] = []
    for line, raw in enumerate(piece, first):
        try:
            value = _decode_line(raw.removeprefix(b"\xef\xbb\xbf") if line == 1 else raw)
        except Unfit as bad:
            raise InputError(bad.problem, source=source, line=line, remedy=bad.remedy) from None
        if value is not None:
            found.append(value)
            numbers.append(line)
    return found, np.array(numbers, np.int64)


def _too_deep() -> Unfit:
    return Unfit(f"nested more than {DEEPEST} levels deep", "an element is an object with a row of scalars")


def _depth(text: str) -> int:
    """How deep brackets are nested, those within strings left out."""
    depth = deepest = 0
    for bracket in _BRACKET.findall(_STRING.sub("", text)):
        depth += 1 if bracket in "[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _decode_line(raw: bytes) -> dict[str, Any] | None:
    try:
        text = raw.decode("utf-8").strip(" \t\r\n")
        if not text:
            return None
        if may_be_deep(raw) and _depth(text) > DEEPEST:
            raise _too_deep()
        value = _DECODER.decode(text)
    except UnicodeDecodeError as bad:
        raise Unfit(f"byte {bad.start + 1} of the line is not UTF-8", "save the file as UTF-8") from None
    except json.JSONDecodeError as bad:
        raise Unfit(f"not JSON: {bad.msg} at column {bad.colno}", "one whole JSON object per line") from None
    except RecursionError:
        raise _too_deep() from None
    except ValueError as bad:
        raise Unfit(f"not JSON that can be read: {bad}", "one JSON object per line") from None
    if not isinstance(value, dict):
        raise Unfit(f"{describe(value)} is no element", 'one object per line, such as {"vs": 1, "row": {"item": 7}}')
    return value


# --- from objects to elements -------------------------------------------------------------------------------------


def is_note(element: dict[str, Any]) -> bool:
    """Whether an object tells of a change that the engine made: it promises nothing and changes no snapshot."""
    return element.get("op") == "note" and "what" in element and element.keys() <= _NOTE


def without_notes(objects: list[dict[str, Any]], numbers: np.ndarray) -> tuple[list[dict[str, Any]], np.ndarray]:
    """The objects that are elements, and their lines: notes are read over."""
    kept = [i for i, element in enumerate(objects) if not is_note(element)]
    if len(kept) == len(objects):
        return objects, numbers
    return [objects[i] for i in kept], numbers[kept]


def elements_of_objects(
    objects: list[dict[str, Any]], numbers: np.ndarray, schema: Schema, source: str, tick: int = TICKS.tick
) -> ElementBatch:
    """The elements that objects of a decoder stand for; `numbers` are their lines."""
    taken = _Taken(schema, tick)
    try:
        for index, element in enumerate(objects):
            try:
                taken.take(index, element)
            except Unfit as bad:
                taken.columns()  # a misfit on an earlier line comes first
                raise Unfit(bad.problem, bad.remedy, index) from None
        columns = taken.columns()
    except Unfit as bad:
        line = int(numbers[bad.index])
        raise InputError(bad.problem, source=source, line=line, remedy=bad.remedy) from None
    if taken.at and len(taken.at) != len(objects):
        raise not_all_numbered(
            source, int(numbers[next(i for i, o in enumerate(objects) if ("at" in o) != ("at" in objects[0]))])
        )
    times = np.array(taken.times, np.int64).reshape(-1, 3)
    return ElementBatch(
        schema,
        np.array(taken.op, np.uint8),
        times[:, 0].copy(),
        times[:, 1].copy(),
        times[:, 2].copy(),
        columns,
        punctuations(taken.promises, schema),
        source,
        int(numbers[0]) if len(numbers) else 1,
        None if len(numbers) == 0 or numbers[-1] - numbers[0] == len(numbers) - 1 else numbers,
        np.array(taken.at, np.int64) if taken.at else None,
    )


def not_all_numbered(source: str, line: int) -> InputError:
    """The complaint about a line that has an arrival number where others have none, or the other way round."""
    return InputError(
        'some elements have "at" and some have not',
        source=source,
        line=line,
        remedy="give it to every element, or to none",
    )


class _Taken:
    """The elements of a batch, taken one by one."""

    def __init__(self, schema: Schema, tick: int) -> None:
        self.schema = schema
        self.tick = tick
        self.op: list[int] = []
        self.times: list[tuple[int, int, int]] = []
        self.rows: list[dict[str, Any]] = []
        self.promises: dict[int, Punct | ExternalCti] = {}
        self.at: list[int] = []

    def take(self, index: int, element: dict[str, Any]) -> None:
        name = element.get("op", "insert")
        op = _CODES.get(name) if isinstance(name, str) else None
        if op is None:
            raise Unfit(f'unknown "op" {describe(name)}', f"there are {', '.join(OPS)}")
        if not element.keys() <= _FIELDS[op]:
            extra = min(element.keys() - _FIELDS[op])
            raise Unfit(f"unknown field {extra!r} in {OPS[op]}", f"it has {', '.join(sorted(_FIELDS[op]))}")
        vs = ve = vnew = 0
        row = _NOTHING
        if op <= ADJUST:
            vs = self._time(element, "vs")
            ve = self._time(element, "ve", INF) if "ve" in element else vs + 1
            if op == ADJUST:
                vnew = self._time(element, "vnew", INF)
            row = self._row(element)
        elif op == CTI:
            vs = ve = self._time(element, "t", INF)
        elif op == PUNCT:
            ve = INF
            match = read_match(_field(element, "match"), self.schema)
            self.promises[index] = Punct(Punctuation(match, self._time(element, "t", INF) if "t" in element else INF))
        else:
            vs, ve, count = self._time(element, "vs"), self._time(element, "ve", INF), _field(element, "count")
            if type(count) is not int or not 0 <= count <= MAX_TIME:
                raise Unfit(f'"count" must be a whole number, not {describe(count)}', "0 or more")
            self.promises[index] = ExternalCti(vs, ve, count)
        problem, remedy = lifetime_problem(op, vs, ve, vnew)
        if problem:
            raise Unfit(problem, remedy)
        if "at" in element:
            at = element["at"]
            if type(at) is not int or not MIN_TIME <= at <= MAX_TIME:
                raise Unfit(f'"at" must be a whole number, not {describe(at)}', IN_RANGE)
            self.at.append(at)
        self.op.append(op)
        self.times.append((vs, ve, vnew))
        self.rows.append(row)

    def _row(self, element: dict[str, Any]) -> dict[str, Any]:
        row = _field(element, "row")
        if not isinstance(row, dict):
            raise Unfit(f'"row" must be an object, but is {describe(row)}', 'write "row": {"item": 7}')
        return row

    def columns(self) -> tuple[pa.Array, ...]:
        """The payload so far; of several misfits the earliest element's is raised."""
        found: list[pa.Array] = []
        worst: Unfit | None = None
        for field in self.schema:
            try:
                found.append(read_values([row.get(field.name) for row in self.rows], field.type))
            except Unfit as bad:
                if worst is None or bad.index < worst.index:
                    worst = Unfit(f"attribute {field.name!r}: {bad.problem}", bad.remedy, bad.index)
        if worst is not None:
            raise worst
        return tuple(found)

    def _time(self, element: dict[str, Any], name: str, null: int | None = None) -> int:
        t = _field(element, name)
        if type(t) is int:
            if is_time(t):
                return t
            raise Unfit(f'"{name}" is {t}, out of range', IN_RANGE)
        if t is None and null is not None:
            return null
        if isinstance(t, str) and nanoseconds_of_text(t.strip()) is not None:
            return ticks_of_text(t, name, self.tick)
        only = "a whole number of ticks or a timestamp" + ("" if null is None else ", or null for infinity")
        raise Unfit(f'"{name}" must be {only}, not {describe(t)}', "numbers carry no unit, fraction or quotes")


def _field(element: dict[str, Any], name: str) -> Any:
    try:
        return element[name]
    except KeyError:
        raise Unfit(f'"{name}" is missing', f"give the element a {name!r}") from None
