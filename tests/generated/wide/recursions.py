"""Recursion that DuckDB does not know, judged by what it does know: the best value of a key (MIN or MAX inside the
loop) by all values and an aggregate behind them, a name that reads itself twice by one that reads itself once."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from generated.grammar import Grammar
from generated.streams import SOURCES
from generated.tree import Dialect, Expr, Lifetimes, Query, Stage


@dataclass(frozen=True)
class Best(Query):
    """The least (or largest) sum along links from where it starts; no link makes it better, and it is bounded."""

    starts: Stage
    links: Stage
    name: str
    word: str = "MIN"

    @property
    def types(self) -> tuple[str, ...]:
        return ("i", "i")

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        name, sign, test = self.name, *(("+", "< 6") if self.word == "MIN" else ("-", "> -6"))
        base = f"SELECT {self.starts.alias}.k AS n, {self.starts.alias}.v AS c FROM {self.starts.sql(dialect)}"
        to, of = f"{self.links.alias}.{self.links.names[1]}", f"{self.links.alias}.k"
        step = (
            f"SELECT {to}, {name}.c {sign} abs({of}) FROM {name} JOIN {self.links.sql(dialect)} ON {of} = {name}.n "
            f"WHERE {name}.c {test}"
        )
        if dialect.ours:
            best = f"SELECT n, {self.word}(c) FROM ({base} UNION ALL {step}) u GROUP BY n"
            return f"WITH RECURSIVE {name}(n, c) AS ({best}) SELECT n AS c0, c AS c1 FROM {name}"
        whole = f"WITH RECURSIVE {name}(n, c) AS ({base} UNION {step})"
        return f"{whole} SELECT n AS c0, {self.word}(c) AS c1 FROM {name} GROUP BY n"

    def constructs(self) -> Iterator[str]:
        yield f"recursion: {self.word}"


@dataclass(frozen=True)
class Twice(Query):
    """What can be reached from where."""

    links: Stage
    name: str

    @property
    def types(self) -> tuple[str, ...]:
        return ("i", "i")

    def sql(self, dialect: Dialect, inside: bool = False) -> str:
        links, name = self.links, self.name
        base = f"SELECT {links.alias}.k, {links.alias}.{links.names[1]} FROM {links.sql(dialect)}"
        other = f"{name} q" if dialect.ours else f"({base}) q(x, y)"
        step = f"SELECT p.x, q.y FROM {name} p, {other} WHERE p.y = q.x"
        return f"WITH RECURSIVE {name}(x, y) AS ({base} UNION {step}) SELECT x AS c0, y AS c1 FROM {name}"

    def constructs(self) -> Iterator[str]:
        yield "recursion: twice"


class Recursions(Grammar):
    """Draws these where a query of two whole numbers, or of anything, is wanted; and recursion in every way."""

    looping = 0.02

    def __init__(
        self,
        rng: random.Random,
        depth: int = 3,
        infinite: bool = False,
        recursive: float = 0.0,
        ranked: float = 0.0,
    ) -> None:
        super().__init__(rng, depth, infinite, recursive or 0.06, ranked)

    def query(self, depth: int, outer: tuple[Expr, ...], types: Sequence[str] | None = None) -> tuple[Query, bool]:
        if outer or types not in (None, "ii", ("i", "i")) or not self.chance(self.looping):
            return super().query(depth, outer, types)
        starts, links = self._read("AKC"), self._read("ABKC")
        self._number += 1
        name = f"best{self._number}"
        if self.chance(0.6):
            return Best(starts, links, name, self.rng.choice(("MIN", "MAX"))), False
        return Twice(links, name), False

    def _read(self, names: str) -> Stage:
        source = SOURCES[self.rng.choice(names)]
        how = self._lifetimes(source.names, not self.infinite, derived=True) if self.chance(0.5) else Lifetimes()
        if how.around is not None or how.lifetime is not None:
            how = Lifetimes()
        return Stage(source.name, self._alias(), source.names, source.types, how)
