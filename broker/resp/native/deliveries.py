"""DL.RECEIVE, DL.ACK, DL.NACK, DL.EXTEND, DL.ACKRECEIVE."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any, Final, TypeAlias

import numpy as np

from delaylog.broker.calls.forms.deliveries import NOTHING
from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.calls.settling import by_lease
from delaylog.broker.calls.shapes import ReceiveCall
from delaylog.broker.calls.turn.long_poll import Poll, long_poll
from delaylog.broker.calls.turn.writes import Settling
from delaylog.broker.engine.deliver.settling import Receipts
from delaylog.broker.engine.model import Delivery, FewDelivery, integers
from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.broker.host.waiters import TopicKey
from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.encoding import encode_into
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import WAITS, WRITTEN, Map, Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.resp.facts import host_in
from delaylog.broker.resp.native.host import Delayed, NativeHost, Wire, host_of, translated
from delaylog.broker.resp.native.permits import permit, permit_settle
from delaylog.broker.resp.native.words import (
    misplaced,
    take_delay,
    take_list,
    take_number,
    take_receipts,
    take_text,
    topic_key,
    unknown_option,
)
from delaylog.contract.calls.shapes import CONSUMER, LEASE_MS_MAX, REASON, WAIT_MS_MAX
from delaylog.contract.members import Text
from delaylog.storage.layout import head_sizes
from delaylog.storage.messages.records import cut_record, split_records
from delaylog.storage.messages.rows import bodies_only

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
