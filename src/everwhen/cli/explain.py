"""`explain`: what will happen to a query, and why."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Final

from everwhen.cli.command import DONE, Command
from everwhen.cli.query import Compiled, compiled, declare_query
from everwhen.cli.run import declare_consistency, level
from everwhen.formats.input_file import STANDARD_INPUT
from everwhen.plan.explain import explain_text


def _declare_explain(parser: argparse.ArgumentParser) -> None:
    declare_query(parser)
    declare_consistency(parser)
    parser.add_argument(
        "--engine", choices=("spark", "local"), default="spark", help="whose steps are shown: Spark's stages (default)"
    )
    parser.add_argument(
        "--punctuation", action="store_true",
        help="also say which promises about data would free state and let answers out, and which declared ones do not",
    )  # fmt: skip


def _explain(options: argparse.Namespace) -> int:
    with compiled(options, need_files=False) as found:
        title = "the query" if options.query == STANDARD_INPUT else Path(options.query).name
        sys.stdout.write(explained(title, found, options) + "\n")
    return DONE


def explained(title: str, found: Compiled, options: argparse.Namespace) -> str:
    """The text of EXPLAIN."""
    stages = None
    if options.engine == "spark":
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
    ("everwhen explain best.sql", "everwhen explain best.sql --in Bid=bids.jsonl --engine local --punctuation"),
    _declare_explain,
    _explain,
)
