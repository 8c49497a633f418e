"""`ew.lmerge`: physically different copies of one stream as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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
    unknown = [at for at in since or {} if not 0 <= at < len(found)]
    if unknown:
        raise QueryError(f"since names the copy {unknown[0]}; there are copies 0 to {len(found) - 1}")
    starts = tuple((since or {}).get(at, NEVER) for at in range(len(found)))
    return Stream(merged(found, starts, policy or default_policy(found)))


def merged(
    copies: Sequence[nodes.Node], since: tuple[int, ...], policy: MergePolicy, names: tuple[str, ...] = ()
) -> nodes.LMerge:
    """The merge of copies; the columns are called as the first copy calls them."""
    if policy.quorum > len(copies):
        raise QueryError(f"QUORUM {policy.quorum} asks for more inputs than there are: {len(copies)}")
    called = copies[0].schema.names
    found = list(copies)
    for at, each in enumerate(found[1:], 1):
        if each.schema.names != called and each.schema.same_types(found[0].schema):
            columns = zip(called, each.schema.names, strict=True)
            found[at] = nodes.Map(each, tuple((name, col(own)) for name, own in columns))
    return nodes.LMerge(tuple(found), since, policy, names)


def default_policy(copies: Sequence[nodes.Node]) -> MergePolicy:
    """FIRST where no copy is ever corrected; else LEADER, because FIRST could show two rows of one group."""
    return MergePolicy(leader=not all(_never_corrected(each) for each in copies))


def _never_corrected(node: nodes.Node) -> bool:
    return all(each.insert_only for each in nodes.walk(node) if isinstance(each, nodes.Source)) and node.keeps_events


def _node(stream: object) -> nodes.Node:
    if not isinstance(stream, Stream):
        raise QueryError(f"lmerge() takes streams, not {stream!r}")
    return stream.node
