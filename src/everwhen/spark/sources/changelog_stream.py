"""A changelog folder as a streaming DataFrame: the answers of one query as the input of another.

**Guarantee.**  An offset is the number of an epoch of the folder, and an epoch is read when its manifest is there: so
the stream has all committed epochs, in order and each once, and nothing of one that is being written.  What lies
between two offsets never changes.

Rows are elements as the outside contract has them: `op, vs, ve, vnew`, then the columns; promises (CTIs) are rows among
them.  Epochs that are there already come together, at most `epochs` of them at a time.

A writer that has lost its state begins anew: it says another stream of elements for the same history, a new *start* of
the folder with an id of its own.  A DataFrame is of the start that was the present one when it was made.  The next one
is another stream, to be attached to a merge; so when the writer has begun anew the stream fails, or ends in silence
(`restarts`).  Where Spark goes on from the offset of another stream, which this one has taken the place of, it begins
at its own beginning.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import LongType, StringType, StructField, StructType

from everwhen.core.schema import RESERVED
from everwhen.core.time import INF
from everwhen.errors import InputError, QueryError
from everwhen.formats.changelog.layout import epochs_there, first_kept, manifest_name, read_header, read_manifest
from everwhen.formats.changelog.readers import Word, leave_word
from everwhen.formats.changelog.reading import read_errors, read_part
from everwhen.formats.json.lines import DEFAULT_BATCH
from everwhen.formats.parquet import MATCH
from everwhen.punctuation.api import write_match
from everwhen.spark.translate.terms import carried_type
from everwhen.storage.folder import Folder, open_folder
from everwhen.stream.element import Punct
from everwhen.stream.element_batch import ADJUST, CTI, EXTERNAL_CTI, OPS, PUNCT, ElementBatch

FORMAT: Final = "everwhen_changelog"
_OPS: Final = pa.array(OPS)
EPOCHS: Final = 1000
"""So many epochs of the folder come together at most."""


def read_changelog_stream(
    spark: SparkSession,
    path: str | os.PathLike[str],
    *,
    epochs: int = EPOCHS,
    punctuation: bool = False,
    reader: str | None = None,
    restarts: Literal["error", "wait"] = "error",
) -> DataFrame:
    """A changelog folder, which may still grow, as a streaming DataFrame of elements; `start` takes it as it is.

    `epochs`: so many of the folder's epochs make one of the stream at most.  `punctuation`: promises about data are
    rows too, else they are left out.  `reader`: leave word in the folder how far it has been read, under this name, so
    that a writer that keeps only unread epochs keeps those.  `restarts`: a writer that begins anew is an error; or,
    with "wait", the stream just brings no more, which does no harm to a merge that has other inputs.

    >>> import everwhen as ew
    >>> from tempfile import mkdtemp
    >>> here = mkdtemp()
    >>> s = ew.source("S", {"x": "int64"})
    >>> sink = ew.spark.ChangelogSink(f"{here}/answers")
    >>> sink.prepare(s.schema)
    >>> sink.commit(0, ew.ElementBatch.of([ew.Insert(0, 5, {"x": 1}), ew.Cti(3)], s.schema))
    >>> frame = ew.spark.read_changelog_stream(spark, sink.path)
    >>> frame.columns
    ['op', 'vs', 've', 'vnew', 'x']
    >>> out = ew.spark.MemorySink()
    >>> handle = ew.spark.start(s, {"S": frame}, sink=out, checkpoint=f"{here}/state", trigger="available", buckets=1)
    >>> handle.await_termination()
    True
    >>> print(*out.elements())
    insert [0, 5) x=1 cti 3
    """
    if epochs < 1:
        raise QueryError(f"read_changelog_stream: an epoch holds one of the folder's at least, not {epochs}")
    text = os.fspath(path)
    place = text if "://" in text or text.startswith("file:") else os.path.abspath(os.path.expanduser(text))
    if restarts not in ("error", "wait"):
        raise QueryError(f"read_changelog_stream: restarts is 'error' or 'wait', not {restarts!r}")
    start = _Changelog(place).start  # what is wrong with the folder is told here and now, not by a worker of Spark's
    given = {"path": place, "epochs": str(epochs), "punctuation": str(int(punctuation)), "reader": reader or ""}
    given |= {"start": start.id, "first": str(start.first), "restarts": restarts}
    ChangelogSource(given).schema()
    spark.dataSource.register(ChangelogSource)
    return spark.readStream.format(FORMAT).options(**given).load()


class ChangelogSource(DataSource):
    """The format `everwhen_changelog`."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        path = self.options["path"]
        schema = _Changelog(path).schema
        fields = [StructField("op", StringType()), *(StructField(name, LongType()) for name in RESERVED[1:])]
        for field in schema:
            carried = carried_type(field.type)
            if carried is None:
                raise QueryError(f"{path}: the column {field.name!r} is of type {field.type}, which Spark cannot carry")
            if field.name in (*RESERVED, MATCH):
                raise QueryError(f"{path}: a column named {field.name!r} has no place among elements; rename it")
            fields.append(StructField(field.name, carried))
        return StructType([*fields, *([StructField(MATCH, StringType())] if self._words else [])])

    @property
    def _words(self) -> bool:
        return self.options.get("punctuation") == "1"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = self.options
        return ChangelogStreamReader(options["path"], schema, self._words, options)


class PartFile(InputPartition):
    """A file of an epoch, which one task reads."""

    def __init__(self, epoch: int, name: str) -> None:
        super().__init__((epoch, name))
        self.epoch = epoch
        self.name = name


class ChangelogStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The epochs of one start.  An offset is the next epoch, and the start that it is of."""

    def __init__(self, path: str, schema: StructType, words: bool, options: Mapping[str, str]) -> None:
        self._path, self._schema, self._words = path, schema, words
        self._id = options["start"]
        # folders of older versions have one start without a name: then the folder's name is as good
        self._first: dict[str, Any] = {"epoch": int(options["first"]), "start": self._id or path}
        self._most, self._reader = int(options["epochs"]), options["reader"]
        self._waits = options["restarts"] == "wait"
        self._last: int | None = None  # all that there was when only that was asked for

    def initialOffset(self) -> dict[str, Any]:
        return dict(self._first)

    def _mine(self, offset: Mapping[str, Any]) -> bool:
        """Whether an offset is of this start, not of a stream that was read before in its place."""
        return "epoch" in offset and offset.get("start") == self._first["start"]

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The epochs that are there, one after the other."""
        start = start if self._mine(start) else self._first
        folder = _Changelog(self._path)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._most
        until = start["epoch"] + most if self._last is None else min(start["epoch"] + most, self._last)
        epoch = start["epoch"]
        while epoch < until and folder.has(epoch, self._id):
            epoch += 1
        if epoch == start["epoch"] and not self._waits:
            folder.check_next(epoch, self._id)
        return {"epoch": epoch, "start": start["start"]}

    def prepareForTriggerAvailableNow(self) -> None:
        self._last = _Changelog(self._path).next_epoch()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        if not self._mine(end):
            return []  # what was planned of another stream is that one's; nobody reads it any more
        folder = _Changelog(self._path)
        numbers = range((start if self._mine(start) else self._first)["epoch"], end["epoch"])
        return [PartFile(epoch, name) for epoch in numbers for name in folder.parts(epoch, self._id)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, PartFile)
        for batch in _Changelog(self._path).elements(partition.epoch, partition.name):
            if len(batch):
                yield record_batch(batch, self._schema, self._words)

    def commit(self, end: dict[str, Any]) -> None:
        """Epochs before `end` are never asked for again."""
        if self._reader:
            _Changelog(self._path).leave_word(self._reader, end["epoch"])


def element_arrays(batch: ElementBatch) -> list[pa.Array]:
    """Starts, ends and new ends of elements, their columns, and the patterns of promises: infinity is null."""
    vs, op = batch.vs.copy(), batch.op
    matches = np.full(len(batch), None, object)
    for i, said in batch.promises.items():
        if isinstance(said, Punct):
            vs[i], matches[i] = said.promise.t, json.dumps(write_match(said.promise.match, batch.schema))
    return [
        pa.array(vs, mask=vs == INF),
        pa.array(batch.ve, mask=(batch.ve == INF) | (op >= CTI)),
        pa.array(batch.vnew, mask=(batch.vnew == INF) | (op != ADJUST)),
        *(c.dictionary_decode() if isinstance(c, pa.DictionaryArray) else c for c in batch.columns),
        pa.array(matches, pa.string()),
    ]


def record_batch(batch: ElementBatch, schema: StructType, words: bool) -> pa.RecordBatch:
    """Elements as the contract's columns."""
    keep = np.flatnonzero(batch.op <= (PUNCT if words else CTI))
    assert EXTERNAL_CTI > PUNCT, "they are left out"
    arrays = [_OPS.take(pa.array(batch.op)), *element_arrays(batch)][: len(schema.fields)]
    types = [to_arrow_type(field.dataType, timezone="UTC") for field in schema.fields]
    found = [array.cast(type_) for array, type_ in zip(arrays, types, strict=True)]
    whole = pa.RecordBatch.from_arrays(found, schema.names)
    return whole if len(keep) == len(batch) else whole.take(pa.array(keep))


# -- the folder --------------------------------------------------------------------------------------------------------


class _Changelog:
    """What is read of a folder: its header, manifests and parts (`formats/changelog`)."""

    def __init__(self, path: str) -> None:
        self._path = path
        with read_errors(path):
            self._folder: Folder = open_folder(path)
            header = read_header(self._folder)
        self.schema, self.start, self._header = header.schema, header.start, header

    def next_epoch(self) -> int:
        """The number after the last epoch that is there."""
        with read_errors(self._path):
            return max(epochs_there(self._folder), default=-1) + 1

    def has(self, epoch: int, start: str) -> bool:
        """Whether an epoch is there, and of a start."""
        with read_errors(self._path):
            there = self._folder.exists(manifest_name(epoch))
            return there and read_manifest(self._folder, epoch).start.id == start

    def parts(self, epoch: int, start: str) -> tuple[str, ...]:
        """The files of an epoch, which must be of a start."""
        with read_errors(self._path):
            found = read_manifest(self._folder, epoch)
        if found.start.id != start:
            raise self._anew(epoch)
        return found.parts

    def check_next(self, epoch: int, start: str) -> None:
        """An epoch that is not there may come still; not if the writer has begun anew, or the epoch was removed."""
        if self.start.id != start:
            raise self._anew(self.start.first)
        with read_errors(self._path):
            kept = first_kept(self._folder)
        if epoch < kept:
            raise InputError(
                f"epoch {epoch} is gone: the folder keeps those from {kept} on",
                source=self._path,
                remedy="let the folder keep all epochs, or name a reader, from the beginning",
            )

    def elements(self, epoch: int, name: str) -> Iterator[ElementBatch]:
        """The elements of a part."""
        with read_errors(self._path):
            yield from read_part(self._folder, name, epoch, self._header, DEFAULT_BATCH)

    def leave_word(self, reader: str, epoch: int) -> None:
        with read_errors(self._path):
            leave_word(self._folder, Word(reader, epoch))

    def _anew(self, epoch: int) -> InputError:
        return InputError(
            f"the writer has begun anew with epoch {epoch}: what follows is another stream of the same history",
            source=self._path,
            remedy="detach this input, and attach a new stream of the folder in its place (Handle.attach)",
        )
