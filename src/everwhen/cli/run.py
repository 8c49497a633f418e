"""`run`: a query over files, on Spark or in this process."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from everwhen.algebra.builder import Stream
from everwhen.cli.command import (
    DONE,
    Command,
    Interrupted,
    count_option,
    declare_times,
    note,
    out_option,
    warn,
)  # fmt: skip
from everwhen.cli.follow import LiveColumns, check_follow, declare_follow, run_live
from everwhen.cli.input_size import expected_elements, suited_engine
from everwhen.cli.progress import watched
from everwhen.cli.query import Compiled, compiled, declare_query
from everwhen.cli.replan import check_inputs, check_replans, declare_replans, replans_of, spark_options
from everwhen.core.consistency import LEVELS, MIDDLE, Consistency, consistency, emit_named, length_of
from everwhen.core.replay import EpochSize, Replay, ReplayClock
from everwhen.core.time_axis import asked_axis, times_shown
from everwhen.engine.interruption import interruptible
from everwhen.errors import QueryError

if TYPE_CHECKING:
    from everwhen.engine.files.run import Losses, Progress, Watch
    from everwhen.language.program import AskedConsistency


def _declare_run(parser: argparse.ArgumentParser) -> None:
    declare_query(parser)
    add = parser.add_argument
    add(
        "--out", metavar="FILE", default="-", type=out_option,
        help="where the answer goes: .parquet, a changelog folder (DIR/), else JSON lines; - (default)",
    )  # fmt: skip
    add(
        "--engine",
        choices=("spark", "local"),
        help="what runs it: Spark, or this process; else by the size of the inputs",
    )
    declare_consistency(parser)
    add("--batch", metavar="N", type=count_option, default=10_000, help="elements of each input in turn (10000)")
    add("--open", action="store_true", help="the inputs go on: say what a running query would have said by now")
    add("--checkpoint", metavar="DIR", help="keep state here; the same command goes on after it was killed")
    add("--allow-unbounded", action="store_true", help="run a query whose state nothing bounds")
    declare_times(parser)
    add("--rate", metavar="N", type=float, help="replay the inputs: so many elements a second (in process)")
    add("--speed", metavar="X", type=float, help="replay the inputs: so many seconds of their time in a second")
    declare_follow(parser)
    declare_replans(parser)


def declare_consistency(parser: argparse.ArgumentParser) -> None:
    """The options that tell what is said when."""
    add = parser.add_argument
    add(
        "--consistency", choices=("strong", "middle", "weak"),
        help="strong: wait until an answer is final; middle: answer at once, correct later (default); weak: forget",
    )  # fmt: skip
    add("--block", metavar="DURATION", help="how long elements may be held back to be put in order")
    add("--remember", metavar="DURATION", help="how long corrections are possible")
    add("--emit", choices=("final", "ended", "current", "all"), help="what is said when, instead of the level's policy")


def _run(options: argparse.Namespace) -> int:
    live = check_follow(options)
    check_replans(options, live)
    replay = Replay(options.rate, options.speed)
    steps = replay.steps(options.batch)
    if live:
        options.batch = steps
    if replay.is_asked and (options.engine == "spark" or options.copies is not None):
        raise QueryError("--rate and --speed replay inputs in this process: leave --engine spark and --copies out")
    if replay.is_asked:
        options.engine = "local"
    columns = LiveColumns(options) if live else None
    with compiled(options, need_files=True, columns=columns, check=partial(check_inputs, options)) as found:
        asked = level(options, found.program.consistency)
        _check_output(options.out, found)
        _check_bounds(found, options.allow_unbounded)
        axis = asked_axis(found.axis, options.times)
        query = Stream(found.node, axis=axis, asked=found.logical)
        if not live and options.engine is None:
            options.engine, why = suited_engine(found.inputs.values(), options.checkpoint)
            note(why)
        expected = (lambda: None) if live else partial(expected_elements, list(found.inputs.values()))
        with times_shown(axis), watched(options.out, expected) as watch:
            clock = ReplayClock(replay, found.axis.tick, time.monotonic, time.sleep)
            if columns is not None:
                told = lambda check: _checked(watch, check, clock)  # noqa: E731
                return run_live(options, found, query, asked, columns, told, _say_losses)
            run = partial(
                _engine(options.engine),
                replans_of(options, found, query) if options.engine == "local" else query,
                found.inputs,
                options.out,
                batch=EpochSize(options.batch, steps) if replay.is_asked else options.batch,
                open=options.open,
                checkpoint=options.checkpoint,
                consistency=asked,
                losses=_say_losses,
                **({} if options.engine == "local" else spark_options(options)),
            )
            try:
                if options.engine == "local":
                    interruptible(lambda check: run(progress=_checked(watch, check, clock), tell=warn))
                else:  # it keeps signals for as long as Python speaks with Spark
                    run(progress=watch, tell=warn)
            except (KeyboardInterrupt, SystemExit) as stop:
                raise _interrupted(options, stop) from None
    return DONE


def _interrupted(options: argparse.Namespace, stop: KeyboardInterrupt | SystemExit) -> Interrupted:
    output = "" if options.out == "-" else "; the output is as it was"
    onward = "" if options.checkpoint is None else "; the same command goes on from the checkpoint"
    return Interrupted(f"interrupted{output}{onward}", stop)


def _checked(watch: Watch, check: Callable[[], None], clock: ReplayClock) -> Watch:
    """Between two epochs a run that was interrupted ends, and one that replays its inputs waits."""

    def is_over() -> bool:
        check()
        return False

    def told(progress: Progress) -> None:
        check()
        watch(progress)
        clock.wait(progress.read, progress.latest, is_over)

    return told


def _engine(name: str) -> Callable[..., int]:
    if name == "local":
        from everwhen.engine.files.run import run_files

        return run_files
    from everwhen.spark import require_pyspark

    require_pyspark()
    from everwhen.spark.api.run_files import run_files_on_spark  # it brings Spark along

    return run_files_on_spark


def level(options: argparse.Namespace, clause: AskedConsistency | None) -> Consistency:
    """How long the query waits and remembers, and what it says when: as the options say, else as the query says, else
    as `middle` does."""
    named, block, remember = options.consistency, options.block, options.remember
    if named is None and block is None and remember is None and clause is not None:
        named, block, remember = clause.level, clause.block, clause.remember
    emit = None if options.emit is None else emit_named(options.emit)
    base = LEVELS[named or MIDDLE.name]
    if block is None and remember is None:
        found = base if emit is None else base.emitting(emit)
    else:
        waits = base.block if block is None else length_of(block, "--block", options.tick)
        keeps = base.remember if remember is None else length_of(remember, "--remember", options.tick)
        found = replace(consistency(waits, keeps, emit=emit), repair=remember is not None)
    return found


def _say_losses(losses: Losses) -> None:
    for name, counts in sorted(losses.items()):
        total = sum(counts.values())
        parts = ", ".join(f"{count} {reason.value}" for reason, count in counts.items())
        warn(f"{name}: {total} element{'s' * (total != 1)} had to be given up at this level ({parts})")


def _check_output(out: str, found: Compiled) -> None:
    """An answer never takes the place of what it was computed from."""
    for name, given in found.inputs.items():
        there = (os.path.isfile(out) or os.path.isdir(out)) and os.path.exists(given.file)
        if there and os.path.samefile(out, given.file):
            raise QueryError(f"--out {out} is the input {name}, which the answer would replace: give another name")


def _check_bounds(found: Compiled, allow: bool) -> None:
    from everwhen.plan.sanity.bounded import require_bounded
    from everwhen.plan.sanity.instants import one_instant

    for entry in require_bounded(found.node, allow):
        warn(entry)
    for hint in one_instant(found.logical):
        warn(hint)


RUN: Final = Command(
    "run",
    "Run a query over files: its answer as elements, in a file that appears whole or not at all. The query is SQL, any "
    "number of CREATE statements and one SELECT; a stream that is not declared takes its columns from its file.",
    (
        "everwhen run best.sql --in Bid=bids.jsonl --out best.jsonl",
        "everwhen run best.sql --in Bid=bids.parquet --consistency strong --engine local | head",
        "everwhen run names.sql --in Bid=bids.jsonl --in Person=people.csv --out names.parquet --checkpoint state",
        "everwhen run best.sql --follow --in Bid=bids.jsonl --out best/ --checkpoint state",
    ),
    _declare_run,
    _run,
)
