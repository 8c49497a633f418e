"""`run --follow` and `run --copies`: a query that goes on, in this process or in several."""

from __future__ import annotations

import argparse
import base64
import io
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from everwhen.algebra.builder import Stream
from everwhen.cli.command import DONE, Interrupted, number_option, warn
from everwhen.cli.query import Compiled, contents_of_file
from everwhen.cli.replan import replans_of
from everwhen.cli.source_options import SourceOptions
from everwhen.core.consistency import Consistency
from everwhen.core.schema import Schema
from everwhen.engine.interruption import interruptible
from everwhen.errors import QueryError
from everwhen.formats.input_file import STANDARD_INPUT, is_changelog, is_csv, is_folder, schema_in_file
from everwhen.formats.json.lines import infer_schema
from everwhen.formats.parquet import is_parquet
from everwhen.formats.plain_rows import plain_columns
from everwhen.storage.atomic_file import whole_file

if TYPE_CHECKING:
    from everwhen.engine.files.run import Losses, Watch

_LOOK: Final = 0.02
_TOLD_AFTER: Final = 3.0


def declare_follow(parser: argparse.ArgumentParser) -> None:
    """The options of runs that go on."""
    add = parser.add_argument
    add(
        "--follow", action="store_true",
        help="the inputs grow: go on until everything is promised, exactly once; needs --out DIR/, and runs in process",
    )  # fmt: skip
    add(
        "--copies", metavar="N", type=number_option,
        help="with --follow: the same query N times, in processes of their own, merged; needs --checkpoint DIR",
    )  # fmt: skip
    add("--wait", metavar="SECONDS", type=float, help="with --follow: how long inputs may not be there (for ever)")
    add(
        "--keep", choices=("all", "unread"), default="all",
        help="with --follow: which epochs of --out stay: all, or those that some reader has yet to read",
    )  # fmt: skip


def check_follow(options: argparse.Namespace) -> bool:
    """Whether the run goes on; options that do not go together are an error."""
    if not options.follow:
        for name in ("copies", "wait"):
            if getattr(options, name) is not None:
                raise QueryError(f"--{name} is for runs that go on: add --follow")
        if options.keep != "all":
            raise QueryError("--keep is for runs that go on: add --follow")
        return False
    if options.engine == "spark":
        raise QueryError(
            "--follow runs in this process: leave --engine spark out; on Spark, ew.spark.start runs queries that go on"
        )
    if options.open:
        raise QueryError("--open is for inputs that end here; with --follow they go on by themselves")
    ends = options.out == "-" or is_parquet(options.out) or options.out.endswith((".jsonl", ".json"))
    if ends or os.path.isfile(options.out):
        raise QueryError(f"--follow writes a changelog folder, and {options.out!r} is none: --out DIR/")
    if options.copies is not None and options.checkpoint is None:
        raise QueryError("--copies needs a place for their state: --checkpoint DIR")
    if options.copies is not None and options.copies < 2:
        raise QueryError("--copies needs at least two; one is what runs without it")
    if options.wait is not None and not options.wait >= 0:
        raise QueryError(f"to wait for {options.wait:g} seconds is impossible: 0 or more")
    return True


