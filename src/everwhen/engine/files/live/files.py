"""Which files a run that goes on reads, and what must not change while it does."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from everwhen.algebra.builder import node_of
from everwhen.algebra.explain import explain
from everwhen.algebra.nodes import Node
from everwhen.core.consistency import Consistency
from everwhen.engine.files.axis import axis_of_inputs
from everwhen.engine.files.checkpoint import states_in
from everwhen.engine.files.checkpoint_texts import Claim
from everwhen.engine.files.live.growing_csv import GrowingCsv
from everwhen.engine.files.live.inputs import LiveInput, live_input
from everwhen.engine.files.run import bounds_and_inputs, given_files
from everwhen.engine.local import LocalRuntime, Query
from everwhen.errors import QueryError
from everwhen.formats.input_file import STANDARD_INPUT, InputFile, is_csv
from everwhen.sinks.changelog import ChangelogSink, changelog_format


def live_files(inputs: Mapping[str, str | InputFile], runtime: LocalRuntime, batch: int) -> dict[str, InputFile]:
    """Every source of the query with its file; none need be there yet."""
    given = given_files(inputs, {name: runtime.schema_of(name) for name in runtime.inputs}, batch)
    for each in given.values():
        again = os.path.isfile(each.file) or os.path.isdir(each.file) or not os.path.exists(each.file)
        if each.file == STANDARD_INPUT or not again:
            raise QueryError(f"{each.shown} cannot be followed: it cannot be read again; write it to a file first")
    return given


def followed(name: str, given: InputFile) -> LiveInput:
    """The input of a run that was told to follow its files: CSV grows, too, unless it is a relation."""
    return GrowingCsv(name, given) if is_csv(given.file) and not given.known_whole else live_input(name, given)


def live_sink(out: str, query: Query, given: Mapping[str, InputFile], keep: str) -> ChangelogSink:
    """The folder that the answer goes to."""
    schema = node_of(query).schema
    return ChangelogSink(out, changelog_format(schema), keep=keep, axis=axis_of_inputs(query, given))


def live_identity(node: Node, given: Mapping[str, InputFile], level: Consistency) -> dict[str, str]:
    """What must not change while a run goes on."""
    found = {"engine": "local, following", "query": explain(node), "emit": level.emit.value}
    return {**found, **bounds_and_inputs(level, given, os.path.abspath)}


def require_own_output(place: Path, whose: Claim, sink: ChangelogSink | None) -> None:
    """An error if a checkpoint that is there is of another run, or of an output of which epochs are not there; a run
    that has the state of another one to begin with (`sink` None) may begin an output anew."""
    if (place / "run.json").exists():
        whose.require(place)
        if sink is not None and (states := states_in(place)):
            sink.resume(states[-1])
