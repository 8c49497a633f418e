"""NEXMark as a source: any part of it again, its pace, and the declaration that it wants."""

from __future__ import annotations

import pytest

from everwhen.connectors.options import OptionError
from everwhen.connectors.registry import SourcePlace, source_connector, source_options
from everwhen.core.schema import Schema
from everwhen.demo.nexmark.config import NexmarkConfig
from everwhen.demo.nexmark.generator import SCHEMAS, NexmarkGenerator
from everwhen.stream.history import History

CONNECTOR = source_connector("nexmark")


def opened(name="Bid", schema=SCHEMAS["Bid"], **named):
    return CONNECTOR.open(source_options(CONNECTOR, (), named), SourcePlace(name, schema))


def test_it_is_the_generators_stream_from_any_position_and_ends():
    found = opened(events=2000, late=0.1)
    first = found.take(700)
    begin = found.position
    parts = [first]
    while not found.ended:
        parts.append(found.take(500))
    elements = [e for part in parts if part is not None for e in part.elements()]
    config = NexmarkConfig(late=0.1)
    generator = NexmarkGenerator(config)
    whole = generator.read(0, generator.last_slot(2000), 2000)["Bid"]
    assert elements == list(whole.elements())
    again = opened(events=2000, late=0.1)
    again.seek(begin)
    rest = again.take_to(found.position)
    assert [*first.elements(), *rest.elements()] == elements
    assert len(History.of(elements, SCHEMAS["Bid"])) > 1000


def test_the_clock_paces_it(monkeypatch):
    now = [100.0]
    monkeypatch.setattr("everwhen.connectors.nexmark.time.monotonic", lambda: now[0])
    found = opened(rate=1000)
    assert found.take(10**6) is None
    now[0] += 0.5
    found.take(10**6)
    assert found.position == {"slot": 500}
    now[0] += 0.25
    found.take(10**6)
    assert found.position == {"slot": 750}


def test_another_declaration_is_answered_with_the_right_one():
    with pytest.raises(OptionError, match=r"CREATE STREAM Bid \(itemID INT, bid_price REAL, bidderID INT\)"):
        opened(schema=Schema.of([]))
    with pytest.raises(OptionError, match="there is no stream 'Sale'; there are Person, OpenAuction"):
        opened("Sale")
    assert opened("Sale", stream="bid").take(10) is not None
    with pytest.raises(OptionError, match="late is a share between 0 and 1"):
        opened(late=2)
