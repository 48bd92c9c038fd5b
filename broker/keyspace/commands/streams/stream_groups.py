"""Consumer groups of streams: XGROUP, XACK, XPENDING.

As in Redis, a change of a group does not count as a change of the key for WATCH. Removing a group
ends the blocked reads of its consumers.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.errors import NO_SUCH_KEY, CommandError, syntax
from delaylog.broker.keyspace.options import Option, Options, read_options
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import NO_ARRAY, OK, Map, Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.streams.groups import UNKNOWN, Consumer, Group
from delaylog.broker.keyspace.streams.ids import (
    ID_MAX,
    id_text,
    parse_end,
    parse_id,
    parse_start,
)
from delaylog.broker.keyspace.values.number_texts import to_int
from delaylog.broker.keyspace.values.stream import StreamValue

_NO_STREAM: Final = (
    b"ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to "
    b"use the MKSTREAM option to create an empty stream automatically."
)


def _c_text(text: bytes) -> bytes:
    """Return a text up to its first zero byte, as C prints it."""
    return text.partition(b"\0")[0]


def no_group(key: bytes, group: bytes) -> CommandError:
    """Return the error for a group that does not exist."""
    return CommandError(
        b"NOGROUP No such consumer group '%b' for key name '%b'" % (_c_text(group), _c_text(key))
    )


def no_key_or_group(key: bytes, group: bytes, where: bytes = b"") -> CommandError:
    """Return the error for a group or a key that does not exist."""
    return CommandError(
        b"NOGROUP No such key '%b' or consumer group '%b'%b" % (_c_text(key), _c_text(group), where)
    )


def bad_form(argv: Args) -> CommandError:
    """Return the error for a subcommand with wrong options."""
    return CommandError(
        b"ERR unknown subcommand or wrong number of arguments for '%b'. Try %b HELP."
        % (argv[1][:128], argv[0].upper())
    )


def see_consumer(run: Run, key: bytes, group: Group, group_name: bytes, name: bytes) -> Consumer:
    """Return a consumer and note that it was seen; a new one is created and logged."""
    consumer = group.consumers.get(name)
    if consumer is None:
        return make_consumer(run, key, group, group_name, name, run.now_ms)
    if not run.keyspace.applying:
        consumer.seen_ms = run.now_ms
    return consumer


def make_consumer(
    run: Run, key: bytes, group: Group, group_name: bytes, name: bytes, seen_ms: int
) -> Consumer:
    """Create a consumer. Its effect contains the time, which the client's command does not."""
    consumer = group.consumers[name] = Consumer(name, seen_ms)
    run.keyspace.dirty += 1
    run.also(b"XGROUP", b"CREATECONSUMER", key, group_name, name, b"%d" % seen_ms)
    return consumer


# --------------------------------------------------------------------------- XGROUP


def _entries_read(text: bytes) -> int:
    read = to_int(text)
    if read < 0 and read != UNKNOWN:
        raise CommandError(b"ERR value for ENTRIESREAD must be positive or -1")
    return read


_SETID_OPTIONS: Final[Options] = {b"entriesread": Option("read", _entries_read)}
_CREATE_OPTIONS: Final[Options] = {b"mkstream": Option("makes"), **_SETID_OPTIONS}


def _group(run: Run, argv: Args) -> tuple[StreamValue, Group]:
    value = run.database.of_kind(StreamValue, argv[2])
    if value is None:
        raise CommandError(_NO_STREAM)
    group = value.groups.get(argv[3])
    if group is None:
        raise no_group(argv[2], argv[3])
    return value, group


@command("xgroup|create", -5, "stream", "write denyoom", keys=(2, 2, 1))
def xgroup_create(run: Run, argv: Args) -> Reply:
    """Create a group that reads after an id: key group id|$ [MKSTREAM] [ENTRIESREAD count]."""
    options = read_options(argv, 5, _CREATE_OPTIONS, lambda word: bad_form(argv))
    database, key, name = run.database, argv[2], argv[3]
    value = database.of_kind(StreamValue, key)
    if value is None and "makes" not in options:
        raise CommandError(_NO_STREAM)
    if len(argv) > 8:
        raise bad_form(argv)
    if argv[4] == b"$":
        number = 0 if value is None else value.last_id
    else:
        number = parse_id(argv[4])
    if value is None:
        value = database.of_kind_or_new(StreamValue, key)
        database.changed(key, 0)
    elif name in value.groups:
        raise CommandError(b"BUSYGROUP Consumer Group name already exists")
    value.groups[name] = Group(number, options.value("read", UNKNOWN))
    run.keyspace.dirty += 1
    return OK


