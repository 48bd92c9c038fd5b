"""XCLAIM and XAUTOCLAIM: assign pending entries to another consumer.

The effect is an XCLAIM with FORCE, the delivery time and count, and the group's last id. It sets
the new state of an entry, whatever the old state is. Adjacent entries with the same new state share
one effect.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.streams.entries import shown
from delaylog.broker.keyspace.commands.streams.stream_groups import no_key_or_group, see_consumer
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.options import Option, Options, at_least, read_options
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.streams.groups import Consumer, Group, Pending
from delaylog.broker.keyspace.streams.ids import id_text, parse_id, parse_start
from delaylog.broker.keyspace.values.number_texts import INT64_MAX, to_int
from delaylog.broker.keyspace.values.stream import StreamValue

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
    return CommandError(b"ERR Unrecognized XCLAIM option '%b'" % word.partition(b"\0")[0])


_BAD_OPTION: Final = b"ERR Invalid %b option argument for XCLAIM"
_CLAIM_OPTIONS: Final[Options] = {
    b"force": Option("force"),
    b"justid": Option("just_id"),
    b"idle": Option("idle", partial(to_int, refusal=_BAD_OPTION % b"IDLE")),
    b"time": Option("time", partial(to_int, refusal=_BAD_OPTION % b"TIME")),
    b"retrycount": Option("count", partial(to_int, refusal=_BAD_OPTION % b"RETRYCOUNT")),
    b"lastid": Option("last_id", parse_id),
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
    options = read_options(argv, 5 + len(numbers), _CLAIM_OPTIONS, _unrecognized)
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
