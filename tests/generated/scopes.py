"""Which columns a generated FROM clause shows, by which names they can be called, and in which order `*` has them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from generated.tree import Expr, Query


@dataclass(frozen=True)
class Scope:
    """`columns` can be read; `shown` is what `*` means (None: not to be said in DuckDB); `bare` counts plain names.

    `ends`: whether every row ends some day, so that windows of rows are legal.
    """

    columns: tuple[Expr, ...]
    shown: tuple[Expr, ...] | None
    bare: dict[str, tuple[Expr, ...]]
    ends: bool = True

    @property
    def qualified(self) -> tuple[Expr, ...]:
        """Those that a subquery may read."""
        return tuple(each for each in self.columns if "." in each.template)

    def of(self, type_: str) -> list[Expr]:
        return [each for each in self.columns if each.type == type_]


def column(ref: str, type_: str) -> Expr:
    return Expr(ref, type_)


def of_stage(alias: str, names: Sequence[str], types: Sequence[str], ends: bool) -> Scope:
    columns = tuple(column(f"{alias}.{name}", type_) for name, type_ in zip(names, types, strict=True))
    return Scope(columns, columns, {name: (each,) for name, each in zip(names, columns, strict=True)}, ends)


def of_timed(alias: str, names: Sequence[str], types: Sequence[str], ends: bool) -> Scope:
    """A stage with the time of its rows as the last column, which our `*` leaves out, and DuckDB's would show."""
    return replace(of_stage(alias, names, types, ends), shown=None)


def joined(left: Scope, right: Scope, using: Sequence[str]) -> Scope:
    """The scope of a join that shows both sides; columns of USING come first, once."""
    merged = {name: column(name, left.bare[name][0].type) for name in using}
    bare = {name: left.bare.get(name, ()) + right.bare.get(name, ()) for name in (*left.bare, *right.bare)}
    bare |= {name: (each,) for name, each in merged.items()}
    # a plain name of an earlier USING can be called as long as it is the only one
    kept = [
        each
        for each in (*left.columns, *right.columns)
        if "." in each.template or (each.template not in merged and len(bare[each.template]) == 1)
    ]
    shown: tuple[Expr, ...] | None = None
    if left.shown is not None and right.shown is not None:
        gone = {each.template for name in using for side in (left, right) for each in side.bare[name]}
        rest = [each for each in (*left.shown, *right.shown) if each.template not in gone]
        if all(each in kept for each in rest):
            shown = (*merged.values(), *rest)
    return Scope((*merged.values(), *kept), shown, bare, left.ends and right.ends)


def usable(name: str, left: Scope, right: Scope) -> bool:
    """Whether USING may name it: one column on each side, of one type."""
    mine, theirs = left.bare.get(name, ()), right.bare.get(name, ())
    return len(mine) == len(theirs) == 1 and mine[0].type == theirs[0].type and mine[0].type in "isd"


def reads(query: Query, outer: Sequence[Expr]) -> bool:
    """Whether a query reads columns of the queries around it."""
    names = {each.template for each in outer}
    return any(isinstance(node, Expr) and node.template in names for node in query.walk())
