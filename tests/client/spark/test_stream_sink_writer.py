"""The streaming sink against a broker, without Spark: micro-batches, re-runs and aborts."""

from __future__ import annotations

import pyarrow as pa
import pytest

from pyspark_delaylog import tasks
from pyspark_delaylog.errors import (
    TransactionError,
)
from pyspark_delaylog.options import Options
from pyspark_delaylog.writers import DelaylogStreamWriter
from tests.client.spark.batches import batch_of, ids_of
from tests.client.spark.conftest import OptionsOf
from tests.client.spark.fake_broker import FakeBroker
from tests.client.spark.task_context import SCHEMA, Spark, run_task


def stream_writer(options: Options) -> DelaylogStreamWriter:
    return DelaylogStreamWriter(options, SCHEMA)


def test_a_micro_batch_is_a_transaction_of_its_query_and_number(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    writer, committer = stream_writer(options_of()), stream_writer(options_of())
    for number in range(2):
        spark.properties[tasks.BATCH_ID] = str(number)
        ids = ids_of(number * 3, number * 3 + 3)
        committer.commit([run_task(writer, spark, 0, number, [batch_of(ids)])], number)
    assert {name: each.state for name, each in broker.transactions.items()} == {
        "q.0": "committed",
        "q.1": "committed",
    }
    assert broker.ids("t") == ids_of(0, 6)


def test_a_batch_that_was_committed_is_not_sent_again(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    """The driver died between the broker's commit and its own note of it."""
    for _ in range(2):
        writer = stream_writer(options_of(txnAppId="app"))
        stream_writer(options_of()).commit(
            [run_task(writer, spark, 0, 0, [batch_of(ids_of(0, 3))])], 0
        )
    assert list(broker.transactions) == ["app.0"]
    assert broker.ids("t") == ids_of(0, 3)
    assert len(broker.called("POST", "/parts")) == 1


def test_a_batch_that_failed_goes_on_as_another_run(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    writer = stream_writer(options_of())
    message = run_task(writer, spark, 0, 0, [batch_of(ids_of(0, 3))])
    stream_writer(options_of()).abort([message, None], 0)
    again = stream_writer(options_of())
    message = run_task(again, spark, 0, 0, [batch_of(ids_of(0, 3))])
    again.commit([message], 0)
    again.abort([message], 0)
    assert {name: each.state for name, each in broker.transactions.items()} == {
        "q.0": "aborted",
        "q.0.r1": "committed",
    }
    assert broker.ids("t") == ids_of(0, 3)


def test_tasks_that_met_different_runs_are_not_committed(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    writer = stream_writer(options_of())
    first = run_task(writer, spark, 0, 0, [batch_of(ids_of(0, 3))])
    broker.expire("q.0")
    second = run_task(writer, spark, 1, 1, [batch_of(ids_of(3, 6))])
    with pytest.raises(TransactionError, match=r"q\.0, q\.0\.r1.*txnTtlMs"):
        writer.commit([first, second], 0)
    assert broker.sent == {}


def test_an_empty_micro_batch_asks_nothing(broker: FakeBroker, options_of: OptionsOf) -> None:
    stream_writer(options_of()).commit([], 3)
    assert broker.calls == []


@pytest.mark.parametrize("name", [tasks.QUERY_ID, tasks.BATCH_ID])
def test_a_spark_that_does_not_say_the_batch_is_refused(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark, name: str
) -> None:
    spark.properties[name] = None
    with pytest.raises(TransactionError, match="not supported by the streaming sink"):
        run_task(stream_writer(options_of()), spark, 0, 0, [])


def test_a_stream_may_be_direct_and_relative(
    broker: FakeBroker, options_of: OptionsOf, spark: Spark
) -> None:
    writer = stream_writer(options_of(delivery="direct", delayMs=5))
    message = run_task(writer, spark, 0, 0, [pa.record_batch({"value": ["x"]})])
    assert len(broker.rows("t")) == 1
    writer.commit([message], 0)
    writer.abort([message], 0)
