"""Settle: ack, nack, reject, extend, begin and expiry of leases.

A receipt is valid while its message is open in its lease; any other is reported as `gone`. A nack
or an expiry makes a message ready again at once, or after its backoff (by a MOVE to a new row). A
message whose retries or ttl have run out becomes dead, and so does a rejected one. If a lease
expires before the attempt at a message has begun, the message is ready at once and the attempt does
not count. `_ack_few` and `_extend_few` handle leases of few messages as integers.

A message's own backoff is stored in its record, in front of its headers. A topic knows whether any
of its messages has one; if not, no record is read.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.apply.lease_frames import (
    FewAcked,
    apply_ack_few,
    apply_extend_few,
    apply_lease,
    apply_settle,
)
from delaylog.broker.engine.apply.move_frames import MOVED_BYTES_MAX, apply_move
from delaylog.broker.engine.deliver.leases import Lease
from delaylog.broker.engine.deliver.ready_again import make_ready_again
from delaylog.broker.engine.errors import BadRequestError
from delaylog.broker.engine.model import Settlement, Topic, blank_entries, empty_refs, integers
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.topics.settings import delays_ms
from delaylog.contract.calls.shapes import LEASE_MS_MAX
from delaylog.contract.own_backoff import NOT_SAID, OWN_BACKOFF_SIZE
from delaylog.storage.columns import alike, among, distinct, every, some, take_rows
from delaylog.storage.layout import (
    HOUR_SHIFT,
    STATE_VALUES,
    TEXT_SIZES,
    Cause,
    FrameKind,
    Int64Array,
    MessageState,
    RowArray,
)
from delaylog.storage.log.payloads import (
    LeaseDecision,
    MoveDecision,
    SettleDecision,
    lease_payload,
    settle_payload,
)
from delaylog.storage.messages.batch import Block, Column, have_own_backoff, own_backoffs
from delaylog.storage.messages.rows import heads_of

# ------------------------------------------------------------------------ delays before a retry


def retry_delays(
    state: EngineState, topic: Topic, refs: Int64Array, rows: RowArray, attempts: Int64Array
) -> Int64Array:
    """Delays of messages before their next attempt."""
    uniform = np.array([state.random.random() for _ in range(len(refs))])
    out = topic.settings.backoff.delay_ms(attempts, uniform)
    if not topic.own_backoffs:
        return out
    at = np.flatnonzero(rows["headers_size"] >= OWN_BACKOFF_SIZE)
    if len(at):
        heads = heads_of(take_rows(rows, at), *TEXT_SIZES)
        records = state.hours.records(refs[at], heads)
        sizes = heads["headers_size"].astype(np.int64)
        starts = np.cumsum(heads["size"].astype(np.int64)) - sizes
        own = have_own_backoff(records, starts, sizes)
        at, starts = at[own], starts[own]
        out[at] = _own_delays(topic, records, starts, attempts[at], uniform[at])
    return out


def _own_delays(
    topic: Topic, records: bytes, starts: Int64Array, attempts: Int64Array, uniform: Int64Array
) -> Int64Array:
    """Delays by the backoffs at `starts` in `records`; missing members are the topic's."""
    said, ours = own_backoffs(records, starts), topic.settings.backoff
    first, most = said["first_ms"].astype(np.int64), said["max_ms"].astype(np.int64)
    first = np.where(first == NOT_SAID, ours.first_ms, first)
    # A message's own first delay is not limited by the topic's maximum.
    most = np.where(most == NOT_SAID, np.maximum(ours.max_ms, first), most)
    factor = np.where(said["factor"] == NOT_SAID, ours.factor, said["factor"])
    jitter = np.where(said["jitter"] == NOT_SAID, ours.jitter, said["jitter"])
    delays = delays_ms(attempts, uniform, first, most, factor, jitter=jitter)
    return np.where(first == 0, 0, delays)


# ------------------------------------------------------------------------------------- settling

FEW_ACKED_MAX: Final = 32
FEW_ACKED_A_LEASE: Final = 4
"""Messages that are acked one by one: so many, and so many more for each lease, which costs several
arrays in columns. Measured: 64 leases of one message take 443 us of processor time, and 1,190 us in
columns; 8 leases of 16 take 614 and 512 us."""
EXPIRE_ROWS_MAX: Final = 4_096
"""Rows of expired leases that are settled in one slice."""


