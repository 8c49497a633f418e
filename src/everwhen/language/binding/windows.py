"""TUMBLE, HOP, CUMULATE and SESSION in FROM: each row once per window that it falls into, for as long as that lasts.

The windows of TUMBLE, HOP and CUMULATE begin at multiples of a length: a row is given the lifetime of its window, and
the window's start and end as columns.  The windows of SESSION last as long as rows of a partition are no further apart
than the gap: the rows of a partition, each living for the gap, are put together where they meet, and a row that falls
into what comes of it is given that lifetime.
"""

from __future__ import annotations

from collections.abc import Callable

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import col, lit
from everwhen.language import syntax as s
from everwhen.language.binding.context import Binding, Rows
from everwhen.language.binding.scope import NameProblem, ScopeColumn, Table, same
from everwhen.language.binding.spelled.time_column import shown_time
from everwhen.language.binding.spelled.zone_days import zone_days

MOST_WINDOWS = 1000
"""A row falls into at most so many windows."""
_NAMES = ("window_start", "window_end")


def windows(
    item: s.Windowed,
    binding: Binding,
    from_item: Callable[[s.FromItem, Binding], Rows],
    time: Callable[[s.Length, Binding], int],
) -> tuple[n.Node, Table]:
    """The rows with their windows; `time` is how lengths are read."""
    rows = from_item(item.item, binding)
    (table,) = rows.scope.tables
    _check_time(item, rows, binding)
    lengths = [time(each, binding) for each in item.lengths]
    for written, length in zip(item.lengths, lengths, strict=True):
        if length < 1:
            raise binding.error(f"a length of {item.kind.upper()} is at least one tick", written.span)
    events = rows.node if rows.node.keeps_events else n.Coalesce(rows.node)
    if item.zone is not None:
        node, start, end = zone_days(item, events, lengths[-1], shown_time(events, binding), binding)
    elif item.kind == "session":
        node, start, end = _sessions(item, events, lengths[0], rows, binding)
    else:
        node, start, end = _regular(item, events, lengths, binding)
    shown = shown_time(events, binding)
    taken = {column.name.lower() for column in table.columns}
    names = [name if name not in taken else binding.name(name) for name in _NAMES]
    kept = tuple((name, col(name)) for name in events.schema.names)
    found = n.Map(node, (*kept, (names[0], shown(col(start))), (names[1], shown(col(end)))))
    added = tuple(ScopeColumn(name, given) for name, given in zip(_NAMES, names, strict=True))
    alias = item.alias.text if item.alias is not None else table.alias
    return found, Table(alias, (*table.columns, *added), table.stream)


def _regular(item: s.Windowed, events: n.Node, lengths: list[int], binding: Binding) -> tuple[n.Node, str, str]:
    """Windows at multiples of a length, all together."""
    start, end = binding.name("start"), binding.name("end")
    size = lengths[-1]
    step = lengths[0]
    if size % step:
        problem = f"the size of {item.kind.upper()} is a multiple of its {'slide' if item.kind == 'hop' else 'step'}"
        raise binding.error(problem, item.lengths[-1].span)
    if size // step > MOST_WINDOWS:
        raise binding.error(f"a row would fall into {size // step} windows; at most {MOST_WINDOWS} are made", item.span)
    windows: list[tuple[n.Node, int]] = []
    if item.kind == "cumulate":
        at = binding.name("at")
        stamped = n.Stamp(events, at)
        for k in range(1, size // step + 1):
            early = n.Filter(stamped, (col(at) % size) // step < k) if k * step < size else stamped
            windows.append((n.Stamp(n.AlterLifetime(early, size, 0, k * step), start), k * step))
    else:
        for k in range(size // step):
            windows.append((n.Stamp(n.AlterLifetime(events, step, -k * step, size), start), size))
    kept = tuple((name, col(name)) for name in (*events.schema.names, start))
    parts: list[n.Node] = [n.Map(node, (*kept, (end, col(start) + length))) for node, length in windows]
    while len(parts) > 1:  # a balanced tree, since a deep one takes long to go through
        parts = [n.Union(*parts[i : i + 2]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return parts[0], start, end


def _sessions(item: s.Windowed, events: n.Node, gap: int, rows: Rows, binding: Binding) -> tuple[n.Node, str, str]:
    start, end = binding.name("start"), binding.name("end")
    keys = []
    for name in item.partition:
        try:
            found = rows.scope.column(name.parts)
        except NameProblem as problem:
            raise binding.error(str(problem), name.span) from None
        if found is None:
            raise binding.error(rows.scope.unknown(name.parts), name.span)
        keys.append(found.physical)
    partition = tuple(dict.fromkeys(keys))
    if not partition:  # all rows are one partition
        one = binding.name("all")
        events = n.Map(events, (*((c, col(c)) for c in events.schema.names), (one, lit(1))))
        partition = (one,)
    lively = n.Map(n.AlterLifetime(events, length=gap), tuple((key, col(key)) for key in partition))
    met = n.Stamp(n.Coalesce(n.Distinct(lively)), start, end)
    inner = tuple((binding.name("key"), key) for key in partition)
    theirs = n.Map(met, (*((new, col(key)) for new, key in inner), (start, col(start)), (end, col(end))))
    pairs = n.Join(n.AlterLifetime(events, length=1), theirs, partition, tuple(new for new, _ in inner), null_safe=True)
    return n.Span(pairs, start, end), start, end


def _check_time(item: s.Windowed, rows: Rows, binding: Binding) -> None:
    """A window is one of the rows' own time: another column cannot be meant."""
    if item.time is None:
        return
    ordered = None
    if isinstance(item.item, s.StreamRef):
        entry = binding.catalog.stream(item.item.name.text, item.item.name.quoted)
        if entry is not None and entry.declaration is not None and entry.declaration.ordered_by is not None:
            ordered = entry.declaration.ordered_by[0]
    if ordered is not None and same(item.time, ordered):
        return
    column = any(same(item.time, c.name) for table in rows.scope.tables for c in table.columns)
    if ordered is not None or column:
        own = f"DESCRIPTOR({ordered})" if ordered is not None else "leave it out"
        if item.partition and not isinstance(item.item, s.Derived):
            stream = rows.scope.tables[0].alias
            own += f", or write {stream}.{item.time.text} for a column of PARTITION BY"
        raise binding.error(
            f"windows go by the time of the rows, and {item.time.text} is another column; {own}", item.time.span
        )
