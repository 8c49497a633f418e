"""Text as JSON objects, one per line, each with its number; what is no such text is named with its line.

Stricter than JSON where it would be silent: a name twice in an object and the literal NaN are refused.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final

import numpy as np

from everwhen.core.scalars import Unfit, describe
from everwhen.errors import InputError
from everwhen.formats.json.arrow_reader import DEEPEST, may_be_deep

_STRING: Final = re.compile(r'"(?:[^"\\]|\\.)*"')
_BRACKET: Final = re.compile(r"[\[\]{}]")


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
