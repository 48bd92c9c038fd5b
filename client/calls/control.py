"""Calls that look at messages and change them: by id, by columns of ids, by a filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Unpack

from delaylog.client.calls.call import BULK_FORM, Call
from delaylog.client.calls.places import Places
from delaylog.client.calls.requests import path_of, request
from delaylog.client.wire.bulk import ChangeColumns, encode_change
from delaylog.client.wire.bulk_answers import ChangeAnswer, decode_changed
from delaylog.client.wire.checks import check_word

ACTIONS: Final = ("cancel", "reschedule", "replay")
_PAGES: Final = {"messages": "listMessages", "dead": "listDead"}


def get(
    places: Places, /, topic: str, message_id: str, *, life: bool = False, group: str | None = None
) -> Call[dict[str, Any]]:
    """The message with its state as a group sees it; `life` adds its steps. NotFound."""
    return request("getMessage", places, topic, message_id, life=life, group=group)


def page(
    places: Places, /, topic: str, kind: str, **query: str | int | bool | None
) -> Call[dict[str, Any]]:
    """A page of the topic's `messages`, or of its letters that are `dead`."""
    check_word("kind", kind, _PAGES)
    return request(_PAGES[kind], places, topic, **query)


def messages_page(
    places: Places, /, topic: str, **query: str | int | bool | None
) -> Call[dict[str, Any]]:
    """A page of the topic's messages; pass its `cursor` for the next one until it is None."""
    return request("listMessages", places, topic, **query)


def dead_page(
    places: Places, /, topic: str, **query: str | int | bool | None
) -> Call[dict[str, Any]]:
    """A page of the topic's dead letters, likewise."""
    return request("listDead", places, topic, **query)


def cancel(
    places: Places, /, topic: str, message_id: str, *, force: bool = False
) -> Call[dict[str, Any]]:
    """Cancel before delivery. TooLate (with `state`), NotFound."""
    return request("cancel", places, topic, message_id, force=force)


def reschedule(
    places: Places, /, topic: str, message_id: str, **members: int | None
) -> Call[dict[str, Any]]:
    """Another time (`deliver_at_ms`, 0 = now; `delay_ms`) or `priority` for one; fails as `cancel`
    does.
    """
    return request("reschedule", places, topic, message_id, **members)


def change_many(
    places: Places, /, topic: str, action: str, ids: Sequence[str], **members: Any
) -> Call[list[dict[str, Any]]]:
    """cancel, reschedule or replay by ids, with a result each."""
    check_word("action", action, ACTIONS)
    call = request(f"{action}Many", places, topic, ids=list(ids), **members)
    return call.read(lambda answer: list(answer["results"]))


def replay(
    places: Places,
    /,
    topic: str,
    ids: Sequence[str],
    *,
    deliver_at_ms: int | None = None,
    delay_ms: int | None = None,
) -> Call[list[dict[str, Any]]]:
    """Let dead messages live again. Per id a result: done, too_late (with state), unknown."""
    return change_many(places, topic, "replay", ids, deliver_at_ms=deliver_at_ms, delay_ms=delay_ms)


def change_columns(
    places: Places, /, topic: str, action: str, **columns: Unpack[ChangeColumns]
) -> Call[ChangeAnswer]:
    """cancel, reschedule or replay many, with a result each; see `encode_change`."""
    check_word("action", action, ACTIONS)
    wire = encode_change(**columns)
    path = path_of(f"{action}Many", places, topic)
    return Call("POST", path, wire, BULK_FORM, decode_changed)


def begin_job(
    places: Places, /, topic: str, action: str, filter: Mapping[str, Any], **members: Any
) -> Call[dict[str, Any]]:
    """cancel, reschedule or replay whatever matches: the job that does it.

    `members` are `rate`, `deliver_at_ms` or `delay_ms`, and `force`, as the action takes them.
    """
    check_word("action", action, ACTIONS)
    return request(f"{action}Many", places, topic, filter=dict(filter), **members)


def job(name: str) -> Call[dict[str, Any]]:
    """How far a job is."""
    return request("getJob", name)


def jobs() -> Call[dict[str, Any]]:
    """All jobs, the newest first."""
    return request("listJobs")


def stop_job(name: str) -> Call[dict[str, Any]]:
    """Stop a job."""
    return request("stopJob", name)
