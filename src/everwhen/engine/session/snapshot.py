"""The state of a session as plain data, and a session that goes on from it.

Plans are not part of it (they may hold Python functions): who restores a session gives its queries again.  An operator
is found by its stable name (`plan/names.py`), so numbers need not be the same, nor the order in which queries came; of
queries that share it, one tells.  Of operators of one name the first is that of the first query.  What is restored goes
on as if nothing had happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from everwhen.core.emit import Emit
from everwhen.core.time import NEVER
from everwhen.engine.session import migrate
from everwhen.engine.session.joining.as_of import DetachedSource
from everwhen.engine.session.network import Network
from everwhen.engine.session.output_port import SharedOutput
from everwhen.engine.session.query_registry import Entry
from everwhen.errors import EverwhenError, QueryError
from everwhen.plan.physical import Port
from everwhen.stream.batch_state import batch_of_state, batch_state


def snapshot(network: Network, entries: Iterable[Entry]) -> dict[str, Any]:
    """Everything that running queries keep, and how all queries are."""
    listed = list(entries)
    outlets: dict[str, dict[str, Any]] = {}
    seen: set[int] = set()
    for name, outlet in _running(network, listed).items():
        if id(outlet) not in seen:
            seen.add(id(outlet))
            outlets[name] = outlet.snapshot()
    return {
        "queries": {entry.name: _query(network, entry) for entry in listed},
        "sources": network.ingress.snapshot(),
        "left": {name: [left.cti, left.tau, left.max_end, left.promises] for name, left in network.left.items()},
        "operators": network.flow.snapshot(_roots(network, listed)),
        "outlets": outlets,
        "floors": network.flow.floors.snapshot(),
    }


def _running(network: Network, entries: Iterable[Entry]) -> dict[str, SharedOutput]:
    return {entry.name: network.outlets[entry.exit] for entry in entries if entry.exit is not None}


def _roots(network: Network, entries: Iterable[Entry]) -> dict[str, Port]:
    running = _running(network, list(entries))
    old = {f"{name}, before": each.cutover.port for name, each in running.items() if each.cutover is not None}
    return {name: outlet.port for name, outlet in running.items()} | old


def _query(network: Network, entry: Entry) -> dict[str, Any]:
    tail, level = entry.subscription, entry.level
    over = None if entry.exit is None else network.outlets[entry.exit].over
    return {
        "level": level.to_plain(),
        "built": (None if entry.exit is None else entry.exit[1].value, over and over.value, entry.own),
        "state": entry.state, "since": entry.since, "valid_from": entry.valid_from, "error": entry.info().error,
        "depends_on": entry.depends_on, "next_commit": entry.next_commit,
        "pending": None if entry.pending is None else batch_state(entry.pending),
        "counts": None if tail is None else (tail.rows_in, tail.rows_out),
        "whole": entry.whole, "cutover": _cutover(network, entry),
        "wanted": NEVER if tail is None else tail.wanted,
    }  # fmt: skip


def _cutover(network: Network, entry: Entry) -> dict[str, Any] | None:
    """How the query was built that is being replaced."""
    old = entry.replaces
    if entry.exit is None or old is None or old.exit is None:
        return None
    cutover = network.outlets[entry.exit].cutover
    if cutover is None:
        return None
    return {"at": cutover.at, "whole": old.whole, "built": (old.exit[1].value, old.over and old.over.value, old.own)}


def built(query: Mapping[str, Any]) -> tuple[Emit | None, Emit | None, int]:
    """How the place of a running query was built: the policy of its outlet, that of operators below, its move."""
    emit, over, own = query["built"]
    return emit and Emit(emit), emit and Emit(over or emit), own


def require_fit(state: Mapping[str, Any], queries: Mapping[str, Any], idle: bool, used: bool) -> None:
    """QueryError unless the state is of these queries, in such a session, and the session is new."""
    if used:
        raise QueryError("only a new session can be restored: this one has queries or has run")
    if state.get("idle", False) != idle:
        raise QueryError("the snapshot is of a session with idle=, or without: give this one the same")
    others = state["queries"].keys() ^ queries.keys()
    if others:
        raise QueryError(f"the snapshot is of other queries: {', '.join(sorted(others))} is here or there only")


def restore(network: Network, entries: Mapping[str, Entry], state: Mapping[str, Any]) -> None:
    """Fill a network in which the same queries have just been started, and their entries."""
    network.ingress.restore(state["sources"])
    network.flow.floors.restore(state.get("floors", ()), network.codec_of)
    network.left = {name: DetachedSource(*left) for name, left in state["left"].items()}
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
        entry.subscription.wanted = query.get("wanted", NEVER)
        if name in state["outlets"]:
            assert entry.exit is not None, "it runs"
            outlet, part = network.outlets[entry.exit], state["outlets"][name]
            migrate.repeat(network, outlet, map(Emit, part["moved"]))
            outlet.restore(part)
    if not network.flow.restore(state["operators"], _roots(network, entries.values())):
        raise QueryError("the snapshot is of other queries: their plans have other operators than these")
