"""How the rows of a load become visible: atomically in a transaction, or chunk by chunk.

`load` runs in tasks, `commit` and `abort` run on the driver. They share data only through the
commit messages. A load has a name, which stays the same when it is repeated.

A transaction remembers only how many rows it had. To find out whether a repeated load has the rows
of the load that was committed under its name, the sum of the rows' hashes is committed too, as the
name of a second, empty transaction just before the first one. Rows count as the same if they have
the same ids or, in a DataFrame without ids, the same bodies: due times and other columns may depend
on the time of the run.
"""

from __future__ import annotations

import logging
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from hashlib import blake2b
from typing import Any, Final
from zlib import crc32

import numpy as np
import pyarrow as pa

from pyspark_delaylog.broker_http import ARROW_TYPE, BrokerHttp
from pyspark_delaylog.columns import Columns
from pyspark_delaylog.errors import BrokerError, DelaylogError, TransactionError
from pyspark_delaylog.load_result import LoadResult
from pyspark_delaylog.options import Options
from pyspark_delaylog.publication import published
from pyspark_delaylog.task_load import Loading
from pyspark_delaylog.tasks import Task
from pyspark_delaylog.transactions import (
    COMMITTED,
    CommittedElsewhere,
    Staged,
    Transaction,
    Transactions,
)
from pyspark_delaylog.versions import WriterCommitMessage

# ----------------------------------------------------------- whether a repeat has the same rows