class Receipts(NamedTuple):
    """Messages under one lease, by their origins."""

    lease: int
    origins: Int64Array | Sequence[int] | None = None
    """None = all open messages except `except_`."""
    except_: Int64Array | None = None

    @property
    def named(self) -> Int64Array:
        """The origins as a column; empty if the receipts name none."""
        return empty_refs() if self.origins is None else np.asarray(self.origins, np.int64)


class _Settled(NamedTuple):
    """The state that settled messages get; times follow from `now_ms` and the topic."""

    kind: MessageState
    """NONE = the message returns."""
    cause: Cause
    now_ms: int
    reason: str = ""


class _Return(NamedTuple):
    """How messages return from a lease."""

    cause: Cause
    delay_ms: int | None = None
    """None = by the backoff."""
    tried: bool = True
    """False = the consumer has not tried the messages: the attempt does not count."""
    reason: str = ""
    """Why the consumer failed, in its words."""


def _open_rows(
    state: EngineState, topic: Topic, receipts: Receipts
) -> tuple[Lease | None, Int64Array, Int64Array]:
    """(lease, its open rows that the receipts name, in order; origins that are gone)."""
    lease, except_ = state.leases.get(receipts.lease), receipts.except_
    origins = receipts.named
    if lease is None or lease.topic != topic.number:
        return None, empty_refs(), origins
    if receipts.origins is None:
        rows = np.flatnonzero(lease.open)
        if except_ is not None and len(except_):
            rows = rows[~among(lease.origins[rows], except_)]
        return lease, rows, empty_refs()
    if lease.is_all(origins):
        return lease, np.arange(len(origins)), empty_refs()
    if len(origins) == 0:
        return lease, empty_refs(), empty_refs()
    found = lease.find(origins)
    gone = origins[found < 0]
    return lease, distinct(found[found >= 0]), gone


def ack(state: EngineState, topic: Topic, receipts: Receipts, now_ms: int) -> Settlement:
    """Ack messages of a lease."""
    return ack_each(state, topic, [receipts], now_ms)[0]


def ack_each(
    state: EngineState, topic: Topic, wanted: Sequence[Receipts], now_ms: int
) -> list[Settlement]:
    """Ack messages of several leases: one outcome for each, one frame for each group."""
    few = _ack_few(state, topic, wanted, now_ms)
    if few is not None:
        return few
    outcomes: list[tuple[int, Int64Array]] = []
    parts: dict[int, list[_Leased]] = {}
    settled: dict[int, Int64Array] = {}
    """By lease: rows that an earlier item of `wanted` has acked."""
    for receipts in wanted:
        lease, rows, gone = _open_rows(state, topic, receipts)
        if lease is not None and len(rows):
            before = settled.get(lease.number)
            if before is not None:
                again = among(rows, before)
                if receipts.origins is not None:
                    gone = np.concatenate((gone, lease.origins[rows[again]]))
                rows = rows[~again]
            settled[lease.number] = rows if before is None else np.concatenate((before, rows))
            if len(rows):
                parts.setdefault(lease.group, []).append(_leased(lease, rows))
        outcomes.append((len(rows), gone))
    for number, mine in parts.items():
        group = topic.groups[number]
        group.acked_rate.look(now_ms, group.counts.acked)
        whole = mine[0] if len(mine) == 1 else _joined(mine)
        _settle(state, topic, whole, _Settled(MessageState.ACKED, Cause.ACK, now_ms))
    position = state.log.end_position
    return [Settlement(done, gone, position) for done, gone in outcomes]


