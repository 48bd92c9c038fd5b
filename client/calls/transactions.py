"""Calls of transactions: begin, stage, commit, abort, status; and the bookkeeping of one writer.

`StagedBodies` makes no calls. It numbers the bodies, so that staging a body again adds nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Unpack
from uuid import uuid4

from delaylog.client.calls.call import JSON_TYPE, Call, Form, Places, request
from delaylog.client.errors import ClientError
from delaylog.client.keywords import TimeLimit
from delaylog.client.wire.bulk import BULK_TYPE, SendColumns, Texts, encode_send
from delaylog.client.wire.checks import check_keywords
from delaylog.client.wire.times import duration_ms, split_limit

_STAGE_FORM = Form(BULK_TYPE, JSON_TYPE)


def begin(
    transaction: str | None = None, *, ttl: timedelta | None = None, **limits: Unpack[TimeLimit]
) -> Call[dict[str, Any]]:
    """Begin a transaction, or extend the time of an open one: {transaction, state, …}.

    The call is repeatable if the transaction is named.
    """
    check_keywords("begin", limits, TimeLimit, "ttl")
    call = request("begin", transaction=transaction, ttl_ms=duration_ms("ttl", ttl), limits=limits)
    return call if transaction is None else call.again()


class StageKeywords(SendColumns, TimeLimit, total=False):
    """The columns of a part, the keys that identify it, and the time limit."""

    part: int
    attempt: int
    number: int
    staged_by: str | None


def stage(
    places: Places,
    /,
    transaction: str,
    topic: str,
    bodies: Texts,
    **members: Unpack[StageKeywords],
) -> Call[dict[str, Any]]:
    """Stage columns (see `encode_send`). Repeating the same part returns `already`.

    A delay counts from the commit.
    """
    limit_s, rest = split_limit(members)
    columns = dict[str, Any](rest)
    name = {each: columns.pop(each, 0) for each in ("part", "attempt", "number")}
    producer = columns.pop("staged_by", None)
    call = request(
        "stage",
        transaction,
        topic=topic,
        ns=places.namespace,
        producer=producer,
        limit_s=limit_s,
        **name,
    )
    return replace(call, body=encode_send(bodies, **columns), form=_STAGE_FORM)


def commit(
    transaction: str, winners: Sequence[Mapping[str, Any]], **limits: Unpack[TimeLimit]
) -> Call[dict[str, Any]]:
    """Publish the parts of these winners: {part, attempt, rows} each, and `producer` if several.

    Repeating it returns `already`.
    """
    return request("commit", transaction, winners=[dict(each) for each in winners], limits=limits)


def abort(transaction: str, **limits: Unpack[TimeLimit]) -> Call[dict[str, Any]]:
    """Discard everything that was staged. Repeating it returns `already`."""
    return request("abort", transaction, limits=limits)


def get(transaction: str, **limits: Unpack[TimeLimit]) -> Call[dict[str, Any]]:
    """Return the status of a transaction."""
    return request("getTransaction", transaction, limits=limits)


def listed(limit: int | None = None, **limits: Unpack[TimeLimit]) -> Call[dict[str, Any]]:
    """Return open transactions, those being published, and recently ended ones."""
    return request("listTransactions", limit=limit, limits=limits)


# ---------------------------------------------------------------- a transaction with one writer


class StagedBodies:
    """One part of a transaction, with numbered bodies."""

    def __init__(self, transaction: str | None) -> None:
        self.id = transaction or uuid4().hex
        self.rows = 0
        self._number = 0
        self._open = False

    def begin(self) -> None:
        """Mark the transaction as open. ClientError if it is already open."""
        if self._open:
            raise ClientError(f"transaction {self.id} is open already")
        self._open = True
        self.rows = self._number = 0

    def next_number(self) -> int:
        """The number of the next body. ClientError outside the `with` block."""
        if not self._open:
            raise ClientError(f"transaction {self.id} is not open: stage inside of its `with`")
        number = self._number
        self._number += 1
        return number

    def end(self) -> list[dict[str, int]]:
        """Mark the transaction as ended. Returns the winners for the commit."""
        self._open = False
        return [{"part": 0, "attempt": 0, "rows": self.rows}] if self.rows else []
