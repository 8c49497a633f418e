"""Conditions on columns that a loop keeps go to its base: what nobody wants is never begun.

A row follows from rows with the same values in such columns, so it passes if and only if they do, and they do if and
only if the rows of the base do from which all began.  Columns of tagged rows, and the value of a MIN or MAX, are not
kept.  A condition that may fail would fail above, too: rows of the base are rows of the loop (under MIN
and MAX their keys are).

A rule of its own, because it makes two loops of one where queries share it and differ in the filter.
"""

from __future__ import annotations

from dataclasses import replace

from everwhen.algebra.expressions.build import conjunction, conjuncts
from everwhen.algebra.nodes import Filter, Fixpoint, Node
from everwhen.rewrite.facts.conditions import parted
from everwhen.rewrite.facts.kept_columns import kept_columns
from everwhen.rewrite.rule import Rule


def _apply(node: Node) -> Node | None:
    match node:
        case Filter(Fixpoint(base) as loop, predicate):
            kept = kept_columns(loop)
            wanted = [bool(each.columns()) and each.columns() <= kept for each in conjuncts(predicate)]
            moved, stay = parted(predicate, wanted, node.schema)
            if not moved:
                return None
            result = replace(loop, base=Filter(base, conjunction(moved)))
            return Filter(result, conjunction(stay)) if stay else result
    return None


PUSH_FILTER_FIXPOINT = Rule("push_filter_fixpoint", "what nobody wants of a recursion is not begun", _apply)
