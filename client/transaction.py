"""Transactions as context managers: what is staged inside comes to be together at the end, or not.

The one rule: leaving by an exception aborts, and leaving in order commits; every step may be
repeated, so a lost answer is asked for again and adds nothing.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self
from uuid import uuid4

from delaylog.client.bulk import Numbers, Texts, rows_of
from delaylog.client.checks import check_list
from delaylog.client.errors import ClientError
from delaylog.client.plain_client import PlainClient
from delaylog.client.plain_sync_client import PlainSyncClient


class Bodies:
    """What one writer has staged: one part, its bodies numbered."""

    def __init__(self, transaction: str | None) -> None:
        self.id = transaction or uuid4().hex
        self.rows = 0
        self._number = 0
        self._open = False

    def begin(self) -> None:
        """It is open. ClientError when it was before."""
        if self._open:
            raise ClientError(f"transaction {self.id} is open already")
        self._open = True
        self.rows = self._number = 0

    def next_number(self) -> int:
        """The number of the next body. ClientError outside of the block."""
        if not self._open:
            raise ClientError(f"transaction {self.id} is not open: stage inside of its `with`")
        number = self._number
        self._number += 1
        return number

    def end(self) -> list[dict[str, int]]:
        """It is over; what a commit names."""
        self._open = False
        return [{"part": 0, "attempt": 0, "rows": self.rows}] if self.rows else []


class Transaction:
    """For programs with threads; one thread stages."""

    def __init__(
        self, broker: PlainSyncClient, transaction: str | None, ttl_ms: int | None
    ) -> None:
        self._broker = broker
        self._bodies = Bodies(transaction)
        self._ttl_ms = ttl_ms

    @property
    def id(self) -> str:
        """Its id, the caller's own or one that was made up."""
        return self._bodies.id

    def __enter__(self) -> Self:
        self._bodies.begin()
        self._broker.begin(self.id, ttl_ms=self._ttl_ms)
        return self

    def stage(
        self,
        topic: str,
        bodies: Texts,
        *,
        deliver_at_ms: Numbers | None = None,
        delay_ms: Numbers | None = None,
        **columns: Any,
    ) -> int:
        """Stage messages as columns, see `bulk.encode_send`; how many.

        A delay counts from the commit; without a time they are due then.
        """
        check_list("bodies", bodies)
        if rows_of("bodies", bodies) == 0:
            return 0
        if deliver_at_ms is None and delay_ms is None:
            delay_ms = 0
        number = self._bodies.next_number()
        answer = self._broker.stage(
            self.id,
            topic,
            bodies,
            number=number,
            deliver_at_ms=deliver_at_ms,
            delay_ms=delay_ms,
            **columns,
        )
        rows = int(answer["rows"])
        self._bodies.rows += rows
        return rows

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        winners = self._bodies.end()
        if error is None:
            self._broker.commit(self.id, winners)
            return
        try:
            self._broker.abort(self.id)
        except ClientError as failed:
            # What went wrong inside is what the caller has to hear; it expires by itself.
            error.add_note(f"transaction {self.id} was not aborted: {failed}")


class AsyncTransaction:
    """For asyncio programs; one task stages."""

    def __init__(self, broker: PlainClient, transaction: str | None, ttl_ms: int | None) -> None:
        self._broker = broker
        self._bodies = Bodies(transaction)
        self._ttl_ms = ttl_ms

    @property
    def id(self) -> str:
        """Its id, the caller's own or one that was made up."""
        return self._bodies.id

    async def __aenter__(self) -> Self:
        self._bodies.begin()
        await self._broker.begin(self.id, ttl_ms=self._ttl_ms)
        return self

    async def stage(
        self,
        topic: str,
        bodies: Texts,
        *,
        deliver_at_ms: Numbers | None = None,
        delay_ms: Numbers | None = None,
        **columns: Any,
    ) -> int:
        """Stage messages as columns, see `bulk.encode_send`; how many.

        A delay counts from the commit; without a time they are due then.
        """
        check_list("bodies", bodies)
        if rows_of("bodies", bodies) == 0:
            return 0
        if deliver_at_ms is None and delay_ms is None:
            delay_ms = 0
        number = self._bodies.next_number()
        answer = await self._broker.stage(
            self.id,
            topic,
            bodies,
            number=number,
            deliver_at_ms=deliver_at_ms,
            delay_ms=delay_ms,
            **columns,
        )
        rows = int(answer["rows"])
        self._bodies.rows += rows
        return rows

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        winners = self._bodies.end()
        if error is None:
            await self._broker.commit(self.id, winners)
            return
        try:
            await self._broker.abort(self.id)
        except ClientError as failed:
            # What went wrong inside is what the caller has to hear; it expires by itself.
            error.add_note(f"transaction {self.id} was not aborted: {failed}")
