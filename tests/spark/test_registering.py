"""Where Spark finds the formats itself: `register` changes nothing, and threads have limits."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import SparkSession

import pyspark_delaylog
from tests.client.spark.fake_broker import FakeBroker
from tests.spark.frames import ids_of, messages
from tests.spark.test_batch_sink import sink


def test_a_second_registration_changes_nothing(spark: SparkSession, broker: FakeBroker) -> None:
    session = spark.newSession()
    sink(messages(session, 0, 10), broker, topic="before").save()
    for _ in range(2):
        pyspark_delaylog.register(session)
    sink(messages(session, 0, 10), broker, topic="after").save()
    assert sorted(broker.ids("before")) == sorted(broker.ids("after")) == ids_of(0, 10)


def test_a_thread_that_did_not_make_the_session_writes_by_write_frame(
    spark: SparkSession, broker: FakeBroker
) -> None:
    """Spark 4.3 finds no formats in Python there; once it does, docs/SPARK.md must say so."""
    frame = messages(spark, 0, 10)
    with ThreadPoolExecutor(1) as threads:
        with pytest.raises(Exception, match="DATA_SOURCE_NOT_FOUND"):
            threads.submit(sink(frame, broker).save).result()
        load = threads.submit(pyspark_delaylog.write_frame, frame, endpoint=broker.url, topic="t")
        load.result()
    assert sorted(broker.ids("t")) == ids_of(0, 10)
