"""The state of a session as plain data, and a session that goes on from it.

Plans are not part of it (they may hold Python functions): who restores a session gives its queries again.  An operator
is found by its place in a plan, the query's name and the position below its output, so numbers need not be the same;
of queries that share it, one tells.  What is restored goes on as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from everwhen.errors import EverwhenError, QueryError
from everwhen.model.batch_state import batch_of_state, batch_state
from everwhen.model.changes import no_changes
from everwhen.model.promise_state import frontier_of, frontier_state
from everwhen.model.punctuation import Frontier
from everwhen.operators.base import Emit, Output
from everwhen.runtime import moving
from everwhen.runtime.catalogue import Entry
from everwhen.runtime.consistency import Consistency
from everwhen.runtime.network import Network
from everwhen.runtime.running import Left, Running

_PLACE = ("since", "exact", "reach", "tau", "rows_in", "rows_out")


def snapshot(network: Network, entries: Iterable[Entry]) -> dict[str, Any]:
    """Everything that running queries keep, and how all queries are."""
    listed = list(entries)
    operators: dict[tuple[str, int], dict[str, Any]] = {}
    outlets: dict[str, dict[str, Any]] = {}
    seen: set[int] = set()
    for entry in listed:
        if entry.state != "running":
            continue
        assert entry.exit is not None, "it runs"
        outlet = network.outlets[entry.exit]
        if id(outlet) not in seen:
            seen.add(id(outlet))
            counts = outlet.since, outlet.rows_in, outlet.rows_out
            gate = outlet.flow.gate
            outlets[entry.name] = {
                "chain": outlet.chain.snapshot(),
                "counts": counts,
                "moved": [emit.value for emit in outlet.moved],
                "gate": None if gate is None else gate.snapshot(),
            }
        for position, running in _operators(network, entry):
            if id(running) not in seen:
                seen.add(id(running))
                operators[entry.name, position] = {
                    "state": running.placed.operator.snapshot(),
                    "frontiers": [frontier.time for frontier in running.frontiers],
                    "promise": frontier_state(running.output.frontier),
                    "place": [getattr(running, name) for name in _PLACE],
                }
    return {
        "queries": {entry.name: _query(network, entry) for entry in listed},
        "sources": {
            name: {"intake": inflow.intake.snapshot(), "exact": inflow.exact, "reach": inflow.reach}
            for name, inflow in network.inflows.items()
        },
        "left": {name: (left.cti, left.tau, left.reach, left.promises) for name, left in network.left.items()},
        "operators": operators,
        "outlets": outlets,
    }


def _query(network: Network, entry: Entry) -> dict[str, Any]:
    tail, level = entry.subscription, entry.level
    over = None if entry.exit is None else network.outlets[entry.exit].over
    return {
        "level": (level.name, level.block, level.remember, level.emit.value, level.repair, level.within),
        "built": (None if entry.exit is None else entry.exit[1].value, over and over.value, entry.own),
        "state": entry.state, "since": entry.since, "valid_from": entry.valid_from, "error": entry.info().error,
        "depends_on": entry.depends_on, "next_commit": entry.next_commit,
        "pending": None if entry.pending is None else batch_state(entry.pending),
        "counts": None if tail is None else (tail.rows_in, tail.rows_out),
    }  # fmt: skip


def level_of(query: Mapping[str, Any]) -> Consistency:
    """The level at which a query ran."""
    name, block, remember, emit, repair, within = query["level"]
    return Consistency(name, block, remember, Emit(emit), repair, within)


def built(query: Mapping[str, Any]) -> tuple[Emit | None, Emit | None, int]:
    """How the place of a running query was built: the policy of its outlet, that of operators below, its move."""
    emit, over, own = query["built"]
    return emit and Emit(emit), over and Emit(over), own


def restore(network: Network, entries: Mapping[str, Entry], state: Mapping[str, Any]) -> None:
    """Fill a network in which the same queries have just been started, and their entries."""
    for name, part in state["sources"].items():
        if name not in network.inflows:
            raise QueryError(f"the snapshot is of other queries: it has a source {name!r}, and none of these reads it")
        inflow = network.inflows[name]
        inflow.intake.restore(part["intake"])
        inflow.exact, inflow.reach = part["exact"], part["reach"]
    network.left = {name: Left(*left) for name, left in state["left"].items()}
    done: set[int] = set()
    for name, query in state["queries"].items():
        entry = entries[name]
        entry.since, entry.valid_from, entry.depends_on = query["since"], query["valid_from"], query["depends_on"]
        if query["state"] == "failed":
            entry.state, entry.error = "failed", EverwhenError(query["error"])
        if entry.subscription is None:
            continue
        entry.subscription.since, entry.pending, entry.next_commit = (
            entry.valid_from,
            None if query["pending"] is None else batch_of_state(query["pending"]),
            query["next_commit"],
        )
        entry.subscription.rows_in, entry.subscription.rows_out = query["counts"]
        if name in state["outlets"]:
            assert entry.exit is not None, "it runs"
            outlet, part = network.outlets[entry.exit], state["outlets"][name]
            moving.repeat(network, outlet, map(Emit, part["moved"]))
            outlet.chain.restore(part["chain"])
            if outlet.flow.gate is not None:
                outlet.flow.gate.restore(part["gate"])
            outlet.since, outlet.rows_in, outlet.rows_out = part["counts"]
        for position, running in _operators(network, entry):
            if (name, position) in state["operators"]:
                done.add(id(running))
                _fill(running, state["operators"][name, position])
    if len(done) != len(state["operators"]) or len(done) != len(network.running):
        raise QueryError("the snapshot is of other queries: their plans have other operators than these")


def _fill(running: Running, part: Mapping[str, Any]) -> None:
    running.placed.operator.restore(part["state"])
    running.frontiers = [Frontier(time) for time in part["frontiers"]]
    running.output = Output(no_changes(running.codec), frontier_of(part["promise"]))
    for name, value in zip(_PLACE, part["place"], strict=True):
        setattr(running, name, value)


def _operators(network: Network, entry: Entry) -> Iterator[tuple[int, Running]]:
    """A query's operators by their position: a matter of the plan's structure alone."""
    assert entry.exit is not None, "it runs"
    for position, port in enumerate(network.below(network.outlets[entry.exit].port)):
        if port.source is None:
            yield position, network.running[port.operator]
