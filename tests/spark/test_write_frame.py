"""write_frame in a real Spark: the guarantees of the format, without the format.

`packages` runs it with PySpark 3.5, which has no formats in Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from pyspark.sql import SparkSession

from pyspark_delaylog import last_result, write_frame
from pyspark_delaylog.errors import OptionError, SchemaError
from pyspark_delaylog.load_result import LoadResult
from tests.client.spark.fake_broker import FakeBroker
from tests.client.spark.misbehaving_server import Call, Fault
from tests.spark.frames import ids_of, messages

ROWS = 6_000


def fail_always(batches: Iterator[Any]) -> Iterator[Any]:
    yield next(batches)
    raise RuntimeError("on purpose")


def given(broker: FakeBroker, **more: object) -> dict[str, Any]:
    return {"endpoint": broker.url, "topic": "t", "batchSize": 250, "retryWaitMs": 1, **more}


def test_failed_tasks_and_a_second_run_add_nothing_twice(
    spark: SparkSession, broker: FakeBroker, small_batches: None
) -> None:
    """The first attempt at each task is refused at its third request, and fails."""
    refused: set[str] = set()

    def refuse(call: Call) -> Fault | None:
        part = call.query.get("part", "")
        if not call.path.endswith("/parts") or call.query["number"] != "2" or part in refused:
            return None
        refused.add(part)
        return Fault(403)

    broker.fault = refuse
    frame = messages(spark, 0, ROWS)
    first = write_frame(frame, **given(broker, txnAppId="load", failOnPartial=True))
    assert (len(refused), broker.discarded) == (4, 4 * 2 * 250)
    assert sorted(broker.ids("t")) == ids_of(0, ROWS)
    assert (first.name, first.state, first.added) == ("load", "committed", ROWS)
    sent = len(broker.called("POST", "/parts"))
    again = write_frame(frame, **given(broker, txnAppId="load"))
    assert (again.state, again.rows) == ("already", ROWS)
    assert len(broker.called("POST", "/parts")) == sent
    assert sorted(broker.ids("t")) == ids_of(0, ROWS)


def test_tables_are_loaded_in_parallel_by_one_driver(
    spark: SparkSession, broker: FakeBroker
) -> None:
    """By a pool of threads; each result is that of its load."""
    frames = {f"load-{n}": messages(spark, 100 * n, 100 * n + 10 + n) for n in range(4)}

    def load(name: str) -> LoadResult:
        return write_frame(frames[name], **given(broker, txnAppId=name))

    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(load, frames))
    assert [(each.name, each.added) for each in results] == [
        (f"load-{n}", 10 + n) for n in range(4)
    ]
    found = [last_result(name) for name in frames]
    assert [each and (each.name, each.rows) for each in found] == [
        (each.name, each.rows) for each in results
    ]


def test_a_load_that_fails_is_aborted(
    spark: SparkSession, broker: FakeBroker, small_batches: None
) -> None:
    frame = messages(spark, 0, ROWS)
    with pytest.raises(Exception, match="on purpose"):
        write_frame(frame.mapInArrow(fail_always, frame.schema), **given(broker, txnAppId="load"))
    assert broker.transactions["load"].state == "aborted"
    assert broker.sent == {}
    write_frame(frame.where("id = 'none'"), **given(broker, txnAppId="load"))
    assert broker.transactions["load.r1"].state == "committed"


def test_what_is_wrong_is_said_before_a_task_runs(spark: SparkSession, broker: FakeBroker) -> None:
    frame = messages(spark, 0, 10)
    with pytest.raises(OptionError, match="did you mean batchSize"):
        write_frame(frame, **given(broker, batchsise=5))
    with pytest.raises(SchemaError, match="column 'value'"):
        write_frame(frame.drop("value"), **given(broker))
    assert broker.transactions == {}
