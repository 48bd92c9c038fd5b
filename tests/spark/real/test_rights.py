"""The least rights of docs/SPARK.md, at a broker that requires authentication."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import AnalysisException, StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.broker.conftest import Broker, Secured
from tests.spark.frames import ids_of, messages
from tests.spark.test_batch_sink import sink
from tests.spark.test_consuming_stream import consume

ROWS = 100


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    def start(*options: str, folder: Path) -> Broker:
        broker = Broker(folder, *options)
        broker.start()
        return broker

    secured = Secured(start, tmp_path)
    yield secured
    secured.broker.kill()


def test_sinks_need_send_and_streams_receive_and_read(
    spark: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    frame = messages(spark, 0, ROWS).withColumn("deliver_at", f.timestamp_millis(f.lit(0)))
    broker: Any = secured.broker
    sends = secured.token("send:t")
    for delivery in ("staged", "direct"):
        sink(frame, broker, token=sends, delivery=delivery, wait="published").save()
    aside = {"onError": "deadLetter", "deadLetterTopic": "v"}
    for option, given, topic in (("topic", {"topic": "u"}, "u"), ("deadLetterTopic", aside, "v")):
        said = f"option {option}: .*lacks the right send on topic '{topic}'"
        for delivery in ("staged", "direct"):
            # Of the driver: a task would be tried four times.
            with pytest.raises(AnalysisException, match=said):
                sink(frame, broker, token=sends, delivery=delivery, **given).save()
    found: list[str] = []

    def each(rows: Any, number: int) -> None:
        found.extend(row.id for row in rows.collect())

    for grant, lacking in (("receive:t", "read"), ("read:t", "receive"), ("send:t", "receive")):
        with pytest.raises(
            StreamingQueryException, match=f"lacks the right {lacking} on topic 't'"
        ):
            consume(spark, broker, tmp_path, each, token=secured.token(grant))
    claims = secured.call("GET", "/v1/topics/t/claims").json["claims"]
    assert claims == [], "nobody holds messages that it cannot read"
    consume(spark, broker, tmp_path, each, token=secured.token("receive,read:t:default"))
    assert sorted(found) == ids_of(0, ROWS)
