"""Names: which column one means, when it means too many, and what is said of one that means nothing."""

from __future__ import annotations

import pytest

from everwhen.language.binding.scope import NameProblem, Scope, ScopeColumn, Table
from everwhen.language.syntax import Ident, Span


def name(text: str) -> tuple[Ident, ...]:
    """`a.b`; quoted parts in quotation marks."""
    return tuple(Ident(part.strip('"'), part.startswith('"'), Span(0, 0)) for part in text.split("."))


BID = Table("b", (ScopeColumn("itemID", "b1"), ScopeColumn("price", "b2")), stream="Bid")
AUCTION = Table("A", (ScopeColumn("itemID", "a1"), ScopeColumn("Seller", "a2")), stream="Auction")
UNNAMED = Table(None, (ScopeColumn("top", "u1", origin="Inner"),))
SCOPE = Scope((BID, AUCTION, UNNAMED))


@pytest.mark.parametrize(
    ("written", "physical"),
    [
        ("price", "b2"),
        ("PRICE", "b2"),
        ('"price"', "b2"),
        ('"PRICE"', None),
        ("seller", "a2"),
        ("b.itemID", "b1"),
        ("a.itemid", "a1"),
        ('"a".itemid', None),
        ("Bid.price", "b2"),
        ("inner.top", "u1"),
        ("nothing", None),
        ("b.seller", None),
    ],
)
def test_what_a_name_means(written: str, physical: str | None) -> None:
    found = SCOPE.column(name(written))
    assert (None if found is None else found.physical) == physical


def test_a_stream_s_own_name_counts_only_where_no_alias_is_meant() -> None:
    assert SCOPE.column(name("Bid.price"), loose=False) is None
    other = Scope((BID, Table("Bid", (ScopeColumn("price", "c1"),))))
    found = other.column(name("Bid.price"))
    assert found is not None and found.physical == "c1"


def test_names_that_mean_too_much() -> None:
    with pytest.raises(NameProblem, match=r"itemID could be that of b or A; write for example b\.itemID"):
        SCOPE.column(name("itemID"))
    with pytest.raises(NameProblem, match="there are 2 tables named b"):
        Scope((BID, BID)).qualified(name("b")[0])
    assert SCOPE.column(name("x.b.price")) is None  # neither a table nor a structure


def test_hidden_columns_need_their_table_and_exact_case_decides() -> None:
    hidden = Scope((BID.hiding(["itemID"]), AUCTION))
    assert hidden.column(name("itemID")) == ScopeColumn("itemID", "a1")
    assert hidden.column(name("b.itemID")) == ScopeColumn("itemID", "b1", hidden=True)
    cases = Scope((Table("t", (ScopeColumn("x", "t1"), ScopeColumn("X", "t2"))),))
    found = cases.column(name("X"))
    assert found is not None and found.physical == "t2"


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("prise", "unknown column 'prise'; did you mean 'price'? There is itemID, price, Seller, top"),
        ("c.price", "unknown stream 'c' in c.price; there is b, A"),
        ("b.zzz", "unknown column 'b.zzz'; there is itemID, price"),
        ('"a text"', "a text stands in single quotation marks"),
    ],
)
def test_what_is_said_of_a_name_that_means_nothing(written: str, message: str) -> None:
    assert message in SCOPE.unknown(name(written))