@command("xgroup|setid", -5, "stream", "write", keys=(2, 2, 1))
def xgroup_setid(run: Run, argv: Args) -> Reply:
    """Let a group continue after another id: key group id|$ [ENTRIESREAD count]."""
    options = read_options(argv, 5, _SETID_OPTIONS, lambda word: bad_form(argv))
    value, group = _group(run, argv)
    if len(argv) not in (5, 7):
        raise bad_form(argv)
    group.last_id = value.last_id if argv[4] == b"$" else parse_id(argv[4], strict=False)
    group.entries_read = options.value("read", UNKNOWN)
    run.keyspace.dirty += 1
    return OK


@command("xgroup|destroy", 4, "stream", "write", keys=(2, 2, 1))
def xgroup_destroy(run: Run, argv: Args) -> Reply:
    """Remove a group with its consumers and pending entries."""
    database, key = run.database, argv[2]
    value = database.of_kind(StreamValue, key)
    if value is None:
        raise CommandError(_NO_STREAM)
    if value.groups.pop(argv[3], None) is None:
        return 0
    run.keyspace.dirty += 1
    if key in database.waiters:
        run.keyspace.ready[database.number, key] = None
    return 1


@command("xgroup|createconsumer", 5, "stream", "write denyoom", keys=(2, 2, 1))
def xgroup_createconsumer(run: Run, argv: Args) -> Reply:
    """Create a consumer; returns 1 if it is new. In an effect its time follows."""
    _, group = _group(run, argv)
    if argv[4] in group.consumers:
        return 0
    seen_ms = to_int(argv[5]) if len(argv) > 5 else run.now_ms
    make_consumer(run, argv[2], group, argv[3], argv[4], seen_ms)
    return 1


@command("xgroup|delconsumer", 5, "stream", "write", keys=(2, 2, 1))
def xgroup_delconsumer(run: Run, argv: Args) -> Reply:
    """Remove a consumer and its pending entries; returns their number."""
    _, group = _group(run, argv)
    consumer = group.consumers.get(argv[4])
    if consumer is None:
        return 0
    run.keyspace.dirty += 1
    return group.dismiss(consumer)


# --------------------------------------------------------------------------- pending entries


@command("xack", -4, "stream", "write fast", keys=(1, 1, 1))
def xack(run: Run, argv: Args) -> Reply:
    """Acknowledge entries: key group id …"""
    value = run.database.of_kind(StreamValue, argv[1])
    group = None if value is None else value.groups.get(argv[2])
    if group is None:
        return 0
    numbers = [parse_id(text) for text in argv[3:]]
    done = sum(map(group.settle, numbers))
    run.keyspace.dirty += done
    return done


def _summary(group: Group) -> Reply:
    if not group.pending:
        return [0, None, None, NO_ARRAY]
    holding = [
        [name, b"%d" % len(consumer.pending)]
        for name, consumer in sorted(group.consumers.items())
        if consumer.pending
    ]
    pending = group.pending
    return [len(pending), id_text(pending.first()), id_text(pending.last()), holding]


@command("xpending", -3, "stream", "readonly", keys=(1, 1, 1))
def xpending(run: Run, argv: Args) -> Reply:
    """List the pending entries: key group [[IDLE ms] start end count [consumer]]."""
    if len(argv) != 3 and not 6 <= len(argv) <= 9:
        raise syntax()
    start, end, count, idle_ms, name = 0, ID_MAX, 0, 0, None
    if len(argv) > 3:
        at = 3
        if argv[3].lower() == b"idle":
            idle_ms = to_int(argv[4])
            if len(argv) < 8:
                raise syntax()
            at = 5
        count = max(to_int(argv[at + 2]), 0)
        start, end = parse_start(argv[at]), parse_end(argv[at + 1])
        name = argv[at + 3] if at + 3 < len(argv) else None
    value = run.database.of_kind(StreamValue, argv[1])
    group = None if value is None else value.groups.get(argv[2])
    if group is None:
        raise no_key_or_group(argv[1], argv[2])
    if len(argv) == 3:
        return _summary(group)
    order = group.pending
    if name is not None:
        consumer = group.consumers.get(name)
        if consumer is None:
            return []
        order = consumer.pending
    out: list[Reply] = []
    if count:
        for number, pending in order.starting(start):
            elapsed_ms = run.now_ms - pending.delivered_ms
            if number > end:
                break
            if idle_ms and elapsed_ms < idle_ms:
                continue
            out.append([id_text(number), pending.consumer.name, max(elapsed_ms, 0), pending.count])
            if len(out) == count:
                break
    return out


# --------------------------------------------------------------------------- XINFO GROUPS


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