def _ack_few(
    state: EngineState, topic: Topic, wanted: Sequence[Receipts], now_ms: int
) -> list[Settlement] | None:
    """`ack_each` for few messages, one by one as integers.

    None if some leases have columns, or if the messages are not of one group, of near hours and
    without keys; then nothing was done.
    """
    outcomes: list[tuple[int, Sequence[int]]] = []
    leases: list[tuple[Lease, Sequence[int]]] = []
    refs: list[int] = []
    origins: list[int] = []
    attempts: list[int] = []
    numbers: list[int] = []
    group_number = 0
    for number, named, except_ in wanted:
        lease = state.leases.get(number)
        if lease is None or lease.topic != topic.number:
            outcomes.append((0, () if named is None else integers(named)))
            continue
        few = lease.few
        if few is None or except_ is not None:
            return None
        if leases and (lease.group != group_number or number in numbers):
            return None
        group_number = lease.group
        mine, gone = _named_few(few, named)
        outcomes.append((len(mine), gone))
        if not mine:
            continue
        leases.append((lease, mine))
        numbers += [number] * len(mine)
        origins += mine
        for origin in mine:
            ref, attempt = few[origin]
            refs.append(ref)
            attempts.append(attempt)
    n = len(refs)
    few_max = FEW_ACKED_MAX + FEW_ACKED_A_LEASE * len(leases)
    if n > few_max or not _hours_are_near(state, refs, origins):
        return None
    if n:
        group = topic.groups[group_number]
        if group.made_gate is not None and group.made_gate.in_use:
            return None
        group.acked_rate.look(now_ms, group.counts.acked)
        keep_until_ms = now_ms + topic.settings.ended_keep_ms
        acked = FewAcked(refs, origins, attempts, leases, keep_until_ms)
        payload = _ack_payload((topic.number, group_number), acked, numbers, now_ms)
        _, end = state.append(FrameKind.SETTLE, payload, now_ms)
        apply_ack_few(state, topic, group, acked, end, now_ms)
    position = state.log.end_position
    return [Settlement(done, gone, position) for done, gone in outcomes]


def _named_few(
    few: Mapping[int, object], named: Int64Array | Sequence[int] | None
) -> tuple[Sequence[int], Sequence[int]]:
    """(the named messages of a lease in its order, each once; names without a message).

    All messages if `named` is None.
    """
    if named is None:
        return list(few), ()
    origins = integers(named)
    if len(origins) == 1:
        return (origins, ()) if origins[0] in few else ((), origins)
    there = set(origins)
    mine = [origin for origin in few if origin in there]
    gone = () if len(mine) == len(there) else [each for each in origins if each not in few]
    return mine, gone


def _hours_are_near(state: EngineState, refs: Sequence[int], origins: Sequence[int]) -> bool:
    """Whether all hours are near, and no message has moved to another hour."""
    near = state.hours.counts.near
    for ref, origin in zip(refs, origins, strict=True):
        if ref >> HOUR_SHIFT not in near or (ref ^ origin) >> HOUR_SHIFT:
            return False
    return True


def _ack_payload(
    place: tuple[int, int], acked: FewAcked, leases: Sequence[int], now_ms: int
) -> list[Block]:
    """The payload of a SETTLE frame of (topic, group); `leases` = the lease of each message."""
    refs, origins, attempts = acked.refs, acked.origins, acked.attempts
    n = len(refs)
    if attempts.count(attempts[0]) == n:
        attempts = attempts[:1]
    entries = b""
    for each in attempts:
        entries += STATE_VALUES.pack(MessageState.ACKED, Cause.ACK, each, 0, 0, now_ms, 0)
    return settle_payload(
        place,
        array("q", refs).tobytes(),
        entries,
        leases[0] if len(acked.leases) == 1 else array("q", leases).tobytes(),
        b"" if origins == refs else array("q", origins).tobytes(),
        keep_until_ms=acked.keep_until_ms,
    )


class _Leased(NamedTuple):
    """Rows of a group that are under lease."""

    group: int
    refs: Int64Array
    origins: Int64Array
    attempts: Int64Array
    leases: Column


def _leased(lease: Lease, rows: Int64Array) -> _Leased:
    refs, origins, attempts = lease.refs, lease.origins, lease.attempts
    if len(rows) < len(refs):
        refs, origins, attempts = refs[rows], origins[rows], attempts[rows]
    return _Leased(lease.group, refs, origins, attempts, lease.number)


def _joined(parts: Sequence[_Leased]) -> _Leased:
    _, refs, origins, attempts, leases = zip(*parts, strict=True)
    return _Leased(
        parts[0].group,
        np.concatenate(refs),
        np.concatenate(origins),
        np.concatenate(attempts),
        np.repeat(np.array(leases, np.int64), [len(each) for each in refs]),
    )


def _settle(state: EngineState, topic: Topic, leased: _Leased, settled: _Settled) -> None:
    kind, cause, now_ms, reason = settled
    tried = leased.attempts
    same = alike(tried)
    entries = blank_entries(1 if same else len(tried))
    entries["state"] = kind
    entries["cause"] = cause
    entries["attempts"] = tried[:1] if same else tried
    # A returned message stores the log position of its return: only a later purge ends it.
    entries["time"] = now_ms if kind is not MessageState.NONE else state.log.end_position
    keep_ms = (
        topic.settings.dead_keep_ms if kind is MessageState.DEAD else topic.settings.ended_keep_ms
    )
    decision = SettleDecision(
        topic.number,
        leased.group,
        leased.refs,
        entries,
        leased.leases,
        leased.origins,
        now_ms + keep_ms if kind is not MessageState.NONE else 0,
        reason=reason,
    )
    _, end = state.append(FrameKind.SETTLE, decision.encode(), now_ms)
    apply_settle(state, decision, end, now_ms)


