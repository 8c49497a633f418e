"""What a source has to say, in words and as a line of JSON to imitate."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa

from everwhen.algebra import nodes as n
from everwhen.core.kinds import kind
from everwhen.core.punctuation import OneOf, Punctuation, Range
from everwhen.plan.sanity.needs import Need, Say, Way
from everwhen.punctuation.api import write_match

_VALUES: dict[str, Any] = {
    "integer": 7,
    "float": 7.5,
    "decimal": Decimal(7),
    "string": "abc",
    "boolean": True,
    "binary": b"abc",
    "date": date(2026, 1, 31),
    "timestamp": datetime(2026, 1, 31, 12),
    "time": time(12),
    "duration": timedelta(hours=1),
}


def example(say: Say) -> str:
    """A line of input that says it: one value of a column; of an order, everything up to one."""
    schema = say.origin.schema
    if say.first is not None:
        value = _value(schema.field(say.first[0]).type)
        promise = Punctuation({say.first[0]: Range(ge=value) if say.first[1] else Range(le=value)})
    else:
        name = next((each for each in say.listed if _value(schema.field(each).type) is not None), say.listed[0])
        promise = Punctuation({name: OneOf((_value(schema.field(name).type),))})
    written = json.dumps(write_match(promise.match, schema), ensure_ascii=False, separators=(",", ":"))
    return f'{{"op":"punct","match":{written}}}'


def _value(type_: pa.DataType) -> Any:
    return _VALUES.get(kind(type_))


def named(origin: n.Source | n.Punctuate) -> str:
    return origin.name if isinstance(origin, n.Source) else "the stream below punctuate()"


def asked(say: Say) -> str:
    """`Bid about item`; `Bid about hour or sid, or both`."""
    columns = say.listed
    if say.first is not None:
        rest = f" (and {', '.join(columns[1:])})" if len(columns) > 1 else ""
        return f"{named(say.origin)} about {columns[0]}{rest}, from the {'end' if say.first[1] else 'beginning'} on"
    many = ", or several of them" if len(columns) > 2 else ", or both" if len(columns) == 2 else ""
    return f"{named(say.origin)} about {listed(columns, 'or')}{many}"


def together(way: Way) -> str:
    """What all have to say."""
    return ", and ".join(asked(say) for say in ordered(way))


def ordered(way: Way) -> list[Say]:
    return sorted(way, key=lambda say: (say.name, say.listed))


def listed(words: Sequence[str], last: str) -> str:
    """`a, b or c`."""
    return f" {last} ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def remedy(need: Need) -> str:
    """The punctuation that would free it, and how to say that it comes."""
    way = need.ways[0]
    given = listed([f"{named(say.origin)} PUNCTUATE (GIVEN {say.listed[0]})" for say in ordered(way)], "and")
    return f"have punctuation from {together(way)}, and declare it: {given}"
