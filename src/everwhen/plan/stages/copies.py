"""Which sources of a plan are copies that are merged, and which of them may come and go while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from everwhen.algebra import nodes as n
from everwhen.core.time import NEVER
from everwhen.errors import QueryError

_PLAIN = (n.Source, n.Filter, n.Map, n.TimeWindow, n.Granularity)
"""What remembers nothing: a copy that comes so to its merge may begin anew."""


@dataclass(frozen=True, slots=True)
class Copies:
    """`merged`: all sources below merges.  `alone`: those that nothing else reads, so they may leave.  `plain`: those
    of them that come to their merges as they are, filtered, projected or windowed, so they may begin anew.  `merges`:
    the sources of each input of each merge."""

    merged: frozenset[str] = frozenset()
    alone: frozenset[str] = frozenset()
    plain: frozenset[str] = frozenset()
    merges: tuple[tuple[frozenset[str], ...], ...] = ()

    def check_leaving(self, name: str, left: Iterable[str]) -> None:
        """Refuse that a source leaves, if others have left before: a merge needs somebody to follow."""
        self._check_alone(name)
        gone = {name, *left}
        if any(all(sources <= gone for sources in inputs) for inputs in self.merges):
            raise QueryError(f"{name!r} cannot leave: it is the last input of its merge; attach another one first")

    def check_joining(self, name: str, since: int | None) -> int:
        """Refuse that a source begins anew where what it had said is remembered; from when on it is right."""
        self._check_alone(name)
        if name not in self.plain:
            raise QueryError(
                f"{name!r} cannot begin anew: the query computes something of it before the merge, which remembers its "
                "past; start that as a query of its own, and merge its answers"
            )
        return NEVER if since is None else since

    def _check_alone(self, name: str) -> None:
        if name not in self.merged:
            known = ", ".join(sorted(self.alone)) or "none"
            raise QueryError(f"{name!r} is no input of a merge in this query; those that may come and go: {known}")
        if name not in self.alone:
            raise QueryError(f"{name!r} cannot leave or begin anew: the query reads it elsewhere, too")


def copies_in(queries: Mapping[str, n.Node]) -> Copies:
    """The copies in a plan."""
    nodes = list(queries.values())
    merges = [node for node in n.walk(*nodes) if isinstance(node, n.LMerge)]
    merged = frozenset[str]().union(*(_sources(copy) for merge in merges for copy in merge.copies))
    elsewhere: set[str] = set()
    waiting, seen = list(nodes), set[int]()
    while waiting:
        node = waiting.pop()
        if id(node) in seen or isinstance(node, n.LMerge):
            continue
        seen.add(id(node))
        elsewhere |= {node.name} if isinstance(node, n.Source) else set()
        waiting += node.inputs
    alone = merged - elsewhere
    plain = set(alone)
    for copy in (copy for merge in merges for copy in merge.copies):
        if len(_sources(copy)) > 1 or not all(isinstance(node, _PLAIN) for node in n.walk(copy)):
            plain -= _sources(copy)
    inputs = tuple(tuple(_sources(copy) for copy in merge.copies) for merge in merges)
    return Copies(merged, frozenset(alone), frozenset(plain), inputs)


def _sources(node: n.Node) -> frozenset[str]:
    return frozenset(n.sources_of(node))
