"""The native verbs: Redis clients send and receive delayed messages by DL.SEND, DL.RECEIVE …

    DL.SEND topic delay-ms body [ID id] [PRIORITY p] [TTL ms] [KEY k] [TAGS n tag …]
            [RETRIES n] [MERGE keep|replace|reject]                       -> id
    DL.MSEND topic delay-ms body [delay-ms body …]                        -> ids
    DL.RECEIVE topic max [WAIT ms] [LEASE ms] [GROUP g] [CONSUMER name] [TAGS n tag …]
            [META]
                            -> [[id, receipt, body, deliver-at-ms, attempts], …]
    DL.ACK topic receipt [receipt …]                                      -> number
    DL.ACKRECEIVE topic max [… as DL.RECEIVE] RECEIPTS receipt [receipt …]
                            -> [[1 or 0, …], [[id, receipt, …], …]]
    DL.NACK topic [DELAY ms] [REASON text] receipt [receipt …]            -> number
    DL.EXTEND topic lease-ms receipt [receipt …]                          -> number
    DL.GET topic id                                                       -> map or null
    DL.CANCEL topic id [id …]                                             -> number
    DL.RESCHEDULE topic id delay-ms                                       -> due time
    DL.STATS topic                                                        -> map

A delay may be written `@1767225600000`: that time, Unix ms. A topic of another namespace than
`default` is written `namespace/topic`. META adds priority, key, tags and headers to each message.
Alike sends of one turn of the loop, from all clients, share one batch and one frame; the commands
of each client keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final, TypeAlias

import numpy as np

from delaylog.broker.calls.forms.deliveries import NOTHING
from delaylog.broker.calls.forms.descriptions import describe, failures_of
from delaylog.broker.calls.handlers.topics import group_counts
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.askers import all_same, plain_wire
from delaylog.broker.calls.turn.long_poll import Poll, long_poll
from delaylog.broker.calls.turn.settles import by_lease
from delaylog.broker.calls.turn.writes import Change, Settling, change
from delaylog.broker.engine import changes
from delaylog.broker.engine.deliver.settlements import Receipts
from delaylog.broker.engine.lookup.find_messages import find_ids
from delaylog.broker.engine.lookup.found_messages import FoundMessages
from delaylog.broker.engine.model import Delivery, FewDelivery, Topic, integers
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.groups import DEFAULT_NAME, Group
from delaylog.broker.host.waiters import TopicKey
from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.registry import Run, command
from delaylog.broker.keyspace.replies import WAITS, WRITTEN, Map, Reply, encode_into
from delaylog.broker.resp.facts import host_in
from delaylog.broker.resp.native_host import (
    Delayed,
    NativeHost,
    Wire,
    host_of,
    may_see_body,
    permit,
    permit_messages,
    permit_settle,
    translated,
)
from delaylog.broker.resp.native_words import (
    misplaced,
    plain_numbers,
    take_delay,
    take_due,
    take_list,
    take_number,
    take_receipts,
    take_text,
    topic_key,
    unknown_option,
    written_ids,
)
from delaylog.contract.calls.shapes import CONSUMER, LEASE_MS_MAX, REASON, WAIT_MS_MAX
from delaylog.contract.members import Text
from delaylog.contract.message_fields import BY_OPTION, ID, MERGE, TAGS, from_text, pack_fields
from delaylog.storage.layout import head_sizes
from delaylog.storage.messages.batch import Column, Single
from delaylog.storage.messages.records import cut_record, split_record, split_records
from delaylog.storage.messages.rows import bodies_only

# ---------------------------------------------------------------------------------------- sends

_SEND_FLAGS: Final = "write denyoom noscript no_multi quick"


@command("dl.send", -4, "module", _SEND_FLAGS)
@translated
def dl_send(run: Run, argv: Args) -> Reply:
    """Send one message."""
    host = run.shared.host
    if host.__class__ is not NativeHost:
        host = host_of(run)
    key, body = topic_key(argv[1]), argv[3]
    if run.session.restricted is not None:
        permit_messages(run, key, 1)
    limits = host.node.engine.limits
    if len(body) > limits.body_bytes_max:
        raise CommandError(
            b"TOOLARGE a body has at most %d bytes (body_bytes_max of the broker's limits)"
            % limits.body_bytes_max
        )
    due_ms, relative = take_due(argv[2], limits.horizon_ms, run.now_ms)
    if relative and len(argv) == 4:
        host.add_plain(key, body, due_ms, run.session)
        return WRITTEN
    fields = _take_options(argv) if len(argv) > 4 else {}
    merge = fields.pop(MERGE.name, None)
    host.add(key, Single(body, due_ms, relative, fields or None, merge), run.session)
    return WRITTEN


def _take_options(argv: Args) -> dict[str, Any]:
    """Parse and pack the options of a send. Raises CommandError, MemberError."""
    values: dict[str, Any] = {}
    at = 4
    while at < len(argv):
        option = argv[at].upper()
        field = BY_OPTION.get(option)
        if field is None:
            raise unknown_option(argv[at])
        if field.member is TAGS:
            tags, at = take_list(argv, at + 1)
            values[TAGS.name] = [take_text(tag, option) for tag in tags]
            continue
        if at + 1 >= len(argv):
            raise misplaced(option + b" value")
        text = take_text(argv[at + 1], option)
        if not text and field.member is ID:
            raise CommandError(b"ERR an id must not be empty")
        values[field.name] = from_text(field, text)
        at += 2
    return pack_fields(values)


@command("dl.msend", -4, "module", _SEND_FLAGS)
@translated
def dl_msend(run: Run, argv: Args) -> Reply:
    """Send many messages as one batch, which is accepted or refused as a whole."""
    host = host_of(run)
    key = topic_key(argv[1])
    dues, bodies = argv[2::2], argv[3::2]
    rows = len(bodies)
    permit_messages(run, key, rows)
    limits = host.node.engine.limits
    if len(dues) != rows:
        raise CommandError(b"ERR after the topic, give pairs of delay-ms and body")
    if rows > limits.bulk_rows_max or sum(map(len, bodies)) > limits.request_bytes_max:
        raise CommandError(
            b"TOOLARGE at most %d messages and %d bytes at once"
            % (limits.bulk_rows_max, limits.request_bytes_max)
        )
    # Earlier sends of this turn go first.
    host.flush()
    host.node.role.check()
    now_ms = host.node.clock.now_ms()
    wire = plain_wire(bodies, _due_times(dues, limits.horizon_ms, now_ms))
    refs = host.send_wire(wire, rows, key).refs
    run.session.out += (b"*%d\r\n" % rows, written_ids(refs))
    return WRITTEN


def _due_times(texts: list[bytes], horizon_ms: int, now_ms: int) -> Column:
    """Return the due times in Unix ms, or one number if all are equal. Raises CommandError."""
    if all_same(texts):
        due_ms, relative = take_due(texts[0], horizon_ms, now_ms)
        return due_ms + now_ms if relative else due_ms
    delays = plain_numbers(texts)
    if delays is not None and int(delays.max()) <= horizon_ms:
        return delays + now_ms
    taken = [take_due(text, horizon_ms, now_ms) for text in texts]
    return np.array([due + now_ms if relative else due for due, relative in taken], np.int64)


# ----------------------------------------------------------------------------------- deliveries

_FLAGS: Final = "write noscript no_multi"
_Named: TypeAlias = Sequence[tuple[int, int]]
"""Lease and origin ref of each message."""


@command("dl.receive", -3, "module", _FLAGS + " blocking")
@translated
def dl_receive(run: Run, argv: Args) -> Reply:
    """Receive ready messages under a lease; WAIT blocks while there are none."""
    return _asked(run, argv, settles=False)


@command("dl.ackreceive", -5, "module", _FLAGS + " blocking")
@translated
def dl_ackreceive(run: Run, argv: Args) -> Reply:
    """Ack messages and receive the next ones; WAIT blocks while there are none."""
    return _asked(run, argv, settles=True)


def _asked(run: Run, argv: Args, *, settles: bool) -> Reply:
    """Run a receive; with `settles` it ends with RECEIPTS and the receipts."""
    host = host_of(run)
    limits = host.node.engine.limits
    key = topic_key(argv[1])
    options: dict[str, Any] = {
        "count_max": take_number(argv[2], b"max", 1, limits.receive_max),
    }
    meta, at, done = False, 3, None
    while at < len(argv):
        option = argv[at].upper()
        at += 1
        if option == b"META":
            meta = True
            continue
        if option == b"RECEIPTS" and settles:
            done, at = take_receipts(argv[at:]), len(argv)
            continue
        if option == b"TAGS":
            tags, at = take_list(argv, at)
            options["only"] = TagFilter.parse([take_text(tag, b"a tag") for tag in tags])
            continue
        if option not in (b"WAIT", b"LEASE", b"GROUP", b"CONSUMER"):
            raise unknown_option(argv[at - 1])
        if at >= len(argv):
            raise misplaced(option + b" value")
        if option == b"WAIT":
            options["wait_ms"] = take_number(argv[at], b"WAIT", 0, WAIT_MS_MAX)
        elif option == b"LEASE":
            options["lease_ms"] = take_number(argv[at], b"LEASE", 1, LEASE_MS_MAX)
        elif option == b"CONSUMER":
            options["consumer"] = _bounded(argv[at], CONSUMER)
        else:
            options["group"] = take_text(argv[at], b"GROUP")
        at += 1
    if settles and done is None:
        raise misplaced(b"RECEIPTS receipt ...")
    call = ReceiveCall(**options, address=host_in(run.session.address))
    permit(run, "receive", key, call.group)
    host.node.engine.state.holding.check()
    acks = None if done is None else permit_settle(run, host, key, by_lease(done))
    owed = host.flush() or host.owes(run.session)
    write = partial(_written, meta=meta, resp=run.session.resp)
    if done is not None and acks is not None:
        work = _ack_and_receive(host, key, done, acks, call, write)
    elif owed or not host.node.role.may_deliver():
        work = _receive(host, key, call, write, owed=owed)
    else:
        delayed = Delayed(host, run, "dl.receive", call.wait_ms)
        delayed.connection.task = poll = _Poll(host.node, key, call, delayed, write)
        poll.look()
        return WAITS
    return host.answer_later(run, "dl.receive", work, wait_ms=call.wait_ms)


class _Poll(Poll[Wire]):
    """A receive that needs no task."""

    __slots__ = ("_delayed", "_write")

    def __init__(
        self,
        node: ServingNode,
        key: TopicKey,
        call: ReceiveCall,
        delayed: Delayed,
        write: Callable[[Delivery], bytes],
    ) -> None:
        super().__init__(node, key, call)
        self._delayed = delayed
        self._write = write

    def made(self, found: Delivery | None) -> Wire:
        """The reply with messages that are under lease, or with none."""
        return Wire(b"*0\r\n" if found is None else self._write(found))

    def reply(self, made: Wire) -> None:
        """Reply to the command. A lease is in the log's file."""
        self._delayed.reply(made, at_once=True)

    def fail(self, error: BaseException) -> None:
        """Reply with an error."""
        assert isinstance(error, Exception)
        self._delayed.fail(error)