class LiveColumns:
    """The columns of inputs that are not declared.

    A folder tells them in its header.  Of a file that grows they are those of the lines there are at the first start,
    and are noted beside the output: later starts must mean the same.  An input that is not there is waited for.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self._wait: float | None = options.wait
        self._said = SourceOptions.of(options)
        self._noted = Path(options.out, "_writer", "columns.json")
        self._new: dict[str, str] = {}

    def __call__(self, name: str, file: str) -> Schema:
        if file == STANDARD_INPUT:
            raise QueryError(f"the standard input cannot be followed as {name}: it cannot be read again")
        noted = {**self._read(), **self._new}.get(name)
        if noted is not None:
            return Schema.of(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(noted))))
        began, told = time.monotonic(), False
        while (found := self._columns(name, file)) is None:
            passed = time.monotonic() - began
            if self._wait is not None and passed >= self._wait:
                raise QueryError(f"{file}: not there after {self._wait:g} seconds, and {name} is not declared")
            if passed >= _TOLD_AFTER and not told:
                told = True
                warn(f"waiting for {file}, which has the columns of {name}")
            time.sleep(_LOOK)
        return found if is_folder(file) else self._note(name, found)

    def _columns(self, name: str, file: str) -> Schema | None:
        if is_folder(file):
            return schema_in_file(file) if is_changelog(file) else None
        if not os.path.exists(file):
            return None
        if is_parquet(file) or is_csv(file) or plain_columns(file) is not None:
            return contents_of_file(name, file, self._said).schema
        with open(file, "rb") as stream:
            data = stream.read()
        named = io.BytesIO(data[: data.rfind(b"\n") + 1])
        named.name = file
        found = infer_schema(named)
        return found if len(found) else None

    def _read(self) -> dict[str, str]:
        try:
            found = json.loads(self._noted.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return {str(name): str(text) for name, text in found.items()}

    def _note(self, name: str, schema: Schema) -> Schema:
        self._new[name] = base64.b64encode(schema.to_arrow().serialize()).decode()
        return schema

    def keep(self) -> None:
        """The run begins: what was noted is written."""
        if self._new:
            self._noted.parent.mkdir(parents=True, exist_ok=True)
            with whole_file(self._noted) as part:
                part.write_text(json.dumps({**self._read(), **self._new}), encoding="utf-8")


def run_live(
    options: argparse.Namespace,
    found: Compiled,
    query: Stream,
    level: Consistency,
    columns: LiveColumns,
    watch: Callable[[Callable[[], None]], Watch],
    losses: Callable[[Losses], None],
) -> int:
    """Runs it; `watch` makes of a function that raises when the run is to end one that hears of progress."""
    try:
        if options.copies is None:
            interruptible(lambda check: _follow(options, found, query, level, columns, watch(check), losses))
        else:
            columns.keep()
            interruptible(lambda check: _copies(options, found, query, level, watch(check)))
    except (KeyboardInterrupt, SystemExit) as stop:
        onward = "the same command goes on" if options.checkpoint else "the same command reads all again, and goes on"
        raise Interrupted(f"interrupted; what was said is in {options.out}; {onward}", stop) from None
    return DONE


def _follow(
    options: argparse.Namespace,
    found: Compiled,
    query: Stream,
    level: Consistency,
    columns: LiveColumns,
    watch: Watch,
    losses: Callable[[Losses], None],
) -> None:
    from everwhen.engine.files.live.options import LiveOptions
    from everwhen.engine.files.live.run import LiveRun

    how = LiveOptions(options.batch, wait=options.wait, keep=options.keep, tell=warn, progress=watch)
    run = LiveRun(replans_of(options, found, query), found.inputs, options.out, options.checkpoint, level, how)
    run.require_own_output()
    columns.keep()
    run.run()
    losses(run.runtime.dropped)


def _copies(options: argparse.Namespace, found: Compiled, query: Stream, level: Consistency, watch: Watch) -> None:
    from everwhen.engine.files.copies import copies

    uneven = [name for name, each in found.sources.items() if each.policy.late != "error"]
    if uneven or any(each.late_rows for each in found.inputs.values()):
        raise QueryError(
            "--copies: which rows are late depends on how they fall into batches, so copies that drop or move them "
            f"would differ ({', '.join(sorted(uneven)) or '--late-rows'}); leave --late and LATE ROWS out"
        )
    copies(
        [query] * options.copies,
        found.inputs,
        options.out,
        place=options.checkpoint,
        consistency=level,
        batch=options.batch,
        wait=options.wait,
        keep=options.keep,
        tell=warn,
        progress=watch,
    )
