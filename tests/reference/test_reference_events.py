"""Operators on event boundaries: AlterLifetime, Inserts, Deletes (CEDR report, section 2, definition 6)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import everwhen as ew
from everwhen import reference
from everwhen.algebra.aggregates import calls as aggregates
from everwhen.algebra.expressions.build import col
from everwhen.core.time import INF
from everwhen.errors import InputError, QueryError
from everwhen.reference.order import row_order
from everwhen.stream.element import Insert
from everwhen.stream.history import History
from everwhen.testing import assert_same_history, stream_from_table
from everwhen.testing.strategies import histories, physical

COLUMNS = {"k": "int64"}
SCHEMA = ew.source("S", COLUMNS).schema
SOME = settings(max_examples=50, deadline=None)


def s() -> ew.Stream:
    return ew.source("S", COLUMNS)


def history(table: str) -> History:
    return stream_from_table(table, SCHEMA).history()


# Table 1 of the report: E0 is retracted from ∞ to 10 and then to 5.
TABLE_1 = stream_from_table(
    """
    op     | vs | ve | vnew | k
    insert | 1  | ∞  |      | 1
    adjust | 1  | ∞  | 10   | 1
    adjust | 1  | 10 | 5    | 1
    insert | 4  | 9  |      | 2
    """,
    SCHEMA,
)


def events(stream: ew.Stream, given_history: History) -> list[tuple[int, int, tuple[object, ...]]]:
    found = reference.events(stream.node, {"S": given_history})
    return sorted(found, key=lambda event: (event[0], event[1], row_order(event[2])))


def test_canonical_history_of_table_1() -> None:
    assert events(s(), TABLE_1.history()) == [(1, 5, (1,)), (4, 9, (2,))]


def test_moving_window_is_alter_lifetime() -> None:
    """W(wl) = Π(Vs, wl): every event lives for wl ticks from its start, whatever its end was: one copy."""
    assert events(s().lifetime(length=3), TABLE_1.history()) == [(1, 4, (1,)), (4, 7, (2,))]


def test_moving_sum() -> None:
    """Π below a sum gives the moving sum."""
    stream = s().lifetime(length=4).aggregate(t=aggregates.sum("k"))
    result = reference.history(stream.node, {"S": TABLE_1.history()})
    assert list(result.events()) == [(1, 4, (1,)), (4, 5, (3,)), (5, 8, (2,))]


def test_inserts_and_deletes() -> None:
    """Inserts = Π(Vs, ∞), Deletes = Π(Ve, ∞)."""
    assert events(s().inserts(), TABLE_1.history()) == [(1, INF, (1,)), (4, INF, (2,))]
    assert events(s().deletes(), TABLE_1.history()) == [(5, INF, (1,)), (9, INF, (2,))]


def test_what_never_ends_is_never_deleted() -> None:
    assert events(s().deletes(), history("vs | ve | k\n0 | ∞ | 1")) == []


def test_hopping_window_by_integer_division() -> None:
    """The division is the mathematical floor, so hops go on before zero (semantics 19)."""
    given_history = history("vs | ve | k\n-1 | 3 | 1\n4 | 5 | 2\n5 | 6 | 3")
    assert events(s().lifetime(hop=5, length=5), given_history) == [(-5, 0, (1,)), (0, 5, (2,)), (5, 10, (3,))]


def test_shift_moves_both_ends() -> None:
    given_history = history("vs | ve | k\n1 | 4 | 1\n2 | ∞ | 2")
    assert events(s().lifetime(shift=10), given_history) == [(11, 14, (1,)), (12, INF, (2,))]
    assert events(s().lifetime(shift=-3), given_history) == [(-2, 1, (1,)), (-1, INF, (2,))]


def test_hop_with_kept_ends_moves_starts_back() -> None:
    assert events(s().lifetime(hop=4), history("vs | ve | k\n6 | 9 | 1")) == [(4, 9, (1,))]


def test_event_boundaries_pass_filter_map_and_union() -> None:
    two = history("vs | ve | k\n0 | 5 | 1\n5 | 9 | 1\n2 | 3 | 2")
    stream = s().where(col("k") == 1).union(s().select(k=col("k") + 10)).deletes()
    assert events(stream, two) == [
        (3, INF, (12,)),
        (5, INF, (1,)),
        (5, INF, (11,)),
        (9, INF, (1,)),
        (9, INF, (11,)),
    ]


def test_coalesce_gives_level_form() -> None:
    """[0, 5) and [5, 9) become one event, the overlap another level (semantics 2)."""
    two = history("vs | ve | k\n0 | 5 | 1\n5 | 9 | 1\n4 | 6 | 1")
    assert events(s().coalesce(), two) == [(0, 9, (1,)), (4, 6, (1,))]
    assert events(s().coalesce().deletes(), two) == [(6, INF, (1,)), (9, INF, (1,))]


def test_longest_bounds_the_coalesced_events() -> None:
    """Pieces of at most `longest` from the start of the level on (11.7.2)."""
    long = history("vs | ve | k\n1 | 6 | 1\n6 | 9 | 1")
    assert events(s().coalesce(3), long) == [(1, 4, (1,)), (4, 7, (1,)), (7, 9, (1,))]
    assert events(s().coalesce(3).lifetime(length=1), long) == [(1, 2, (1,)), (4, 5, (1,)), (7, 8, (1,))]
    with pytest.raises(InputError, match="without end"):
        events(s().coalesce(3), history("vs | ve | k\n1 | ∞ | 1"))


def test_operators_on_snapshots_have_no_events() -> None:
    with pytest.raises(QueryError, match="Distinct is defined by its snapshots"):
        events(s().distinct(), history("vs | k\n1 | 1"))


def test_event_operators_are_not_view_update_compliant() -> None:
    """Definition 2 fails for AlterLifetime: snapshot-identical inputs, different outputs. Hence the level form."""
    whole, cut = history("vs | ve | k\n0 | 6 | 1"), history("vs | ve | k\n0 | 3 | 1\n3 | 6 | 1")
    assert_same_history(whole, cut)
    window, canonical_window = s().lifetime(length=2), s().coalesce().lifetime(length=2)
    assert events(window, whole) != events(window, cut)
    assert events(canonical_window, whole) == events(canonical_window, cut)


@SOME
@given(data=st.data(), given_history=histories(SCHEMA))
def test_well_behaved(data: st.DataObject, given_history: History) -> None:
    """Definition 1: logically equivalent inputs give logically equivalent outputs, for event operators too."""
    again = History.of(data.draw(physical(given_history)), SCHEMA)
    assert again == given_history
    for stream in (s().lifetime(hop=3, length=4), s().deletes(), s().inserts().where(col("k") > 0)):
        assert events(stream, again) == events(stream, given_history)


@SOME
@given(given_history=histories(SCHEMA), length=st.integers(1, 6))
def test_one_copy_window_of_chronons_is_the_time_window(given_history: History, length: int) -> None:
    """On chronons CEDR's window and the thesis's agree (semantics 6: on longer lifetimes they do not)."""
    chronons = History.of([Insert(vs, vs + 1, {"k": row[0]}) for vs, _, row in given_history.events()], SCHEMA)
    inputs = {"S": chronons}
    assert_same_history(
        reference.history(s().lifetime(length=length).node, inputs), reference.history(s().range(length).node, inputs)
    )
