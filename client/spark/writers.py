"""The sinks: for batch writes, for the micro-batches of a stream, and `write_frame`.

Errors that can be detected on the driver are raised there, before any task runs: Spark retries a
failed task whatever the error, but shows an error of the driver unchanged.

`write_frame` is a batch write without a data source, for PySpark 3.5 and for foreachBatch. The
tasks of `mapInArrow` call the writer of the batch sink and return its messages as rows, and the
driver commits them, so the guarantees are those of the format. Spark returns the rows of the
successful attempt at each task only.
"""

from __future__ import annotations

import logging
import pickle
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from pyspark_delaylog.broker_http import BrokerHttp, check_may_send
from pyspark_delaylog.columns import Columns
from pyspark_delaylog.deliveries import DirectDelivery, StagedDelivery, broker_now_ms
from pyspark_delaylog.load_result import GENERATED, LoadResult, report
from pyspark_delaylog.options import Options
from pyspark_delaylog.schema import check_sink_schema
from pyspark_delaylog.tasks import this_batch, this_task
from pyspark_delaylog.transactions import Staged
from pyspark_delaylog.versions import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

log = logging.getLogger("pyspark_delaylog")


class DelaylogBatchWriter(DataSourceArrowWriter):
    """`df.write.format("delaylog").mode("append")`. The driver begins its transaction."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_sink_schema(schema, options)
        self._options = options
        self._http = BrokerHttp(options)
        self._name = options.txn_app_id or f"{GENERATED}{uuid.uuid4()}"
        check_may_send(self._http, options)
        # One base time for the whole load, so that a repeated task produces the same rows.
        self._base_ms = broker_now_ms(self._http)
        self._staged: StagedDelivery | None = None
        if options.staged:
            producer = f"spark-{uuid.uuid4()}"
            self._staged = StagedDelivery(options, self._http, producer, marks=True)
            self._transaction = self._staged.transactions.begin(self._name)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of a task. Runs in the task."""
        columns = Columns(self._options, self._base_ms)
        try:
            if self._staged is not None:
                return self._staged.load(self._transaction, this_task(), columns, iterator)
            direct = DirectDelivery(self._options, self._http)
            return direct.load(self._name, this_task(), columns, iterator)
        finally:
            self._http.close()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """As `finish`, for Spark."""
        self.finish(messages)

    def finish(self, messages: list[WriterCommitMessage | None]) -> LoadResult:
        """Commit the load after all tasks. Runs on the driver."""
        if self._staged is not None:
            result = self._staged.commit(self._transaction.id, messages)
            assert result is not None, "the driver has begun the transaction"
        else:
            result = DirectDelivery.result(self._name, messages)
        report(result, fail_on_partial=self._options.fail_on_partial)
        return result

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Abort a failed load. Runs on the driver."""
        if self._staged is not None:
            self._staged.abort(self._transaction.id, messages)
        else:
            log.warning("load %s has failed; sent messages stay (delivery=direct)", self._name)


class DelaylogStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("delaylog")`. A transaction is named after its query and batch.

    Spark creates one writer for the tasks and another one for the commit, and neither knows the
    query. So each task determines the transaction and reports it to the driver in its message.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        check_sink_schema(schema, options)
        self._options = options
        self._http = BrokerHttp(options)
        # Without marks: Spark makes other random ids when it repeats a micro-batch, which would
        # never pass then, and each batch would take two more calls.
        self._staged = StagedDelivery(options, self._http, f"spark-{uuid.uuid4()}")

    def check_broker(self) -> None:
        """Check address, token and rights when a query is planned. Runs on the driver."""
        check_may_send(self._http, self._options)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Send the rows of a task of this micro-batch. Runs in the task."""
        batch, task = this_batch(), this_task()
        name = f"{self._options.txn_app_id or batch.query_id}.{batch.number}"
        try:
            relative = self._options.delay_ms is not None
            columns = Columns(self._options, broker_now_ms(self._http) if relative else None)
            if self._options.staged:
                transaction = self._staged.transactions.begin(name)
                return self._staged.load(transaction, task, columns, iterator)
            direct = DirectDelivery(self._options, self._http)
            return direct.load(name, task, columns, iterator)
        finally:
            self._http.close()

    # The parameter name batchId is Spark's.
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Commit the micro-batch after all its tasks. Runs on the driver."""
        if self._options.staged:
            result = self._staged.commit(None, messages)
        else:
            names = {each.transaction for each in messages if isinstance(each, Staged)}
            result = DirectDelivery.result(min(names, default=f"batch {batchId}"), messages)
        if result is not None:
            report(replace(result, batch=batchId), fail_on_partial=self._options.fail_on_partial)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Abort a failed micro-batch; a repeat uses another run. Runs on the driver."""
        if self._options.staged:
            self._staged.abort(None, messages)
        else:
            log.warning("batch %d has failed; sent messages stay (delivery=direct)", batchId)


# ---------------------------------------------------------- a batch write without a data source

MESSAGE: Final = "message"


def write_frame(frame: Any, **options: object) -> LoadResult:
    """Write a DataFrame as `format("delaylog")` does, with the same options. Returns its counts.

    It works in every thread, so tables may be loaded in parallel.

    Raises OptionError or SchemaError before any task, and the errors of Spark if a task fails;
    then nothing of a staged load is visible.
    """
    given = {name: _text(value) for name, value in options.items()}
    writer = DelaylogBatchWriter(Options.parse(given), frame.schema)

    def load(batches: Iterable[Any]) -> Iterator[Any]:
        message = pickle.dumps(writer.write(iter(batches)))
        yield pa.RecordBatch.from_arrays([pa.array([message], pa.binary())], names=[MESSAGE])

    try:
        rows = frame.mapInArrow(load, f"{MESSAGE} binary").collect()
        return writer.finish([pickle.loads(row[MESSAGE]) for row in rows])
    except BaseException:
        writer.abort([])
        raise


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
