"""Spark's `GROUP BY window(ts, '10 minutes')` as TUMBLE or HOP in FROM.

    SELECT window.start, item, COUNT(*) FROM Bid GROUP BY window(ts, '10 minutes'), item

`window.start` and `window.end` are the columns window_start and window_end; `window` alone is a structure of both.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from everwhen.core.time import ticks
from everwhen.errors import QueryError
from everwhen.language import syntax as s
from everwhen.language.binding.context import Binding

_ENDS = {"start": "window_start", "end": "window_end"}


def with_windows(e: s.Select, binding: Binding) -> s.Select:
    """The query without such calls; itself if there are none."""
    calls = [key for key in e.group_by if isinstance(key, s.Function) and key.name == "window" and key.over is None]
    if not calls:
        return e
    call = calls[0]
    if len(calls) > 1 or e.sets:
        raise binding.error("one window(…) may stand in GROUP BY, and none in GROUPING SETS", calls[-1].span)
    if len(e.sources) != 1 or isinstance(e.sources[0], s.JoinItem):
        raise binding.error("window(…) groups the rows of one stream; put the join into a subquery in FROM", call.span)
    source = _windowed(call, e.sources[0], binding)
    keys: list[s.Expression] = []
    for key in e.group_by:
        keys += [_end(each, call.span) for each in _ENDS.values()] if key is call else [key]
    items = tuple(_item(item, call) if isinstance(item, s.Item) else item for item in e.items)
    having = None if e.having is None else _mapped(e.having, call)
    where = None if e.where is None else _mapped(e.where, call)
    return replace(e, items=items, sources=(source,), where=where, group_by=tuple(keys), having=having)


def _windowed(call: s.Function, item: s.FromItem, binding: Binding) -> s.Windowed:
    if not 2 <= len(call.args) <= 3 or not isinstance(call.args[0], s.Name):
        raise binding.error(
            "window takes the column with the time, a size and maybe a slide: window(ts, '10 minutes', '5 minutes')",
            call.span,
        )
    assert not isinstance(item, s.JoinItem)
    size, *slide = [_length(arg, binding) for arg in call.args[1:]]
    time = call.args[0].parts[-1]
    alias = item.alias or (item.name if isinstance(item, s.StreamRef) else None)
    lengths = (slide[0], size) if slide else (size,)
    return s.Windowed("hop" if slide else "tumble", replace(item, alias=None), time, (), lengths, alias, (), call.span)


def _length(e: s.Expression, binding: Binding) -> s.Length:
    text = e.value if isinstance(e, s.Constant) else e.text if isinstance(e, s.Duration) else None
    if not isinstance(text, str) or not text:
        raise binding.error("a length of time, such as '10 minutes'", e.span)
    try:
        return s.Length(str(ticks(text, "1ns")), "ns", e.span)
    except (QueryError, ValueError) as error:
        raise binding.error(str(error), e.span) from None


def _end(name: str, span: s.Span) -> s.Name:
    return s.Name((s.Ident(name, True, span),), span)


def _item(item: s.Item, call: s.Function) -> s.Item:
    found = _mapped(item.expression, call)
    if found is item.expression or item.alias is not None:
        return replace(item, expression=found)
    if isinstance(item.expression, s.Name) and len(item.expression.parts) == 2:
        return replace(item, expression=found, alias=item.expression.parts[1])  # window.start is called start
    return replace(item, expression=found, alias=s.Ident("window", True, item.span))


def _mapped(e: Any, call: s.Function) -> Any:
    """The expression with the window's ends in the place of what means them; subqueries stay as they are."""
    if isinstance(e, s.Name):
        first, *rest = (part.text.lower() for part in e.parts)
        if first == "window" and len(rest) == 1 and rest[0] in _ENDS:
            return _end(_ENDS[rest[0]], e.span)
        return _both(e.span) if first == "window" and not rest else e
    if isinstance(e, s.Function) and e.name == "window" and e.over is None:
        return _both(e.span)
    if isinstance(e, tuple):
        return tuple(_mapped(each, call) for each in e)
    if isinstance(e, s.Operator | s.Function | s.Case | s.CastTo | s.Row):
        new = {each.name: _mapped(getattr(e, each.name), call) for each in fields(e)}
        changed = {name: value for name, value in new.items() if value != getattr(e, name)}
        return replace(e, **changed) if changed else e
    return e


def _both(span: s.Span) -> s.Function:
    parts: list[s.Expression] = []
    for name, column in _ENDS.items():
        parts += [s.Constant(name, span), _end(column, span)]
    return s.Function("named_struct", tuple(parts), span)
