"""GROUP BY: expressions, and sets of them.

`ROLLUP(a, b)` is `GROUPING SETS ((a, b), (a), ())`, `CUBE(a, b)` has all subsets.  Several of them, and plain
expressions beside them, are combined: a set of each.
"""

from __future__ import annotations

from itertools import combinations, product
from typing import Final

from everwhen.language.grammar.pattern import Patterns
from everwhen.language.syntax import Expression, Row

Sets = tuple[tuple[Expression, ...], ...]
MOST_SETS: Final = 64


class Groupings(Patterns):
    """The part of the grammar that reads GROUP BY."""

    def group_by(self) -> tuple[tuple[Expression, ...], Sets]:
        """All expressions, and the grouping sets; none if there is just one set of all."""
        self.advance()
        self.expect_word("BY")
        if self.at_word("ALL"):
            raise self.error("GROUP BY ALL is not part of the language; name the columns")
        parts = self.listed(self._grouped_part)
        if self.at_word("WITH"):
            raise self.error("WITH ROLLUP and the like are not part of the language; write ROLLUP(a, b)")
        found = tuple(each for part in parts for each in dict.fromkeys(e for one in part for e in one))
        if all(len(part) == 1 for part in parts):
            if not found:
                raise self.error("GROUP BY () is not part of the language; leave GROUP BY out")
            return found, ()
        sets = [tuple(each for one in chosen for each in one) for chosen in product(*parts)]
        if len(sets) > MOST_SETS:
            raise self.error(f"{len(sets)} grouping sets; at most {MOST_SETS} are made")
        return found, tuple(sets)

    def _grouped_part(self) -> Sets:
        if self.at_call("ROLLUP"):
            listed = self._grouped_list()
            return tuple(tuple(e for each in listed[:size] for e in each) for size in range(len(listed), -1, -1))
        if self.at_call("CUBE"):
            listed = self._grouped_list()
            if len(listed) > 6:
                raise self.error(f"CUBE of {len(listed)} columns has too many sets; at most {MOST_SETS} are made")
            chosen = [c for size in range(len(listed), -1, -1) for c in combinations(listed, size)]
            return tuple(tuple(e for each in one for e in each) for one in chosen)
        if self.at_words("GROUPING", "SETS"):
            self.advance()
            return self._grouped_several()
        return (self._grouped_set(),)

    def _grouped_list(self) -> list[tuple[Expression, ...]]:
        self.advance()
        self.expect_symbol("(")
        with self.nested():
            found = self.listed(self._grouped_set)
        self.expect_symbol(")", why=" or ','")
        return found

    def _grouped_several(self) -> Sets:
        self.advance()
        self.expect_symbol("(")
        with self.nested():
            found = [one for part in self.listed(self._grouped_part) for one in part]
        self.expect_symbol(")", why=" or ','")
        return tuple(found)

    def _grouped_set(self) -> tuple[Expression, ...]:
        if self.at_symbol("(") and self.at_symbol(")", ahead=1):
            self.at += 2
            return ()
        found = self.expression_or_row()
        return found.items if isinstance(found, Row) else (found,)
