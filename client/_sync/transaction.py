"""Transactions as context managers: what is staged inside comes to be together at the end, or not.

The one rule: leaving by an exception aborts, and leaving in order commits; every step may be
repeated, so a lost answer is asked for again and adds nothing.

Made from client/_async/transaction.py by `make twins`: change that one.
"""

from __future__ import annotations

from typing import Self, Unpack

from delaylog.client._sync.plain_client import PlainClient
from delaylog.client.errors import ClientError
from delaylog.client.wire.bulk import SendColumns, Texts, rows_of
from delaylog.client.wire.checks import check_list
from delaylog.client.wire.staged_bodies import StagedBodies


class Transaction:
    """For programs with threads; one thread stages."""

    def __init__(self, broker: PlainClient, transaction: str | None, ttl_ms: int | None) -> None:
        self._broker = broker
        self._bodies = StagedBodies(transaction)
        self._ttl_ms = ttl_ms

    @property
    def id(self) -> str:
        """Its id, the caller's own or one that was made up."""
        return self._bodies.id

    def __enter__(self) -> Self:
        self._bodies.begin()
        self._broker.begin(self.id, ttl_ms=self._ttl_ms)
        return self

    def stage(self, topic: str, bodies: Texts, **columns: Unpack[SendColumns]) -> int:
        """Stage messages as columns, see `bulk.encode_send`; how many.

        A delay counts from the commit; without a time they are due then.
        """
        check_list("bodies", bodies)
        if rows_of("bodies", bodies) == 0:
            return 0
        if columns.get("deliver_at_ms") is None and columns.get("delay_ms") is None:
            columns["delay_ms"] = 0
        number = self._bodies.next_number()
        answer = self._broker.stage(self.id, topic, bodies, number=number, **columns)
        rows = int(answer["rows"])
        self._bodies.rows += rows
        return rows

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        winners = self._bodies.end()
        if error is None:
            self._broker.commit(self.id, winners)
            return
        try:
            self._broker.abort(self.id)
        except ClientError as failed:
            # What went wrong inside is what the caller has to hear; it expires by itself.
            error.add_note(f"transaction {self.id} was not aborted: {failed}")
