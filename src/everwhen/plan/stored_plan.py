"""Logical plans as data: what a checkpoint keeps beside the text of a query, so that its plan can run again.

A plan is a graph of frozen values: nodes, expressions, schemas.  It becomes a JSON value and back.  Reading it runs no
code: the only classes made are dataclasses and enumerations of the packages that plans are made of.

    {"at": k}                    the k-th value below, a node that several others read stays one
    {"of": "module:Class", "fields": {…}}          a dataclass
    {"enum": "module:Class", "name": …}, {"type": base64 of an Arrow schema}, {"tuple": […]}, {"set": […]}, …

Functions of the user's have no form as data: a plan that calls one is not stored.
"""

from __future__ import annotations

import base64
import importlib
import json
import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any, Final

import pyarrow as pa

from everwhen.algebra.nodes import Node
from everwhen.algebra.recursion_nodes import LoopToken
from everwhen.errors import EverwhenError, QueryError

_PACKAGES: Final = ("everwhen.algebra.", "everwhen.core.", "everwhen.punctuation.", "everwhen.values.")
_CLASS: Final = re.compile(r"([a-z_.]+):([A-Za-z_.]+)")
_BROKEN: Final = (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError, pa.ArrowException)
_DEEPEST: Final = 400


class NotStorableError(EverwhenError):
    """A plan that has a part which is no data."""


def stored(queries: Mapping[str, Node]) -> str | None:
    """The plans of queries as text; None if they call functions of the user's, which cannot be written down."""
    writer = _Writer()
    try:
        roots = {name: writer.value(node, 0) for name, node in queries.items()}
    except NotStorableError:
        return None
    return json.dumps({"roots": roots, "values": writer.values}, separators=(",", ":"))


def plans_of(text: str) -> dict[str, Node]:
    """The plans that were stored; a text that holds none is a QueryError."""
    try:
        found = json.loads(text)
        reader = _Reader(found["values"])
        roots = {str(name): reader.value(each) for name, each in found["roots"].items()}
        if not all(isinstance(root, Node) for root in roots.values()):
            raise ValueError("it names something that is no plan")
        return roots
    except _BROKEN as bad:
        raise QueryError(f"the stored plan cannot be read: {type(bad).__name__}: {str(bad)[:200]}") from None


class _Writer:
    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[int, int] = {}
        self._held: list[Any] = []  # an id is that of one value as long as the value is there

    def value(self, value: Any, depth: int) -> Any:
        if depth > _DEEPEST:
            raise NotStorableError("the plan is too deep")
        if isinstance(value, Enum):
            return {"enum": _named(type(value)), "name": value.name}
        if value is None or isinstance(value, bool | int | str):
            return value
        if isinstance(value, float):
            return {"float": value.hex()}
        if isinstance(value, LoopToken) or (is_dataclass(value) and not isinstance(value, type)):
            return self._dataclass(value, depth)
        if isinstance(value, tuple):
            return {"tuple": [self.value(each, depth + 1) for each in value]}
        if isinstance(value, list):
            return {"list": [self.value(each, depth + 1) for each in value]}
        if isinstance(value, frozenset):
            return {"set": [self.value(each, depth + 1) for each in sorted(value, key=repr)]}
        if isinstance(value, Mapping):
            return {"map": [[self.value(k, depth + 1), self.value(v, depth + 1)] for k, v in value.items()]}
        return _leaf(value)

    def _dataclass(self, value: Any, depth: int) -> Any:
        if id(value) not in self._places:
            loop = isinstance(value, LoopToken)
            own = ["name"] if loop else [each.name for each in fields(value) if each.init]
            given = {name: self.value(getattr(value, name), depth + 1) for name in own}
            self._places[id(value)] = len(self.values)
            self._held.append(value)
            self.values.append({"of": _named(type(value)), "fields": given})
        return {"at": self._places[id(value)]}


def _leaf(value: Any) -> Any:
    match value:
        case bytes():
            return {"bytes": base64.b64encode(value).decode()}
        case Decimal():
            return {"decimal": str(value)}
        case datetime():
            return {"datetime": value.isoformat()}
        case date():
            return {"date": value.isoformat()}
        case time():
            return {"time": value.isoformat()}
        case timedelta():
            return {"span": [value.days, value.seconds, value.microseconds]}
        case pa.DataType():
            text = base64.b64encode(pa.schema([("", value)]).serialize().to_pybytes()).decode()
            return {"type": text}
    raise NotStorableError(f"{type(value).__qualname__} is no data")


def _named(cls: type) -> str:
    text = f"{cls.__module__}:{cls.__qualname__}"
    if not cls.__module__.startswith(_PACKAGES) or not _CLASS.fullmatch(text):
        raise NotStorableError(f"{text} is no part of a plan")
    return text


class _Reader:
    def __init__(self, values: list[Any]) -> None:
        self._made: list[Any] = []
        for each in values:  # each names earlier ones only
            self._made.append(self._dataclass(each))

    def _dataclass(self, given: Any) -> Any:
        cls = _class(given["of"])
        if not is_dataclass(cls) and cls is not LoopToken:
            raise ValueError(f"{given['of']} is no value of a plan")
        return cls(**{str(name): self.value(each) for name, each in given["fields"].items()})

    def value(self, given: Any) -> Any:
        if not isinstance(given, dict):
            if isinstance(given, list):
                raise ValueError("a list has no form of its own")
            return given
        if "enum" in given:
            cls = _class(given["enum"])
            if not issubclass(cls, Enum):
                raise ValueError(f"{given['enum']} is no enumeration")
            return cls[given["name"]]
        ((kind, said),) = given.items()
        match kind:
            case "at":
                return self._made[said]
            case "tuple":
                return tuple(map(self.value, said))
            case "list":
                return list(map(self.value, said))
            case "set":
                return frozenset(map(self.value, said))
            case "map":
                return {self.value(key): self.value(each) for key, each in said}
            case "float":
                return float.fromhex(said)
            case "bytes":
                return base64.b64decode(said)
            case "decimal":
                return Decimal(said)
            case "datetime":
                return datetime.fromisoformat(said)
            case "date":
                return date.fromisoformat(said)
            case "time":
                return time.fromisoformat(said)
            case "span":
                return timedelta(*map(int, said))
            case "type":
                return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(said))).field(0).type
        raise ValueError(f"nothing is called {kind!r}")


def _class(text: str) -> type:
    found = _CLASS.fullmatch(text)
    if found is None or not text.startswith(_PACKAGES):
        raise ValueError(f"{text!r} is no class of a plan")
    value: Any = importlib.import_module(found[1])
    for name in found[2].split("."):
        value = getattr(value, name)
    if not isinstance(value, type) or value.__module__ != found[1]:
        raise ValueError(f"{text!r} is no class of a plan")
    return value
