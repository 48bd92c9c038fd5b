"""What a person at the driver learns of a load: its counts, what was not added, and all fields."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from pyspark_delaylog import last_result
from pyspark_delaylog.load_result import LoadResult
from pyspark_delaylog.publication import SMALL_ROWS_MAX
from tests.spark.frames import ids_of, messages
from tests.spark.real.real_broker import RealBroker
from tests.spark.test_batch_sink import sink

ROWS = 1_000
LARGE = SMALL_ROWS_MAX + 1


def last() -> LoadResult:
    found = last_result()
    assert found is not None
    return found


def test_counts_and_publication_are_known_after_save(spark: SparkSession, real: RealBroker) -> None:
    sink(messages(spark, 0, ROWS), real, txnAppId="load", wait="published").save()
    found = last()
    assert (found.name, found.state, found.rows, found.added) == ("load", "committed", ROWS, ROWS)
    assert found.published == ROWS == sum(real.counts("t").values())
    assert found.committed_at_ms == real.transaction("load")["decided_at_ms"]
    assert found.committed_at_ms <= (found.published_at_ms or 0)


def test_a_large_load_gets_its_counts_later(spark: SparkSession, real: RealBroker) -> None:
    """`save()` does not wait for the publication of more than 50,000 rows."""
    sink(messages(spark, 0, LARGE), real, txnAppId="load").save()
    found = last()
    assert (found.rows, found.name) == (LARGE, "load")
    found = found.refresh(wait=True)
    assert (found.complete, found.added, found.results["created"]) == (True, LARGE, LARGE)


@pytest.mark.parametrize("delivery", ["staged", "direct"])
def test_ids_that_live_are_counted_and_may_fail_the_load(
    spark: SparkSession, real: RealBroker, delivery: str
) -> None:
    """1,000 rows with 10 ids, as after a join that went wrong."""
    ids = f.format_string("m%d", f.abs(f.hash("id")) % 10)
    frame = messages(spark, 0, ROWS).withColumn("id", ids)
    sink(frame, real, delivery=delivery).save()
    assert (last().added, last().results["kept"]) == (10, 990)
    assert last().state == ("committed" if delivery == "staged" else "sent")
    sink(frame.withColumn("merge", f.lit("reject")), real, delivery=delivery).save()
    assert (last().added, last().results["rejected"]) == (0, ROWS)
    with pytest.raises(Exception, match=r"0 of 1,000 rows added; 1,000 kept.*failOnPartial"):
        sink(frame, real, delivery=delivery, failOnPartial="true").save()


def test_a_name_that_was_used_warns_or_fails(spark: SparkSession, real: RealBroker) -> None:
    frame = messages(spark, 0, ROWS)
    for _ in range(2):
        sink(frame, real, txnAppId="load").save()
    assert (last().state, last().added, last().rows) == ("already", 0, ROWS)
    with pytest.raises(Exception, match=r"an earlier run of this name.*failOnPartial"):
        sink(frame, real, txnAppId="load", failOnPartial="true").save()
    real.assert_holds(ids_of(0, ROWS))


FIELDS = """
    SELECT 'full' AS id, X'00ff' AS value, timestamp_millis(1900000000000) AS deliver_at,
        cast('k' AS varchar(5)) AS key, array('red', 'blue') AS tags,
        map_entries(map('kind', 'a', 'empty', '')) AS headers, 3Y AS priority,
        86400000 AS ttl_ms, 4S AS max_retry, 'replace' AS merge,
        named_struct('first_ms', 500, 'factor', 1.5BD) AS backoff
    UNION ALL
    SELECT 'nulls', X'', now(), null, null, null, null, null, null, null, null
    UNION ALL
    SELECT 'never', X'', now(), null, null, null, null, -1, null, null, null
"""


def test_every_field_of_a_message_arrives(spark: SparkSession, real: RealBroker) -> None:
    """From the types that SQL gives; nulls leave a field to the topic."""
    frame, ttl_ms = spark.sql(FIELDS), 3_600_000
    topic = requests.put(f"{real.url}/v1/topics/t", json={"ttl_ms": ttl_ms}, timeout=30)
    assert topic.status_code == 201, topic.text
    for _ in range(2):
        sink(frame, real, wait="published").save()
    assert last().results == {**last().results, "replaced": 1, "kept": 2}, "by the row's own mode"
    found = real.get("/v1/topics/t/messages/full")
    assert (found["key"], found["tags"]) == ("k", ["red", "blue"])
    assert found["headers"] == {"kind": "a", "empty": ""}
    assert (found["priority"], found["max_retry"]) == (3, 4)
    assert found["deliver_at_ms"] == 1_900_000_000_000
    assert found["expires_at_ms"] - found["deliver_at_ms"] == 86_400_000
    assert found["backoff"] == {"first_ms": 500, "factor": 1.5}
    bare = real.get("/v1/topics/t/messages/nulls")
    absent = ("key", "tags", "headers", "priority", "backoff")
    assert not any(bare.get(name) for name in absent), bare
    assert bare["expires_at_ms"] - bare["deliver_at_ms"] == ttl_ms
    assert real.get("/v1/topics/t/messages/never").get("expires_at_ms") is None


def test_streams_have_results_and_report_what_is_ready(
    spark: SparkSession, real: RealBroker, tmp_path: Path
) -> None:
    target = str(tmp_path / "input")
    frame = messages(spark, 0, ROWS).withColumn("deliver_at", f.timestamp_millis(f.lit(0)))
    frame.write.parquet(target)
    options = {"endpoint": real.url, "topic": "t"}
    stream = spark.readStream.schema(frame.schema).parquet(target).writeStream.format("delaylog")
    query = (
        stream.options(**options, wait="published")
        .option("checkpointLocation", str(tmp_path / "sink"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    found = last()
    assert (found.batch, found.rows, found.added) == (0, ROWS, ROWS)
    assert found.bytes > 0
    assert found.name == f"{query.id}.0"
    assert [dict(each.sink.metrics) for each in query.recentProgress] == [{}]
    consumer = (
        spark.readStream.format("delaylog")
        .options(**options, maxMessagesPerTrigger=300)
        .load()
        .writeStream.foreachBatch(lambda rows, number: rows.collect())
        .option("checkpointLocation", str(tmp_path / "source"))
        .trigger(availableNow=True)
        .start()
    )
    consumer.awaitTermination()
    progress = consumer.recentProgress[0].sources[0]
    assert '"ready": 700' in str(progress.latestOffset)
    assert '"rows": 300' in str(progress.endOffset)
    assert progress.numInputRows == 300
