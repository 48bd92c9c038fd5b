"""Calls of transactions: begin, stage, commit, abort, and how one stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from delaylog.client.bulk import BULK_TYPE, SendColumns, Texts, encode_send
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
from delaylog.client.calls.places import Places

_STAGE_FORM = Form(BULK_TYPE, JSON_TYPE)
ROOT = "/v1/transactions"


def begin(transaction: str | None = None, *, ttl_ms: int | None = None) -> Call[dict[str, Any]]:
    """Begin a transaction, or give an open one more time: {transaction, state, …}.

    It may be repeated where it is named.
    """
    shape = given(transaction=transaction, ttl_ms=ttl_ms)
    return json_call("POST", ROOT, shape, repeatable=transaction is not None)


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
    path = with_query(
        f"{ROOT}/{segment(transaction)}/parts",
        topic=topic,
        ns=places.namespace,
        producer=columns.pop("staged_by", None),
        **name,
    )
    return Call("POST", path, encode_send(bodies, **columns), _STAGE_FORM, json_object, True)


def commit(transaction: str, winners: Sequence[Mapping[str, Any]]) -> Call[dict[str, Any]]:
    """Send what these have staged: {part, attempt, rows} each, and `producer` where several.

    Again it is `already`.
    """
    shape = {"winners": [dict(each) for each in winners]}
    return json_call("POST", f"{ROOT}/{segment(transaction)}/commit", shape, repeatable=True)


def abort(transaction: str) -> Call[dict[str, Any]]:
    """Drop all that was staged; again it is `already`."""
    return json_call("POST", f"{ROOT}/{segment(transaction)}/abort", {}, repeatable=True)


def get(transaction: str) -> Call[dict[str, Any]]:
    """How a transaction stands."""
    return json_call("GET", f"{ROOT}/{segment(transaction)}")


def listed(limit: int | None = None) -> Call[dict[str, Any]]:
    """Open ones, those on their way, the newest that ended."""
    return json_call("GET", with_query(ROOT, limit=limit))
