"""What the parts of a running session have done and keep, by name (Krämer, 13.4.1).

An operator is called by its number and its kind, as in the local runtime: `3 aggregate`.  The encoder behind it, which
names events at an output, is `3 aggregate: output`, and the last filters of a query are `query: last filters`.
"""

from __future__ import annotations

from collections.abc import Sequence

from everwhen.engine.observe.metadata import OperatorMetadata, node_metadata
from everwhen.engine.session.network import Network
from everwhen.engine.session.query_registry import Entry
from everwhen.operators.contract import StateSize
from everwhen.plan.physical import Port


def collect(network: Network, entries: Sequence[Entry], now: float) -> dict[str, OperatorMetadata]:
    """All operators, output ports and last filters by name, inputs before their users."""
    users: dict[Port, list[str]] = {}
    for entry in entries:
        assert entry.exit is not None, "it runs"
        for port in network.below(network.outlets[entry.exit].port):
            users.setdefault(port, []).append(entry.name)
    found: dict[str, OperatorMetadata] = {}
    for number, node in network.flow.nodes.items():
        port = Port(operator=number)
        found[network.port_name(port)] = node_metadata(network.flow, node, now - node.began, users.get(port, ()))
    for exit, outlet in network.outlets.items():
        above = network.port_name(outlet.port)
        name = f"{above}: output"
        while name in found:  # two outlets may share a port
            name += "'"
        mine = [entry for entry in entries if entry.exit == exit]
        found[name] = OperatorMetadata.of(
            name,
            (outlet.rows_in, outlet.rows_out),
            now - outlet.began,
            outlet.state_size(),
            outlet.encoder.cti,
            "events emitted that may still be retracted" + ("" if outlet.filter is None else ", and what waits"),
            (above,),
            [entry.name for entry in mine],
        )
        for entry in mine:
            last = last_filters(entry, now, outlet.encoder.cti, name)
            if last is not None:
                found[last.name] = last
    return found


def last_filters(entry: Entry, now: float, progress: int, reads: str) -> OperatorMetadata | None:
    """The last filters of a query, which run behind the output that it shares with others; None if it has none."""
    tail = entry.subscription
    if tail is None or not entry.steps:
        return None
    rows, seconds, name = (tail.rows_in, tail.rows_out), now - tail.began, f"{entry.name}: last filters"
    return OperatorMetadata.of(name, rows, seconds, StateSize(), progress, "nothing", (reads,), [entry.name])
