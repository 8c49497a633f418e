"""The logical plan as an indented tree, the last step first, in words that need no manual.

A step that several others read is written out once and referred to by number after that.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from everwhen.algebra import nodes
from everwhen.algebra.nodes import Node, walk
from everwhen.core.loop_options import LoopOptions
from everwhen.core.time import INF, NEVER, show_length
from everwhen.punctuation.schemes import described

WIDTH: Final = 120
"""Columns of a text with notes; plain plans are as wide as they are."""

NOTES_AT: Final = 56
"""Where notes stand, if the step leaves room."""


@dataclass(frozen=True, slots=True)
class Line:
    """A step as it stands in the tree: `first` before its words, `rest` before what goes on below them."""

    node: Node
    first: str
    rest: str
    words: str
    again: bool = False


def explain(root: Node, notes: Callable[[Node], str] | None = None, width: int = WIDTH) -> str:
    """The plan below `root`, one step per line; inputs are indented below the step that reads them.

    With `notes`, steps are numbered, each has a note beside it, in square brackets, and long lines are broken.
    """
    if notes is None:
        return "\n".join(line.first + line.words for line in tree(root))
    lines = tree(root, numbered=True)
    digits = len(str(len(lines)))
    written: list[str] = []
    for number, line in enumerate(lines, 1):
        texts = _noted(line, "" if line.again else notes(line.node).strip(), width - digits - 2)
        written += [f"{number if at == 0 else '':>{digits}}  {text}" for at, text in enumerate(texts)]
    return "\n".join(written)


def tree(root: Node, numbered: bool = False) -> list[Line]:
    """The steps below `root` in the order in which they are written: each before its inputs.

    A step that is read again is referred to by its line if those are `numbered`, else by a number of its own.
    """
    readers: dict[int, int] = {}
    for node in walk(root):
        for child in node.inputs:
            readers[id(child)] = readers.get(id(child), 0) + 1
    numbers: dict[int, int] = {}
    lines: list[Line] = []

    def visit(node: Node, first: str, rest: str) -> None:
        if id(node) in numbers:
            word = "line" if numbered else "step"
            lines.append(Line(node, first, rest, f"({word} {numbers[id(node)]} again)", again=True))
            return
        label = ""
        if readers.get(id(node), 0) > 1 and node.inputs:
            numbers[id(node)] = len(lines) + 1 if numbered else len(numbers) + 1
            label = "" if numbered else f"  (step {numbers[id(node)]})"
        below = rest + ("│  " if node.inputs else "   ")
        lines.append(Line(node, first, below, f"{describe(node)}{label}"))
        for i, child in enumerate(node.inputs):
            end = i == len(node.inputs) - 1
            visit(child, rest + ("└─ " if end else "├─ "), rest + ("   " if end else "│  "))

    visit(root, "", "")
    return lines


def _noted(line: Line, note: str, width: int) -> list[str]:
    text = line.first + line.words
    note = f"[{note}]" if note else ""
    if note and len(text) + 2 <= NOTES_AT and NOTES_AT + len(note) <= width:
        return [text.ljust(NOTES_AT) + note]
    if note and len(text) + 2 + len(note) <= width:
        return [f"{text}  {note}"]
    wrap = partial(wrapped, rest=line.rest + "  ", width=width)
    return [*wrap(line.words, line.first), *(wrap(note, line.rest + "  ") if note else [])]


def wrapped(words: str, first: str, rest: str, width: int = WIDTH) -> list[str]:
    """Words broken into lines that begin with `first`, then with `rest`."""
    return textwrap.wrap(words, width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False) or [first]


def describe(node: Node) -> str:
    """One step in one line, without its inputs."""
    match node:
        case nodes.Source():
            return _describe_source(node)
        case nodes.Exchange(name, columns, _):
            return f"Exchange {name} {columns}"
        case nodes.Filter(_, predicate):
            return f"Filter {predicate}"
        case nodes.Map(_, columns):
            return "Select " + ", ".join(name if str(e) == name else f"{name} = {e}" for name, e in columns)
        case nodes.Union():
            return "Union"
        case nodes.LMerge(_, since, policy):
            late = [f"{name} since {t}" for name, t in zip(node.names, since, strict=True) if t != NEVER]
            return ", ".join([f"LMerge {'of events' if node.keeps_events else 'of snapshots'}, {policy}", *late])
        case nodes.Join():
            return _describe_join(node)
        case nodes.Distinct():
            return "Distinct"
        case nodes.SetOperation(_, _, kind):
            return kind.replace("_", " ").capitalize()
        case nodes.Aggregate(_, keys, aggregations):
            found = ", ".join(f"{a.name} = {a}" for a in aggregations)
            return "Aggregate" + (f" by {', '.join(keys)}" if keys else "") + (f": {found}" if found else "")
        case nodes.MatchRecognize() | nodes.Rank() | nodes.Over() | nodes.Values() | nodes.Unnest():
            return str(node)
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
        case nodes.Stamp(_, start, end):
            return f"Stamp {start}" + (f" to {end}" if end is not None else "")
        case nodes.Span(_, start, end):
            return f"Span from {start} to {end}"
        case nodes.Fixpoint():
            return _describe_fixpoint(node)
        case nodes.LoopTurn(kind=kind, value=value):
            return f"Turn of the loop, {kind}{f' of {value}' if value is not None else ''}"
        case nodes.Recursion(token):
            return f"Recursion {token.name}"
        case nodes.Punctuate(_, schemes):
            return f"Punctuate {', '.join(map(str, schemes))}"
        case nodes.Sort(_, by):
            return f"Sort by {', '.join(name + ' descending' * down for name, down in by)}"
        case _:
            return type(node).__name__


def _describe_source(node: nodes.Source) -> str:
    noun = "Source" if node.kind == "stream" else f"{node.kind.capitalize()} relation"
    declared = [
        "inserts only" if node.insert_only else "",
        "one tick each" if node.chronons else "",
        {"any": "in order" if node.ordered else "", "in order": "arrives in order"}.get(
            node.arrives, "arrives strictly in order"
        ),
        *(f"key ({', '.join(key)})" for key in node.keys),
        described(node.schemes) if node.schemes else "",
        node.policy.words(),
    ]
    return ", ".join([f"{noun} {node.name} {node.columns}", *filter(None, declared)])


def _describe_join(node: nodes.Join) -> str:
    if not node.left_keys and node.residual is None:
        return "Product" if node.kind == "inner" else f"{node.kind.capitalize()} join with everything"
    name = {"inner": "Join", "semi": "Semi-join", "anti": "Anti-join"}.get(node.kind, f"{node.kind.capitalize()} join")
    pairs = zip(node.left_keys, node.right_keys, strict=True)
    equal = "is" if node.null_safe else "="  # a null is a null
    keys = ", ".join(a if a == b and not node.null_safe else f"{a} {equal} {b}" for a, b in pairs)
    return name + (f" on {keys}" if keys else "") + (f" where {node.residual}" if node.residual is not None else "")


def _describe_fixpoint(node: nodes.Fixpoint) -> str:
    options, usual = node.options, LoopOptions()
    best = f" of {node.value} per {', '.join(node.keys) or 'instant'}" if node.value is not None else ""
    return ", ".join(
        filter(
            None,
            [
                f"Fixpoint {node.token.name}",
                node.kind + best,
                f"{options.rounds} rounds at a time" if options.rounds is not None else "",
                f"progress {options.progress}" if options.progress != usual.progress else "",
                "across partitions" if options.across else "",
                f"level {options.max_level} at most" if options.max_level != usual.max_level else "",
                f"{options.max_rows} rows at most" if options.max_rows != usual.max_rows else "",
            ],
        )
    )


def _describe_lifetime(node: nodes.AlterLifetime) -> str:
    start = "vs" if node.hop == 1 else f"vs rounded down to {node.hop}"
    shift = "" if node.shift == 0 else f" {'+' if node.shift > 0 else '-'} {abs(node.shift)}"
    match node.length:
        case None:
            end = f"ve{shift}"
        case length if length == INF:
            end = show_length(INF)
        case length:
            end = f"start + {length}"
    return f"Lifetime from {start}{shift} to {end}"