def nack(
    state: EngineState,
    topic: Topic,
    receipts: Receipts,
    now_ms: int,
    *,
    delay_ms: int | None = None,
    reason: str = "",
) -> Settlement:
    """Return messages after `delay_ms`, or after their backoff if None."""
    lease, rows, gone = _open_rows(state, topic, receipts)
    if lease is None or len(rows) == 0:
        return Settlement(0, gone, state.log.end_position)
    _give_back(state, topic, lease, rows, now_ms, _Return(Cause.NACK, delay_ms, reason=reason))
    return Settlement(len(rows), gone, state.log.end_position)


def reject(
    state: EngineState, topic: Topic, receipts: Receipts, now_ms: int, *, reason: str = ""
) -> Settlement:
    """Make messages dead letters, whatever retries are left."""
    lease, rows, gone = _open_rows(state, topic, receipts)
    if lease is not None and len(rows):
        rejected = _Settled(MessageState.DEAD, Cause.NACK, now_ms, reason)
        _settle(state, topic, _leased(lease, rows), rejected)
        state.activity(topic).found_ended += len(rows)
    return Settlement(len(rows), gone, state.log.end_position)


def _give_back(
    state: EngineState, topic: Topic, lease: Lease, rows: Int64Array, now_ms: int, how: _Return
) -> None:
    """Return messages for a retry, or end them as dead."""
    kept = state.hours.rows(lease.refs[rows])
    attempts = lease.attempts[rows] - (0 if how.tried else 1)
    dead = attempts > kept["max_retry"]
    late = kept["expires_at"] <= now_ms
    if some(dead):
        out_of_retries = _Settled(MessageState.DEAD, Cause.RETRIES, now_ms, how.reason)
        _settle(state, topic, _leased(lease, rows[dead]), out_of_retries)
    if some(late & ~dead):
        out_of_time = _Settled(MessageState.DEAD, Cause.TTL, now_ms, how.reason)
        _settle(state, topic, _leased(lease, rows[late & ~dead]), out_of_time)
    alive = ~(dead | late)
    state.activity(topic).found_ended += len(rows) - int(np.count_nonzero(alive))
    rows, kept, attempts = rows[alive], take_rows(kept, alive), attempts[alive]
    if len(rows) == 0:
        return
    if how.delay_ms is None:
        delay = retry_delays(state, topic, lease.refs[rows], kept, attempts)
    else:
        delay = np.full(len(rows), how.delay_ms, np.int64)
    # If the clock was set back, the due time may lie ahead: the retry waits for it. One that would
    # come after the message has expired comes at that time, and the message ends then.
    delay = np.maximum(delay, kept["deliver_at"].astype(np.int64) - now_ms)
    delay = np.minimum(delay, kept["expires_at"] - now_ms)
    now = delay == 0
    if some(now):
        leased = _leased(lease, rows[now])._replace(attempts=attempts[now])
        _settle(state, topic, leased, _Settled(MessageState.NONE, how.cause, now_ms, how.reason))
        make_ready_again(state, topic, topic.groups[lease.group], leased.refs, failed=True)
    if not every(now):
        later = ~now
        refs = lease.refs[rows[later]]
        expires = kept["expires_at"][later]
        decision = MoveDecision(
            topic=topic.number,
            group=lease.group,
            tag=state.tag,
            hour_floor=state.hour_floor,
            cause=how.cause,
            refs=refs,
            deliver_at_ms=now_ms + delay[later],
            expires_at_ms=expires,
            priority=kept["priority"][later].astype(np.int64),
            attempts=attempts[later],
            leases=np.full(len(refs), lease.number, np.int64),
            reason=how.reason,
        )
        _, end = state.append(FrameKind.MOVE, decision.encode(), now_ms)
        apply_move(state, decision, now_ms, end)


