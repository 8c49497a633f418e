"""Options are checked by name: unknown, missing, twice, of another type."""

from __future__ import annotations

import pytest

from everwhen.connectors.options import Option, OptionError, checked

DECLARED = (
    Option("servers", "text", "where the brokers are", required=True),
    Option("topic", "text", "what is read", required=True, aliases=("subject",)),
    Option("from", "text", default="earliest", choices=("earliest", "latest")),
    Option("most", "whole", default=100, least=1),
    Option("share", "number", default=0.5),
    Option("strict", "boolean", default=False),
    Option("wait", "duration", default="5 s"),
    Option("key", "names"),
    Option("password", "text", secret=True),
    Option("properties.*", "texts"),
)


def test_values_by_place_and_by_name_with_defaults():
    found = checked("kafka", DECLARED, ("localhost:9092",), {"TOPIC": "bids", "key": "a, b", "properties.acks": "all"})
    assert (found.text("servers"), found.text("topic"), found.text("from")) == ("localhost:9092", "bids", "earliest")
    assert found.names("key") == ("a", "b")
    assert found.texts("properties.*") == {"acks": "all"}
    assert (found.whole("most"), found.number("share"), found.truth("strict"), found.seconds("wait")) == (
        100,
        0.5,
        False,
        5.0,
    )
    assert found.maybe("password") is None


def test_texts_are_read_as_the_type_wants():
    named = {"servers": "s", "subject": "t", "most": "7", "share": "0.25", "strict": "TRUE", "from": "LATEST"}
    found = checked("kafka", DECLARED, (), named)
    assert (found["most"], found["share"], found["strict"], found["from"]) == (7, 0.25, True, "latest")


@pytest.mark.parametrize(
    ("named", "problem", "option"),
    [
        ({"servers": "s", "topik": "t"}, "kafka has no option 'topik'; did you mean 'topic'?", "topik"),
        ({"servers": "s", "zzz": "t"}, "kafka has no option 'zzz'; there is servers, topic", "zzz"),
        ({"servers": "s"}, "kafka needs the option 'topic': what is read", ""),
        ({"servers": "s", "topic": 5}, "the option 'topic' is a text, as 'abc', not 5", "topic"),
        ({"servers": "s", "topic": "t", "most": "x"}, "'most' is a whole number, not 'x'", "most"),
        ({"servers": "s", "topic": "t", "most": 0}, "'most' is at least 1, not 0", "most"),
        ({"servers": "s", "topic": "t", "most": 1.5}, "'most' is a whole number, not 1.5", "most"),
        ({"servers": "s", "topic": "t", "strict": 1}, "'strict' is TRUE or FALSE, not 1", "strict"),
        ({"servers": "s", "topic": "t", "share": True}, "'share' is a number, not True", "share"),
        ({"servers": "s", "topic": "t", "wait": "long"}, "'wait' is a length of time", "wait"),
        ({"servers": "s", "topic": "t", "key": "a,,b"}, "'key' is names of columns", "key"),
        ({"servers": "s", "topic": "t", "from": "now"}, "'from' is one of earliest, latest, not 'now'", "from"),
        ({"servers": "s", "topic": "t", "subject": "u"}, "the option 'topic' is given twice", "subject"),
    ],
)
def test_what_is_wrong_is_said_by_name(named, problem, option):
    with pytest.raises(OptionError) as bad:
        checked("kafka", DECLARED, (), named)
    assert problem in str(bad.value)
    assert bad.value.option == option


def test_too_many_arguments_without_a_name():
    with pytest.raises(OptionError, match="file takes at most 1 arguments without a name, not 2") as bad:
        checked("file", (Option("path", "text"),), ("a", "b"), {})
    assert bad.value.place == 1


def test_secrets_are_not_shown():
    found = checked("kafka", DECLARED, ("s", "t"), {"password": "hunter2"})
    assert "hunter2" not in str(found)
    assert "password = '…'" in str(found)


def test_what_says_how_a_system_is_reached_may_change() -> None:
    """It is no part of what a checkpoint belongs to."""
    declared = (Option("topic", "text"), Option("servers", "text", free=True), Option("password", "text", secret=True))
    one, other = (checked("kafka", declared, ("bids",), {"servers": at, "password": at}) for at in ("a:1", "b:2"))
    assert one.lasting == other.lasting == "kafka(topic = 'bids', password = '…')"
    assert str(one) == "kafka(topic = 'bids', servers = 'a:1', password = '…')"
