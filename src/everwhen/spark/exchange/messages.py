"""Control messages: what tasks and driver tell one another beside the rows, one dataclass each.

    SourceProgress     how far a source has come in this epoch               the JVM, or the driver ─▶ every partition
    RowsLate           rows of a source came behind its promise              the same
    StreamProgress     what a partition has promised for a stream            a partition ─▶ every one of the next stage
    PunctuationRows    a punctuation of a source or partition                see `punctuation_rows`
    TaskNote           what a partition did in its epoch                     a partition ─▶ the driver
    IngressNote        the same of the ingress stage
    Failure            why a partition gave up                               a partition ─▶ all behind it, the driver

A message crosses as a row of the exchange: its kind, the partition it goes to, and its fields as JSON, with the version
of the exchange, which is checked.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from everwhen import errors
from everwhen.core.time import NEVER
from everwhen.errors import EverwhenError, InputError
from everwhen.spark.exchange.schema import VERSION, ExchangeSchema, check_version


@dataclass(frozen=True)
class SourceProgress:
    """The largest start, the CTI and the number of rows of a source; `wrong` of them cannot be read as elements."""

    source: int
    start: int
    cti: int
    rows: int
    wrong: int = 0


@dataclass(frozen=True)
class RowsLate:
    """Rows of a source that came too late: the earliest, and how many if somebody has to know."""

    source: int
    earliest: int
    rows: int = 0


@dataclass(frozen=True)
class StreamProgress:
    """The frontier of a stream in the partition that hands it on, the largest start that partition knows of, and the
    largest start of the sources below the stream."""

    stream: int
    sender: int
    frontier: int
    tau: int
    start: int = NEVER


@dataclass(frozen=True)
class PunctuationRows:
    """What rows of punctuations have in common: whose they are, how long they hold, which columns have their constants
    in the slots of the row, and the patterns of the others."""

    stream: int
    sender: int
    until: int
    scope: int
    listed: Sequence[str]
    match: Mapping[str, Any]


@dataclass(frozen=True)
class TaskNote:
    """What a partition did.  `sources` are their frontiers, `fed` and `late` their numbers of rows, `left_out` how many
    adjusts of a stream had no event, `progress` the frontiers of queries, `parts` what was written for their sinks,
    `caught_up` how many epochs had to be run again first (-1: none, the state was live), `ends` the largest ends that
    queries have said.  Where rows turn back to go round a loop: `sent`, how many; `external`, what the loop's inputs
    have promised; `sample`, one of the rows.  `measured`: samples by name, in each window asked for."""

    stage: int
    partition: int
    rows_in: int
    rows_out: int
    state_rows: int
    state_bytes: int
    sources: Mapping[str, int]
    fed: Mapping[str, int]
    late: Mapping[str, int]
    left_out: Mapping[str, int]
    progress: Mapping[str, int]
    parts: Mapping[str, Sequence[str]]
    tau: int
    caught_up: int
    worker: int
    damaged: Sequence[str]
    seconds: Mapping[str, float]
    ends: Mapping[str, int] = field(default_factory=dict)
    sent: int = 0
    external: int | None = None
    sample: str = ""
    measured: Sequence[Mapping[str, Any]] = field(default_factory=list)

    def to_plain(self) -> dict[str, Any]:
        """As reports show it."""
        return {"bucket": self.partition} | vars(self)


@dataclass(frozen=True)
class IngressNote:
    """What the ingress stage did; `dropped` counts elements since the beginning, by source and reason."""

    state_rows: int
    state_bytes: int
    dropped: Mapping[str, Mapping[str, int]]
    damaged: Sequence[str]
    caught_up: int


class WrongRows(InputError):
    """Rows that cannot be read as elements.  Tasks only count them; the driver looks for the first one."""


class RowsBehind(InputError):
    """Rows that came behind the promise of a source that allows none.  Tasks only see that there are some."""


_ERRORS: Final[Mapping[str, type[EverwhenError]]] = {
    kind.__name__: kind
    for kind in (
        InputError, WrongRows, RowsBehind, errors.QueryError, errors.TimeRangeError, errors.EvaluationError,
        errors.StateError, errors.SinkError,
    )
}  # fmt: skip


@dataclass(frozen=True)
class Failure:
    """An error on its way from a task to the driver, as a value: its type, its message, the place of wrong input."""

    error: str
    message: str
    stage: int
    place: Mapping[str, Any] | None = None

    @staticmethod
    def of(error: EverwhenError, stage: int) -> Failure:
        known = next((name for name in (each.__name__ for each in type(error).__mro__) if name in _ERRORS), "")
        place = None
        if isinstance(error, InputError):
            names = ("problem", "source", "line", "remedy")
            place = {name: getattr(error, name) for name in names}
        return Failure(known, str(error), stage, place)

    def raised(self) -> EverwhenError:
        """The same error again; what the driver treats in a way of its own has a type of its own."""
        kind = _ERRORS.get(self.error, EverwhenError)
        if issubclass(kind, InputError) and self.place is not None:
            place = dict(self.place)
            return kind(place.pop("problem"), **place)
        return kind(self.message)


Message: TypeAlias = SourceProgress | RowsLate | StreamProgress | PunctuationRows | TaskNote | IngressNote | Failure
_KINDS: Final[Sequence[type[Message]]] = (
    SourceProgress, RowsLate, StreamProgress, TaskNote, IngressNote, Failure, PunctuationRows,
)  # fmt: skip
PUNCTUATION: Final = -len(_KINDS)
"""The kind of the messages of which there may be many, and which use slots."""


def kind_of(message: type[Message]) -> int:
    """The kind of a message, as the column says it."""
    return -1 - _KINDS.index(message)


def encode(message: Message) -> str:
    """A message as the column says it."""
    return json.dumps({"v": VERSION} | vars(message), ensure_ascii=False)


def encode_in_jvm(message: type[Message], given: Mapping[str, Column]) -> Column:
    """The same of a message whose fields the JVM computes."""
    unknown = set(given) - {field.name for field in fields(message)}
    assert not unknown, f"{message.__name__} has no {unknown}"
    return F.to_json(F.struct(F.lit(VERSION).alias("v"), *(column.alias(name) for name, column in given.items())))


def field_in_jvm(name: str) -> Column:
    """A number among the fields of the message in a row."""
    return F.get_json_object("message", f"$.{name}").cast("bigint")


def decode(kind: int, text: str) -> Message:
    """The message of a kind that the column says."""
    said = json.loads(text)
    check_version(said.pop("v", None), "a control message")
    return _KINDS[-1 - kind](**said)


def message_rows(layout: ExchangeSchema, to: Iterable[int], messages: Sequence[Message]) -> pa.RecordBatch:
    """Messages as rows, each to all of some partitions."""
    kinds, texts = [kind_of(type(message)) for message in messages], [encode(message) for message in messages]
    targets = list(to)
    given = {
        "partition": pa.array(np.repeat(np.array(targets, np.int32), len(messages))),
        "kind": pa.array(kinds * len(targets), pa.int32()),
        "message": pa.array(texts * len(targets), pa.string()),
    }
    return layout.batch(len(messages) * len(targets), given)


def messages_in(table: pa.Table) -> list[Message]:
    """The messages among the rows of a table, without punctuations."""
    kinds = kinds_in(table)
    places = np.flatnonzero((kinds < 0) & (kinds > PUNCTUATION))
    texts = table.column("message").take(pa.array(places)).to_pylist()
    return [decode(kind, text) for kind, text in zip(kinds[places].tolist(), texts, strict=True)]


def kinds_in(table: pa.Table) -> np.ndarray:
    """The kinds of the rows of a table."""
    return np.asarray(table.column("kind").to_numpy())
