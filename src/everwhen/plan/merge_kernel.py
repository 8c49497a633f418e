"""Which kernel of LMerge runs (the paper, IV-G), from what is physically said by its inputs.

    kernel    condition on every input
    R0        never corrected, in order, starts always go up; lifetimes that no copy cuts; policy FIRST
    R1        the same, where elements of one instant come in the same order on all, and none is missing
    R2        the same as R0, elements of one instant in any order
    R3        no two events with the same start and row (on events), no row alive twice (on snapshots)
    R4        anything

In order is what is declared and checked (ARRIVES IN ORDER), not what is trusted (`ordered=True`): R0 to R2 lose an
element that is late.  A lifetime that no copy cuts is one tick, or that of an event with a key of the whole history.
Nothing declares that ties come in one order, so R1 runs only where it is asked for (`MergePolicy.kernel`).  R3 and R4
are one operator over signed segments with the same state: R3 says that no multiplicity is above one, and no more.
"""

from __future__ import annotations

from dataclasses import dataclass

from everwhen.algebra import nodes as n
from everwhen.algebra.properties.derive import properties
from everwhen.core.emit import Emit
from everwhen.errors import QueryError
from everwhen.plan.properties import emitted, instants


@dataclass(frozen=True, slots=True)
class Kernel:
    """The kernel that runs, and why.  `instants`: all lifetimes are one tick."""

    name: str
    reason: str
    instants: bool


def merge_kernel(node: n.LMerge) -> Kernel:
    """The kernel of a merge; one that was asked for and does not hold is an error.

    >>> import everwhen as ew
    >>> copies = [ew.source(name, {"x": "int64"}, insert_only=True, chronons=True, arrives="in order") for name in "ab"]
    >>> print(merge_kernel(ew.lmerge(*copies).node).name)
    R2
    """
    each_instant = all(map(instants, node.copies))
    lacks = {name: _lacking(node, name) for name in ("R0", "R1", "R2", "R3")}
    asked = node.policy.kernel
    if asked is not None:
        if lacks.get(asked):
            raise QueryError(
                f"the kernel {asked} was asked for, but {lacks[asked]}; declare it, or leave the kernel to the planner"
            )
        return Kernel(asked, "as asked for", each_instant)
    for name in ("R0", "R2", "R3"):
        if not lacks[name]:
            return Kernel(name, _REASONS[name], each_instant)
    return Kernel("R4", lacks["R3"] if not _never_corrected(node) else lacks["R2"], each_instant)


_REASONS = {
    "R0": "never corrected, strictly in order, lifetimes that cannot be cut",
    "R2": "never corrected, in order, lifetimes that cannot be cut",
    "R3": "no row twice; run as R4 with the same state",
}


def _never_corrected(node: n.LMerge) -> bool:
    return all(emitted(each, Emit.ALL).insert_only for each in node.copies)


def _lacking(node: n.LMerge, kernel: str) -> str:
    """What a kernel needs and an input, which is named, is not known to have; nothing: it holds."""
    for name, copy in zip(node.names, node.copies, strict=True):
        known = properties(copy)
        if kernel == "R3":
            unique = known.no_duplicates if node.keeps_events else bool(known.keys)
            if not unique:
                return f"{name} may have a row twice (no KEY)"
            continue
        if not emitted(copy, Emit.ALL).insert_only:
            return f"{name} may be corrected (no INSERT ONLY, or an operator that corrects)"
        if not _arrives(copy, strictly=False):
            return f"{name} may come in any order (no ARRIVES IN ORDER)"
        if kernel == "R0" and not (known.at_most_one or _arrives(copy, strictly=True)):
            return f"{name} may have several rows that start together (no ARRIVES IN ORDER STRICTLY)"
        if not (instants(copy) or known.history_keys):
            return f"{name} may cut lifetimes (neither ORDERED BY nor KEY)"
    policy = node.policy
    if kernel != "R3" and (policy.leader or policy.final or policy.quorum > 1):
        return f"{kernel} emits what comes first, and the policy is {policy}"
    return ""


def _arrives(node: n.Node, strictly: bool) -> bool:
    """Whether elements come in the order of their starts, because that is checked where they come in."""
    match node:
        case n.Source():
            return node.arrives == "strictly" or (node.arrives == "in order" and not strictly)
        case n.Filter(input) | n.Map(input) | n.Punctuate(input):
            return _arrives(input, strictly)
        case n.TimeWindow(input, _, slide):
            return instants(input) and (slide == 1 or not strictly) and _arrives(input, strictly)
    return False


def merged_by(node: n.LMerge) -> str:
    """The kernel for EXPLAIN, such as `LMerge R2 on events: never corrected, in order, …`."""
    kernel = merge_kernel(node)
    return f"LMerge {kernel.name} on {'events' if node.keeps_events else 'snapshots'}: {kernel.reason}"
