"""`ew.lmerge`: physically different copies of one stream as one."""

from __future__ import annotations

from collections.abc import Mapping

from everwhen.algebra import nodes
from everwhen.algebra.builder import Stream
from everwhen.algebra.expressions.build import col
from everwhen.core.merge_policy import MergePolicy
from everwhen.core.time import NEVER
from everwhen.errors import QueryError


def lmerge(
    *copies: Stream,
    since: Mapping[int, int] | None = None,
    policy: MergePolicy | None = None,
) -> Stream:
    """Physically different copies of one stream as one: it follows whichever is ahead.

    `since`: from when on a copy is right, by its position, where it is not right from the start.  `policy` says what is
    emitted before it is final; by default what is new at once where no copy is ever corrected, else what the copy says
    that has promised most.

    >>> import everwhen as ew
    >>> a, b = (ew.source(name, {"x": "int64"}) for name in "ab")
    >>> inputs = {"a": [ew.Insert(0, 5, {"x": 1})], "b": [ew.Insert(0, 5, {"x": 1}), ew.Cti(9)]}
    >>> print(*ew.run(ew.lmerge(a, b), inputs, batch=1), sep=chr(10))
    insert [0, 5) x=1
    cti 9
    cti ∞
    """
    if len(copies) < 2:
        raise QueryError("lmerge() needs at least two streams: copies of one stream")
    found = [_node(each) for each in copies]
    names = found[0].schema.names
    for at, each in enumerate(found[1:], 1):
        if each.schema.names != names and each.schema.same_types(found[0].schema):
            columns = zip(names, each.schema.names, strict=True)
            found[at] = nodes.Map(each, tuple((name, col(own)) for name, own in columns))
    starts = tuple((since or {}).get(at, NEVER) for at in range(len(found)))
    if policy is None:
        corrected = not all(_never_corrected(each) for each in found)
        policy = MergePolicy(leader=corrected)
    return Stream(nodes.LMerge(tuple(found), starts, policy))


def _never_corrected(node: nodes.Node) -> bool:
    return all(each.insert_only for each in nodes.walk(node) if isinstance(each, nodes.Source)) and node.keeps_events


def _node(stream: object) -> nodes.Node:
    if not isinstance(stream, Stream):
        raise QueryError(f"lmerge() takes streams, not {stream!r}")
    return stream.node
