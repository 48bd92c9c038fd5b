"""What LEASE, SETTLE and CLAIM frames do: existing rows change their state in one group.

A row is leased, returned or ended. Counts, leases, key locks and the number of living rows that
keeps the row's hour follow.

A CLAIM frame is a small map, however many messages the claim has. `op` is one of: begin (everything
but the messages, which LEASE frames name), open (the claim takes no more messages), extend, settle
(decided; SETTLE frames follow for the messages), end (with the claim's final `state`), and forget.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgpack
import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.deliver.claim_table import OPEN, Claim
from delaylog.broker.engine.deliver.failures import FAILURES, Failed, note_failures
from delaylog.broker.engine.deliver.leases import Keyed, Lease
from delaylog.broker.engine.deliver.ready_again import free_keys
from delaylog.broker.engine.model import Topic
from delaylog.broker.engine.state import EngineState, whole
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns import (
    alike,
    every,
    grouped,
    guests_per_hour,
    per_hour,
    some,
)
from delaylog.storage.hours.hour_store import put_few
from delaylog.storage.hours.state_seal import sealed_values
from delaylog.storage.layout import (
    STATE_ENDED_FIRST,
    STATE_ENTRY,
    Cause,
    FrameKind,
    Int64Array,
    MessageState,
    RowArray,
)
from delaylog.storage.log.payloads import LeaseDecision, SettleDecision
from delaylog.storage.messages.batch import Column

# ----------------------------------------------------------------------------- LEASE and SETTLE

_LEASED: Final = int(MessageState.LEASED)
_ACKED: Final = int(MessageState.ACKED)
_RECEIVE: Final = int(Cause.RECEIVE)
_ACK: Final = int(Cause.ACK)


@whole
def apply_lease(
    state: EngineState, decision: LeaseDecision, end: int, rows: RowArray | None = None
) -> Int64Array:
    """Lease refs, or extend them if the lease is known; returns their origins.

    If no message has moved, that is the same array as the refs.
    """
    state.before_change(decision.topic)
    refs = decision.refs
    # Most often all attempts are equal, and so are all entries.
    alike_all = isinstance(decision.attempts, int) and not decision.counts
    entries = np.zeros(1 if alike_all else len(refs), STATE_ENTRY)
    entries["state"] = MessageState.LEASED
    entries["cause"] = Cause.RECEIVE
    entries["attempts"] = decision.attempts
    entries["lease"] = decision.leases
    entries["time"] = decision.deadline_ms
    state.hours.put_states(refs, entries, decision.group)
    state.hours.touch(refs, end)
    known = state.leases.get(decision.lease) is not None
    rows = state.hours.rows(refs) if rows is None else rows
    keys = rows["key_hash"].astype(np.uint64) if some(rows["key_hash"]) else None
    origins: Int64Array = rows["origin"].astype(np.int64)
    if every(origins == refs):
        origins = refs
    if decision.counts:
        for one, mine in decision.apart():
            # Copied, since a view would keep the whole column in memory.
            own = one.refs if origins is refs else origins[mine].copy()
            state.leases.add(one, own, None if keys is None else keys[mine].copy())
    else:
        state.leases.add(decision, origins, keys)
    state.leased(decision.last_lease)
    group = state.group(decision.topic, decision.group)
    if decision.claim and not known:
        state.claims.add(decision)
    if group is not None and not known:
        group.counts.handed_out(len(refs))
        if keys is not None:
            group.gate.lock(keys[keys != 0])
    return origins


class FewLeases(NamedTuple):
    """What a LEASE frame leases that has few messages, all plain; as in a `LeaseDecision`."""

    number: int
    topic: int
    group: int
    deadline_ms: int
    refs: Sequence[int]
    origins: Sequence[int]
    attempts: Sequence[int]
    counts: Sequence[int]
    consumers: Sequence[str]
    addresses: Sequence[str]


@whole
def apply_lease_few(state: EngineState, leased: FewLeases, end: int) -> None:
    """Lease few messages without keys under new leases; `apply_lease` does the same in columns."""
    number, topic, place, deadline_ms, *_ = leased
    state.before_change(topic)
    start = 0
    entries: list[bytes] = []
    for at, count in enumerate(leased.counts or (len(leased.refs),)):
        few: dict[int, tuple[int, int]] = {}
        for k in range(start, start + count):
            attempts = leased.attempts[k]
            few[leased.origins[k]] = leased.refs[k], attempts
            entries.append(sealed_values(_LEASED, _RECEIVE, attempts, number + at, deadline_ms))
        start += count
        state.leases.add_few(
            (topic, place),
            number + at,
            few,
            deadline_ms=deadline_ms,
            consumer=leased.consumers[at] if at < len(leased.consumers) else "",
            address=leased.addresses[at] if at < len(leased.addresses) else "",
        )
        last = number + at
    for hour in put_few(state.hours, leased.refs, entries, place):
        state.hours.counts.near[hour].position = end
    state.leased(last)
    group = state.by_number[topic].groups[place]
    group.counts.handed_out(start)


@whole
def apply_extend_few(
    state: EngineState,
    lease: Lease,
    rows: Mapping[int, tuple[int, int]],
    deadline_ms: int,
    end: int,
) -> None:
    """Change the deadline of all rows of a lease, which are few."""
    state.before_change(lease.topic)
    entries = [
        sealed_values(_LEASED, _RECEIVE, attempts, lease.number, deadline_ms)
        for _, attempts in rows.values()
    ]
    refs = [ref for ref, _ in rows.values()]
    for hour in put_few(state.hours, refs, entries, lease.group):
        state.hours.counts.near[hour].position = end
    state.leases.extend_few(lease, deadline_ms)


class FewAcked(NamedTuple):
    """What a SETTLE frame acks that has few messages, all of them from leases with few."""

    refs: Sequence[int]
    origins: Sequence[int]
    attempts: Sequence[int]
    leases: Sequence[tuple[Lease, Sequence[int]]]
    """Leases, and the origins of their messages."""
    keep_until_ms: int


@whole
def apply_ack_few(
    state: EngineState, topic: Topic, group: Group, acked: FewAcked, end: int, at_ms: int
) -> None:
    """Ack few messages without keys; `apply_settle` does the same in columns."""
    state.before_change(topic.number)
    n, keep_until_ms = len(acked.refs), acked.keep_until_ms
    entries = [sealed_values(_ACKED, _ACK, each, 0, at_ms) for each in acked.attempts]
    by_hour = put_few(state.hours, acked.refs, entries, group.number)
    topic.keep_until_ms = max(topic.keep_until_ms, keep_until_ms)
    for lease, origins in acked.leases:
        state.leases.close_few(lease, origins)
    left_leases(state, topic, group, at_ms)
    if state.schedules.awaited:
        state.schedules.ended(acked.origins)
    state.hours.counts.count_living(by_hour, -1, end, keep_until_ms)
    group.hours.add(by_hour, -1)
    group.counts.acked_from_lease(n)


@whole
def apply_settle(state: EngineState, decision: SettleDecision, end: int, at_ms: int) -> None:
    """Store the states in the frame. `at_ms` = the leader's time in it."""
    state.before_change(decision.topic)
    refs, entries = decision.refs, decision.entries
    state.hours.put_states(refs, entries, decision.group)
    group = state.group(decision.topic, decision.group)
    if group is not None and decision.keep_until_ms:
        topic = state.by_number[decision.topic]
        topic.keep_until_ms = max(topic.keep_until_ms, decision.keep_until_ms)
    if len(entries) and int(entries["cause"][0]) in FAILURES and not decision.was:
        _note_failures(state, decision, at_ms)
    keyed = leave_leases(state, (decision.topic, group), refs, decision.leases, at_ms)
    kinds = entries["state"]
    if decision.was:
        _change_ended(state, decision, group, end)
        return
    if int(entries["cause"][0]) == Cause.REPLACED:
        lengths = [(int(MessageState.REPLACED), len(refs))]
    elif alike(kinds):
        lengths = [(int(kinds[0]), len(refs))]
    else:
        found, counted = np.unique(kinds, return_counts=True)
        lengths = list(zip(found.tolist(), counted.tolist(), strict=True))
    ended = kinds >= STATE_ENDED_FIRST
    if state.schedules.awaited:
        origins = refs if decision.origins is None else decision.origins
        state.schedules.ended(origins.tolist())
    if every(ended):
        _end(state, decision, group, refs, end)
    else:
        state.hours.touch(refs, end)
        if some(ended):
            _end(state, decision, group, refs[ended], end, ended)
    if group is not None and group.made_gate is not None and group.gate.in_use:
        if some(ended):
            origins = refs if decision.origins is None else decision.origins
            if not every(ended):
                origins = origins[ended]
            free_keys(state, state.by_number[decision.topic], group, keyed, origins)
        else:
            for each in keyed:
                group.gate.retry(each.keys, each.origins)
    for kind, n in lengths:
        if group is not None and kind >= STATE_ENDED_FIRST:
            group.counts.ended(kind, n)


