"""Consumer groups of streams: XGROUP, XACK, XPENDING, and XCLAIM and XAUTOCLAIM.

As in Redis, a change of a group does not count as a change of the key for WATCH. Removing a group
ends the blocked reads of its consumers.

XCLAIM and XAUTOCLAIM assign pending entries to another consumer. Their effect is an XCLAIM with
FORCE, the delivery time and count, and the group's last id. It sets the new state of an entry,
whatever the old state is. Adjacent entries with the same new state share one effect.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.arguments import Option, Options, at_least, read_options
from delaylog.broker.keyspace.commands.stream_entries import shown
from delaylog.broker.keyspace.errors import NO_SUCH_KEY, CommandError, c_text, syntax
from delaylog.broker.keyspace.registry import Run, command
from delaylog.broker.keyspace.replies import NO_ARRAY, OK, Map, Reply
from delaylog.broker.keyspace.values.number_texts import INT64_MAX, to_int
from delaylog.broker.keyspace.values.stream import (
    ID_MAX,
    UNKNOWN,
    Consumer,
    Group,
    Pending,
    StreamValue,
    id_text,
    parse_end,
    parse_id,
    parse_start,
)

# --------------------------------------------------------------------------------------- groups

_NO_STREAM: Final = (
    b"ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you may want to "
    b"use the MKSTREAM option to create an empty stream automatically."
)


def no_group(key: bytes, group: bytes) -> CommandError:
    """Return the error for a group that does not exist."""
    return CommandError(
        b"NOGROUP No such consumer group '%b' for key name '%b'" % (c_text(group), c_text(key))
    )


def no_key_or_group(key: bytes, group: bytes, where: bytes = b"") -> CommandError:
    """Return the error for a group or a key that does not exist."""
    return CommandError(
        b"NOGROUP No such key '%b' or consumer group '%b'%b" % (c_text(key), c_text(group), where)
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


def _logged_count(text: bytes) -> int:
    """Parse a count of an effect. An earlier build logged counts just beyond INT64_MAX."""
    if len(text) == _DIGITS_MAX and text.isdigit():
        return min(int(text), INT64_MAX)
    return to_int(text)


_DIGITS_MAX: Final = len(str(INT64_MAX))
_SETID_OPTIONS: Final[Options] = {b"entriesread": Option("read", _entries_read)}
_LOGGED_SETID_OPTIONS: Final[Options] = {b"entriesread": Option("read", _logged_count)}
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
    known = _LOGGED_SETID_OPTIONS if run.keyspace.applying else _SETID_OPTIONS
    options = read_options(argv, 5, known, lambda word: bad_form(argv))
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


# --------------------------------------------------------------------------------------- claims

_LOOKED_AT: Final = 10
"""XAUTOCLAIM examines up to this number of entries for each that it may claim."""
_COUNT_MAX: Final = INT64_MAX // 16
_COUNT_HELD: Final = 2**40
"""For a larger COUNT, Redis has no memory for the ids."""

ClaimedEntries = list[tuple[int, Pending]]


def log_claims(run: Run, key: bytes, group: Group, name: bytes, claims: ClaimedEntries) -> None:
    """Log effects that set the state of these pending entries."""
    last = id_text(group.last_id)
    for _, alike in groupby(
        claims, key=lambda claim: (claim[1].consumer, claim[1].delivered_ms, claim[1].count)
    ):
        together = list(alike)
        pending = together[0][1]
        run.also(
            b"XCLAIM",
            key,
            name,
            pending.consumer.name,
            b"0",
            *[id_text(number) for number, _ in together],
            b"TIME",
            b"%d" % pending.delivered_ms,
            b"RETRYCOUNT",
            b"%d" % pending.count,
            b"FORCE",
            b"JUSTID",
            b"LASTID",
            last,
        )


def log_group(run: Run, key: bytes, group: Group, name: bytes) -> None:
    """Log an effect that sets how far a group has read."""
    read = b"%d" % group.entries_read
    run.also(b"XGROUP", b"SETID", key, name, id_text(group.last_id), b"ENTRIESREAD", read)


# --------------------------------------------------------------------------- XCLAIM


def _unrecognized(word: bytes) -> CommandError:
    return CommandError(b"ERR Unrecognized XCLAIM option '%b'" % c_text(word))


_BAD_OPTION: Final = b"ERR Invalid %b option argument for XCLAIM"
_CLAIM_OPTIONS: Final[Options] = {
    b"force": Option("force"),
    b"justid": Option("just_id"),
    b"idle": Option("idle", partial(to_int, refusal=_BAD_OPTION % b"IDLE")),
    b"time": Option("time", partial(to_int, refusal=_BAD_OPTION % b"TIME")),
    b"retrycount": Option("count", partial(to_int, refusal=_BAD_OPTION % b"RETRYCOUNT")),
    b"lastid": Option("last_id", parse_id),
}
_LOGGED_CLAIM_OPTIONS: Final[Options] = {
    **_CLAIM_OPTIONS,
    b"retrycount": Option("count", _logged_count),
}


def _take_ids(argv: Args) -> list[int]:
    numbers: list[int] = []
    for text in argv[5:]:
        try:
            numbers.append(parse_id(text))
        except CommandError:
            # The options begin here.
            break
    return numbers


@command("xclaim", -6, "stream", "write fast", keys=(1, 1, 1))
def xclaim(run: Run, argv: Args) -> Reply:
    """Assign entries that have been idle to a consumer: key group consumer ms id … options."""
    key, name = argv[1], argv[2]
    value = run.database.of_kind(StreamValue, key)
    group = None if value is None else value.groups.get(name)
    if value is None or group is None:
        raise no_key_or_group(key, name)
    idle_ms = max(to_int(argv[4], b"ERR Invalid min-idle-time argument for XCLAIM"), 0)
    numbers = _take_ids(argv)
    known = _LOGGED_CLAIM_OPTIONS if run.keyspace.applying else _CLAIM_OPTIONS
    options = read_options(argv, 5 + len(numbers), known, _unrecognized)
    just_id = "just_id" in options
    delivered_ms = options.value("time", run.now_ms - options.value("idle", 0))
    if delivered_ms < 0 or (delivered_ms > run.now_ms and not run.keyspace.applying):
        delivered_ms = run.now_ms
    last_id = options.value("last_id", 0)
    moved = last_id > group.last_id
    if moved:
        group.last_id = last_id
    run.no_effect()
    consumer: Consumer | None = None
    out: list[Reply] = []
    claims: ClaimedEntries = []
    logged = 0
    for number in numbers:
        pending = group.pending.get(number)
        fields = value.find(number)
        if fields is None:
            if pending is not None:
                log_claims(run, key, group, name, [*claims, (number, pending)])
                logged += len(claims) + 1
                claims = []
                group.settle(number)
            continue
        if pending is None:
            if "force" not in options:
                continue
        elif idle_ms and run.now_ms - pending.delivered_ms < idle_ms:
            continue
        if consumer is None:
            consumer = see_consumer(run, key, group, name, argv[3])
            if run.keyspace.applying:
                consumer.seen_ms = max(consumer.seen_ms, delivered_ms)
        count = options.value("count", -1)
        if count < 0:
            count = (1 if pending is None else pending.count) + (not just_id)
        group.deliver(number, consumer, delivered_ms, count)
        out.append(id_text(number) if just_id else shown(number, fields))
        pending = group.pending.get(number)
        assert pending is not None
        claims.append((number, pending))
    log_claims(run, key, group, name, claims)
    logged += len(claims)
    if moved and not logged:
        log_group(run, key, group, name)
        logged = 1
    run.keyspace.dirty += logged
    return out


# --------------------------------------------------------------------------- XAUTOCLAIM


_AUTOCLAIM_OPTIONS: Final[Options] = {
    b"count": Option("count", at_least(1, b"ERR COUNT must be > 0", _COUNT_MAX)),
    b"justid": Option("just_id"),
}


@command("xautoclaim", -6, "stream", "write fast", keys=(1, 1, 1))
def xautoclaim(run: Run, argv: Args) -> Reply:
    """Claim the idle entries from an id on: key group consumer ms start [COUNT n] [JUSTID]."""
    key, name = argv[1], argv[2]
    idle_ms = max(to_int(argv[4], b"ERR Invalid min-idle-time argument for XAUTOCLAIM"), 0)
    start = parse_start(argv[5])
    found = read_options(argv, 6, _AUTOCLAIM_OPTIONS)
    count = found.value("count", 100)
    just_id = "just_id" in found
    value = run.database.of_kind(StreamValue, key)
    group = None if value is None else value.groups.get(name)
    if value is None or group is None:
        raise no_key_or_group(key, name)
    if count > _COUNT_HELD:
        raise CommandError(
            b"ERR Insufficient memory, failed allocating transient memory, COUNT too high."
        )
    run.no_effect()
    consumer: Consumer | None = None
    out: list[Reply] = []
    claims: ClaimedEntries = []
    deleted: list[int] = []
    attempts = count * _LOOKED_AT
    following = 0
    for number, pending in group.pending.starting(start):
        if not attempts or not count:
            following = number
            break
        attempts -= 1
        fields = value.find(number)
        if fields is None:
            deleted.append(number)
            count -= 1
            continue
        if idle_ms and run.now_ms - pending.delivered_ms < idle_ms:
            continue
        if consumer is None:
            # As in Redis, a consumer that claims no entry is not created.
            consumer = see_consumer(run, key, group, name, argv[3])
        group.deliver(number, consumer, run.now_ms, pending.count + (not just_id))
        out.append(id_text(number) if just_id else shown(number, fields))
        claims.append((number, pending))
        count -= 1
    gone = [(number, entry) for number in deleted if (entry := group.pending.get(number))]
    log_claims(run, key, group, name, claims)
    log_claims(run, key, group, name, gone)
    for number in deleted:
        group.settle(number)
    run.keyspace.dirty += len(claims) + len(deleted)
    return [id_text(following), out, [id_text(number) for number in deleted]]
