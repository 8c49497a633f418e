"""What the parts of a running session have done and keep, by name (Krämer, 13.4.1).

An operator is called by its number and its kind, as in the local runtime: `3 aggregate`.  The chain behind it, which
names events at an output, is `3 aggregate: output`, and the last filters of a query are `query: last filters`.
"""

from __future__ import annotations

from collections.abc import Sequence

from everwhen.engine.local import OperatorMetadata
from everwhen.engine.session.network import Network
from everwhen.engine.session.query_registry import Entry
from everwhen.operators.contract import StateSize
from everwhen.plan.physical import Port


def describe(network: Network, entries: Sequence[Entry], now: float) -> dict[str, OperatorMetadata]:
    """All operators, chains and last filters by name, inputs before their users."""
    users: dict[Port, list[str]] = {}
    for entry in entries:
        assert entry.exit is not None, "it runs"
        for port in network.below(network.outlets[entry.exit].port):
            users.setdefault(port, []).append(entry.name)
    found: dict[str, OperatorMetadata] = {}
    for number, running in network.running.items():
        placed, port = running.placed, Port(operator=number)
        waits = placed.operator.waits_for(running.frontiers)
        found[network.port_name(port)] = _metadata(
            network.port_name(port),
            (running.rows_in, running.rows_out),
            now - running.began,
            placed.operator.state_size(),
            running.output.frontier.time,
            placed.operator.keeps,
            tuple(network.port_name(placed.inputs[at]) for at in waits),
            users.get(port, ()),
        )
    for exit, outlet in network.outlets.items():
        name = f"{network.port_name(outlet.port)}: output"
        while name in found:  # two outlets may share a port
            name += "'"
        mine = [entry for entry in entries if entry.exit == exit]
        rows, progress, waits_for = (
            (outlet.rows_in, outlet.rows_out),
            outlet.chain.cti,
            (network.port_name(outlet.port),),
        )
        keeps = "events said that may still be taken back"
        found[name] = _metadata(
            name, rows, now - outlet.began, outlet.state_size(), progress, keeps, waits_for, [e.name for e in mine]
        )
        for entry in mine:
            tail, last = entry.subscription, f"{entry.name}: last filters"
            if tail is not None and entry.steps:
                rows = tail.rows_in, tail.rows_out
                found[last] = _metadata(
                    last, rows, now - tail.began, StateSize(), progress, "nothing", (name,), [entry.name]
                )
    return found


def _metadata(
    name: str,
    rows: tuple[int, int],
    elapsed: float,
    size: StateSize,
    progress: int,
    keeps: str,
    waits_for: tuple[str, ...],
    queries: Sequence[str],
) -> OperatorMetadata:
    seconds = max(elapsed, 1e-9)
    taken, given = rows
    return OperatorMetadata(
        name, taken, given, taken / seconds, given / seconds, given / taken if taken else 0.0, size.rows, size.bytes,
        progress, keeps, waits_for, tuple(queries),
    )  # fmt: skip
