"""What the driver asks before any task runs: the rights on the topics that options name."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from pyspark_delaylog.errors import OptionError, RefusedError
from pyspark_delaylog.schema import SOURCE_SCHEMA
from pyspark_delaylog.source import DelaylogSource
from tests.client.spark.fake_broker import FakeBroker
from tests.client.spark.misbehaving_server import Fault
from tests.client.spark.task_context import SCHEMA

PUT_ASIDE = {"onError": "deadLetter", "deadLetterTopic": "rejects"}
BY_COLUMN = {"topic": ""}
MANY = StructType([*SCHEMA.fields, StructField("topic", StringType())])
DOORS: dict[str, Any] = {
    "batch sink": lambda source: source.writer(MANY, False),
    "streaming sink": lambda source: source.streamWriter(MANY, False),
    "consuming stream": lambda source: source.streamReader(SOURCE_SCHEMA),
}
SINKS = ("batch sink", "streaming sink")


@pytest.mark.parametrize(
    ("doors", "options", "lacks", "said"),
    [
        (SINKS, {}, ("send", "t"), "option topic: .*403 forbidden 'p' lacks the right send"),
        (SINKS, {"delivery": "direct"}, ("send", "t"), "option topic: "),
        (SINKS, PUT_ASIDE, ("send", "rejects"), "option deadLetterTopic: .*'rejects'"),
        (SINKS, {"onError": "deadLetter"}, ("send", "t.rejected"), "option deadLetterTopic: "),
        (SINKS, BY_COLUMN, ("send", None), "option topic: "),
        (SINKS, BY_COLUMN | PUT_ASIDE, ("send", "rejects"), "option deadLetterTopic: "),
        (("consuming stream",), {}, ("receive", "t"), "option topic: .*receive"),
        (("consuming stream",), {}, ("read", "t"), "option topic: .*read"),
    ],
)
def test_a_missing_right_is_found_by_the_driver(
    broker: FakeBroker,
    doors: tuple[str, ...],
    options: dict[str, str],
    lacks: tuple[str, str | None],
    said: str,
) -> None:
    given = {"endpoint": broker.url, "topic": "t", **options}
    broker.lacks = {lacks}
    for door in doors:
        source = DelaylogSource(given)
        with pytest.raises(OptionError, match=said):
            DOORS[door](source)
    assert {call.path for call in broker.calls} == {"/v1/session"}


@pytest.mark.parametrize("door", DOORS)
def test_rights_that_are_there_are_asked_for_with_their_place(
    broker: FakeBroker, door: str
) -> None:
    given = {"endpoint": broker.url, "topic": "t", "namespace": "n", **PUT_ASIDE}
    DOORS[door](DelaylogSource(given | {"consumerGroup": "g"}))
    asked = [call.query for call in broker.calls if call.path == "/v1/session"]
    place = {"topic": "t", "ns": "n"}
    if door == "consuming stream":
        assert asked == [{"may": each, **place, "group": "g"} for each in ("receive", "read")]
    else:
        assert asked == [{"may": "send", **place}, {"may": "send", "topic": "rejects", "ns": "n"}]


@pytest.mark.parametrize("door", DOORS)
def test_other_refusals_are_shown_as_they_are(broker: FakeBroker, door: str) -> None:
    broker.fault = lambda call: Fault(401, document={"detail": "a token is needed"})
    with pytest.raises(RefusedError, match=r"401 a token is needed .*option tokenFile"):
        DOORS[door](DelaylogSource({"endpoint": broker.url, "topic": "t"}))
