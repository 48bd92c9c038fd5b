"""Loads of an unusual shape: large bodies, and many more partitions than rows deserve."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.spark.frames import ids_of, messages, stored
from tests.spark.real.real_broker import RealBroker
from tests.spark.test_batch_sink import sink

LARGE = 60
BODY_BYTES = 1_000_000
FEW = 2_000


def test_bodies_of_a_megabyte_arrive_whole(spark: SparkSession, real: RealBroker) -> None:
    """Some 30 MB a task, in requests of at most `batchBytes`."""
    body = f.concat(f.col("id"), f.repeat(f.lit("x"), BODY_BYTES - len("m00000000")))
    sink(messages(spark, 0, LARGE, 2).withColumn("value", body), real, txnAppId="large").save()
    assert real.settled("large")["rows"] == LARGE
    real.stop()
    begin = f.substring(f.col("value").cast("string"), 1, len("m00000000"))
    found = stored(spark, real.data_dir).select("id", "body_size", begin.alias("begin")).collect()
    assert sorted(row.id for row in found) == ids_of(0, LARGE)
    assert {row.body_size for row in found} == {BODY_BYTES}
    assert all(row.begin == row.id for row in found)


def test_a_partition_a_row_may_be_coalesced(spark: SparkSession, real: RealBroker) -> None:
    sink(messages(spark, 0, FEW, FEW).coalesce(4), real, txnAppId="coalesced").save()
    assert real.settled("coalesced")["rows"] == FEW
    real.assert_holds(ids_of(0, FEW))


@pytest.mark.drill
def test_each_of_many_tasks_counts_once(spark: SparkSession, real: RealBroker) -> None:
    sink(messages(spark, 0, FEW, 200), real, txnAppId="tasks").save()
    assert real.settled("tasks")["rows"] == FEW
    real.assert_holds(ids_of(0, FEW))