def _note_failures(state: EngineState, decision: SettleDecision, at_ms: int) -> None:
    entries = decision.entries
    attempts = np.broadcast_to(entries["attempts"], (len(decision.refs),)).astype(np.int64)
    failed = Failed(
        decision.topic,
        decision.group,
        decision.refs,
        attempts,
        int(entries["cause"][0]),
        int(entries["state"][0]) == MessageState.DEAD,
        at_ms,
        decision.reason,
    )
    note_failures(state, failed, decision.leases)


def leave_leases(
    state: EngineState,
    owner: tuple[int, Group | None],
    refs: Int64Array,
    leases: Column | None,
    at_ms: int,
) -> list[Keyed]:
    """Close rows of leases of a topic's group; returns the keys and origins of those with keys."""
    out: list[Keyed] = []
    topic, group = owner
    if leases is None or len(refs) == 0:
        return out
    if isinstance(leases, int):
        parts = [(leases, refs)]
    else:
        parts = [(number, refs[at]) for number, at in grouped(leases)]
    for number, mine in parts:
        if number:
            keyed = state.leases.close(number, mine)
            if keyed is not None:
                out.append(keyed)
            if group is not None:
                group.counts.add("leased", -len(mine))
    if group is not None and any(number for number, _ in parts):
        left_leases(state, state.by_number[topic], group, at_ms)
    return out


