"""`check`, `history`, `diff`: what files of elements are, what they say, whether they say the same."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Iterator
from typing import Final

from everwhen.cli.command import (
    DONE,
    FAILED,
    FILES,
    WRONG_INPUT,
    Command,
    declare_times,
    fail,
    out_option,
    read,
    time_option,
    tolerance_option,
)
from everwhen.core.scalars import has_form, json_values
from everwhen.core.time import show
from everwhen.core.time_axis import TimeAxis, asked_axis, common_axis, tick_length, times_shown
from everwhen.errors import InputError, QueryError
from everwhen.formats.parquet import is_parquet, write_elements
from everwhen.stream.element_batch import ElementBatch
from everwhen.stream.history import History, first_difference
from everwhen.stream.validity import Checker, checked

# --- check --------------------------------------------------------------------------------------------------------


def _declare_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=FILES)
    declare_times(parser, with_tick=True)


def _opened(options: argparse.Namespace, file: str) -> tuple[TimeAxis, Iterator[ElementBatch]]:
    """The elements of a file, and the axis on which their times are shown."""
    axis, batches = _elements(options, file)
    return asked_axis(axis, options.times), batches


def _elements(options: argparse.Namespace, file: str) -> tuple[TimeAxis, Iterator[ElementBatch]]:
    """The elements of a file, and the axis of their times."""
    if file.lower().endswith((".csv", ".tsv")):
        raise QueryError(f"{file}: CSV is read by run and shell; here a file of elements is: JSON lines or .parquet")
    if file.endswith("/") and not os.path.exists(file):
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), file)
    return read(file, _tick(options))


def _tick(options: argparse.Namespace) -> int | None:
    return None if options.tick is None else tick_length(options.tick)


def _check(options: argparse.Namespace) -> int:
    axis, batches = _opened(options, options.file)
    with times_shown(axis):
        checker = Checker()
        for batch in batches:
            checker.take(batch)
        report = checker.report()
        sys.stdout.write(f"{report}\n")
    offence = report.first_offence
    if offence is None:
        return DONE
    return fail(InputError(offence.why, source=offence.source, line=offence.line), WRONG_INPUT)


# --- history ------------------------------------------------------------------------------------------------------


def _declare_history(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help=FILES)
    parser.add_argument(
        "--at",
        metavar="T",
        type=time_option,
        help="only the snapshot at instant T: what is alive then; ticks, a date, or for example '2015-09-02 06:45'",
    )
    parser.add_argument(
        "--coalesce", action="store_true", help="join lifetimes of equal rows: the canonical level form"
    )
    parser.add_argument(
        "--out", metavar="FILE", default="-", type=out_option, help="write elements here (- is the standard output)"
    )
    declare_times(parser, with_tick=True)


def _history(options: argparse.Namespace) -> int:
    axis, batches = _opened(options, options.file)
    with times_shown(axis):
        history = History.of(checked(batches))
        return _show_history(options, history, axis)


def _show_history(options: argparse.Namespace, history: History, axis: TimeAxis) -> int:
    at = None if options.at is None else options.at.on(axis)
    if at is not None:
        history = history.at(at)
    if options.coalesce:
        history = history.coalesced()
    formless = [field for field in history.schema if not has_form(field.type)]
    if formless and not is_parquet(options.out):
        problem = f"the column {formless[0].name!r} is of type {formless[0].type}, which has no form in JSON lines"
        remedy = "write Parquet with --out FILE.parquet, or drop the column"
        raise InputError(problem, source=options.file, remedy=remedy)
    if options.out != "-":
        write_elements([history.batch()], options.out, history.schema, axis)
    elif sys.stdout.isatty():
        _show_table(history, None if at is None else f"alive at {show(at)}")
    else:
        write_elements([history.batch()], sys.stdout, axis=axis)
    return DONE


def _show_table(history: History, title: str | None) -> None:
    from rich.console import Console  # only a terminal pays for it
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, caption="1 event" if len(history) == 1 else f"{len(history)} events")
    batch = history.batch()
    if title is None:
        table.add_column("vs", justify="right")
        table.add_column("ve", justify="right")
    for name in history.schema.names:
        table.add_column(Text(name))
    columns = [[show(int(t)) for t in times] for times in (batch.vs, batch.ve)] if title is None else []
    columns += [["null" if v is None else str(v) for v in json_values(column)] for column in batch.columns]
    for row in zip(*columns, strict=True):
        table.add_row(*map(Text, row))
    Console().print(table)


# --- diff ---------------------------------------------------------------------------------------------------------


def _declare_diff(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("a", metavar="A", help=FILES)
    parser.add_argument("b", metavar="B", help="another one")
    parser.add_argument(
        "--tolerance",
        metavar="R",
        type=tolerance_option,
        default=0.0,
        help="let floats differ by this part of their size",
    )
    declare_times(parser, with_tick=True)


def _diff(options: argparse.Namespace) -> int:
    if options.a == options.b == "-":
        raise QueryError("only one of the two files can be the standard input")
    files = [_elements(options, file) for file in (options.a, options.b)]
    common = common_axis(axis for axis, _ in files)
    with times_shown(asked_axis(common, options.times)):
        a, b = (
            History.of(batch.scaled(axis.tick // common.tick if axis.dated else 1) for batch in checked(batches))
            for axis, batches in files
        )
        # The types of JSON lines are found in the file: 2 in one and 2.0 in the other are the same number to a reader.
        difference = first_difference(a, b, options.tolerance, typed=False)
        if difference is None:
            sys.stdout.write("equal at every instant\n")
            return DONE
        sys.stdout.write(f"{difference}\n")
        return FAILED


COMMANDS: Final = (
    Command(
        "check",
        "Is a file of elements a valid stream? Ordered, perfect, closed up to when, grammatical? Names the first "
        "line that breaks it; the exit status is 3 if the stream is not valid.",
        ("everwhen check bids.jsonl",),
        _declare_check,
        _check,
    ),
    Command(
        "history",
        "What a file of elements says once all adjusts are applied: its events, or the snapshot at one instant. "
        "A table on a terminal, elements as JSON lines elsewhere.",
        ("everwhen history bids.jsonl --at 1200", "everwhen history best.parquet --at '2015-09-02 06:45'"),
        _declare_history,
        _history,
    ),
    Command(
        "diff",
        "Do two files say the same at every instant, however their lifetimes are cut and corrected? Else the first "
        "instant at which they differ, and the rows; the exit status is then 1.",
        ("everwhen diff expected.jsonl got.parquet --tolerance 1e-9",),
        _declare_diff,
        _diff,
    ),
)