async def _receive(
    host: NativeHost,
    key: TopicKey,
    call: ReceiveCall,
    write: Callable[[Delivery], bytes],
    *,
    owed: bool,
) -> Reply | Wire:
    if owed:
        # The receive sees the client's own earlier sends, also those without a reply yet.
        await host.node.durable(host.node.engine.state.position)
    delivery = await long_poll(host.node, key, call)
    if delivery is None:
        return []
    return Wire(write(delivery))


async def _ack_and_receive(
    host: NativeHost,
    key: TopicKey,
    done: _Named,
    acks: list[Receipts],
    call: ReceiveCall,
    write: Callable[[Delivery], bytes],
) -> Reply | Wire:
    """Reply [1 or 0 for each receipt, the messages]. The acks are durable before it blocks."""
    settled = await host.node.turn.settles.settle(key, Settling("ack"), acks)
    # Where the client may not settle, `acks` names lease 0, so the leases are taken from `done`.
    gone = {
        (receipts.lease, origin)
        for receipts, each in zip(by_lease(done), settled, strict=True)
        for origin in integers(each.gone)
    }
    delivery = await long_poll(host.node, key, call) or NOTHING
    results = b"".join([b":%d\r\n" % (named not in gone) for named in done])
    return Wire(b"*2\r\n*%d\r\n%b%b" % (len(done), results, write(delivery)))


