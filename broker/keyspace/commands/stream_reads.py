"""XREAD and XREADGROUP: return the entries after an id, of several streams; may block for them.

A blocked command is stored with explicit ids, so that `$` means the end of the stream when the
client sent the command. It ends when the stream's last id has grown, even if that entry was deleted
meanwhile: the reply then has no entries.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.arguments import Option, Options, read_options
from delaylog.broker.keyspace.commands.stream_entries import shown
from delaylog.broker.keyspace.commands.stream_groups import (
    ClaimedEntries,
    log_claims,
    log_group,
    no_key_or_group,
    see_consumer,
)
from delaylog.broker.keyspace.errors import CommandError, syntax
from delaylog.broker.keyspace.registry import Run, command
from delaylog.broker.keyspace.replies import NO_ARRAY, Map, Reply
from delaylog.broker.keyspace.values.number_texts import INT64_MAX, to_int
from delaylog.broker.keyspace.values.stream import ID_MAX, Group, StreamValue, id_text, parse_id

_COUNT_AFTER_WAIT: Final = 1_000
"""Default COUNT of a command that has blocked."""
_WHERE: Final = b" in XREADGROUP with GROUP option"
_MEANINGLESS: Final = (
    b"ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the history of "
    b"this consumer by specifying a proper ID, or use the > ID to get new messages. The $ ID would "
    b"just return an empty result set."
)
_ONLY_GROUP: Final = b"ERR The %b option is only supported by XREADGROUP. You called XREAD instead."


@dataclass(slots=True)
class _Asked:
    """The options of a call."""

    options: Args
    """The words before STREAMS."""
    keys: list[bytes]
    texts: list[bytes]
    """An id for each key, as written."""
    count: int
    """0 = any number."""
    timeout_ms: int | None
    group: bytes | None
    consumer: bytes
    no_ack: bool


def _take_timeout_ms(text: bytes) -> int:
    timeout_ms = to_int(text, b"ERR timeout is not an integer or out of range")
    if timeout_ms < 0:
        raise CommandError(b"ERR timeout is negative")
    return min(timeout_ms, INT64_MAX)


_COUNT_AND_BLOCK: Final[Options] = {
    b"count": Option("count", to_int),
    b"block": Option("timeout_ms", _take_timeout_ms),
}
_IN_GROUP: Final[Options] = {
    **_COUNT_AND_BLOCK,
    b"group": Option("group", bytes, 2),
    b"noack": Option("no_ack"),
}


def _take(run: Run, argv: Args, *, grouped: bool) -> _Asked:
    """Parse the arguments. Raises CommandError."""

    def refused(word: bytes) -> CommandError:
        if not grouped and word.lower() in _IN_GROUP.keys() - _COUNT_AND_BLOCK.keys():
            return CommandError(_ONLY_GROUP % word.upper())
        return syntax()

    options = read_options(
        argv, 1, _IN_GROUP if grouped else _COUNT_AND_BLOCK, refused, end=b"streams"
    )
    if run.in_script and "timeout_ms" in options:
        raise CommandError(
            b"ERR %b command is not allowed with BLOCK option from scripts" % argv[0]
        )
    at = options.end + 1
    more = len(argv) - at
    if more < 1:
        raise syntax()
    if more % 2:
        raise CommandError(
            b"ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must "
            b"be specified."
        )
    if grouped and "group" not in options:
        raise CommandError(b"ERR Missing GROUP option for XREADGROUP")
    middle = at + more // 2
    group, consumer = options.value("group", (None, b""))
    return _Asked(
        argv[1 : at - 1],
        argv[at:middle],
        argv[middle:],
        max(options.value("count", 0), 0),
        options.value("timeout_ms"),
        group,
        consumer,
        "no_ack" in options,
    )


def _answer(run: Run, found: list[tuple[bytes, list[Reply]]]) -> Reply:
    if run.session.resp == 2:
        return found
    return Map([part for pair in found for part in pair])


def _wait(run: Run, name: bytes, asked: _Asked, numbers: list[int]) -> Reply:
    """Block until one of the streams has entries. The first id of a repeated key counts."""
    assert asked.timeout_ms is not None
    wanted: dict[bytes, bytes] = {}
    for key, number in zip(asked.keys, numbers, strict=True):
        wanted.setdefault(key, b">" if asked.group is not None else id_text(number))
    count = [b"COUNT", b"%d" % (asked.count or _COUNT_AFTER_WAIT)]
    again = [name, *asked.options, *count, b"STREAMS", *wanted, *wanted.values()]
    return run.wait(again, list(wanted), asked.timeout_ms, NO_ARRAY)


# --------------------------------------------------------------------------- XREAD


@command("xread", -4, "stream", "readonly blocking movablekeys")
def xread(run: Run, argv: Args) -> Reply:
    """Return the entries after ids: [COUNT n] [BLOCK ms] STREAMS key … id|$ …"""
    asked = _take(run, argv, grouped=False)
    values: list[StreamValue | None] = []
    numbers: list[int] = []
    for key, text in zip(asked.keys, asked.texts, strict=True):
        value = run.database.of_kind(StreamValue, key) if run.retried is None else _now(run, key)
        values.append(value)
        if text == b"$":
            numbers.append(0 if value is None else value.last_id)
        elif text == b">":
            raise CommandError(
                b"ERR The > ID can be specified only when calling XREADGROUP using the GROUP "
                b"<group> <consumer> option."
            )
        else:
            numbers.append(parse_id(text))
    found: list[tuple[bytes, list[Reply]]] = []
    for key, value, number in zip(asked.keys, values, numbers, strict=True):
        if value is None:
            continue
        if run.retried is not None:
            if value.last_id > number:
                return _answer(run, [(key, _entries(value, number, asked.count))])
        elif value.length and value.last_present() > number:
            found.append((key, _entries(value, number, asked.count)))
    if found:
        return _answer(run, found)
    if asked.timeout_ms is None:
        return NO_ARRAY
    return _wait(run, argv[0], asked, numbers)


def _now(run: Run, key: bytes) -> StreamValue | None:
    """Return a stream for a blocked command; None also for a value of another type."""
    value = run.database.find(key)
    return value if isinstance(value, StreamValue) else None


def _entries(value: StreamValue, behind: int, count: int) -> list[Reply]:
    out: list[Reply] = []
    if behind == ID_MAX:
        return out
    for number, fields in value.entries(behind + 1):
        out.append(shown(number, fields))
        if len(out) == count:
            break
    return out


# --------------------------------------------------------------------------- XREADGROUP


@command("xreadgroup", -7, "stream", "write blocking movablekeys")
def xreadgroup(run: Run, argv: Args) -> Reply:
    """Return entries to a consumer of a group: GROUP group consumer … STREAMS key … id|> …"""
    asked = _take(run, argv, grouped=True)
    run.no_effect()
    if run.retried is not None:
        return _read_after_wait(run, argv, asked)
    name = asked.group
    assert name is not None
    streams: list[tuple[StreamValue, Group, int]] = []
    for key, text in zip(asked.keys, asked.texts, strict=True):
        value = run.database.of_kind(StreamValue, key)
        group = None if value is None else value.groups.get(name)
        if value is None or group is None:
            raise no_key_or_group(key, name, _WHERE)
        if text == b"$":
            raise CommandError(_MEANINGLESS)
        streams.append((value, group, ID_MAX if text == b">" else parse_id(text)))
    found: list[tuple[bytes, list[Reply]]] = []
    for key, (value, group, number) in zip(asked.keys, streams, strict=True):
        if number != ID_MAX:
            found.append((key, _history(run, key, value, group, asked, number)))
        elif value.length and value.last_present() > group.last_id:
            found.append((key, _deliver(run, key, value, group, asked)))
        else:
            see_consumer(run, key, group, name, asked.consumer)
    if found:
        run.keyspace.dirty += len(found)
        return _answer(run, found)
    if asked.timeout_ms is None:
        return NO_ARRAY
    return _wait(run, argv[0], asked, [ID_MAX] * len(asked.keys))


def _read_after_wait(run: Run, argv: Args, asked: _Asked) -> Reply:
    """Run a blocked XREADGROUP again after one of its streams has changed."""
    name = asked.group
    assert name is not None
    for key in asked.keys:
        value = _now(run, key)
        if value is None:
            raise CommandError(b"UNBLOCKED the stream key no longer exists")
        group = value.groups.get(name)
        if group is None:
            raise CommandError(
                b"NOGROUP the consumer group this client was blocked on no longer exists"
            )
        if value.last_id > group.last_id:
            entries = _deliver(run, key, value, group, asked)
            run.keyspace.dirty += 1
            return _answer(run, [(key, entries)])
    return _wait(run, argv[0], asked, [ID_MAX] * len(asked.keys))


def _deliver(run: Run, key: bytes, value: StreamValue, group: Group, asked: _Asked) -> list[Reply]:
    """Deliver the entries that the group has not read yet."""
    name = asked.group
    assert name is not None
    consumer = see_consumer(run, key, group, name, asked.consumer)
    before = group.last_id
    out: list[Reply] = []
    claims: ClaimedEntries = []
    if before == ID_MAX:
        return out
    for number, fields in value.entries(before + 1):
        value.advance(group, number)
        out.append(shown(number, fields))
        if not asked.no_ack:
            group.deliver(number, consumer, run.now_ms, 1)
            pending = group.pending.get(number)
            assert pending is not None
            claims.append((number, pending))
        if len(out) == asked.count:
            break
    log_claims(run, key, group, name, claims)
    if out:
        log_group(run, key, group, name)
    return out


def _history(
    run: Run, key: bytes, value: StreamValue, group: Group, asked: _Asked, behind: int
) -> list[Reply]:
    """Deliver the consumer's pending entries again."""
    name = asked.group
    assert name is not None
    consumer = see_consumer(run, key, group, name, asked.consumer)
    out: list[Reply] = []
    claims: ClaimedEntries = []
    for number, pending in consumer.pending.starting(behind + 1):
        fields = value.find(number)
        if fields is None:
            out.append([id_text(number), NO_ARRAY])
        else:
            group.deliver(number, consumer, run.now_ms, pending.count + 1)
            claims.append((number, pending))
            out.append(shown(number, fields))
        if len(out) == asked.count:
            break
    log_claims(run, key, group, name, claims)
    return out
