"""`register` where Spark has found the formats already: a load works as before, and once only."""

from __future__ import annotations

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