class RowSum:
    """The number of rows, and a sum that does not depend on their order and partitions."""

    def __init__(self, *, adds: bool = True) -> None:
        """Without `adds`, rows are only counted."""
        self._adds = adds
        self.rows = 0
        self.sum = 0

    def watch(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Pass batches on, and add their rows."""
        for batch in batches:
            self.rows += batch.num_rows
            if self._adds:
                name = "id" if "id" in batch.schema.names else "value"
                self.sum += sum_of(batch.column(name))
            yield batch


def sum_of(column: Any) -> int:
    """The sum of the hashes of texts, which depends on no order. A null counts as an empty text.

    CRC-32 is linear, so its values cannot be added as they are: their sums are equal for the ids
    `2026-11-26-00000` to `-99999` and for those of the next day. The steps in between are those of
    splitmix64 (https://prng.di.unimi.it/splitmix64.c).
    """
    texts = column.cast(pa.binary()).fill_null(b"").to_pylist()
    mixed = np.fromiter(map(crc32, texts), np.uint64, len(texts))
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
    return int((mixed ^ (mixed >> np.uint64(31))).sum())


def marker_of(transaction: str, total: int) -> str:
    """The name of the empty transaction that holds the sum of a load."""
    return f"{transaction}.sum-{total % 2**64:x}"


# ----------------------------------------------------------------------------------- deliveries

RESULTS: Final = ("created", "kept", "replaced", "rejected")
Messages = Sequence[WriterCommitMessage | None]

log = logging.getLogger("pyspark_delaylog")


def broker_now_ms(http: BrokerHttp) -> int:
    """The broker's clock. This is also the cheapest check of address and token."""
    return int(http.json("GET", "/v1/clock")["now_ms"])


class StagedDelivery:
    """Two phases: tasks stage parts, the driver commits the parts of the successful attempts."""

    def __init__(
        self, options: Options, http: BrokerHttp, producer: str, *, marks: bool = False
    ) -> None:
        """`marks`: whether the rows of a load with a txnAppId are compared, not only counted."""
        self._options = options
        self._http = http
        self._producer = producer
        self._marks = marks and options.txn_app_id is not None
        self.transactions = Transactions(options, http)

    def load(
        self, transaction: Transaction, task: Task, columns: Columns, batches: Iterable[Any]
    ) -> Staged:
        """Stage the rows of a task. If the load is already committed, none is sent.

        With a txnAppId, all rows are read in any case: the driver compares them with those that
        were committed under the name.
        """
        total = RowSum(adds=self._marks)
        if self._options.txn_app_id is not None:
            batches = total.watch(batches)
        if transaction.state == COMMITTED:
            return self._read_only(transaction, total, batches)

        def send(topic: str | None, number: int, body: bytes) -> None:
            self.transactions.stage(transaction.id, topic, self._producer, task, number, body)

        try:
            loaded = Loading(self._options, columns, send, combines=True).run(batches)
        except CommittedElsewhere:
            return self._read_only(transaction, total, batches)
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
            total.rows,
            total.sum,
            past=loaded.past,
        )

    def _read_only(self, transaction: Transaction, total: RowSum, batches: Iterable[Any]) -> Staged:
        """The message of a task whose load is already committed."""
        if self._options.txn_app_id is not None:
            deque(batches, maxlen=0)
        return Staged(transaction.id, COMMITTED, seen=total.rows, sum=total.sum)

    def commit(self, transaction: str | None, messages: Messages) -> LoadResult | None:
        """Commit the load. `transaction` is its name if the driver began it.

        None without any task of a stream. Raises TransactionError if nothing is committed, and if
        an earlier run has committed other data under this name.
        """
        staged = [each for each in messages if isinstance(each, Staged)]
        if len(staged) != len(messages):
            raise TransactionError("a task returned no commit message: nothing is committed")
        names = {each.transaction for each in staged} | ({transaction} if transaction else set())
        if not names:
            return None
        if len(names) > 1:
            raise TransactionError(
                f"tasks staged in different transactions ({', '.join(sorted(names))}), because one "
                "ended meanwhile; run the load again (option txnTtlMs: the time to expiry)"
            )
        (name,) = names
        marker = marker_of(name, sum(each.sum for each in staged)) if self._marks else None
        if any(each.state == COMMITTED for each in staged):
            same = marker is None or self.transactions.is_marked(marker)
            return self._already(name, staged, same=same)
        if marker is not None:
            self.transactions.announce(marker)
        if not self.transactions.commit(name, staged):
            same = marker is None or self.transactions.is_marked_by_another(marker)
            return self._already(name, staged, same=same)
        if marker is not None:
            self._mark(name, marker)
        return self._result(name, "committed", staged)

    def _mark(self, name: str, marker: str) -> None:
        try:
            self.transactions.mark(marker)
        except DelaylogError as error:
            # The load is committed: it must not fail because of this.
            log.warning("transaction %s is committed, but its rows are not marked: %s", name, error)

    def _already(self, name: str, staged: list[Staged], *, same: bool) -> LoadResult:
        """The result of a load that another run has committed. `same`: by ids or bodies."""
        if self._options.txn_app_id is not None:
            before = int(self.transactions.shape(name)["rows"])
            now = sum(each.seen for each in staged)
            what = "with other ids (or bodies, without a column id) than those of this DataFrame"
            if before != now:
                what = f"with {before:,} rows, but this DataFrame has {now:,}"
            if before != now or not same:
                raise TransactionError(
                    f"transaction {name} was committed before {what}: nothing was added. Give "
                    "other data another txnAppId; for the same data, do not make ids at random"
                )
        return self._result(name, "already", staged)

    def _result(self, name: str, state: str, staged: list[Staged]) -> LoadResult:
        """What the load has done, with the broker's counts as far as its rows are published."""
        wait = self._options.waits
        try:
            found = published(partial(self.transactions.shape, name), wait=wait)
        except BrokerError as error:
            if wait:
                raise
            # The load is committed: it must not fail because its counts cannot be read.
            log.warning("transaction %s is committed, but its counts are unknown: %s", name, error)
            found = {"rows": sum(each.rows for each in staged), "published": 0}
        result = replace(_sums(name, state, staged), connection=self._options.connection)
        return result.counted(found, time.time_ns() // 1_000_000)

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

        results: Counter[str] = Counter()

        def send(topic: str | None, number: int, body: bytes) -> None:
            assert topic is not None, "a direct send has one topic"
            key = blake2b(body, digest_size=20, person=b"delaylog-spark")
            key.update(f"\n{name}\n{task.part}\n{number}".encode())
            path = self._http.of_topic(topic, "messages")
            headers = {"Idempotency-Key": f"spark-{key.hexdigest()}"}
            answer = self._http.send("POST", path, body, ARROW_TYPE, headers=headers)
            results.update({each: int(answer.get(each, 0)) for each in RESULTS})

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
            results=dict(results),
            past=loaded.past,
        )

    @staticmethod
    def result(name: str, messages: Messages) -> LoadResult:
        """What a load has sent."""
        sent = [each for each in messages if isinstance(each, Staged)]
        results: Counter[str] = Counter()
        for each in sent:
            results.update(each.results)
        rows = sum(each.rows for each in sent)
        now_ms = time.time_ns() // 1_000_000
        return replace(
            _sums(name, "sent", sent),
            rows=rows,
            published=rows,
            results=dict(results),
            published_at_ms=now_ms,
        )


def _sums(name: str, state: str, staged: list[Staged]) -> LoadResult:
    return LoadResult(
        name,
        state,
        rows=0,
        put_aside=sum(each.rejected for each in staged),
        past=sum(each.past for each in staged),
        bytes=sum(each.size for each in staged),
        repeated_calls=sum(each.repeats for each in staged),
    )
