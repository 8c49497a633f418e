"""Plans whose loops may run: see `rewrite/loops/check_loop.py`.

A plan as written may have a subquery on a loop as an outer join.  A loop that is not legal as it stands is rewritten by
itself, so that a plan that nobody rewrites may run, too; if it still is not legal, the query is refused.
"""

from __future__ import annotations

from everwhen.algebra.nodes import Fixpoint, Node, over, walk
from everwhen.errors import LoopError
from everwhen.rewrite.driver import rewrite
from everwhen.rewrite.loops.check_loop import check_loop


def legal_loops(root: Node) -> Node:
    """An equal plan in which every loop is legal, the plan itself if they all are; LoopError if one can not be so."""
    if not any(isinstance(node, Fixpoint) for node in walk(root)):
        return root
    built: dict[int, Node] = {}
    for node in walk(root):
        built[id(node)] = _legal(over(node, *(built[id(child)] for child in node.inputs)))
    return built[id(root)]


def _legal(node: Node) -> Node:
    if not isinstance(node, Fixpoint):
        return node
    try:
        check_loop(node)
    except LoopError:
        found = rewrite(node).node
        for each in walk(found):
            if isinstance(each, Fixpoint):
                check_loop(each)
        return found
    return node
