"""A syntax tree as short text, with all parentheses and without places, for comparing in tests; a walk over nodes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from everwhen.language import syntax as s


def walk(node: Any) -> Iterator[Any]:
    """Every node of a tree, parents first."""
    if isinstance(node, tuple):
        for each in node:
            yield from walk(each)
    elif dataclasses.is_dataclass(node) and not isinstance(node, s.Span):
        yield node
        for field in dataclasses.fields(node):
            yield from walk(getattr(node, field.name))


def ident(name: s.Ident) -> str:
    return f'"{name.text}"' if name.quoted else name.text


def idents(names: tuple[s.Ident, ...]) -> str:
    return "(" + " ".join(map(ident, names)) + ")"


def length(node: s.Length | None) -> str:
    return "unbounded" if node is None else node.number + (f" {node.unit}" if node.unit else "")


def shown(node: Any) -> str:
    match node:
        case None:
            return "-"
        case tuple():
            return " ".join(map(shown, node))
        case s.Name(parts):
            return ".".join(map(ident, parts))
        case s.Constant(value):
            return repr(value)
        case s.Duration(text):
            return f"<{text}>"
        case s.Operator(symbol, operands):
            return f"({symbol} {shown(operands)})"
        case s.Function(name, args, _, star, distinct, where):
            inner = "*" if star else ("distinct " if distinct else "") + shown(args)
            return f"{name}[{inner}]" + (f" filter {shown(where)}" if where else "")
        case s.Case(operand, whens, otherwise, _):
            pairs = " ".join(f"{shown(when)}->{shown(then)}" for when, then in whens)
            return f"(case {shown(operand)}: {pairs} else {shown(otherwise)})"
        case s.CastTo(operand, s.TypeName(text), _):
            return f"({shown(operand)} :: {text})"
        case s.Row(items):
            return f"(row {shown(items)})"
        case s.Scalar(query):
            return f"(scalar {shown(query)})"
        case s.Exists(query):
            return f"(exists {shown(query)})"
        case s.Quantified(operand, symbol, quantifier, query):
            return f"({symbol} {quantifier} {shown(operand)} {shown(query)})"
        case s.RangeWindow(size, slide):
            return f"range {length(size)}" + (f" slide {length(slide)}" if slide else "")
        case s.RowsWindow(rows, slide, partition):
            by = f" by ({shown(partition)})" if partition else ""
            return f"rows {length(rows)}" + (f" slide {length(slide)}" if slide else "") + by
        case s.Lifetime(hop, shift, size, unbounded):
            given = [(name, part) for name, part in (("hop", hop), ("shift", shift), ("length", size)) if part]
            return "lifetime " + " ".join([f"{n} {length(p)}" for n, p in given] + ["unbounded"] * unbounded)
        case s.Granularity(granule):
            return f"granularity {length(granule)}"
        case s.StreamRef(name, alias, modifiers, _):
            return ident(name) + behind(alias, modifiers)
        case s.Derived(query, alias, columns, modifiers, _):
            return f"({shown(query)})" + behind(alias, modifiers) + (idents(columns) if columns else "")
        case s.Converted(kind, item, alias, modifiers, _):
            return f"{kind}({shown(item)})" + behind(alias, modifiers)
        case s.JoinItem(left, right, kind, on, using, _):
            how = f" on {shown(on)}" if on else f" using {idents(using)}" if using else ""
            return f"<{shown(left)} {kind} {shown(right)}{how}>"
        case s.Star(qualifier):
            return f"{ident(qualifier)}.*" if qualifier else "*"
        case s.Item(expression, alias, _):
            return shown(expression) + (f" as {ident(alias)}" if alias else "")
        case s.Select():
            clauses = [
                "select" + " distinct" * node.distinct,
                ", ".join(map(shown, node.items)),
                "from",
                ", ".join(map(shown, node.sources)),
                f"where {shown(node.where)}" if node.where else "",
                f"group {', '.join(map(shown, node.group_by))}" if node.group_by else "",
                f"having {shown(node.having)}" if node.having else "",
            ]
            return " ".join(filter(None, clauses))
        case s.SetQuery(kind, keep, left, right):
            return f"({shown(left)} {kind}{' all' * keep} {shown(right)})"
        case s.Cql(kind, query):
            return f"{kind}({shown(query)})"
        case s.Common(name, columns, query):
            return f"{ident(name)}{idents(columns) if columns else ''} = ({shown(query)})"
        case s.With(queries, body):
            return f"with {', '.join(map(shown, queries))} in {shown(body)}"
        case s.ColumnDef(name, s.TypeName(text), key):
            return f"{ident(name)} {text}" + " key" * key
        case s.CreateSource():
            parts = [
                "create" + " or replace" * node.or_replace,
                node.kind,
                ident(node.name),
                "(" + ", ".join(map(shown, node.columns)) + ")",
                *(f"key {idents(key)}" for key in node.keys),
                f"period {idents(node.period)}" if node.period else "",
                f"source {node.source.name}{node.source.args!r}" if node.source else "",
                f"ordered by {ident(node.ordered_by)}" if node.ordered_by else "",
                "insert only" if node.insert_only else "",
                "" if node.arrives == "any" else f"arrives {node.arrives}",
            ]
            return " ".join(filter(None, parts))
        case s.CreateDerived(name, columns, query, or_replace):
            given = idents(columns) if columns else ""
            return f"create{' or replace' * or_replace} {ident(name)}{given} = {shown(query)}"
        case s.Drop(name, if_exists):
            return f"drop{' if exists' * if_exists} {ident(name)}"
        case s.Consistency(level, block, remember):
            return level or f"block {length(block)} remember {length(remember)}"
        case s.Ask(query, consistency):
            return shown(query) + (f" @ {shown(consistency)}" if consistency else "")
    raise AssertionError(node)


def behind(alias: s.Ident | None, modifiers: tuple[s.Modifier, ...]) -> str:
    return "".join(f" [{shown(each)}]" for each in modifiers) + (f" {ident(alias)}" if alias else "")