def _written(delivery: Delivery, *, meta: bool, resp: int) -> bytes:
    """Encode the messages, with one formatting operation each."""
    lease, length, out = delivery.lease, 9 if meta else 5, [b"*%d\r\n" % delivery.count]
    rests = _meta(delivery, resp) if meta else repeat(b"")
    for (origin, own, body, due_ms, attempts), rest in zip(_rows(delivery), rests, strict=False):
        text = own or b"~%016x" % origin
        out.append(
            b"*%d\r\n$%d\r\n%b\r\n$32\r\n%016x%016x\r\n$%d\r\n%b\r\n:%d\r\n:%d\r\n%b"
            % (
                length,
                len(text),
                text,
                lease,
                origin,
                len(body),
                body,
                due_ms,
                attempts,
                rest,
            )
        )
    return b"".join(out)


def _rows(delivery: Delivery) -> Iterator[tuple[int, bytes, bytes, int, int]]:
    """(origin, id or nothing, body, due time, attempts) of each message."""
    if isinstance(delivery, FewDelivery):
        for one, tries in zip(delivery.few, delivery.tries, strict=True):
            row, parts = one.row, cut_record(one.record, one.row)
            yield row.origin, parts[0], parts[-1], row.deliver_at, tries
        return
    rows, records = delivery.rows, delivery.records
    size = rows["size"].astype(np.int64)
    ends = np.cumsum(size)
    starts, ids = ends - size, [b""] * len(rows)
    if not bodies_only(rows):
        id_ends = starts + rows["id_size"]
        ids = [records[a:b] for a, b in zip(starts.tolist(), id_ends.tolist(), strict=True)]
        starts = starts + head_sizes(rows)
    bodies = [records[a:b] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
    due_ms = rows["deliver_at"].tolist()
    yield from zip(
        delivery.origins.tolist(), ids, bodies, due_ms, delivery.attempts.tolist(), strict=True
    )


def _meta(delivery: Delivery, resp: int) -> Iterator[bytes]:
    """Encode priority, key, tags and headers of each message."""
    rows = delivery.rows
    records = split_records(delivery.records, rows)
    for priority, record in zip(rows["priority"].tolist(), records, strict=True):
        pairs: list[Reply] = []
        for name, value in record.headers.items():
            pairs += [name.encode(), value.encode()]
        out: list[bytes] = []
        encode_into(out, priority, resp)
        encode_into(out, record.key.encode() if record.key else None, resp)
        encode_into(out, [tag.encode() for tag in record.tags], resp)
        encode_into(out, Map(pairs), resp)
        yield b"".join(out)


# --------------------------------------------------------------------------- settle


@command("dl.ack", -3, "module", _FLAGS)
@translated
def dl_ack(run: Run, argv: Args) -> Reply:
    """Ack messages."""
    host, key = host_of(run), topic_key(argv[1])
    receipts = permit_settle(run, host, key, by_lease(take_receipts(argv[2:])))
    host.add_ack(key, receipts, run.session)
    return WRITTEN


@command("dl.nack", -3, "module", _FLAGS)
@translated
def dl_nack(run: Run, argv: Args) -> Reply:
    """Nack messages: they return after a delay, or the topic's backoff."""
    host = host_of(run)
    delay_ms, reason, at = None, "", 2
    while (option := argv[at].upper()) in (b"DELAY", b"REASON"):
        if len(argv) < at + 3:
            raise misplaced(b"DELAY ms receipt ..., or REASON text receipt ...")
        if option == b"DELAY":
            delay_ms = take_delay(argv[at + 1], b"DELAY", host.node.engine.limits.horizon_ms)
        else:
            reason = _bounded(argv[at + 1], REASON)
        at += 2
    return _settle(run, argv[1], argv[at:], Settling("nack", delay_ms, reason=reason))


def _bounded(raw: bytes, member: Text) -> str:
    """A text as its member declares it. Raises MemberError."""
    text = take_text(raw, member.name.encode())
    member.check(text, None, None)
    return text


@command("dl.extend", -4, "module", _FLAGS)
@translated
def dl_extend(run: Run, argv: Args) -> Reply:
    """Extend leases to this number of milliseconds from now."""
    lease_ms = take_number(argv[2], b"lease-ms", 0, LEASE_MS_MAX)
    return _settle(run, argv[1], argv[3:], Settling("extend", lease_ms=lease_ms))


def _settle(run: Run, name: bytes, texts: list[bytes], wanted: Settling) -> int:
    """Settle messages by receipts; returns the number of receipts that were still valid."""
    host, key = host_of(run), topic_key(name)
    receipts = permit_settle(run, host, key, by_lease(take_receipts(texts)))
    # Apply earlier sends and acks of this turn first.
    host.flush()
    return sum(each.done for each in host.settle(receipts, key, wanted))


# ------------------------------------------------------------------------------ stored messages

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
    members |= failures_of(state, topic, topic.default, [found], with_reasons=told)[0]
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
    return int(np.count_nonzero(grouped.result.codes == changes.DONE))


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
    if code == changes.TOO_LATE:
        raise CommandError(b"TOOLATE the message is under lease, or has ended")
    if code != changes.DONE:
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
