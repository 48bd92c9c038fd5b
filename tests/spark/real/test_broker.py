"""Sinks and streams with the real broker: what it holds afterwards is the input, each once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.spark.faulty import FAIL_ATTEMPTS, FaultySource
from tests.spark.frames import ids_of, messages
from tests.spark.real.real_broker import RealBroker
from tests.spark.test_batch_sink import sink
from tests.spark.test_consuming_stream import consume

ROWS = 20_000


@pytest.mark.parametrize("delivery", ["staged", "direct"])
def test_every_row_is_there_once_also_when_the_load_is_run_again(
    spark: SparkSession, real: RealBroker, delivery: str
) -> None:
    frame = messages(spark, 0, ROWS).withColumn("key", f.lit("k"))
    for _ in range(2):
        sink(frame, real, delivery=delivery, txnAppId="load", compression="zstd").save()
    if delivery == "staged":
        assert real.settled("load")["rows"] == ROWS
    real.assert_holds(ids_of(0, ROWS))


@pytest.mark.usefixtures("small_batches")
def test_failed_tasks_count_for_nothing(spark: SparkSession, real: RealBroker) -> None:
    spark.dataSource.register(FaultySource)
    frame = messages(spark, 0, ROWS, 2)
    always = sink(frame, real, FaultySource.name(), txnAppId="load").option(FAIL_ATTEMPTS, "9")
    with pytest.raises(Exception, match="fails on purpose"):
        always.save()
    assert real.transaction("load")["state"] == "aborted"
    assert real.counts("t") == {}
    once = sink(frame, real, FaultySource.name(), txnAppId="load").option(FAIL_ATTEMPTS, "1")
    once.save()
    found = real.settled("load.r1")
    assert (found["rows"], found["discarded_rows"]) == (ROWS, 2 * 1_000)
    real.assert_holds(ids_of(0, ROWS))


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("partitions", [2, 5])
def test_of_a_direct_load_that_fails_some_rows_stay_and_none_comes_twice(
    spark: SparkSession, real: RealBroker, partitions: int
) -> None:
    """Each attempt at a task sends two batches. Run again, each row is recognized by its id, also
    with its rows placed otherwise."""
    spark.dataSource.register(FaultySource)
    options = {"delivery": "direct", "txnAppId": "load"}
    failing = sink(messages(spark, 0, ROWS, 2), real, FaultySource.name(), **options)
    with pytest.raises(Exception, match="fails on purpose"):
        failing.option(FAIL_ATTEMPTS, "9").save()
    there = real.ids("t")
    assert 1_000 <= len(there) <= 2 * 1_000, "what was sent stays; the rest never was"
    assert len(set(there)) == len(there)
    assert set(there) < set(ids_of(0, ROWS))
    sink(messages(spark, 0, ROWS, partitions), real, **options).save()
    real.assert_holds(ids_of(0, ROWS))


@pytest.mark.usefixtures("small_batches")
def test_a_direct_load_without_ids_that_runs_again_adds_nothing_twice(
    spark: SparkSession, real: RealBroker
) -> None:
    """Nothing but the name and the bytes of a request tells that it is repeated."""
    spark.dataSource.register(FaultySource)
    frame = messages(spark, 0, ROWS, 2).drop("id")
    options = {"delivery": "direct", "txnAppId": "load"}
    failing = sink(frame, real, FaultySource.name(), **options)
    with pytest.raises(Exception, match="fails on purpose"):
        failing.option(FAIL_ATTEMPTS, "9").save()
    assert 1_000 <= sum(real.counts("t").values()) <= 2 * 1_000
    for _ in range(2):
        sink(frame, real, **options).save()
        assert sum(real.counts("t").values()) == ROWS


def test_messages_are_consumed_once_each_and_those_of_a_failed_batch_again(
    spark: SparkSession, real: RealBroker, tmp_path: Path
) -> None:
    """Some share a key, so that a batch may hold only one of them."""
    rows = 3_000
    frame = messages(spark, 0, rows).withColumn("deliver_at", f.timestamp_millis(f.lit(0)))
    key = f.when(f.col("id") < "m00000004", "k")
    sink(frame.withColumn("key", key), real, delivery="direct").save()
    seen: list[str] = []

    def fail_in_the_second(frame: Any, number: int) -> None:
        seen.extend(row.id for row in frame.collect())
        if number == 1:
            raise RuntimeError("this batch fails on purpose")

    with pytest.raises(StreamingQueryException, match="fails on purpose"):
        consume(spark, real, tmp_path, fail_in_the_second)
    assert real.counts("t")["acked"] == 1_000
    again: list[str] = []
    consume(spark, real, tmp_path, lambda frame, n: again.extend(r.id for r in frame.collect()))
    assert sorted(again[:1_000]) == sorted(seen[1_000:]), "the same claim"
    assert sorted({*seen, *again}) == ids_of(0, rows)
    assert len(seen) + len(again) == rows + 1_000
    assert real.counts("t") == {"acked": rows}
