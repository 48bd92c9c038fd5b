"""XINFO: facts about a stream, its groups and their consumers."""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.streams.entries import shown
from delaylog.broker.keyspace.commands.streams.stream_groups import bad_form, no_group
from delaylog.broker.keyspace.errors import NO_SUCH_KEY, CommandError
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import Map, Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.streams.groups import UNKNOWN, Group
from delaylog.broker.keyspace.streams.ids import id_text
from delaylog.broker.keyspace.values.stream import StreamValue

_COUNT: Final = 10
"""Default number of entries and pending entries that FULL shows."""
_KEY_BYTES: Final = 16


def _stream(run: Run, argv: Args) -> StreamValue:
    value = run.database.of_kind(StreamValue, argv[2])
    if value is None:
        raise CommandError(NO_SUCH_KEY)
    return value


def _read(group: Group) -> int | None:
    return None if group.entries_read == UNKNOWN else group.entries_read


@command("xinfo|stream", -3, "stream", "readonly", keys=(2, 2, 1))
def xinfo_stream(run: Run, argv: Args) -> Reply:
    """Return the length, the ids and the first and last entry of a stream."""
    value = _stream(run, argv)
    if len(argv) > 3:
        raise bad_form(argv)
    first, last = next(value.entries(), None), next(value.entries_back(), None)
    facts: dict[bytes, Reply] = {
        b"length": value.length,
        b"radix-tree-keys": len(value.nodes),
        b"radix-tree-nodes": len(value.nodes) + 1,
        b"last-generated-id": id_text(value.last_id),
        b"max-deleted-entry-id": id_text(value.max_deleted_id),
        b"entries-added": value.entries_added,
        b"recorded-first-entry-id": id_text(value.first_id),
        b"groups": len(value.groups),
        b"first-entry": None if first is None else shown(*first),
        b"last-entry": None if last is None else shown(*last),
    }
    return Map([part for fact in facts.items() for part in fact])


@command("xinfo|groups", 3, "stream", "readonly", keys=(2, 2, 1))
def xinfo_groups(run: Run, argv: Args) -> Reply:
    """Return the progress of each group."""
    value = _stream(run, argv)
    return [
        Map(
            [
                b"name",
                name,
                b"consumers",
                len(group.consumers),
                b"pending",
                len(group.pending),
                b"last-delivered-id",
                id_text(group.last_id),
                b"entries-read",
                _read(group),
                b"lag",
                value.lag(group),
            ]
        )
        for name, group in sorted(value.groups.items())
    ]


@command("xinfo|consumers", 4, "stream", "readonly", keys=(2, 2, 1))
def xinfo_consumers(run: Run, argv: Args) -> Reply:
    """Return the number of pending entries and the idle time of each consumer of a group."""
    value = _stream(run, argv)
    group = value.groups.get(argv[3])
    if group is None:
        raise no_group(argv[2], argv[3])
    return [
        Map(
            [
                b"name",
                name,
                b"pending",
                len(consumer.pending),
                b"idle",
                max(run.now_ms - consumer.seen_ms, 0),
            ]
        )
        for name, consumer in sorted(group.consumers.items())
    ]
