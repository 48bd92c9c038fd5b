"""Consuming streams of a named group: it must exist, and its queries share what it gets."""

from __future__ import annotations

from pathlib import Path

import pytest
import requests
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tests.spark.frames import ids_of, messages
from tests.spark.real.real_broker import RealBroker
from tests.spark.test_batch_sink import sink
from tests.spark.test_consuming_stream import consume

ROWS = 600
GROUP = {"consumerGroup": "g"}


def test_a_group_must_exist_and_its_queries_share_messages(
    spark: SparkSession, real: RealBroker, tmp_path: Path
) -> None:
    """It gets what is sent after it was made. A query may read some of the columns."""
    due = messages(spark, 0, ROWS).withColumn("deliver_at", f.timestamp_millis(f.lit(0)))
    sink(due, real, wait="published").save()
    said = r"no group 'g'.*create it with PUT .*/groups/g"
    with pytest.raises(StreamingQueryException, match=said):
        consume(spark, real, tmp_path, lambda frame, number: None, **GROUP)
    made = requests.put(f"{real.url}/v1/topics/t/groups/g", json={}, timeout=30)
    assert made.status_code == 201, made.text
    later = due.withColumn("id", f.concat(f.lit("later-"), "id"))
    sink(later, real, wait="published").save()
    found: list[list[str]] = [[], []]
    queries = [
        spark.readStream.format("delaylog")
        .options(endpoint=real.url, topic="t", maxMessagesPerTrigger=ROWS // 4, **GROUP)
        .schema("id string")
        .load()
        .writeStream.foreachBatch(lambda frame, _, ids=ids: ids.extend(frame.toPandas()["id"]))
        .option("checkpointLocation", str(tmp_path / f"checkpoint-{number}"))
        .trigger(availableNow=True)
        .start()
        for number, ids in enumerate(found)
    ]
    for query in queries:
        assert query.awaitTermination(120)
    assert sorted(found[0] + found[1]) == [f"later-{each}" for each in ids_of(0, ROWS)]
