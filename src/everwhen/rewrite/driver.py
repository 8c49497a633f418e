"""The driver: rules applied to a fixpoint, from the inputs upwards, each shared node once.

Guarantee: at every instant the rewritten plan has the same snapshot, in the same columns, and it does not fail where
the plan did not fail.  A node that several others read stays one node: a rule that would take such a node apart, so
that its work is done twice, is not applied (Krämer, Example 10.2).

Common subplans are found first, so that rules do not tear apart what could be shared, and again at the end.  There is
no search and no cost model here: rules fire where they are known to pay, in a fixed order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from everwhen.algebra.nodes import Fixpoint, Node, over, reads_recursion, walk
from everwhen.algebra.unrolled import unrolled
from everwhen.rewrite.plans.share_common import SHARE_COMMON, same_plans
from everwhen.rewrite.rule import AnyRule, PlanRule, Roots, Rule
from everwhen.rewrite.rule_order import RULES

_STEPS_PER_NODE: Final = 40
_ROUNDS: Final = 20


@dataclass(frozen=True)
class Applied:
    """A rule that fired, with the plan below it before and after."""

    rule: AnyRule
    before: Node
    after: Node

    @property
    def name(self) -> str:
        return self.rule.name

    @property
    def reason(self) -> str:
        return self.rule.reason


@dataclass(frozen=True)
class Rewritten:
    """A plan and the rules that led to it, in the order in which they fired."""

    node: Node
    applied: tuple[Applied, ...]


@dataclass(frozen=True)
class RewrittenAll:
    """Several plans that share nodes, and the rules that led to them."""

    nodes: Mapping[str, Node]
    applied: tuple[Applied, ...]


def rewrite(node: Node, rules: Sequence[AnyRule] = RULES, *, strict: bool = False) -> Rewritten:
    """An equal plan that costs less.

    Rules that undo each other would go on for ever; the driver then stops with the plan that it has, which is a right
    one, or raises an AssertionError that names them if `strict`, as tests do.
    """
    found = rewrite_all({"": node}, rules, strict=strict)
    return Rewritten(found.nodes[""], found.applied)


def rewrite_all(
    queries: Mapping[str, Node], rules: Sequence[AnyRule] = RULES, kept: Iterable[Node] = (), *, strict: bool = False
) -> RewrittenAll:
    """Equal plans for several queries; a node that they share is rewritten once and stays shared.

    Nodes in `kept` (and what is below them) run already: they are not changed, and a subplan equal to one becomes it.
    """
    driver = _Driver(tuple(rules), tuple(kept), strict)
    roots = driver.run(tuple(queries.values()))
    return RewrittenAll(dict(zip(queries, roots, strict=True)), tuple(driver.applied))


class _Stop(Exception):
    """Too many steps."""


class _Driver:
    def __init__(self, rules: tuple[AnyRule, ...], kept: Roots, strict: bool) -> None:
        self.local = [rule for rule in rules if isinstance(rule, Rule)]
        self.whole = [rule for rule in rules if isinstance(rule, PlanRule)]
        self.kept = kept
        self.strict = strict
        self.applied: list[Applied] = []
        self._left = 0
        self._shared: set[int] = set()
        self._done: dict[int, Node] = {}
        self._alive: list[Node] = []

    def run(self, roots: Roots) -> Roots:
        self._left = _STEPS_PER_NODE * (len(walk(*roots)) + 10)
        if SHARE_COMMON in self.whole:
            roots = self._whole(SHARE_COMMON, roots)
        for _ in range(_ROUNDS):
            before, fired = roots, len(self.applied)
            try:
                roots = self._fixpoint(roots)
            except _Stop:
                del self.applied[fired:]
                return before
            for rule in self.whole:
                roots = self._whole(rule, roots)
            if same_plans(before, roots):
                return roots
        if self.strict:
            raise AssertionError(f"rules that undo each other, among: {self._last()}")
        return roots

    def _last(self) -> str:
        return ", ".join(dict.fromkeys(each.name for each in self.applied[-12:]))

    def _whole(self, rule: PlanRule, roots: Roots) -> Roots:
        found = rule.apply(roots, self.kept)
        for before, after in zip(roots, found, strict=True):
            self._check(rule, before, after)
            if after is not before and (_steps(after) < _steps(before) or not same_plans((before,), (after,))):
                self.applied.append(Applied(rule, before, after))
        return found

    # -- rules at single nodes -------------------------------------------------------------------------------------

    def _fixpoint(self, roots: Roots) -> Roots:
        self._shared = _shared(roots) | {id(node) for node in walk(*self.kept)}
        self._done = {id(node): node for node in walk(*self.kept)}
        self._alive = [*walk(*roots), *walk(*self.kept)]
        return tuple(map(self._visit, roots))

    def _visit(self, node: Node) -> Node:
        """The node after all rules; inputs come first, and again after a rule has put others there."""
        first = node
        while id(node) not in self._done:
            node = _over(node, *map(self._visit, node.inputs))
            self._inherit(first, node)
            fired = self._fire(node)
            if fired is None:
                self._settle(node, node)
                break
            self._inherit(first, fired)
            node = fired
        self._settle(first, self._done[id(node)])
        return self._done[id(first)]

    def _settle(self, node: Node, result: Node) -> None:
        self._done[id(node)] = result
        self._alive += [node, result]

    def _inherit(self, before: Node, after: Node) -> None:
        """Who stands for a shared node is shared."""
        self._alive.append(after)
        if id(before) in self._shared:
            self._shared.add(id(after))

    def _fire(self, node: Node) -> Node | None:
        for rule in self.local:
            found = rule.apply(node)
            if found is None or self._tears(node, found):
                continue
            self._check(rule, node, found)
            self.applied.append(Applied(rule, node, found))
            self._left -= 1
            if self._left < 0:
                if self.strict:
                    raise AssertionError(f"rules that undo each other, among: {self._last()}")
                raise _Stop
            return found
        return None

    def _tears(self, before: Node, after: Node) -> bool:
        """Whether a node that others read as well is gone from below."""
        left = {id(node) for node in walk(after)}
        return any(
            id(node) in self._shared and id(node) not in left and node is not before and node.inputs
            for node in walk(before)
        )

    @staticmethod
    def _check(rule: AnyRule, before: Node, after: Node) -> None:
        if before.schema != after.schema:
            raise AssertionError(f"{rule.name} changes the columns {before.schema} to {after.schema}")


def _over(node: Node, *inputs: Node) -> Node:
    """The node over other inputs; a loop whose step has turned out not to read it is one round of it."""
    if isinstance(node, Fixpoint) and not reads_recursion(inputs[1], node.token):
        return unrolled(inputs[0], inputs[1], node.kind, node.value)
    return over(node, *inputs)


def _steps(node: Node) -> int:
    """How many steps a plan has; that a source is named twice makes no work."""
    return sum(bool(each.inputs) for each in walk(node))


def _shared(roots: Roots) -> set[int]:
    """Nodes that more than one other reads, or that are an answer and are read as well."""
    readers: dict[int, int] = {}
    for root in {id(root): root for root in roots}.values():
        readers[id(root)] = 1
    for node in walk(*roots):
        for child in node.inputs:
            readers[id(child)] = readers.get(id(child), 0) + 1
    return {key for key, count in readers.items() if count > 1}
