"""How a run changes its plan: as written and as rewritten, from the text of a checkpoint, to other partitions."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

from everwhen.cli.command import count_of, warn
from everwhen.cli.query import Compiled
from everwhen.errors import EverwhenError, LoopError, QueryError

if TYPE_CHECKING:
    from everwhen.algebra.builder import Stream
    from everwhen.algebra.nodes import Node
    from everwhen.engine.files.query_forms import QueryForms
    from everwhen.engine.files.replans import Replans


def declare_replans(parser: argparse.ArgumentParser) -> None:
    """The options that change the plan while it runs."""
    add = parser.add_argument
    add(
        "--replan-every", metavar="N", type=count_of("epochs"),
        help="go over between the plan as written and the rewritten one every N epochs; the answer does not change",
    )  # fmt: skip
    add(
        "--migrate", action="store_true",
        help="the checkpoint is of another text with the same columns: go on from it with this one",
    )  # fmt: skip
    add(
        "--buckets", metavar="N", type=count_of("partitions"),
        help="with --engine spark, partitions of the state; another number than before moves it to that many",
    )  # fmt: skip


def check_replans(options: argparse.Namespace, live: bool) -> None:
    """QueryError for options that do not go together."""
    given = {"--replan-every": options.replan_every, "--migrate": options.migrate}
    asked = [name for name, there in given.items() if there]
    if asked and live and options.copies is not None:
        raise QueryError(f"{asked[0]} is for one run; leave --copies out")
    if options.migrate and options.checkpoint is None:
        raise QueryError("--migrate goes on from a checkpoint of another text: say which, --checkpoint DIR")


def check_inputs(options: argparse.Namespace, reads: Collection[str]) -> None:
    """QueryError if a text is to go on from the checkpoint of one that reads other inputs."""
    if not options.migrate or options.engine == "spark":
        return
    from everwhen.engine.files.checkpoint import inputs_of

    before = inputs_of(Path(options.checkpoint))
    if before and {name.lower() for name in before} != {name.lower() for name in reads}:
        raise QueryError(
            f"the text of the checkpoint {options.checkpoint} reads {', '.join(sorted(before))}, and this one "
            f"{', '.join(sorted(reads))}: --migrate is for texts that read the same. Give it one that does, begin with "
            "a new checkpoint, or change the query in a session (ALTER QUERY), which may come to read less"
        )


def spark_options(options: argparse.Namespace) -> dict[str, Any]:
    """What Spark is told."""
    return {"buckets": options.buckets, "migrate": options.migrate, "replan_every": options.replan_every}


def replans_of(options: argparse.Namespace, found: Compiled, query: Stream) -> Replans:
    """The plans of a query in process, the one that runs first in front, and the text that its checkpoint is of."""
    if options.buckets:
        raise QueryError("--buckets is for runs on Spark: give --engine spark, too")
    from everwhen.engine.files.checkpoint_texts import stored_texts
    from everwhen.engine.files.replans import Replans

    texts = [] if options.checkpoint is None else stored_texts(options.checkpoint, options.migrate)
    stored = [_stored(text, found, options, text is texts[0]) for text in texts if text != found.text]
    forms = _forms(found.logical, found.text, options.no_optimize)
    known = [each for each in stored if each is not None]
    return Replans(forms, options.replan_every, warn, known, options.migrate, query)


def _stored(text: str, found: Compiled, options: argparse.Namespace, is_last: bool) -> QueryForms | None:
    """The query of a checkpoint from its text, which may not be one any more, over these inputs."""
    assert found.again is not None
    try:
        return _forms(found.again(text), text, options.no_optimize)
    except EverwhenError as error:
        if options.migrate and is_last:
            raise QueryError(f"the text of the checkpoint {options.checkpoint} cannot be compiled: {error}") from None
        return None


def _forms(asked: Node, text: str, as_written: bool) -> QueryForms:
    from everwhen.engine.files.query_forms import AS_WRITTEN, REWRITTEN, QueryForms
    from everwhen.rewrite.driver import rewrite
    from everwhen.rewrite.legal_loops import legal_loops

    plans: dict[str, Node] = {}
    for name, node in ((AS_WRITTEN, asked), (REWRITTEN, rewrite(asked).node)):
        try:
            plans[name] = legal_loops(node)
        except LoopError:  # the other form is legal, or the command has told
            continue
    order = (AS_WRITTEN, REWRITTEN) if as_written else (REWRITTEN, AS_WRITTEN)
    return QueryForms(asked, {name: plans[name] for name in order if name in plans}, text)
