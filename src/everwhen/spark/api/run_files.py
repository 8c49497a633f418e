"""A query over files, on Spark: the same epochs as in process, and the answer in a file that is whole or not there.

    files ─▶ arrival ─▶ intake ─▶ <work>/epochs/<input>/<n>.parquet ─▶ one streaming read per input, a file per epoch
                                                                   ─▶ stages ─▶ <work>/answer ─▶ output

The driver reads the inputs in the order of their arrival and checks every element as the runtime in process does; so a
wrong element is named with its file and line before Spark is even started.  Each epoch becomes one file per input.
Promises about data stand in it, also those that follow from the schemes of a source, which are derived here.  Spark
takes the files epoch by epoch.  What a level lets wait or gives up is decided here too, in the order of arrival, so
Spark sees what is left.

**Guarantee.**  The answer is that of `run_files`, as a history, whatever the policy; on any error, and when it is
interrupted, the output is as it was and nothing is left running.  With a checkpoint a run that was killed goes on: the
epochs are written before Spark starts, and Spark takes each exactly once.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict, Unpack

import pyarrow.parquet as pq

from everwhen.algebra import nodes as n
from everwhen.algebra.builder import Stream, node_of
from everwhen.core.consistency import MIDDLE, Consistency
from everwhen.core.emit import Emit
from everwhen.core.schema import Schema
from everwhen.core.time import show
from everwhen.core.time_axis import TimeAxis
from everwhen.engine.element_ingress import ElementIngress
from everwhen.engine.epochs import EpochReader
from everwhen.engine.files.axis import axis_of_inputs
from everwhen.engine.files.checkpoint import agree, finished, locked, note_run
from everwhen.engine.files.late_book import LateBook, silence
from everwhen.engine.files.output_file import write_answer
from everwhen.engine.files.replans import FROM_THE_BEGINNING, counts_from
from everwhen.engine.files.run import Losses, Progress, Watch, identity, input_files
from everwhen.engine.interruption import apart
from everwhen.engine.local import LocalRuntime, Query
from everwhen.engine.run import SMALL_PIECE
from everwhen.errors import QueryError, StateError
from everwhen.formats.input_file import InputFile, read_input
from everwhen.operators.ingress.finalize import Reason
from everwhen.plan.lower import lower
from everwhen.plan.stages.unpunctuated import without_policies, without_schemes
from everwhen.sinks.changelog import read_changelog
from everwhen.spark.api.epoch_files import AnswerFolder, epoch_table
from everwhen.spark.api.launch import ended_on_failure, heard_by, kept_signals
from everwhen.storage.atomic_file import whole_file
from everwhen.stream.element_batch import ElementBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from everwhen.spark.api.handle import Handle

_TIMES: Final = ("_everwhen_op", "_everwhen_vs", "_everwhen_ve", "_everwhen_vnew")
_MATCH: Final = "_everwhen_match"
_FIRST_MOMENT: Final = 1_000_000_000
"""Spark takes the oldest file first: the n-th is n seconds younger than this."""
_FOREVER: Final = "36500d"
_SHORT: Final = 2_000_000
"""Fewer elements are a short run,"""
_QUICK_START: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""in which the JVM would spend 10 of 25 seconds of processor time on compiling well what is soon over."""
_MOMENT: Final = 0.1


