"""The logical plan as an indented tree, the last step first, in words that need no manual.

A step that several others read is written out once and referred to by number after that.
"""

from __future__ import annotations

from everwhen.algebra import nodes
from everwhen.algebra.nodes import Node, walk
from everwhen.model.time import INF, show


def explain(root: Node) -> str:
    """The plan below `root`, one step per line; inputs are indented below the step that reads them."""
    readers: dict[int, int] = {}
    for node in walk(root):
        for child in node.inputs:
            readers[id(child)] = readers.get(id(child), 0) + 1
    numbers: dict[int, int] = {}
    lines: list[str] = []

    def visit(node: Node, first: str, rest: str) -> None:
        seen = id(node) in numbers
        if seen:
            lines.append(f"{first}(step {numbers[id(node)]} again)")
            return
        label = ""
        if readers.get(id(node), 0) > 1 and node.inputs:
            numbers[id(node)] = len(numbers) + 1
            label = f"  (step {numbers[id(node)]})"
        lines.append(f"{first}{describe(node)}{label}")
        for i, child in enumerate(node.inputs):
            end = i == len(node.inputs) - 1
            visit(child, rest + ("└─ " if end else "├─ "), rest + ("   " if end else "│  "))

    visit(root, "", "")
    return "\n".join(lines)


def describe(node: Node) -> str:
    """One step in one line, without its inputs."""
    match node:
        case nodes.Source(name, columns, insert_only):
            return f"Source {name} {columns}" + (", inserts only" if insert_only else "")
        case nodes.Exchange(name, columns, _):
            return f"Exchange {name} {columns}"
        case nodes.Filter(_, predicate):
            return f"Filter {predicate}"
        case nodes.Map(_, columns):
            return "Select " + ", ".join(name if str(e) == name else f"{name} = {e}" for name, e in columns)
        case nodes.Union():
            return "Union"
        case nodes.Join():
            return _describe_join(node)
        case nodes.Distinct():
            return "Distinct"
        case nodes.SetOperation(_, _, kind):
            return kind.replace("_", " ").capitalize()
        case nodes.Aggregate(_, keys, aggregations):
            found = ", ".join(f"{a.name} = {a}" for a in aggregations)
            return "Aggregate" + (f" by {', '.join(keys)}" if keys else "") + (f": {found}" if found else "")
        case nodes.TimeWindow(_, size, slide):
            length = "unbounded" if size == INF else f"range {size}"
            return f"Window {length}" + (f" slide {slide}" if slide != 1 else "")
        case nodes.RowsWindow(_, rows, slide, partition):
            by = f" per {', '.join(partition)}" if partition else ""
            return f"Window rows {rows}" + (f" slide {slide}" if slide != 1 else "") + by
        case nodes.Granularity(_, granule):
            return f"Granularity {granule}"
        case nodes.RelationToStream(_, kind):
            return kind.capitalize()
        case nodes.Split(_, length):
            return f"Split into {length}"
        case nodes.Coalesce(_, longest):
            return "Coalesce" + (f" up to {longest}" if longest is not None else "")
        case nodes.AlterLifetime():
            return _describe_lifetime(node)
        case nodes.Deletes():
            return "Deletes"
        case _:
            return type(node).__name__


def _describe_join(node: nodes.Join) -> str:
    if not node.left_keys and node.residual is None:
        return "Product" if node.kind == "inner" else f"{node.kind.capitalize()} join with everything"
    name = {"inner": "Join", "semi": "Semi-join", "anti": "Anti-join"}.get(node.kind, f"{node.kind.capitalize()} join")
    pairs = zip(node.left_keys, node.right_keys, strict=True)
    equal = "is" if node.null_safe else "="  # a null is a null
    keys = ", ".join(a if a == b and not node.null_safe else f"{a} {equal} {b}" for a, b in pairs)
    return name + (f" on {keys}" if keys else "") + (f" where {node.residual}" if node.residual is not None else "")


def _describe_lifetime(node: nodes.AlterLifetime) -> str:
    start = "vs" if node.hop == 1 else f"vs rounded down to {node.hop}"
    shift = "" if node.shift == 0 else f" {'+' if node.shift > 0 else '-'} {abs(node.shift)}"
    match node.length:
        case None:
            end = f"ve{shift}"
        case length if length == INF:
            end = show(INF)
        case length:
            end = f"start + {length}"
    return f"Lifetime from {start}{shift} to {end}"
