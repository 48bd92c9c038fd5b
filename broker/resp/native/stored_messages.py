"""Verbs for stored messages: DL.GET, DL.CANCEL, DL.RESCHEDULE, DL.STATS."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from delaylog.broker.calls.forms.describing import describe
from delaylog.broker.calls.forms.tracing import failures_of
from delaylog.broker.calls.handlers.topics import group_counts
from delaylog.broker.calls.turn.writes import Change, change
from delaylog.broker.engine.control import changes as changing
from delaylog.broker.engine.lookup.find_messages import find_ids
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import DEFAULT_NAME, Group
from delaylog.broker.host.waiters import TopicKey
from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import Map, Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.resp.native.host import NativeHost, host_of, translated
from delaylog.broker.resp.native.permits import may_see_body, permit
from delaylog.broker.resp.native.words import take_due, take_text, topic_key
from delaylog.storage.messages.records import split_record

_READS: Final = "readonly noscript no_multi"
_WRITES: Final = "write noscript no_multi audited"


def _topic(host: NativeHost, key: TopicKey) -> Topic | None:
    host.flush()
    return host.node.engine.state.topics.get(key)


def _ids(texts: list[bytes]) -> list[str]:
    return [take_text(text, b"an id") for text in texts]


def _finder(
    state: EngineState, topic: Topic, texts: list[bytes], now_ms: int
) -> Callable[[Group], FoundMessages]:
    """Return a function that finds the messages of these ids in a group."""
    ids = _ids(texts)
    return lambda group: find_ids(state, topic, ids, now_ms, group)


@command("dl.get", 3, "module", _READS)
@translated
def dl_get(run: Run, argv: Args) -> Reply:
    """Return a message, or null."""
    host, key = host_of(run), topic_key(argv[1])
    permit(run, "read", key, DEFAULT_NAME)
    topic, state = _topic(host, key), host.node.engine.state
    if topic is None:
        return None
    now_ms = host.node.clock.now_ms()
    found = find_ids(state, topic, _ids([argv[2]]), now_ms, topic.default)[0]
    if found is None:
        return None
    rows = np.array([found.row])
    record = state.hours.records(np.array([found.ref], np.int64), rows)
    sent = split_record(record, found.row)
    members = describe(state, found, sent)
    told = may_see_body(run, key)
    members |= failures_of(state, topic, topic.default, [found], told=told)[0]
    if told:
        members |= {"headers": sent.headers, "body": sent.body}
    return _reply(members)


def _reply(value: object) -> Reply:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, list):
        return [_reply(item) for item in value]
    if isinstance(value, dict):
        flat: list[Reply] = []
        for name, item in value.items():
            flat += [str(name).encode(), _reply(item)]
        return Map(flat)
    assert value is None or isinstance(value, (int, bytes)), value
    return value


@command("dl.cancel", -3, "module", _WRITES)
@translated
def dl_cancel(run: Run, argv: Args) -> Reply:
    """Cancel messages that are not delivered; returns their number."""
    host, key = host_of(run), topic_key(argv[1])
    permit(run, "change", key)
    return host.answer_later(run, "dl.cancel", _cancel(host, key, argv))


async def _cancel(host: NativeHost, key: TopicKey, argv: Args) -> Reply:
    await host.node.room_for_changes()
    topic, state, now_ms = _topic(host, key), host.node.engine.state, host.node.clock.now_ms()
    if topic is None:
        return 0
    find = _finder(state, topic, argv[2:], now_ms)
    grouped = change(host.node, topic, find, Change("cancel"))
    host.node.appended()
    return int(np.count_nonzero(grouped.result.codes == changing.DONE))


@command("dl.reschedule", 4, "module", _WRITES)
@translated
def dl_reschedule(run: Run, argv: Args) -> Reply:
    """Change the due time of a message; returns it."""
    host, key = host_of(run), topic_key(argv[1])
    permit(run, "change", key)
    return host.answer_later(run, "dl.reschedule", _reschedule(host, key, argv))


async def _reschedule(host: NativeHost, key: TopicKey, argv: Args) -> Reply:
    await host.node.room_for_changes()
    topic, state, now_ms = _topic(host, key), host.node.engine.state, host.node.clock.now_ms()
    due_ms, relative = take_due(argv[3], state.limits.horizon_ms, now_ms)
    if relative:
        due_ms += now_ms
    if topic is None:
        raise CommandError(b"UNKNOWN there is no such message")
    find = _finder(state, topic, [argv[2]], now_ms)
    grouped = change(host.node, topic, find, Change("reschedule", due_ms))
    code = grouped.result.codes[0]
    if code == changing.TOO_LATE:
        raise CommandError(b"TOOLATE the message is under lease, or has ended")
    if code != changing.DONE:
        raise CommandError(b"UNKNOWN there is no such message")
    host.node.appended()
    host.node.kick_dispatch()
    return int(grouped.result.deliver_at_ms[0])


@command("dl.stats", 2, "module", _READS)
@translated
def dl_stats(run: Run, argv: Args) -> Reply:
    """Count messages by state in the default group; null if the topic does not exist."""
    host, key = host_of(run), topic_key(argv[1])
    permit(run, "read", key, DEFAULT_NAME)
    topic = _topic(host, key)
    if topic is None:
        return None
    return _reply({"sent": topic.sent, **group_counts(topic.default)})