def run_files_on_spark(
    query: Query,
    inputs: Mapping[str, str | InputFile],
    out: str = "-",
    *,
    consistency: Consistency = MIDDLE,
    emit: str | Emit | None = None,
    batch: int = 10_000,
    open: bool = False,
    checkpoint: str | None = None,
    progress: Watch | None = None,
    losses: Callable[[Losses], None] | None = None,
    tell: Callable[[str], None] | None = None,
    **how: Unpack[SparkHow],
) -> int:
    """As `run_files`, on the Spark session there is, or on a new one with all cores, which is stopped in the end."""
    watch: Watch = progress or (lambda _: None)
    node = node_of(query)
    level = consistency.changed(emit=emit)
    sources = n.sources_of(node)
    given = input_files(inputs, {name: source.schema for name, source in sources.items()}, batch)
    _check_types(sources)
    if checkpoint is None:
        with tempfile.TemporaryDirectory(prefix="everwhen-") as aside:
            work = _SparkWork(query, sources, given, level, Path(aside), watch, how)
            return work.run(batch, open, out, losses, tell, axis_of_inputs(query, given))
    place = Path(checkpoint)
    with locked(place):
        asked = (query.asked or query.node) if isinstance(query, Stream) else query
        mine = identity(asked, given, level.emit, batch, open, "spark", level)
        changed = agree(place, mine, free=("query",) if how.get("migrate") else ())
        work = _SparkWork(query, sources, given, level, place.absolute(), watch, how)
        if changed and (place / "done").exists():
            raise finished(place)
        work.taken_over = partial(note_run, place, mine) if changed else None
        return work.run(batch, open, out, losses, tell, axis_of_inputs(query, given))


class SparkHow(TypedDict, total=False):
    """How Spark runs it: `buckets`, the partitions of the state; `migrate`: another text may take over from that of the
    checkpoint; `replan_every`: after how many epochs its plan changes between the written and the rewritten one."""

    buckets: int | None
    migrate: bool
    replan_every: int | None


def _check_types(sources: Mapping[str, n.Source]) -> None:
    from everwhen.spark.translate.terms import carried_type

    for name, source in sources.items():
        for field in source.schema:
            if carried_type(field.type) is None:
                raise QueryError(
                    f"the column {field.name!r} of {name} is of type {field.type}, which Spark cannot carry; leave it "
                    "out of the stream's declaration, declare another type, or run the query with --engine local"
                )


