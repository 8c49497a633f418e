"""TUMBLE, HOP, CUMULATE and SESSION in generated queries, and what they mean, from their definitions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from generated.expressions import Reach
from generated.grammar import Grammar
from generated.lifetimes import Event, Snapshots, events_of, snapshots
from generated.scopes import Scope, of_stage, of_timed
from generated.streams import SOURCES
from generated.tree import OURS, Dialect, Expr, Lifetimes, Node, Query, Select, Stage

FUNCTIONS = ("TUMBLE", "HOP", "CUMULATE", "SESSION")
_LENGTHS = {"TUMBLE": ((3,), (5,)), "HOP": ((2, 4), (1, 3), (3, 3)), "CUMULATE": ((2, 6), (1, 3), (4, 4))}


@dataclass(frozen=True)
class Cut(Stage):
    """A stream or a subquery with its rows in windows; the last two columns are the ends of those."""

    function: str = "TUMBLE"
    lengths: tuple[int, ...] = ()
    by: tuple[str, ...] = ()

    @property
    def own(self) -> tuple[str, ...]:
        return self.types[:-2]

    @property
    def tabled(self) -> bool:
        return True

    def key(self) -> str:
        # events of a filtered or projected stream stay as they are, and the judge knows snapshots of subqueries only
        of = f"TABLE {self.of}" if isinstance(self.of, str) else f"COALESCE({self.of.sql(OURS)}) q"
        # a plain name before the length would be that of the time
        names = (*self.by[:1], *(f"{self.of if isinstance(self.of, str) else 'q'}.{name}" for name in self.by[1:]))
        by = f" PARTITION BY {', '.join(names)}" if self.by else ""
        text = f"{self.function}({of}{by}, {', '.join(map(str, self.lengths))})"
        around = self.lifetimes.around
        return (f"{around}({text})" if around else text) + self.lifetimes.behind()

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        if dialect.table is None:
            return f"{self.key()} {self.alias}"
        return f"{dialect.table(self)} {self.alias}({', '.join(self.names)})"

    def constructs(self) -> Iterator[str]:
        yield f"window function: {self.function}{' partition' if self.by else ''}"
        yield "window function of a subquery" if not isinstance(self.of, str) else "window function of a stream"
        yield from self.lifetimes.constructs()

    def shaped(self, events: Sequence[Event] | None, given: Snapshots) -> tuple[list[Event], Snapshots]:
        known = events_of(given) if events is None else events
        found = list(self._sessions(known) if self.function == "SESSION" else self._regular(known))
        return found, snapshots(found)

    def _regular(self, events: Sequence[Event]) -> Iterator[Event]:
        step, size = self.lengths[0], self.lengths[-1]
        for vs, _, row in events:
            if self.function == "CUMULATE":
                start = vs // size * size
                windows = [(start, start + n) for n in range(step, size + 1, step) if vs < start + n]
            else:
                first = vs // step * step
                windows = [(start, start + size) for start in range(first, vs - size, -step)]
            yield from ((start, end, (*row, start, end)) for start, end in windows)

    def _sessions(self, events: Sequence[Event]) -> Iterator[Event]:
        keys = [self.names.index(name) for name in self.by]
        parts: dict[tuple, list[Event]] = {}
        for event in events:
            parts.setdefault(tuple(event[2][at] for at in keys), []).append(event)
        gap = self.lengths[0]
        for part in parts.values():
            together: list[Event] = []
            for event in sorted(part, key=lambda each: each[0]):
                if together and event[0] > together[-1][0] + gap:
                    yield from _session(together, gap)
                    together = []
                together.append(event)
            yield from _session(together, gap)


def _session(events: Sequence[Event], gap: int) -> Iterator[Event]:
    start, end = events[0][0], events[-1][0] + gap
    return ((start, end, (*row, start, end)) for _, _, row in events)


@dataclass(frozen=True)
class Spark(Select):
    """`GROUP BY window(ts, size [, slide]), …` over a stream; DuckDB reads TUMBLE or HOP."""

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        text = super().sql(dialect, inside)
        if not dialect.ours:
            return text
        assert isinstance(self.source, Cut)
        alias, lengths = self.source.alias, [f"'{n} milliseconds'" for n in reversed(self.source.lengths)]
        text = text.replace(f" FROM {self.source.sql(dialect)}", f" FROM {self.source.of} {alias}")
        ends = f"{alias}.window_start, {alias}.window_end"
        text = text.replace(f"GROUP BY {ends}", f"GROUP BY window(ts, {', '.join(lengths)})")
        return text.replace(f"{alias}.window_start", "window.start").replace(f"{alias}.window_end", "window.end")

    def constructs(self) -> Iterator[str]:
        yield from super().constructs()
        yield "window function of Spark"


class WindowTables(Grammar):
    """Draws windows as functions of tables."""

    cutting = 0.12

    def query(self, depth: int, outer: tuple[Expr, ...], types: Sequence[str] | None = None) -> tuple[Query, bool]:
        if outer or types is not None or not self.chance(0.03):
            return super().query(depth, outer, types)
        source, alias = SOURCES["O"], self._alias()
        function = self.rng.choice(("TUMBLE", "HOP"))
        names, types_ = source.timed
        stage = Cut(
            "O", alias, (*names, "window_start", "window_end"), (*types_, "i", "i"),
            function=function, lengths=self.rng.choice(_LENGTHS[function]),
        )  # fmt: skip
        scope = of_stage(alias, stage.names, stage.types, True)
        *columns, start, end = scope.columns
        by = self.rng.sample(columns[:3], self.rng.randint(0, 2))
        keys = (start, end, *by)
        where = self.condition(Reach(tuple(columns), depth=0), 1) if self.chance(0.3) else None
        totals = tuple(self._of_group(t, Reach(keys, aggregated=tuple(columns), depth=0)) for t in "isg")
        having = Expr("COUNT(*) > 1", "b") if self.chance(0.3) else None
        return Spark((*keys, *totals), stage, where, keys, having, "keys"), True

    def _source(self, depth: int) -> tuple[Node, Scope]:
        stage, scope = super()._source(depth)
        plain = type(stage) is Stage and not stage.cte and not stage.merge and stage.lifetimes.around is None
        if not plain or not self.chance(self.cutting):
            return stage, scope
        assert isinstance(stage, Stage)
        names, types = stage.names, stage.types
        of = stage.of
        if not isinstance(of, str):
            if self._reads_with(of) or _starred(of):
                return stage, scope
            names = tuple(f"c{at}" for at in range(len(types)))
        timed = isinstance(of, str) and len(names) > len(SOURCES[of].names)
        function = self.rng.choice((*FUNCTIONS, "SESSION"))
        lengths = self.rng.choice(_LENGTHS.get(function, ((1,), (2,), (4,))))
        by = tuple(self.rng.sample(names[: len(names) - timed], self.rng.choice((0, 1, 1, min(2, len(names) - timed)))))
        how = self._windowed_again(names)
        ends = how.window is None or how.window[0] != "rows"
        found = Cut(
            of, stage.alias, (*names, "window_start", "window_end"), (*types, "i", "i"), how,
            function=function, lengths=lengths, by=by if function == "SESSION" else (),
        )  # fmt: skip
        scope_of = of_timed if timed else of_stage
        return found, scope_of(found.alias, found.names, found.types, ends)

    def _windowed_again(self, names: Sequence[str]) -> Lifetimes:
        """Sometimes a window of the windows, or what changes in them."""
        if self.chance(0.7):
            return Lifetimes()
        how = self._lifetimes(names, True, derived=True)
        if how.around in ("INSERTS", "DELETES") or how.lifetime is not None:
            how = replace(how, around="COALESCE")
        return how


def _starred(query: Node) -> bool:
    return any(getattr(each, "star", False) for each in query.walk())
