"""MATCH_RECOGNIZE in generated queries, and what it means at an instant: all runs of neighbours, tried one by one.

A pattern is a tree of ("var", name), ("seq", …), ("or", …), ("rep", pattern, least, most).  Conditions and measures
are pairs of a text and a function of the rows of the match so far with their variables, and of the neighbour before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from generated.grammar import Grammar
from generated.lifetimes import Row, Snapshots, order
from generated.scopes import Scope, of_stage
from generated.streams import SOURCES
from generated.tree import Dialect, Node, Stage

Mapped = list[tuple[str, Row]]
K, V = 0, 1
"""Places of the columns k and v of the streams A and C."""


def _less(a: Any, b: Any) -> bool:
    return a is not None and b is not None and a < b


def _values(match: Mapped, at: int, variable: str = "") -> list[Any]:
    return [row[at] for name, row in match if name == (variable or name) and row[at] is not None]


def _last(match: Mapped, variable: str, at: int) -> Any:
    return next((row[at] for name, row in reversed(match) if name == variable), None)


CONDITIONS: dict[str, Callable[[Mapped, Row | None], bool]] = {
    "v < PREV(v)": lambda m, p: p is not None and _less(m[-1][1][V], p[V]),
    "v > PREV(v)": lambda m, p: p is not None and _less(p[V], m[-1][1][V]),
    "v = k": lambda m, p: m[-1][1][V] is not None and m[-1][1][V] == m[-1][1][K],
    "v >= 1": lambda m, p: m[-1][1][V] is not None and m[-1][1][V] >= 1,
    "s IS NOT NULL": lambda m, p: m[-1][1][2] is not None,
    "SUM(v) < 3": lambda m, p: bool(_values(m, V)) and sum(_values(m, V)) < 3,
    "COUNT(A.*) <= 2": lambda m, p: sum(name == "A" for name, _ in m) <= 2,
    "v <> A.v": lambda m, p: None not in (m[-1][1][V], _last(m, "A", V)) and m[-1][1][V] != _last(m, "A", V),
    "MAX(v) - MIN(v) < 3": lambda m, p: bool(_values(m, V)) and max(_values(m, V)) - min(_values(m, V)) < 3,
    "PREV(s) IS NULL": lambda m, p: p is None or p[2] is None,
}
MEASURES: dict[str, Callable[[Mapped], Any]] = {
    "FIRST(v)": lambda m: m[0][1][V],
    "LAST(v)": lambda m: m[-1][1][V],
    "v": lambda m: m[-1][1][V],
    "A.v": lambda m: _last(m, "A", V),
    "B.k": lambda m: _last(m, "B", K),
    "COUNT(*)": len,
    "COUNT(A.*)": lambda m: sum(name == "A" for name, _ in m),
    "COUNT(v)": lambda m: len(_values(m, V)),
    "SUM(v)": lambda m: sum(_values(m, V)) if _values(m, V) else None,
    "SUM(B.v)": lambda m: sum(_values(m, V, "B")) if _values(m, V, "B") else None,
    "MIN(v)": lambda m: min(_values(m, V), default=None),
    "MAX(A.k)": lambda m: max(_values(m, K, "A"), default=None),
}
_A, _B, _C = (("var", name) for name in "ABC")
PATTERNS: dict[str, Any] = {
    "A B": ("seq", _A, _B),
    "A+": ("rep", _A, 1, 99),
    "A B*": ("seq", _A, ("rep", _B, 0, 99)),
    "A+ B": ("seq", ("rep", _A, 1, 99), _B),
    "(A | B)+": ("rep", ("or", _A, _B), 1, 99),
    "A? B C": ("seq", ("rep", _A, 0, 1), _B, _C),
    "A (B | C) A": ("seq", _A, ("or", _B, _C), _A),
    "A{2}": ("rep", _A, 2, 2),
    "A{1,2} B": ("seq", ("rep", _A, 1, 2), _B),
    "(A B)+": ("rep", ("seq", _A, _B), 1, 99),
}


@dataclass(frozen=True)
class Matched(Stage):
    """A stream behind MATCH_RECOGNIZE."""

    pattern: str = "A B"
    define: tuple[tuple[str, str], ...] = ()
    measures: tuple[str, ...] = ()
    by: tuple[str, ...] = ()
    falling: bool = False

    @property
    def own(self) -> tuple[str, ...]:
        return SOURCES[str(self.of)].types

    @property
    def windowed(self) -> tuple[str, ...]:
        return SOURCES[str(self.of)].names

    @property
    def tabled(self) -> bool:
        return True

    def key(self) -> str:
        by = f"PARTITION BY {', '.join(self.by)} " if self.by else ""
        shown = ", ".join(f"{text} AS m{at}" for at, text in enumerate(self.measures))
        define = f" DEFINE {', '.join(f'{name} AS {text}' for name, text in self.define)}" if self.define else ""
        ordered = f"ORDER BY v{' DESC' * self.falling}, k, s"
        inner = f"{by}{ordered} MEASURES {shown} PATTERN ({self.pattern}){define}"
        return f"{self.of}{self.lifetimes.behind()} MATCH_RECOGNIZE ({inner})"

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        if dialect.table is None:
            return f"{self.key()} {self.alias}"
        return f"{dialect.table(self)} {self.alias}({', '.join(self.names)})"

    def constructs(self) -> Iterator[str]:
        yield "match recognize"
        yield f"pattern: {self.pattern}"
        yield from (f"measure: {text}" for text in self.measures)
        yield from (f"define: {text}" for _, text in self.define)
        yield from self.lifetimes.constructs()

    def ended(self, given: Snapshots) -> Snapshots:
        """What is seen of the rows in their windows."""
        return [Counter(self._at(list(now.elements()))) for now in given]

    def _at(self, rows: list[Row]) -> Iterator[Row]:
        names = SOURCES[str(self.of)].names
        keys = [names.index(name) for name in self.by]
        parts: dict[Row, list[Row]] = {}
        for row in rows:
            parts.setdefault(tuple(row[at] for at in keys), []).append(row)
        for values, part in parts.items():
            part.sort(key=self._place)
            for start in range(len(part)):
                found = self._longest(part, start)
                if found is not None:
                    yield (*values, *(MEASURES[text](found) for text in self.measures))

    def _place(self, row: Row) -> tuple[Any, ...]:
        """In the order of v, k, s, nulls last."""
        v = row[V] if row[V] is None or not self.falling else -row[V]
        return tuple((value is None, *order((value,))) for value in (v, row[K], row[2]))

    def _longest(self, part: Sequence[Row], start: int) -> Mapped | None:
        conditions = {name: CONDITIONS[text] for name, text in self.define}
        first = {name: at for at, name in enumerate(dict.fromkeys(c for c in self.pattern if c in "ABC"))}

        def runs(tree: Any, so_far: Mapped) -> Iterator[Mapped]:
            at = start + len(so_far)
            match tree:
                case ("var", name):
                    if at < len(part):
                        longer = [*so_far, (name, part[at])]
                        before = part[at - 1] if at else None
                        if name not in conditions or conditions[name](longer, before):
                            yield longer
                case ("seq", head, *rest):
                    for found in runs(head, so_far):
                        yield from runs(("seq", *rest), found) if rest else iter((found,))
                case ("or", *several):
                    for each in several:
                        yield from runs(each, so_far)
                case ("rep", inner, least, most):
                    if least == 0:
                        yield so_far
                    if most > 0:
                        for found in runs(inner, so_far):
                            if len(found) > len(so_far):
                                yield from runs(("rep", inner, max(least - 1, 0), most - 1), found)

        found = [each for each in runs(PATTERNS[self.pattern], []) if each]
        if not found:
            return None
        longest = max(map(len, found))
        return min((each for each in found if len(each) == longest), key=lambda m: [first[name] for name, _ in m])


class Patterns(Grammar):
    """Draws MATCH_RECOGNIZE."""

    matching = 0.05

    def _source(self, depth: int) -> tuple[Node, Scope]:
        if not self.chance(self.matching):
            return super()._source(depth)
        rng, alias = self.rng, self._alias()
        source = SOURCES[rng.choice(("A", "C", "K"))]
        pattern = rng.choice(list(PATTERNS))
        variables = [name for name in "ABC" if name in pattern]
        define = tuple((name, rng.choice(list(CONDITIONS))) for name in variables if self.chance(0.7))
        usable = [text for text in MEASURES if not (text[0] in "AB" and "." in text and text[0] not in variables)]
        usable = [text for text in usable if not any(f"({name}." in text and name not in variables for name in "AB")]
        if "A" not in variables:
            define = tuple(each for each in define if "A." not in each[1])
        measures = tuple(rng.sample(usable, rng.randint(1, 3)))
        by = tuple(rng.sample(("k", "s"), rng.choice((0, 1))))
        types = (*(source.types[source.names.index(name)] for name in by), *("i" for _ in measures))
        names = (*by, *(f"m{at}" for at in range(len(measures))))
        how = self._lifetimes(source.names, not self.infinite, derived=True)
        how = type(how)(window=how.window if how.window and how.window[1] <= 3 else None)
        found = Matched(
            source.name, alias, names, types, how,
            pattern=pattern, define=define, measures=measures, by=by, falling=self.chance(0.3),
        )  # fmt: skip
        ends = not self.infinite and (how.window is None or how.window[0] != "rows")
        return found, of_stage(alias, names, types, ends)
