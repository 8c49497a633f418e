"""PUNCTUATE and ORDER BY against the columns they name: schemes and sort orders, with places for what is wrong."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches
from typing import Any

from everwhen.algebra import nodes as n
from everwhen.core.schema import Schema
from everwhen.errors import QueryError
from everwhen.language import syntax as s
from everwhen.language.binding.context import Binding
from everwhen.punctuation.schemes import Bounds, ClusteredBy, Complete, Given, Scheme, SortedBy, Unique, bound


def schemes_of(
    written: Iterable[s.SchemeSyntax], schema: Schema, times: Collection[str], stream: str, binding: Binding
) -> tuple[Scheme, ...]:
    """The schemes of a PUNCTUATE clause; `times` are columns that hold lifetimes and are no part of the stream."""
    return _Schemes(schema, times, stream, binding).all(tuple(written))


class _Schemes:
    def __init__(self, schema: Schema, times: Collection[str], stream: str, binding: Binding) -> None:
        self._schema = schema
        self._times = times
        self._where = f"the stream {stream}"
        self._binding = binding

    def all(self, written: tuple[s.SchemeSyntax, ...]) -> tuple[Scheme, ...]:
        found: list[Scheme] = []
        for each in written:
            scheme = self._one(each)
            if scheme in found:
                raise self._binding.error(f"{scheme} stands here twice; once is enough", each.span)
            found.append(scheme)
        return tuple(found)

    def _one(self, e: s.SchemeSyntax) -> Scheme:
        match e:
            case s.SchemeSorted(column, descending, within):
                name = self._column(column)
                plain = self._checked(SortedBy(name, descending), column.span)
                if within is None:
                    return plain
                return self._checked(SortedBy(name, descending, _distance(within)), within.span)
            case s.SchemeClustered(column):
                return self._checked(ClusteredBy(self._column(column)), column.span)
            case s.SchemeUnique(columns, span):
                return self._checked(Unique(tuple(self._column(column) for column in columns)), span)
            case s.SchemeGiven(columns, span):
                return self._checked(Given(tuple(self._column(column) for column in columns)), span)
            case s.SchemeBounds(column, low, high, span):
                name = self._column(column)
                for side, constant in (("low", low), ("high", high)):
                    if constant is not None:
                        self._checked(Bounds(name, **{side: constant.value}), constant.span)
                return self._checked(Bounds(name, _value(low), _value(high)), span)
            case s.SchemeComplete(group, unit, units, each, span):
                of = tuple(self._column(column) for column in group)
                who = self._column(unit)
                number = _value(each)
                if each is not None:
                    self._checked(Complete(of, who, (units[0].value,), number), each.span)
                for constant in units:
                    self._checked(Complete(of, who, (constant.value,), number), constant.span)
                return self._checked(Complete(of, who, tuple(unit.value for unit in units), number), span)

    def _checked(self, scheme: Scheme, span: s.Span) -> Scheme:
        try:
            return bound([scheme], self._schema, self._where)[0]
        except QueryError as error:
            raise self._binding.error(str(error), span) from None

    def _column(self, name: s.Ident) -> str:
        for known in self._times:
            if _is(name, known):
                raise self._binding.error(
                    f"{known} is the time of the stream, not a column of it: how far time has come is what a CTI says; "
                    f"to let every batch say one, write ORDERED BY {known} WITHIN 30 MINUTES",
                    name.span,
                )
        return _column(name, self._schema, self._where, self._binding)


def sorted_node(node: n.Node, order: tuple[s.OrderItem, ...], binding: Binding) -> n.Node:
    """The answer's plan with the order that ORDER BY asks for."""
    by: list[tuple[str, bool]] = []
    for item in order:
        by.append((_column(item.name, node.schema, "the answer, which ORDER BY sorts", binding), item.descending))
        try:
            found = n.Sort(node, tuple(by))
        except QueryError as error:
            raise binding.error(str(error), item.span) from None
    return found


def _distance(within: s.Given | s.Length) -> Any:
    if isinstance(within, s.Given):
        return within.value
    return int(within.number) if within.unit is None else f"{within.number} {within.unit}"


def _value(constant: s.Given | None) -> Any:
    return None if constant is None else constant.value


def _column(name: s.Ident, schema: Schema, where: str, binding: Binding) -> str:
    for known in schema.names:
        if _is(name, known):
            return known
    lower = {known.lower(): known for known in schema.names}
    near = get_close_matches(name.text.lower(), lower, n=1)
    hint = f"did you mean {lower[near[0]]!r}?" if near else f"there is {', '.join(schema.names)}"
    raise binding.error(f"unknown column {name.text!r} in {where}; {hint}", name.span)


def _is(name: s.Ident, known: str) -> bool:
    return known == name.text or (not name.quoted and known.lower() == name.text.lower())
