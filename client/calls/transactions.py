"""Calls of transactions: begin, stage, commit, abort, and how one stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from delaylog.client.calls.call import JSON_TYPE, Call, Form
from delaylog.client.calls.places import Places
from delaylog.client.calls.requests import request
from delaylog.client.wire.bulk import BULK_TYPE, SendColumns, Texts, encode_send

_STAGE_FORM = Form(BULK_TYPE, JSON_TYPE)


def begin(transaction: str | None = None, *, ttl_ms: int | None = None) -> Call[dict[str, Any]]:
    """Begin a transaction, or give an open one more time: {transaction, state, …}.

    It may be repeated where it is named.
    """
    call = request("begin", transaction=transaction, ttl_ms=ttl_ms)
    return call if transaction is None else call.again()


class StageKeywords(SendColumns, total=False):
    """The columns of a part, and the name under which it is staged."""

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
    """Stage columns (see `encode_send`); the same again is `already`. A delay counts from the
    commit.
    """
    columns = dict[str, Any](members)
    name = {each: columns.pop(each, 0) for each in ("part", "attempt", "number")}
    producer = columns.pop("staged_by", None)
    call = request(
        "stage", transaction, topic=topic, ns=places.namespace, producer=producer, **name
    )
    return replace(call, body=encode_send(bodies, **columns), form=_STAGE_FORM)


def commit(transaction: str, winners: Sequence[Mapping[str, Any]]) -> Call[dict[str, Any]]:
    """Send what these have staged: {part, attempt, rows} each, and `producer` where several.

    Again it is `already`.
    """
    return request("commit", transaction, winners=[dict(each) for each in winners])


def abort(transaction: str) -> Call[dict[str, Any]]:
    """Drop all that was staged; again it is `already`."""
    return request("abort", transaction)


def get(transaction: str) -> Call[dict[str, Any]]:
    """How a transaction stands."""
    return request("getTransaction", transaction)


def listed(limit: int | None = None) -> Call[dict[str, Any]]:
    """Open ones, those on their way, the newest that ended."""
    return request("listTransactions", limit=limit)