def left_leases(state: EngineState, topic: Topic, group: Group, at_ms: int) -> None:
    """Messages of a group have left their leases: consumers were busy, and there is room."""
    place = topic.number, group.number
    state.timeline.settled((topic.namespace, topic.name, group.name), place, at_ms)
    if place in state.marks.lease_full:
        # A consumer that was refused at `leased_max` may receive again.
        state.marks.lease_full.discard(place)
        state.marks.newly_ready.add(place)


def _change_ended(
    state: EngineState, decision: SettleDecision, group: Group | None, end: int
) -> None:
    """Give ended rows another ended state. Counts of living messages do not change."""
    refs, kinds = decision.refs, decision.entries["state"]
    origins = refs if decision.origins is None else decision.origins
    for rows in (refs, origins):
        state.hours.keep_until(rows, end, decision.keep_until_ms)
    if group is not None:
        for kind, n in zip(*np.unique(kinds, return_counts=True), strict=True):
            group.counts.changed(decision.was, int(kind), int(n))


def _end(
    state: EngineState,
    decision: SettleDecision,
    group: Group | None,
    refs: Int64Array,
    end: int,
    mask: npt.NDArray[np.bool_] | None = None,
) -> None:
    if group is None:
        # The group was dropped, and its living rows were subtracted then.
        state.hours.touch(refs, end)
        return
    by_hour = per_hour(refs)
    state.hours.counts.count_living(by_hour, -1, end, decision.keep_until_ms)
    group.hours.add(by_hour, -1)
    origins = decision.origins
    if origins is not None:
        guests = guests_per_hour(refs, origins if mask is None else origins[mask])
        state.hours.counts.count_guests(guests, -1, end, decision.keep_until_ms)
        group.guests.add(guests, -1)


# ---------------------------------------------------------------------------------------- CLAIM


def append_claim(state: EngineState, members: dict[str, Any], now_ms: int) -> None:
    """Append a CLAIM frame and apply it."""
    _, end = state.append(FrameKind.CLAIM, [msgpack.packb(members)], now_ms)
    apply_claim(state, members, end)


@whole
def apply_claim(state: EngineState, members: dict[str, Any], end: int) -> None:
    """Apply a CLAIM frame."""
    claims = state.claims
    op, number = members["op"], members["number"]
    if op == "begin":
        claims.begin(
            Claim(
                number=number,
                topic=members["topic"],
                group=members["group"],
                name=members["name"],
                count_max=members["max"],
                lease_ms=members["lease_ms"],
                deadline_ms=members["deadline"],
                only=members["only"],
                position=end,
            )
        )
        return
    claim = claims.get(number)
    if claim is None:
        # Its group was dropped, and its claims with it.
        return
    claim.position = end
    if op == "end":
        claims.end(claim, members["state"])
    elif op == "forget":
        claims.forget(claim)
    else:
        assert op in ("open", "extend", "settle"), op
        deadline_ms = members["deadline"]
        claims.change(claim, {"open": OPEN}.get(op, members.get("state", OPEN)), deadline_ms)
        for lease in claim.leases:
            state.leases.extend(lease, deadline_ms)