class _SparkWork:
    """One run in its directory."""

    def __init__(
        self,
        query: Query,
        sources: Mapping[str, n.Source],
        given: Mapping[str, InputFile],
        level: Consistency,
        place: Path,
        watch: Watch,
        how: SparkHow,
    ) -> None:
        self.query = query if isinstance(query, Stream) else Stream(query)
        self.node, self.sources, self.given, self.level = self.query.node, sources, given, level
        self.place, self.watch, self.how = place, watch, how
        self.tell: Callable[[str], None] = lambda _: None
        self.taken_over: Callable[[], None] | None = None
        """What is done once the query is known to go on from the checkpoint, where that is of another text."""
        self.promising: frozenset[str] = frozenset()
        """The inputs that promise something about their data."""
        self.first: dict[str, ElementBatch] = {}
        """The first epoch, if it was read just now."""
        self.ends: dict[str, int] = {}
        """The epochs with which inputs end."""
        self.folders = {name: place / "epochs" / f"{i:03d}" for i, name in enumerate(given)}

    def run(
        self,
        batch: int,
        open: bool,
        out: str,
        losses: Callable[[Losses], None] | None,
        tell: Callable[[str], None] | None,
        axis: TimeAxis,
    ) -> int:
        self.tell = tell or self.tell
        book = LateBook(self.given, self.tell, axis)
        try:
            epochs, read, lost = self._prepared(batch, open, book)
        finally:
            book.close()
        if losses is not None:
            losses(lost)
        if epochs and not self._done():
            self._answered(epochs, read)
        said = read_changelog(self.place / "answer") if epochs else ()
        return write_answer(said, out, self.node.schema, axis)

    def _done(self) -> bool:
        return (self.place / "done").exists()

    # -- the epochs ---------------------------------------------------------------------------------------------

    def _prepared(self, batch: int, open: bool, book: LateBook) -> tuple[int, int, Losses]:
        """The epochs as files: how many there are, how many elements were read for them, and what was given up."""
        mark = self.place / "epochs.json"
        if mark.exists():
            try:
                found = json.loads(mark.read_text(encoding="utf-8"))
                self.promising, self.ends = frozenset(found["promising"]), dict(found.get("ends", {}))
                self._check_columns(found.get("columns"))
                lost = {name: {Reason(r): n for r, n in each.items()} for name, each in found["dropped"].items()}
                return int(found["epochs"]), int(found["elements"]), lost
            except (OSError, ValueError, KeyError, TypeError) as bad:
                raise StateError(f"{mark} cannot be read: {bad}; remove the directory to start anew") from None
        shutil.rmtree(self.place / "epochs", ignore_errors=True)  # of a run that was killed on the way
        for folder in self.folders.values():
            folder.mkdir(parents=True)
        ingress = ElementIngress(self.sources, self._bounded(), self.level, dropped=book.note)
        book.begin({})
        pieces = {name: read_input(file, max(batch, SMALL_PIECE)) for name, file in self.given.items()}
        whole = [name for name, file in self.given.items() if file.known_whole]
        arrival = EpochReader(pieces, batch, open, whole)
        count = 0
        for count, epoch in enumerate(arrival, 1):
            closes = list(self.given) if epoch.last else epoch.closes
            admitted = ingress.push(epoch.batches, closes)
            self.ends = {name: count - 1 for name in closes} | self.ends
            self.first = self.first or admitted
            self.promising |= {name for name, batch in admitted.items() if batch.promises}
            for name, folder in self.folders.items():
                self._write(folder, count - 1, admitted[name], self.sources[name].schema)
            book.look(ingress.late)
            self.watch(Progress("reading", sum(arrival.taken.values())))
        elements = sum(arrival.taken.values())
        book.end(ingress.late)
        if open and (words := silence(ingress.promised, self.level.emit is Emit.FINAL, elements)) is not None:
            book.tell(words)
        lost = ingress.dropped
        plain = {name: {reason.value: n for reason, n in each.items()} for name, each in lost.items()}
        with whole_file(mark) as part:
            about = {"epochs": count, "elements": elements, "dropped": plain}
            about |= {"promising": sorted(self.promising), "ends": self.ends, "columns": self._columns()}
            text = json.dumps(about)
            part.write_text(text, encoding="utf-8")
        return count, elements, lost

    def _columns(self) -> dict[str, str]:
        return {name: str(source.schema) for name, source in self.sources.items()}

    def _check_columns(self, before: Mapping[str, str] | None) -> None:
        """The epochs are files already: another query reads them as they are."""
        for name, columns in self._columns().items():
            if before is not None and before.get(name) != columns:
                raise QueryError(
                    f"the checkpoint {self.place} has the rows of {name} with the columns {before.get(name, '()')}, "
                    f"and the query reads {columns}: declare them as before, or take a new directory"
                )

    def _bounded(self) -> frozenset[str]:
        """The sources that wait or are forgotten, if the level does so: those below operators with state."""
        if not (self.level.finalizes or self.level.aligns):
            return frozenset()
        return lower({"out": self.node}, self.level.emit).waiting_sources()

    def _write(self, folder: Path, epoch: int, batch: ElementBatch, schema: Schema) -> None:
        path = folder / f"{epoch:09d}.parquet"
        pq.write_table(epoch_table(batch, schema), path)
        os.utime(path, (_FIRST_MOMENT + epoch, _FIRST_MOMENT + epoch))

    # -- Spark --------------------------------------------------------------------------------------------------

    def _answered(self, epochs: int, read: int) -> None:
        """Runs all epochs that were not run yet."""
        self.watch(Progress("starting Spark, which takes a few seconds", read))
        kernels = threading.Thread(target=self._compile, name="everwhen-kernels", daemon=True)
        kernels.start()
        with kept_signals() as check, session_for(self.place, check, read) as spark:
            while kernels.is_alive():
                self.watch(Progress("compiling kernels, which takes up to a minute at the first start", read))
                kernels.join(_MOMENT)
                check()
            handle = self._start(spark)
            self.watch(Progress("running the first epoch, for which the workers load the kernels", read))
            try:
                self._wait(handle, epochs, read, check)
            finally:
                handle.stop()
        (self.place / "done").touch()

    def _plain(self) -> Stream:
        """The plan over sources whose rows hold what follows from their schemes."""
        forms = {"node": self.node, "asked": self.query.asked or self.node}
        plain = without_policies(without_schemes(forms))
        return Stream(plain["node"], asked=plain["asked"])

    def _compile(self) -> None:
        """Runs the first epoch here while Spark starts: compiled kernels are kept on disk, where workers find most of
        those they need, which they would otherwise all compile at once."""
        if self.first:
            with suppress(Exception):  # the run itself will say it
                LocalRuntime(self._plain(), self.level.emit).push(self.first)

    def _start(self, spark: SparkSession) -> Handle:
        from everwhen.spark.api.start import start
        from everwhen.spark.driver.epoch_log import EpochLog
        from everwhen.spark.sources.source import SparkSource

        op, vs, ve, vnew = _TIMES
        frames = {name: self._frame(spark, name) for name in self.given}
        described = {
            name: SparkSource(
                vs,
                end=ve,
                op=op,
                vnew=vnew,
                columns=self.sources[name].schema.names,
                match=_MATCH if name in self.promising else None,
            )
            for name in self.given
        }
        begun = EpochLog(str(self.place / "spark")).newest() >= 0
        handle = start(
            self._plain(),
            frames,
            sources=described,
            sink=AnswerFolder(str(self.place / "answer")),
            checkpoint=self.place / "spark",
            trigger="available",
            emit=self.level.emit,
            buckets=self.how.get("buckets"),
            ends=self.ends,
            migrate=self.how.get("migrate", False),
            replan_every=self.how.get("replan_every"),
        )
        at = handle.replaced_at
        if self.taken_over is not None:
            self.taken_over()
        if self.how.get("migrate") and not begun:
            self.tell(FROM_THE_BEGINNING)
        elif at is not None:
            self.tell(counts_from(at) if self.taken_over is not None else f"another plan takes over at {show(at)}")
        return handle

    def _frame(self, spark: SparkSession, name: str) -> DataFrame:
        from pyspark.sql.types import ByteType, LongType, StringType, StructField, StructType

        from everwhen.spark.translate.terms import carried_type

        schema = self.sources[name].schema
        fields = [StructField("op", ByteType()), *(StructField(time, LongType()) for time in ("vs", "ve", "vnew"))]
        for i, type_ in enumerate(schema.types):
            carried = carried_type(type_)
            assert carried is not None
            fields.append(StructField(f"c{i}", carried))
        names = [*_TIMES, *schema.names]
        if name in self.promising:
            fields.append(StructField("match", StringType()))
            names.append(_MATCH)
        reader = spark.readStream.schema(StructType(fields)).option("maxFilesPerTrigger", 1)
        frame = reader.option("maxFileAge", _FOREVER).parquet(self.folders[name].as_uri())
        return frame.toDF(*names)

    def _wait(self, handle: Handle, epochs: int, read: int, check: Callable[[], None]) -> None:
        said, seen = 0, -1
        while not handle.await_termination(_MOMENT):
            check()
            for report in handle.recent:
                if report.epoch > seen:
                    seen, said = report.epoch, said + report.rows_out
                    words = f"running epoch {seen + 1} of {epochs}"
                    self.watch(Progress(words, read, said, dict(report.progress), share=(seen + 1) / epochs))


# -- the session -------------------------------------------------------------------------------------------------------


@contextmanager
def session_for(place: Path, check: Callable[[], None], elements: int | None = None) -> Iterator[SparkSession]:
    """The session there is; or a new one, for so many elements if that is known, whose words go to a file, and which
    is gone in the end."""
    from pyspark import SparkContext

    from everwhen.spark.api.session import session
    from everwhen.spark.internals.jvm_reach import stopped_after

    if SparkContext._active_spark_context is not None:
        yield session()
        return
    with heard_by(place / "spark.log"), ended_on_failure():
        conf: dict[str, object] = {"spark.sql.shuffle.partitions": 2}
        if elements is not None and elements < _SHORT:
            conf["spark.driver.extraJavaOptions"] = _QUICK_START
        spark = apart(lambda: session("local[*]", "everwhen run", **conf), check)
    with stopped_after(spark.stop):
        yield spark
