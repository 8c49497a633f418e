"""Windows of the days of a time zone: `TUMBLE(TABLE s, DESCRIPTOR(ts), INTERVAL '1' DAY, 'Europe/Berlin')`.

Where clocks are set forward and back a day has 23, 24 or 25 hours, and begins at another time of UTC.  There are few
kinds of days: how far clocks are ahead when one begins, and how long it is.  The rows of each kind have windows of one
length, at hops of 24 hours; what falls behind the 24th hour of a day is moved back by what the day is longer.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from everwhen.algebra import nodes as n
from everwhen.algebra.expressions.build import Expr, col, function, lit
from everwhen.algebra.expressions.families.zones import FIRST_DAY, LAST_DAY, kinds_of_days, zone_named
from everwhen.core.kinds import kind
from everwhen.errors import QueryError
from everwhen.language import syntax as s
from everwhen.language.binding.context import Binding

_DAY = timedelta(days=1)
_FIRST, _LAST = (datetime.fromisoformat(str(day)) for day in (FIRST_DAY, LAST_DAY))


def zone_days(
    item: s.Windowed, events: n.Node, size: int, shown: Callable[[Expr], Expr], binding: Binding
) -> tuple[n.Node, str, str]:
    """The rows with the windows of their days, and the names of their ends; `shown` makes timestamps of ticks."""
    assert item.zone is not None
    zone = str(item.zone.value)
    if zone_named(zone) is None:
        raise binding.error(f"there is no time zone {zone!r}; write for example 'Europe/Berlin'", item.zone.span)
    start, end, at = binding.name("start"), binding.name("end"), binding.name("at")
    stamped = n.Stamp(events, at)
    moment = shown(col(at))
    if kind(moment.bind(stamped.schema)) != "timestamp":
        raise binding.error("days of a time zone need a stream that is ordered by timestamps", item.zone.span)
    tick = _tick(moment, at)
    if item.kind != "tumble" or size * tick != _DAY:
        raise binding.error(
            "a zone goes with TUMBLE of INTERVAL '1' DAY: other lengths would be cut where clocks are set; group by "
            "date_trunc('hour', ts AT TIME ZONE …) or the like instead",
            item.zone.span,
        )
    local = function("date_trunc", "day", function("from_utc_timestamp", moment, zone))
    begin = function("to_utc_timestamp", local, zone)
    after = function("to_utc_timestamp", local + lit(_DAY), zone)
    kept = tuple((name, col(name)) for name in (*events.schema.names, start))
    parts: list[n.Node] = []
    known = (local >= lit(_FIRST)) & (local < lit(_LAST))
    for at_kind, (ahead, length) in enumerate(kinds_of_days(zone)):
        mine = known & ((local - begin) == lit(ahead)) & ((after - begin) == lit(length))
        mine = mine if at_kind else mine | ~known
        late = (moment - begin) >= lit(_DAY)
        ways = [(mine, ahead)] if length <= _DAY else [(mine & ~late, ahead), (mine & late, ahead - (length - _DAY))]
        for test, moved in ways:
            early = n.AlterLifetime(n.Filter(stamped, test), shift=_ticks(moved, tick, item, binding))
            lasts = _ticks(length, tick, item, binding)
            day = n.AlterLifetime(early, size, -_ticks(ahead, tick, item, binding), lasts)
            parts.append(n.Map(n.Stamp(day, start), (*kept, (end, col(start) + lasts))))
    node = parts[0]
    for more in parts[1:]:
        node = n.Union(node, more)
    return node, start, end


def _tick(moment: Expr, at: str) -> timedelta:
    """The length of a tick, by what two of them are as timestamps."""
    first, second = moment.value({at: 0}), moment.value({at: 1})
    found: timedelta = second - first
    return found


def _ticks(length: timedelta, tick: timedelta, item: s.Windowed, binding: Binding) -> int:
    if length % tick:
        raise binding.error(f"{length} is not a whole number of ticks of {tick}", item.span)
    try:
        return int(length // tick)
    except (OverflowError, QueryError) as error:
        raise binding.error(str(error), item.span) from None
