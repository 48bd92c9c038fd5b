"""Calls of transactions: begin, stage, commit, abort, and how one stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from delaylog.client.bulk import BULK_TYPE
from delaylog.client.calls.call import (
    JSON_TYPE,
    Call,
    Form,
    given,
    json_call,
    json_object,
    segment,
    with_query,
)

_STAGE_FORM = Form(BULK_TYPE, JSON_TYPE)
ROOT = "/v1/transactions"


def begin(transaction: str | None = None, *, ttl_ms: int | None = None) -> Call[dict[str, Any]]:
    """Begin one, or give an open one more time. Repeatable where it is named."""
    shape = given(transaction=transaction, ttl_ms=ttl_ms)
    return json_call("POST", ROOT, shape, repeatable=transaction is not None)


def stage(
    transaction: str,
    wire: bytes,
    *,
    namespace: str,
    topic: str,
    part: int,
    attempt: int = 0,
    number: int = 0,
    producer: str | None = None,
) -> Call[dict[str, Any]]:
    """Stage a bulk body; the same bytes under the same name again are `already`."""
    path = with_query(
        f"{ROOT}/{segment(transaction)}/parts",
        topic=topic,
        ns=namespace,
        producer=producer,
        part=part,
        attempt=attempt,
        number=number,
    )
    return Call("POST", path, wire, _STAGE_FORM, json_object, True)


def commit(transaction: str, winners: Sequence[Mapping[str, Any]]) -> Call[dict[str, Any]]:
    """Send what these have staged; again it is `already`."""
    shape = {"winners": [dict(each) for each in winners]}
    return json_call("POST", f"{ROOT}/{segment(transaction)}/commit", shape, repeatable=True)


def abort(transaction: str) -> Call[dict[str, Any]]:
    """Drop all that was staged; again it is `already`."""
    return json_call("POST", f"{ROOT}/{segment(transaction)}/abort", {}, repeatable=True)


def get(transaction: str) -> Call[dict[str, Any]]:
    """How one stands."""
    return json_call("GET", f"{ROOT}/{segment(transaction)}")


def listed(limit: int | None = None) -> Call[dict[str, Any]]:
    """Open ones, those on their way, the newest that ended."""
    return json_call("GET", with_query(ROOT, limit=limit))
