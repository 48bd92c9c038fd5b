"""Calls that read and change messages: by id, by columns of ids, by a filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Final, Literal, TypeAlias, Unpack, get_args

from delaylog.client.calls.call import BULK_FORM, Call, Places, path_of, request
from delaylog.client.keywords import TimeLimit
from delaylog.client.wire.bulk import ChangeAnswer, ChangeColumns, decode_changed, encode_change
from delaylog.client.wire.checks import check_keywords, check_word
from delaylog.client.wire.times import delay_of, spans_in_ms, split_limit

Action: TypeAlias = Literal["cancel", "reschedule", "replay"]
ACTIONS: Final = get_args(Action)
_PAGES: Final = {"messages": "listMessages", "dead": "listDead"}


class _ChangeMembers(ChangeColumns, TimeLimit, total=False):
    """The columns of a change, and the time limit."""


def get(
    places: Places,
    /,
    topic: str,
    message_id: str,
    *,
    life: bool = False,
    group: str | None = None,
    **limits: Unpack[TimeLimit],
) -> Call[dict[str, Any]]:
    """Return a message as one group sees it; `life` adds its history. Raises NotFound."""
    return request("getMessage", places, topic, message_id, life=life, group=group, limits=limits)


def page(places: Places, /, topic: str, kind: str, **query: Any) -> Call[dict[str, Any]]:
    """Return a page of the topic's `messages`, or of its `dead` letters."""
    check_word("kind", kind, _PAGES)
    return request(_PAGES[kind], places, topic, **query)


def messages_page(places: Places, /, topic: str, **query: Any) -> Call[dict[str, Any]]:
    """Return a page of messages. Pass its `cursor` to get the next page, until it is None."""
    return request("listMessages", places, topic, **query)


def dead_page(places: Places, /, topic: str, **query: Any) -> Call[dict[str, Any]]:
    """Return a page of dead letters; `cursor` works as for messages."""
    return request("listDead", places, topic, **query)


def dead_reasons(places: Places, /, topic: str, **query: Any) -> Call[dict[str, Any]]:
    """Return how many dead letters have each reason, the most frequent first (`limit`, `group`)."""
    return request("listDeadReasons", places, topic, **query)


def cancel(
    places: Places,
    /,
    topic: str,
    message_id: str,
    *,
    force: bool = False,
    untried: bool = False,
    **limits: Unpack[TimeLimit],
) -> Call[dict[str, Any]]:
    """Cancel an undelivered message. Raises TooLate (with `state`) or NotFound."""
    return request("cancel", places, topic, message_id, force=force, untried=untried, limits=limits)


def reschedule(
    places: Places, /, topic: str, message_id: str, **members: Any
) -> Call[dict[str, Any]]:
    """Change the time (`deliver_at_ms`, 0 = now; `delay`) or the `priority` of a message.

    Raises TooLate (with `state`) or NotFound.
    """
    said = spans_in_ms("reschedule", members, "delay")
    return request("reschedule", places, topic, message_id, **said)


def change_many(
    places: Places, /, topic: str, action: Action, ids: Sequence[str], **members: Any
) -> Call[list[dict[str, Any]]]:
    """Cancel, reschedule or replay messages by id, with a result for each."""
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
    delay: timedelta | None = None,
    **limits: Unpack[TimeLimit],
) -> Call[list[dict[str, Any]]]:
    """Replay dead messages. Result per id: done, too_late (with state) or unknown."""
    check_keywords("replay", limits, TimeLimit, "deliver_at_ms", "delay")
    due = {"deliver_at_ms": deliver_at_ms, "delay_ms": delay_of(delay)}
    return change_many(places, topic, "replay", ids, **due, **limits)


def change_columns(
    places: Places, /, topic: str, action: Action, **columns: Unpack[_ChangeMembers]
) -> Call[ChangeAnswer]:
    """Cancel, reschedule or replay many messages, with a result for each.

    See `encode_change` for the columns.
    """
    check_word("action", action, ACTIONS)
    limit_s, changes = split_limit(columns)
    wire = encode_change(**changes)
    path = path_of(f"{action}Many", places, topic)
    return Call("POST", path, wire, BULK_FORM, decode_changed, limit_s=limit_s)


def begin_job(
    places: Places, /, topic: str, action: Action, filter: Mapping[str, Any], **members: Any
) -> Call[dict[str, Any]]:
    """Start a job that cancels, reschedules or replays all messages that match a filter.

    `members` are `rate`, `deliver_at_ms` or `delay`, and `force`, depending on the action.
    """
    check_word("action", action, ACTIONS)
    said = spans_in_ms("begin_job", members, "delay")
    return request(f"{action}Many", places, topic, filter=dict(filter), **said)


def count_messages(
    places: Places, /, topic: str, filter: Mapping[str, Any], *, cursor: str | None = None
) -> Call[dict[str, Any]]:
    """Count what a job with this filter would match: a piece, from `cursor` on."""
    return request("countMessages", places, topic, cursor=cursor, **filter)


def job(name: str, **limits: Unpack[TimeLimit]) -> Call[dict[str, Any]]:
    """Return the progress of a job."""
    return request("getJob", name, limits=limits)


def jobs(**limits: Unpack[TimeLimit]) -> Call[dict[str, Any]]:
    """Return all jobs, newest first."""
    return request("listJobs", limits=limits)


def stop_job(name: str, **limits: Unpack[TimeLimit]) -> Call[dict[str, Any]]:
    """Stop a job."""
    return request("stopJob", name, limits=limits)
