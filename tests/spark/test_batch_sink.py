"""The batch sink in a real Spark: what it sends and what it refuses; `real` has its failures."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from tests.client.spark.fake_broker import FakeBroker
from tests.spark.frames import messages
from tests.spark.session import ROOT


def sink(frame: DataFrame, broker: FakeBroker, kind: str = "delaylog", **given: Any) -> Any:
    options = {"endpoint": broker.url, "topic": "t", "batchSize": 500, "retryWaitMs": 1, **given}
    return frame.write.format(kind).options(**options).mode("append")


def test_many_topics_take_few_requests(spark: SparkSession, broker: FakeBroker) -> None:
    """Two tasks with rows of 500 topics each: a request of each task has them all."""
    topic = f.concat(f.lit("t"), (f.substring("id", 2, 8).cast("int") % 500).cast("string"))
    frame = messages(spark, 0, 3_000, 2).withColumn("topic", topic)
    sink(frame, broker, topic="", batchSize=10_000, txnAppId="many").save()
    assert len(broker.called("POST", "/parts")) == 2
    for number in range(0, 500, 99):
        expected = [f"m{row:08d}" for row in range(number, 3_000, 500)]
        assert broker.ids(f"t{number}") == expected, "in their order"
    assert broker.transactions["many"].rows == 3_000


@pytest.mark.parametrize(
    ("change", "given", "message"),
    [
        (lambda frame: frame.drop("value"), {}, "column 'value' (string or binary) is missing"),
        (lambda frame: frame, {"batchsise": "5"}, "did you mean batchSize?"),
        (lambda frame: frame, {"token": "not-this-one"}, "(give a valid token: option tokenFile"),
    ],
)
def test_what_is_wrong_is_said_at_once(
    spark: SparkSession, broker: FakeBroker, change: Any, given: dict[str, str], message: str
) -> None:
    """On the driver, by what the caller catches, and before any row was looked at."""
    broker.token = "s3cret" if "token" in given else None
    with pytest.raises(AnalysisException) as caught:
        sink(change(messages(spark, 0, 10)), broker, **given).save()
    assert message in str(caught.value)
    assert "not-this-one" not in str(caught.value)
    assert broker.called("POST", "/parts") == []


@pytest.mark.parametrize("mode", ["overwrite", "error", "ignore"])
def test_only_append_is_a_mode(spark: SparkSession, broker: FakeBroker, mode: str) -> None:
    with pytest.raises(AnalysisException, match=r"append|UNSUPPORTED_DATA_SOURCE_SAVE_MODE"):
        sink(messages(spark, 0, 10), broker).mode(mode).save()
    assert broker.transactions == {}


def page() -> str:
    """The text of docs/SPARK.md without its line ends."""
    return " ".join((ROOT / "docs" / "SPARK.md").read_text().split())


def test_spark_saves_a_table_that_nobody_can_read(spark: SparkSession, broker: FakeBroker) -> None:
    """A sink cannot refuse `saveAsTable`: to it, it is like `save`. The page says what it does."""
    try:
        sink(messages(spark, 0, 10), broker).saveAsTable("made")
        assert len(broker.rows("t")) == 10
        with pytest.raises(Exception, match="a queue cannot be read as a batch"):
            spark.table("made").count()
    finally:
        spark.sql("DROP TABLE IF EXISTS made")
    assert "`saveAsTable` sends the rows, and then leaves a table" in page()


def test_partitions_of_files_are_refused_by_spark(spark: SparkSession, broker: FakeBroker) -> None:
    with pytest.raises(Exception, match="partitioning or clustering columns do not match"):
        sink(messages(spark, 0, 10), broker).partitionBy("id").save()
    assert broker.sent == {}
    assert "do not match the existing table's" in page()
