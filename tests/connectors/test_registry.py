"""Connectors are found by name, and a wrong name is answered with the right one."""

from __future__ import annotations

import pytest

from everwhen.connectors import registry
from everwhen.connectors.options import Option, OptionError
from everwhen.connectors.registry import SinkConnector, SourceConnector
from everwhen.errors import QueryError
from everwhen.sinks.discard import DiscardSink


@pytest.fixture
def added(monkeypatch):
    monkeypatch.setattr(registry, "_ADDED", {"source": {}, "sink": {}})
    wire = SourceConnector(
        "wire", "a wire", (Option("path", "text", required=True),), lambda o, p: None, aliases=("w",)
    )
    bin_ = SinkConnector("bin", "a bin", (), ("elements",), lambda o, p: DiscardSink())
    registry.register(wire, bin_)
    return wire, bin_


def test_found_by_name_and_alias_in_any_case(added):
    wire, bin_ = added
    assert registry.source_connector("Wire") is wire is registry.source_connector("W")
    assert registry.sink_connector("bin") is bin_


def test_a_wrong_name_is_answered_with_the_right_one(added):
    with pytest.raises(OptionError, match="there is no source 'wirr'; did you mean 'wire'"):
        registry.source_connector("wirr")
    with pytest.raises(OptionError, match="bin is no source, only a sink"):
        registry.source_connector("bin")


def test_sinks_have_a_form_and_a_key(added):
    _, bin_ = added
    assert registry.sink_options(bin_, (), {})["form"] == "elements"
    with pytest.raises(OptionError, match="'form' is one of elements, not 'upsert'"):
        registry.sink_options(bin_, (), {"form": "upsert"})


def test_a_package_that_is_missing_is_named_with_its_extra():
    with pytest.raises(QueryError, match=r"kafka needs the package no-such, .* install everwhen\[kafka\]"):
        registry.needs("no_such_package", "no-such", "kafka", "kafka")
