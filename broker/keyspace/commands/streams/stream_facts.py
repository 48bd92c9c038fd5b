"""XINFO GROUPS: the progress of the groups of a stream."""

from __future__ import annotations

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.errors import NO_SUCH_KEY, CommandError
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import Map, Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.streams.groups import UNKNOWN, Group
from delaylog.broker.keyspace.streams.ids import id_text
from delaylog.broker.keyspace.values.stream import StreamValue


def _read(group: Group) -> int | None:
    return None if group.entries_read == UNKNOWN else group.entries_read


@command("xinfo|groups", 3, "stream", "readonly", keys=(2, 2, 1))
def xinfo_groups(run: Run, argv: Args) -> Reply:
    """Return the progress of each group."""
    value = run.database.of_kind(StreamValue, argv[2])
    if value is None:
        raise CommandError(NO_SUCH_KEY)
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
