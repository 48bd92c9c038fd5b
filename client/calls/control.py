"""Calls that look at messages and change them: by id, by columns of ids, by a filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from delaylog.client.bulk import ChangeAnswer, Numbers, Texts, decode_changed, encode_change
from delaylog.client.calls.call import BULK_FORM, Call, given, json_call, segment, with_query
from delaylog.client.calls.places import Places


def get(
    places: Places, /, topic: str, message_id: str, *, life: bool = False, group: str | None = None
) -> Call[dict[str, Any]]:
    """The message with its state as a group sees it; `life` adds its steps. NotFound."""
    path = places.of(topic, "messages", message_id)
    return json_call("GET", with_query(path, life=life or None, group=group))


def page(
    places: Places, /, topic: str, kind: str, **query: str | int | bool | None
) -> Call[dict[str, Any]]:
    """A page of the topic's `messages`, or of its letters that are `dead`."""
    return json_call("GET", with_query(places.of(topic, kind), **query))


def messages_page(
    places: Places, /, topic: str, **query: str | int | bool | None
) -> Call[dict[str, Any]]:
    """A page of the topic's messages; pass its `cursor` for the next one until it is None."""
    return page(places, topic, "messages", **query)


def dead_page(
    places: Places, /, topic: str, **query: str | int | bool | None
) -> Call[dict[str, Any]]:
    """A page of the topic's dead letters, likewise."""
    return page(places, topic, "dead", **query)


def cancel(
    places: Places, /, topic: str, message_id: str, *, force: bool = False
) -> Call[dict[str, Any]]:
    """Cancel before delivery. TooLate (with `state`), NotFound."""
    path = places.of(topic, "messages", message_id)
    return json_call("DELETE", with_query(path, force=force or None))


def reschedule(
    places: Places, /, topic: str, message_id: str, **members: int | None
) -> Call[dict[str, Any]]:
    """Another time (`deliver_at_ms`, 0 = now; `delay_ms`) or `priority` for one; fails as `cancel`
    does.
    """
    return json_call("PATCH", places.of(topic, "messages", message_id), given(**members))


def change_many(
    places: Places, /, topic: str, action: str, ids: Sequence[str], **members: Any
) -> Call[list[dict[str, Any]]]:
    """cancel, reschedule or replay by ids, with a result each."""
    shape = {"ids": list(ids)} | given(**members)
    call = json_call("POST", places.of(topic, f"messages:{action}"), shape)
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


def cancel_columns(
    places: Places, /, topic: str, *, refs: Numbers | None = None, ids: Texts | None = None
) -> Call[ChangeAnswer]:
    """Cancel many, with a result each."""
    return _change_columns(places, topic, "cancel", encode_change(refs=refs, ids=ids))


def reschedule_columns(
    places: Places,
    /,
    topic: str,
    *,
    deliver_at_ms: Numbers,
    refs: Numbers | None = None,
    ids: Texts | None = None,
) -> Call[ChangeAnswer]:
    """Give many a new time, with a result each."""
    wire = encode_change(refs=refs, ids=ids, deliver_at_ms=deliver_at_ms)
    return _change_columns(places, topic, "reschedule", wire)


def replay_columns(
    places: Places,
    /,
    topic: str,
    *,
    refs: Numbers | None = None,
    ids: Texts | None = None,
    deliver_at_ms: Numbers | None = None,
) -> Call[ChangeAnswer]:
    """Let many dead messages live again, at a time or now, with a result each."""
    wire = encode_change(refs=refs, ids=ids, deliver_at_ms=deliver_at_ms)
    return _change_columns(places, topic, "replay", wire)


def _change_columns(places: Places, /, topic: str, action: str, wire: bytes) -> Call[ChangeAnswer]:
    return Call("POST", places.of(topic, f"messages:{action}"), wire, BULK_FORM, decode_changed)


def begin_job(
    places: Places, /, topic: str, action: str, filter: Mapping[str, Any], **members: Any
) -> Call[dict[str, Any]]:
    """cancel, reschedule or replay whatever matches: the job that does it."""
    shape = {"filter": dict(filter), **given(**members)}
    return json_call("POST", places.of(topic, f"messages:{action}"), shape)


def job(name: str) -> Call[dict[str, Any]]:
    """How far a job is."""
    return json_call("GET", f"/v1/jobs/{segment(name)}")


def jobs() -> Call[dict[str, Any]]:
    """All jobs, the newest first."""
    return json_call("GET", "/v1/jobs")


def stop_job(name: str) -> Call[dict[str, Any]]:
    """Stop a job."""
    return json_call("DELETE", f"/v1/jobs/{segment(name)}")
