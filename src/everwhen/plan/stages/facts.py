"""What the cutting of a plan asks about its nodes."""

from __future__ import annotations

from everwhen.algebra import nodes as n
from everwhen.core.schema import Schema


def constant(node: n.Node) -> bool:
    """Whether these are constant rows, perhaps filtered and mapped: every partition may have them."""
    return all(isinstance(each, n.Values | n.Filter | n.Map) for each in n.walk(node))


def exact(function: str, schema: Schema, columns: tuple[str, ...]) -> bool:
    """Whether merging early gives the same value as merging late: counts, sums of 64-bit numbers, extremes of what
    both engines order alike."""
    if function == "count":
        return True
    text = str(schema.field(columns[0]).type)
    if function == "sum":
        return text in ("int8", "int16", "int32", "int64", "float", "double")
    return text in ("int8", "int16", "int32", "int64", "string", "date32[day]") or text.startswith("timestamp")


def facing_sinks(answers: list[n.Node]) -> frozenset[str]:
    """The exchanges that lead to nothing but sinks, by name."""
    near: set[int] = set()
    waiting = list(answers)
    while waiting:
        node = waiting.pop()
        if isinstance(node, n.Exchange | n.Filter | n.Map | n.Union):
            near.add(id(node))
            waiting += node.inputs
    found = {node.name: node for node in n.walk(*answers) if isinstance(node, n.Exchange) and id(node) in near}
    users = [user for user in n.walk(*answers) if id(user) not in near]
    return frozenset(name for name, node in found.items() if not any(node in user.inputs for user in users))
