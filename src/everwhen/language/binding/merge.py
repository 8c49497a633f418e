"""LMERGE in FROM as a plan."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from everwhen.algebra import nodes as n
from everwhen.algebra.lmerge import default_policy, merged
from everwhen.core.merge_policy import KERNELS, MergePolicy
from everwhen.core.scalars import Unfit
from everwhen.core.time import NEVER, is_time, ticks
from everwhen.errors import QueryError
from everwhen.formats.time_columns import ticks_of_text
from everwhen.language import syntax as s
from everwhen.language.binding.context import Binding, Rows
from everwhen.language.binding.scope import Table


def merged_copies(
    item: s.Merged, binding: Binding, from_item: Callable[[s.FromItem, Binding], Rows]
) -> tuple[n.Node, Table]:
    """The merge, and its columns: those of the first copy."""
    rows = [from_item(copy.item, binding) for copy in item.copies]
    (table,) = rows[0].scope.tables
    first = rows[0].node.schema
    for copy, each in zip(item.copies[1:], rows[1:], strict=True):
        if not each.node.schema.same_types(first):
            raise binding.error(
                f"LMERGE merges copies of one stream: the first has the columns {first}, this one {each.node.schema}; "
                "put a subquery with the same columns here",
                copy.span,
            )
    since = tuple(_since(copy, binding) for copy in item.copies)
    policy = _policy(item, [each.node for each in rows], binding)
    try:
        node = merged([each.node for each in rows], since, policy, _names(item))
    except QueryError as error:
        raise binding.error(str(error), item.span) from None
    alias = item.alias.text if item.alias else None
    return node, Table(alias, tuple(column for column in table.columns if not column.unlisted))


def _since(copy: s.MergeInput, binding: Binding) -> int:
    if copy.since is None:
        return NEVER
    if isinstance(copy.since, int):
        if not is_time(copy.since):
            raise binding.error(f"{copy.since} is no time that the system can work with", copy.span)
        return copy.since
    try:
        return ticks_of_text(copy.since, "SINCE", ticks(binding.tick, "1ns"))
    except Unfit as bad:
        raise binding.error(f"{bad.problem}; {bad.remedy}", copy.span) from None
    except QueryError as error:
        raise binding.error(str(error), copy.span) from None


def _policy(item: s.Merged, copies: list[n.Node], binding: Binding) -> MergePolicy:
    words = {word: span for word, span in item.words}
    named = words.keys() & {"FIRST", "LEADER", "QUORUM", "FINAL"}
    policy = default_policy(copies)
    if named:
        policy = MergePolicy(item.quorum or 1, "LEADER" in named, "FINAL" in named)
    if item.quorum is not None and not 1 <= item.quorum <= len(copies):
        raise binding.error(f"a quorum is of 1 to {len(copies)} inputs: so many there are", words["QUORUM"])
    if "FINAL" in words and "LAZY" in words:
        raise binding.error("FINAL says nothing before it is final, so there is nothing to be LAZY with", words["LAZY"])
    kernel = next((word for word in words if word in KERNELS), None)
    return replace(policy, lazy="LAZY" in words, audit="AUDIT" in words, kernel=kernel)


def _names(item: s.Merged) -> tuple[str, ...]:
    """What messages call the copies: by the stream or the alias, else by their positions."""

    def name(at: int, copy: s.MergeInput) -> str:
        match copy.item:
            case s.StreamRef(stream, alias):
                return (alias or stream).text
            case s.Derived(alias=s.Ident(text)) | s.Converted(alias=s.Ident(text)) | s.Merged(alias=s.Ident(text)):
                return text
        return f"input {at}"

    return tuple(name(at, copy) for at, copy in enumerate(item.copies, 1))