def extend(
    state: EngineState, topic: Topic, receipts: Receipts, now_ms: int, *, lease_ms: int
) -> Settlement:
    """Set the deadline to `lease_ms` from now; 0 returns the messages as never attempted."""
    if lease_ms > LEASE_MS_MAX:
        raise BadRequestError(f"lease_ms is at most {LEASE_MS_MAX}", field="lease_ms")
    if lease_ms and (few := _extend_few(state, topic, receipts, now_ms, lease_ms)) is not None:
        return few
    lease, rows, gone = _open_rows(state, topic, receipts)
    if lease is None or len(rows) == 0:
        return Settlement(0, gone, state.log.end_position)
    if lease_ms == 0:
        untried = _Return(Cause.NACK, delay_ms=0, tried=False)
        _give_back(state, topic, lease, rows, now_ms, untried)
        return Settlement(len(rows), gone, state.log.end_position)
    # An extension does not begin an attempt.
    marks = None if lease.untried is None else lease.untried[rows]
    end = _lease_until(state, lease, rows, now_ms, now_ms + lease_ms, marks)
    return Settlement(len(rows), gone, end)


def _extend_few(
    state: EngineState, topic: Topic, receipts: Receipts, now_ms: int, lease_ms: int
) -> Settlement | None:
    """`extend` for all messages of a lease that has `few`; None for any other."""
    number, named, except_ = receipts
    lease = state.leases.get(number)
    few = None if lease is None or lease.topic != topic.number else lease.few
    if lease is None or few is None or except_ is not None:
        return None
    mine, gone = _named_few(few, named)
    refs, attempts = zip(*few.values(), strict=True)
    n = len(few)
    if len(mine) < n or not _hours_are_near(state, refs, refs):
        return None
    payload = lease_payload(
        number,
        (topic.number, lease.group),
        now_ms + lease_ms,
        array("q", refs).tobytes(),
        array("H", attempts).tobytes(),
        extends=True,
    )
    _, end = state.append(FrameKind.LEASE, payload, now_ms)
    apply_extend_few(state, lease, few, now_ms + lease_ms, end)
    return Settlement(n, gone, end)


def begin(
    state: EngineState, topic: Topic, receipts: Receipts, now_ms: int, *, lease_ms: int
) -> Settlement:
    """Count the attempts at messages that were leased untried, and extend their leases."""
    if not 0 < lease_ms <= LEASE_MS_MAX:
        raise BadRequestError(f"lease_ms of begin is 1 to {LEASE_MS_MAX}", field="lease_ms")
    lease, rows, gone = _open_rows(state, topic, receipts)
    if lease is None or len(rows) == 0:
        return Settlement(0, gone, state.log.end_position)
    end = _lease_until(state, lease, rows, now_ms, now_ms + lease_ms)
    return Settlement(len(rows), gone, end)


def _lease_until(
    state: EngineState,
    lease: Lease,
    rows: Int64Array,
    now_ms: int,
    deadline_ms: int,
    untried: npt.NDArray[np.bool_] | None = None,
) -> int:
    """Append and apply new deadlines of leased rows; returns the end of the frame."""
    decision = LeaseDecision(
        lease=lease.number,
        topic=lease.topic,
        group=lease.group,
        deadline_ms=deadline_ms,
        refs=lease.refs[rows],
        attempts=lease.attempts[rows],
        untried=0 if untried is None or not some(untried) else untried.astype(np.uint8),
        extends=True,
    )
    _, end = state.append(FrameKind.LEASE, decision.encode(), now_ms)
    apply_lease(state, decision, end)
    return end


def expire_leases(state: EngineState, now_ms: int) -> int:
    """Return messages whose leases have expired; returns the number of rows.

    It stops after the lease with which the moved messages exceed MOVED_BYTES_MAX.
    """
    total, pile = 0, state.hours.pile
    bytes_max = pile.size_bytes + MOVED_BYTES_MAX
    for lease, rows in state.leases.expired(now_ms, EXPIRE_ROWS_MAX):
        topic = state.by_number.get(lease.topic)
        if topic is None:
            state.leases.close(lease.number, lease.refs[rows])
            continue
        state.activity(topic).timed_out += len(rows)
        total += len(rows)
        if lease.untried is not None and some(untried := lease.untried[rows]):
            # Before the others, so that these come before them in the queue.
            how = _Return(Cause.LEASE_EXPIRED, delay_ms=0, tried=False)
            _give_back(state, topic, lease, rows[untried], now_ms, how)
            rows = rows[~untried]
        _give_back(state, topic, lease, rows, now_ms, _Return(Cause.LEASE_EXPIRED))
        if pile.size_bytes > bytes_max:
            break
    return total
