"""The two sinks: a batch write, and the micro-batches of a stream.

The one rule: what can be seen to be wrong on the driver is wrong there, before a task runs: Spark
repeats a failed task whatever the failure, and shows an error of the driver as it is.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pyspark_delaylog.broker_http import BrokerHttp
from pyspark_delaylog.columns import Columns
from pyspark_delaylog.deliveries import DirectDelivery, Messages, StagedDelivery, broker_now_ms
from pyspark_delaylog.options import Options
from pyspark_delaylog.schema import check_sink_schema
from pyspark_delaylog.tasks import this_batch, this_task
from pyspark_delaylog.transactions import Staged

log = logging.getLogger("pyspark_delaylog")


class DelaylogBatchWriter(DataSourceArrowWriter):
    """`df.write.format("delaylog").mode("append")`. Its transaction is begun on the driver."""

    def __init__(self, options: Options, schema: StructType) -> None:
        check_sink_schema(schema, options)
        self._options = options
        self._http = BrokerHttp(options)
        self._name = options.txn_app_id or f"spark-{uuid.uuid4()}"
        # One time for the whole load: a repeated task makes the same rows.
        self._base_ms = broker_now_ms(self._http)
        self._staged: StagedDelivery | None = None
        if options.staged:
            self._staged = StagedDelivery(options, self._http, f"spark-{uuid.uuid4()}")
            self._transaction = self._staged.transactions.begin(self._name)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """In a task: send its rows."""
        columns = Columns(self._options, self._base_ms)
        try:
            if self._staged is not None:
                return self._staged.load(self._transaction, this_task(), columns, iterator)
            direct = DirectDelivery(self._options, self._http)
            return direct.load(self._name, this_task(), columns, iterator)
        finally:
            self._http.close()

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when all tasks are done."""
        if self._staged is not None:
            self._staged.commit(self._transaction.id, messages)
        else:
            _log_direct(self._name, messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver, when the load has failed."""
        if self._staged is not None:
            self._staged.abort(self._transaction.id, messages)
        else:
            log.warning("load %s has failed; what it had sent stays (delivery=direct)", self._name)


class DelaylogStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream.format("delaylog")`. A batch's transaction is named by query and batch.

    Spark makes one writer for the tasks and another one for the commit, and tells neither of them
    the query: so each task finds the transaction, and its message brings it to the driver.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        check_sink_schema(schema, options)
        self._options = options
        self._http = BrokerHttp(options)
        self._staged = StagedDelivery(options, self._http, f"spark-{uuid.uuid4()}")

    def check_broker(self) -> None:
        """On the driver, when a query is planned: it answers, and lets us in."""
        broker_now_ms(self._http)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """In a task: send its rows of this micro-batch."""
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

    # Spark gives the number by the name batchId.
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver, when all tasks of the micro-batch are done."""
        if self._options.staged:
            self._staged.commit(None, messages)
        else:
            _log_direct(f"batch {batchId}", messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """On the driver, when the micro-batch has failed; run again, it goes on as another run."""
        if self._options.staged:
            self._staged.abort(None, messages)
        else:
            log.warning("batch %d has failed; what it had sent stays (delivery=direct)", batchId)


def _log_direct(name: str, messages: Messages) -> None:
    sent = [each for each in messages if isinstance(each, Staged)]
    log.info(
        "%s is sent: %d rows, %d rejected, %d calls repeated",
        name,
        sum(each.rows for each in sent),
        sum(each.rejected for each in sent),
        sum(each.repeats for each in sent),
    )
