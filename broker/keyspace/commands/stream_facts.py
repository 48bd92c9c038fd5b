"""XINFO: what is known of a stream, its groups and their consumers."""

from __future__ import annotations

from itertools import islice, pairwise
from typing import Final

from delaylog.broker.keyspace.commands.stream_groups import bad_form, no_group
from delaylog.broker.keyspace.commands.streams import shown
from delaylog.broker.keyspace.errors import NO_SUCH_KEY, CommandError
from delaylog.broker.keyspace.number_texts import to_int
from delaylog.broker.keyspace.registry import Args, command
from delaylog.broker.keyspace.replies import Map, Reply
from delaylog.broker.keyspace.run import Run
from delaylog.broker.keyspace.stream import StreamValue
from delaylog.broker.keyspace.streams.groups import UNKNOWN, Group
from delaylog.broker.keyspace.streams.ids import id_text

_COUNT: Final = 10
"""Entries and pending entries that FULL shows, if nothing is said."""
_KEY_BYTES: Final = 16


def radix_nodes(keys: list[int]) -> int:
    """How many nodes a radix tree has over these keys of 16 bytes, given in order.

    A node for each key's end, one where ways part (each way takes a byte of it), and one for every
    run of bytes between those.
    """
    if not keys:
        return 1
    shared = [_KEY_BYTES - ((one ^ other).bit_length() + 7) // 8 for one, other in pairwise(keys)]
    nodes = 0
    for before, after in zip([-1, *shared], [*shared, -1], strict=True):
        nodes += 1 + (max(before, after) + 1 < _KEY_BYTES)
    open_depths: list[int] = []
    for depth in [*shared, -1]:
        while open_depths and open_depths[-1] > depth:
            parted = open_depths.pop()
            parent = max(depth, open_depths[-1] if open_depths else -1)
            nodes += 1 + (parent + 1 < parted)
        if not open_depths or open_depths[-1] < depth:
            open_depths.append(depth)
    return nodes


def _stream(run: Run, argv: Args) -> StreamValue:
    value = run.database.of_kind(StreamValue, argv[2])
    if value is None:
        raise CommandError(NO_SUCH_KEY)
    return value


def _read(group: Group) -> int | None:
    return None if group.entries_read == UNKNOWN else group.entries_read


@command("xinfo|stream", -3, "stream", "readonly", keys=(2, 2, 1))
def xinfo_stream(run: Run, argv: Args) -> Reply:
    """Lengths, ids and ends of a stream; with FULL [COUNT n] its entries and groups too."""
    value = _stream(run, argv)
    count = _COUNT
    if len(argv) > 3:
        if len(argv) not in (4, 6) or argv[3].lower() != b"full":
            raise bad_form(argv)
        if len(argv) == 6:
            if argv[4].lower() != b"count":
                raise bad_form(argv)
            count = to_int(argv[5])
            if count < 0:
                count = _COUNT
    facts: list[Reply] = [
        b"length",
        value.length,
        b"radix-tree-keys",
        len(value.nodes),
        b"radix-tree-nodes",
        radix_nodes([node.first for node in value.nodes]),
        b"last-generated-id",
        id_text(value.last_id),
        b"max-deleted-entry-id",
        id_text(value.max_deleted_id),
        b"entries-added",
        value.entries_added,
        b"recorded-first-entry-id",
        id_text(value.first_id),
    ]
    if len(argv) == 3:
        first, last = next(value.entries(), None), next(value.entries_back(), None)
        facts += [b"groups", len(value.groups)]
        facts += [b"first-entry", None if first is None else shown(*first)]
        facts += [b"last-entry", None if last is None else shown(*last)]
        return Map(facts)
    most = count or None
    facts += [b"entries", [shown(*entry) for entry in islice(value.entries(), most)]]
    groups = sorted(value.groups.items())
    facts += [b"groups", [_full(value, name, group, most) for name, group in groups]]
    return Map(facts)


def _full(value: StreamValue, name: bytes, group: Group, most: int | None) -> Reply:
    pending = [
        [id_text(number), held.consumer.name, held.delivered_ms, held.count]
        for number, held in islice(group.pending.starting(), most)
    ]
    consumers = [
        Map(
            [
                b"name",
                consumer_name,
                b"seen-time",
                consumer.seen_ms,
                b"pel-count",
                len(consumer.pending),
                b"pending",
                [
                    [id_text(number), held.delivered_ms, held.count]
                    for number, held in islice(consumer.pending.starting(), most)
                ],
            ]
        )
        for consumer_name, consumer in sorted(group.consumers.items())
    ]
    return Map(
        [
            b"name",
            name,
            b"last-delivered-id",
            id_text(group.last_id),
            b"entries-read",
            _read(group),
            b"lag",
            value.lag(group),
            b"pel-count",
            len(group.pending),
            b"pending",
            pending,
            b"consumers",
            consumers,
        ]
    )


@command("xinfo|groups", 3, "stream", "readonly", keys=(2, 2, 1))
def xinfo_groups(run: Run, argv: Args) -> Reply:
    """How far each group is."""
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
    """What each consumer of a group has, and how long it did not ask for more."""
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
