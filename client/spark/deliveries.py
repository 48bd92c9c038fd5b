"""How the rows of a load become visible: atomically in a transaction, or chunk by chunk.

`load` runs in tasks, `commit` and `abort` run on the driver. They share data only through the
commit messages. A load has a name, which stays the same when it is repeated.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any

from pyspark_delaylog.broker_http import ARROW_TYPE, BrokerHttp
from pyspark_delaylog.columns import Columns
from pyspark_delaylog.errors import DelaylogError, TransactionError
from pyspark_delaylog.loading import Loading
from pyspark_delaylog.options import Options
from pyspark_delaylog.tasks import Task
from pyspark_delaylog.transactions import (
    COMMITTED,
    CommittedElsewhere,
    Staged,
    Transaction,
    Transactions,
)
from pyspark_delaylog.versions.spark_api import WriterCommitMessage

Messages = Sequence[WriterCommitMessage | None]

log = logging.getLogger("pyspark_delaylog")


def broker_now_ms(http: BrokerHttp) -> int:
    """The broker's clock. This is also the cheapest check of address and token."""
    return int(http.json("GET", "/v1/clock")["now_ms"])


class StagedDelivery:
    """Two phases: tasks stage parts, the driver commits the parts of the successful attempts."""

    def __init__(self, options: Options, http: BrokerHttp, producer: str) -> None:
        self._options = options
        self._http = http
        self._producer = producer
        self.transactions = Transactions(options, http)

    def load(
        self, transaction: Transaction, task: Task, columns: Columns, batches: Iterable[Any]
    ) -> Staged:
        """Stage the rows of a task. If the load is already committed, they are not even read."""
        done = Staged(transaction.id, COMMITTED)
        if transaction.state == COMMITTED:
            return done

        def send(topic: str, number: int, body: bytes) -> None:
            self.transactions.stage(transaction.id, topic, self._producer, task, number, body)

        try:
            loaded = Loading(self._options, columns, send).run(batches)
        except CommittedElsewhere:
            return done
        return Staged(
            transaction.id,
            transaction.state,
            self._producer,
            task.part,
            task.attempt,
            loaded.rows,
            loaded.size,
            loaded.rejected,
            self._http.repeats,
        )

    def commit(self, transaction: str | None, messages: Messages) -> None:
        """Commit the load. `transaction` is its name if the driver began it."""
        staged = [each for each in messages if isinstance(each, Staged)]
        if len(staged) != len(messages):
            raise TransactionError("a task returned no commit message: nothing is committed")
        names = {each.transaction for each in staged} | ({transaction} if transaction else set())
        if not names:
            return
        if len(names) > 1:
            raise TransactionError(
                f"tasks staged in different transactions ({', '.join(sorted(names))}), because one "
                "ended meanwhile; run the load again (option txnTtlMs: the time to expiry)"
            )
        (name,) = names
        if any(each.state == COMMITTED for each in staged):
            log.info("transaction %s was committed by an earlier run; nothing was added", name)
            return
        answer = self.transactions.commit(name, staged)
        log.info(
            "transaction %s is committed (%s): %d rows, %d bytes, %d rejected, %d calls repeated",
            name,
            answer.get("result"),
            sum(each.rows for each in staged),
            sum(each.size for each in staged),
            sum(each.rejected for each in staged),
            sum(each.repeats for each in staged),
        )

    def abort(self, transaction: str | None, messages: Messages) -> None:
        """Abort the load. A failure is only logged, so that it does not hide the original error."""
        names = {each.transaction for each in messages if isinstance(each, Staged)}
        for name in sorted(names | ({transaction} if transaction else set())):
            try:
                self.transactions.abort(name)
            except DelaylogError as error:
                log.warning("transaction %s was not aborted, and will expire: %s", name, error)


class DirectDelivery:
    """One phase: each chunk is visible once it is answered, and stays if the load fails."""

    def __init__(self, options: Options, http: BrokerHttp) -> None:
        self._options = options
        self._http = http

    def load(self, name: str, task: Task, columns: Columns, batches: Iterable[Any]) -> Staged:
        """Send the rows of a task.

        The idempotency key of a chunk includes a hash of its bytes. With the number alone, a chunk
        of a repeated task that has other rows would be mistaken for the earlier one, and lost.
        """

        def send(topic: str, number: int, body: bytes) -> None:
            key = blake2b(body, digest_size=20, person=b"delaylog-spark")
            key.update(f"\n{name}\n{task.part}\n{number}".encode())
            path = self._http.of_topic(topic, "messages")
            headers = {"Idempotency-Key": f"spark-{key.hexdigest()}"}
            self._http.send("POST", path, body, ARROW_TYPE, headers=headers)

        loaded = Loading(self._options, columns, send).run(batches)
        return Staged(
            name,
            "direct",
            part=task.part,
            attempt=task.attempt,
            rows=loaded.rows,
            size=loaded.size,
            rejected=loaded.rejected,
            repeats=self._http.repeats,
        )
