"""The definition of MATCH_RECOGNIZE by hand."""

from __future__ import annotations

from collections import Counter

import everwhen as ew
from everwhen.algebra.nodes import MatchRecognize
from everwhen.reference.patterns import longest, matches

p, col = ew.patterns, ew.col
S = ew.source("S", {"t": "int64", "side": "string"})


def node(query: ew.Stream) -> MatchRecognize:
    found = query.node
    assert isinstance(found, MatchRecognize)
    return found


def mapped(text: str, pattern: str, **define: object) -> list[str]:
    """Per row the mapping of its longest match, rows being letters."""
    is_letter = {name: col("side") == name for name in "UDAB"}
    query = S.match_recognize(pattern, "t", define={**{n: c for n, c in is_letter.items() if n in pattern}, **define})  # type: ignore[dict-item]
    rows = [{"t": t, "side": side} for t, side in enumerate(text)]
    return ["".join(longest(node(query), rows, start)) for start in range(len(rows))]


def test_of_each_row_the_longest_match_counts() -> None:
    assert mapped("ABBA", "A B* A") == ["ABBA", "", "", ""]
    assert mapped("ABBA", "A B*") == ["ABB", "", "", "A"]
    assert mapped("ABBA", "A B* | B+") == ["ABB", "BB", "B", "A"]
    assert mapped("AAAA", "A{2,3}") == ["AAA", "AAA", "AA", ""]


def test_nothing_is_no_match() -> None:
    assert mapped("AB", "A*") == ["A", ""]
    assert mapped("AB", "(A?)*") == ["A", ""]
    assert mapped("AAB", "(A? B?){2,3}") == ["AAB", "AB", "B"]


def test_of_equally_long_ones_the_variable_counts_that_the_pattern_names_first() -> None:
    assert mapped("AAA", "X* Y*") == ["XXX", "XX", "X"]
    assert mapped("AAA", "(Y | X)+") == ["YYY", "YY", "Y"]
    assert mapped("AAA", "X? Y* X", Y=p.count("Y") <= 1) == ["XYX", "XX", "X"]


def test_a_condition_counts_its_own_row() -> None:
    assert mapped("AAAA", "X+", X=p.count("X") <= 2) == ["XX", "XX", "XX", "X"]
    assert mapped("AAAA", "X+", X=p.sum("X.t") <= 3) == ["XXX", "XX", "X", "X"]


def test_prev_is_the_neighbour_before_also_outside_of_the_match() -> None:
    assert mapped("ABAB", "X", X=p.prev("side") == "A") == ["", "X", "", "X"]
    assert mapped("ABAB", "X Y", X=p.prev("side").is_null()) == ["XY", "", "", ""]


def test_neighbours_are_neighbours_in_the_order_per_partition() -> None:
    rows = ew.source("R", {"k": "string", "t": "int64"})
    query = rows.match_recognize("A B", "t", "k", measures={"a": p.first("t"), "b": col("t")}, descending="t")
    alive = {("x", 1): 1, ("y", 2): 1, ("x", 3): 2, ("x", None): 1}
    found = matches(node(query), Counter(alive))
    assert dict(found) == {("x", 3, 3): 1, ("x", 3, 1): 1, ("x", 1, None): 1}


def test_measures_are_those_of_the_end() -> None:
    query = S.match_recognize(
        "A+",
        "t",
        define={"A": col("side") == "A"},
        measures={"n": p.count(), "f": p.first("t"), "s": p.sum("t"), "m": p.avg("A.t"), "z": p.last("A.side")},
    )
    rows = Counter({(1, "A"): 1, (2, "A"): 1, (3, "B"): 1})
    assert dict(matches(node(query), rows)) == {(2, 1, 3, 1.5, "A"): 1, (1, 2, 2, 2.0, "A"): 1}
