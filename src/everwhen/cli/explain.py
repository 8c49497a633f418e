"""`explain`: what will happen to a query, and why."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from everwhen.cli.command import DONE, Command, count_option
from everwhen.cli.progress import watched
from everwhen.cli.query import Compiled, compiled, declare_query
from everwhen.cli.run import declare_consistency, level
from everwhen.core.time_axis import times_shown
from everwhen.engine.interruption import interruptible
from everwhen.errors import QueryError
from everwhen.formats.input_file import STANDARD_INPUT
from everwhen.plan.explain import explain_text

_BATCH: Final = 10_000
"""Elements of each input in turn, as `run` takes them."""


def _declare_explain(parser: argparse.ArgumentParser) -> None:
    declare_query(parser)
    declare_consistency(parser)
    parser.add_argument(
        "--engine",
        choices=("spark", "local"),
        help="whose steps are shown: Spark's stages (default), or those of this process only",
    )
    parser.add_argument(
        "--punctuation", action="store_true",
        help="also say which promises about data would free state and let answers out, and which declared ones do not",
    )  # fmt: skip

    add = parser.add_argument
    add("--analyze", action="store_true", help="run the query over its files, in process, and say what operators did")
    add("--waiting", action="store_true", help="read the files as far as they go, and say why no more comes out")
    add("--json", action="store_true", help="with --analyze or --waiting: as JSON")
    add(
        "--batch", metavar="N", type=count_option,
        help="with --analyze or --waiting: elements of each input in turn (10000)",
    )  # fmt: skip


def _explain(options: argparse.Namespace) -> int:
    runs = options.analyze or options.waiting
    _check_options(options, runs)
    with compiled(options, need_files=runs) as found:
        title = "the query" if options.query == STANDARD_INPUT else Path(options.query).name
        with times_shown(found.axis):
            text = _ran(title, found, options) if runs else explained(title, found, options)
        sys.stdout.write(text + "\n")
    return DONE


def _check_options(options: argparse.Namespace, runs: bool) -> None:
    """QueryError for options that would have no effect."""
    if not runs:
        for name, what in (("json", "what was measured"), ("batch", "files that are read")):
            if getattr(options, name):
                raise QueryError(f"--{name} is for {what}: give --analyze or --waiting with it")
    measured = "--analyze" if options.analyze else "--waiting"
    if runs and options.punctuation:
        raise QueryError(f"--punctuation is about the plan, and {measured} shows none: leave one of them out")
    if runs and options.engine == "spark":
        raise QueryError(f"{measured} reads the files in this process: leave --engine spark out")
    if options.late_rows:
        raise QueryError("--late-rows is for late rows that a run gives up, and explain keeps none: leave it out")


def _ran(title: str, found: Compiled, options: argparse.Namespace) -> str:
    """What a run over the files shows."""
    from everwhen.engine.files.run import Progress, watch_files
    from everwhen.engine.local import LocalRuntime
    from everwhen.engine.observe.analyze import Analysis

    asked = level(options, found.program.consistency)
    runtime = LocalRuntime(found.node, clock=lambda: 0.0, consistency=asked)  # files have no present
    wanted = runtime.metadata("out").subscribe() if options.analyze else None
    began = time.perf_counter()
    with watched(STANDARD_INPUT) as watch:

        def read(check: Callable[[], None]) -> Progress:
            def told(progress: Progress) -> None:
                check()
                watch(progress)

            return watch_files(runtime, found.inputs, batch=options.batch or _BATCH, progress=told)

        seen = interruptible(read)
    parts: dict[str, Any] = {}
    texts: list[str] = []
    if options.waiting:
        why = replace(runtime.waiting(), query=title)
        parts["waiting"] = why.to_plain()
        texts.append("\n".join(["EXPLAIN WAITING", *why.lines()]))
    if wanted is not None:  # as it was before the end of the inputs, which would free all state
        spent = time.perf_counter() - began
        observed = wanted.observed(spent)
        said = seen.said + sum(len(each) for each in runtime.close().values())
        measured = Analysis(seen.read, said, spent, observed)
        parts["analyze"] = measured.to_plain()
        texts.append("\n".join([f"EXPLAIN ANALYZE {title}", *measured.lines()]))
    return json.dumps(parts, ensure_ascii=False) if options.json else "\n\n".join(texts)


def explained(title: str, found: Compiled, options: argparse.Namespace) -> str:
    """The text of EXPLAIN."""
    stages = None
    if options.engine != "local":
        from everwhen.spark import require_pyspark

        require_pyspark()
        from everwhen.spark.translate.offline_stages import (
            stages_over_files,  # it brings PySpark along, but starts no JVM
        )

        stages = stages_over_files(found.node)
    rewritten = None if options.no_optimize else found.node
    rules = [(applied.name, applied.reason) for applied in found.applied]
    emit = level(options, found.program.consistency).emit
    return explain_text(
        title, found.logical, rewritten, rules, emit=emit, stages=stages, punctuation=options.punctuation
    )


EXPLAIN: Final = Command(
    "explain",
    "What will happen to a query: its plan as written, as rewritten and by which rules, the operators or stages that "
    "run it, and what they keep until when. Files are only asked for the columns of streams that are not declared.",
    (
        "everwhen explain best.sql",
        "everwhen explain best.sql --in Bid=bids.jsonl --engine local --punctuation",
        "everwhen explain best.sql --in Bid=bids.jsonl --analyze",
        "everwhen explain best.sql --in Bid=bids.jsonl --consistency strong --waiting",
    ),
    _declare_explain,
    _explain,
)
