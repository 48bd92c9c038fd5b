"""Transactions as context managers: the messages staged in the block are published atomically.

The end of the block commits; an exception aborts. Every step is idempotent, so a step whose answer
was lost is repeated.

Made from client/_async/transaction.py by `make twins`: change that one.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Self, Unpack

from delaylog.client._sync.plain_client import PlainClient
from delaylog.client.calls.messages import BulkSendKeywords
from delaylog.client.calls.transactions import StagedBodies
from delaylog.client.errors import ClientError
from delaylog.client.wire.bulk import Texts, or_now, rows_of
from delaylog.client.wire.checks import check_list


class Transaction:
    """A transaction for programs with threads. Only one thread may stage messages."""

    def __init__(self, broker: PlainClient, transaction: str | None, ttl: timedelta | None) -> None:
        self._broker = broker
        self._bodies = StagedBodies(transaction)
        self._ttl = ttl

    @property
    def id(self) -> str:
        """The id of the transaction: given by the caller, or generated."""
        return self._bodies.id

    def __enter__(self) -> Self:
        self._bodies.begin()
        self._broker.begin(self.id, ttl=self._ttl)
        return self

    def stage(self, topic: str, bodies: Texts, **columns: Unpack[BulkSendKeywords]) -> int:
        """Stage messages as columns, see `bulk.encode_send`. Returns their number.

        Delays count from the commit; without a time the messages are due at the commit.
        """
        check_list("bodies", bodies)
        if rows_of("bodies", bodies) == 0:
            return 0
        number = self._bodies.next_number()
        answer = self._broker.stage(self.id, topic, bodies, number=number, **or_now(columns))
        rows = int(answer["rows"])
        self._bodies.rows += rows
        return rows

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        winners = self._bodies.end()
        if error is None:
            self._broker.commit(self.id, winners)
            return
        self._broker.at_once = True
        try:
            self._broker.abort(self.id)
        except ClientError as failed:
            # The caller needs the error of the block. The transaction expires by itself.
            error.add_note(f"transaction {self.id} was not aborted: {failed}")
