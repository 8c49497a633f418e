"""Names in a query: which column of the plan a written name means.

A FROM clause makes a `Scope` of `Table`s.  Names that are not quoted are compared without regard to case; a quoted
one must be written as it is.  What may stand before the point is the alias; where no table has that alias, here or in
the queries around, also the stream's own name (`SELECT OpenAuction.* FROM OpenAuction O`, as the thesis writes), or,
for a subquery without a name, the name that its column had inside (`loose`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from everwhen.language.elsewhere import clock_problem
from everwhen.language.syntax import Ident, Span


@dataclass(frozen=True, slots=True)
class ScopeColumn:
    """A column by its SQL name; `physical` is its name in the plan.  `hidden` ones need their table's name (USING).
    `unlisted` ones are in no `*`, and give way to another column of the name.  `stamps`: the column is not in the plan
    before the stream at this place is stamped with its time."""

    name: str
    physical: str
    origin: str | None = None
    hidden: bool = False
    unlisted: bool = False
    stamps: Span | None = None


@dataclass(frozen=True)
class Table:
    """What stands in FROM under a name; `stream` is the name of the stream behind an alias."""

    alias: str | None
    columns: tuple[ScopeColumn, ...]
    stream: str | None = None
    keys: frozenset[frozenset[str]] = frozenset()
    """Sets of columns of the plan on which no two rows of it agree that are alive together."""

    @cached_property
    def _by_name(self) -> dict[str, list[ScopeColumn]]:
        found: dict[str, list[ScopeColumn]] = {}
        for column in self.columns:
            found.setdefault(column.name.lower(), []).append(column)
        return found

    def named(self, name: Ident) -> list[ScopeColumn]:
        """The columns that the name may mean."""
        return [c for c in self._by_name.get(name.text.lower(), ()) if same(name, c.name)]

    def renamed(self, physical: Mapping[str, str]) -> Table:
        """The same columns under new names in the plan."""
        keys = frozenset(frozenset(physical[column] for column in key) for key in self.keys)
        columns = tuple(replace(c, physical=physical.get(c.physical, c.physical)) for c in self.columns)
        return replace(self, columns=columns, keys=keys)

    def hiding(self, names: Iterable[str]) -> Table:
        hidden = set(names)
        return replace(self, columns=tuple(replace(c, hidden=c.hidden or c.name in hidden) for c in self.columns))


class TimeWanted(Exception):
    """The time of the stream at a place is read as a column for the first time."""

    def __init__(self, place: Span) -> None:
        super().__init__("the time of a stream")
        self.place = place


class NameProblem(Exception):
    """A name that means nothing or too much; the binder says where."""


@dataclass(frozen=True, slots=True)
class Scope:
    tables: tuple[Table, ...] = ()

    def qualified(self, qualifier: Ident, loose: bool = True) -> Table | None:
        """The table that `qualifier.*` means; None if there is none."""
        found = [t for t in self.tables if t.alias is not None and same(qualifier, t.alias)]
        if loose:
            found = found or [t for t in self.tables if t.stream is not None and same(qualifier, t.stream)]
        if len(found) > 1:
            raise NameProblem(f"there are {len(found)} tables named {qualifier.text}; give each an alias of its own")
        return found[0] if found else None

    def column(self, parts: Sequence[Ident], loose: bool = True) -> ScopeColumn | None:
        """The column that the name means; None if there is none; NameProblem if there are several, TimeWanted if it is
        the time of a stream that is to be stamped."""
        if len(parts) > 2:  # a field of a structure
            return None
        name = parts[-1]
        if len(parts) == 1:
            found = [c for table in self.tables for c in table.named(name) if not c.hidden]
        else:
            table = self.qualified(parts[0], loose)
            if table is None:
                unnamed = [c for t in self.tables if t.alias is None for c in t.named(name)] if loose else []
                found = [c for c in unnamed if c.origin and same(parts[0], c.origin)]
            else:
                found = table.named(name)
        found = [c for c in found if not c.unlisted] or found
        exact = [c for c in found if c.name == name.text]
        found = exact if len(found) > 1 and exact else found
        if len(found) > 1:
            homes = [(t, c) for t in self.tables for c in t.columns if c in found]
            places = [t.alias or t.stream or c.origin or "a subquery" for t, c in homes]
            raise NameProblem(
                f"{name.text} could be that of {' or '.join(dict.fromkeys(places))}; write for example "
                f"{next(iter(places))}.{name.text}"
            )
        if found and (place := found[0].stamps) is not None:
            raise TimeWanted(place)
        return found[0] if found else None

    def unknown(self, parts: Sequence[Ident]) -> str:
        """What to say of a name that means nothing here."""
        shown = ".".join(part.text for part in parts)
        if len(parts) == 1 and not parts[0].quoted and (clock := clock_problem(shown.lower())) is not None:
            return clock
        if len(parts) == 2 and self.qualified(parts[0]) is None:
            aliases = [t.alias for t in self.tables if t.alias is not None]
            near = difflib.get_close_matches(parts[0].text, aliases, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there is {', '.join(aliases) or 'none with a name'}"
            return f"unknown stream {parts[0].text!r} in {shown}; {hint}"
        tables = self.tables if len(parts) == 1 else [t for t in [self.qualified(parts[0])] if t is not None]
        names = list(dict.fromkeys(c.name for t in tables for c in t.columns if not c.hidden or len(parts) == 2))
        lower = {n.lower(): n for n in names}
        near = difflib.get_close_matches(parts[-1].text.lower(), lower, n=1)
        hint = f"did you mean {lower[near[0]]!r}? There is" if near else "there is"
        if len(parts) == 1 and parts[0].quoted and not near:
            hint = "a text stands in single quotation marks, 'so'; there is"
        return f"unknown column {shown!r}; {hint} {', '.join(names) or 'none'}"


def same(written: Ident, name: str) -> bool:
    """Whether a written name means this one."""
    return written.text == name if written.quoted else written.text.lower() == name.lower()
