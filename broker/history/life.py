"""The events of one message by kind and group, when its leases were open, and what marks excuse.

Doubts are resolved in the broker's favour: a lease is *held* only if nothing could have ended it,
and *over* as soon as something could. The end of a lease is known by two clocks, the broker's
(`now`, `lease_until`) and the client's (`t0`, `t1`). The broker's is more exact, because a receive
may wait for long before it takes a message. It decides, unless it was stepped.

A mark states a kill, a failover, a clock step, or the end. It covers `[t - slack_ms, until +
slack_ms]`, since the test writes it a little before or after the event itself. A kill or failover
may lose leases that were not yet durable, so it excuses a repeated delivery; a *planned* failover
loses nothing and excuses nothing. Broker times before and after a clock step cannot be compared.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter

from delaylog.broker.history.events import ABSENT, FOREVER, Event, EventStore, Kind, Result, unpack
from delaylog.broker.history.model import Mark
from delaylog.broker.history.report import CheckSettings, Findings

# ---------------------------------------------------------------------------------------- marks


class Windows:
    """Closed intervals. Finds in logarithmic time whether any of them meets another interval."""

    __slots__ = ("_firsts", "_lasts_max", "_names")

    def __init__(self, intervals: Iterable[tuple[int, int, str]]) -> None:
        self._firsts: list[int] = []
        self._lasts_max: list[int] = []
        self._names: list[str] = []
        # Of all windows that begin before a time, the one that ends last decides whether any
        # reaches it. So each entry has the latest end so far and the name of that window.
        latest = (-FOREVER, "")
        for first, last, name in sorted(intervals):
            latest = max(latest, (last, name))
            self._firsts.append(first)
            self._lasts_max.append(latest[0])
            self._names.append(latest[1])

    def meets(self, first: int, last: int) -> bool:
        """Whether any window meets `[first, last]`."""
        return self.meeting(first, last) is not None

    def meeting(self, first: int, last: int) -> str | None:
        """The name of a window that meets `[first, last]`, if there is one."""
        index = bisect_right(self._firsts, last) - 1
        if index < 0 or self._lasts_max[index] < first:
            return None
        return self._names[index]


class Marks:
    """All marks of a history, indexed for queries."""

    __slots__ = ("_clock", "_disturbed", "_losses", "_losses_ms", "counts", "end_ms", "faults",
                 "groups")  # fmt: skip

    def __init__(self, marks: Iterable[Mark], *, slack_ms: int, settle_ms: int) -> None:
        losses: list[tuple[int, int, str]] = []
        clock: list[tuple[int, int, str]] = []
        disturbed: list[tuple[int, int, str]] = []
        self.counts: dict[str, int] = {}
        self.end_ms = FOREVER
        """Consumers drained the queue until this time: the earliest `end` mark."""
        self.groups: dict[str, int] = {}
        """Announced groups and when: each must see every message sent after that time."""
        self.faults: list[tuple[str, int, int]] = []
        """Kills, failovers and clock steps: kind, first and last time."""
        for mark in marks:
            self.counts[mark.kind] = self.counts.get(mark.kind, 0) + 1
            first, last = mark.t - slack_ms, mark.until + slack_ms
            if mark.kind == "end":
                self.end_ms = min(self.end_ms, mark.t)
            elif mark.kind == "group":
                name = mark.group or ""
                self.groups[name] = min(self.groups.get(name, FOREVER), mark.t)
            else:
                self.faults.append((mark.kind, mark.t, mark.until))
                disturbed.append((first, last + settle_ms, mark.kind))
                if mark.kind == "clock":
                    clock.append((first, last, mark.kind))
                elif not mark.planned:
                    losses.append((first, last, mark.kind))
        self._losses = Windows(losses)
        self._clock = Windows(clock)
        self._disturbed = Windows(disturbed)
        self._losses_ms = sorted(first + slack_ms for first, _, _ in losses)

    def lease_loss(self, first_ms: int, last_ms: int) -> str | None:
        """`kill` or `failover` if one may have lost a lease between these client times."""
        return self._losses.meeting(first_ms, last_ms)

    def clock_stepped(self, first_ms: int, last_ms: int) -> bool:
        """Whether the broker's clock may have been stepped between these client times."""
        return self._clock.meets(first_ms, last_ms)

    def disturbed(self, first_ms: int, last_ms: int) -> bool:
        """Whether lateness between these times may be due to a fault and its aftermath."""
        return self._disturbed.meets(first_ms, last_ms)

    def repeated_span_ms(self, first_ms: int, last_ms: int) -> int:
        """Time from a delivery at `first_ms` to the next kill or failover; 0 if after `last_ms`."""
        index = bisect_right(self._losses_ms, first_ms)
        if index == len(self._losses_ms) or self._losses_ms[index] > last_ms:
            return 0
        return self._losses_ms[index] - first_ms


# ---------------------------------------------------------------------------------- one message

by_t0 = attrgetter("t0")
by_t1 = attrgetter("t1")

# Looking up an enum member costs more than comparing with it.
_SEND, _DELIVER, _CANCEL = int(Kind.SEND), int(Kind.DELIVER), int(Kind.CANCEL)
_RESCHEDULE, _DEAD = int(Kind.RESCHEDULE), int(Kind.DEAD)
_SETTLES = frozenset((int(Kind.ACK), int(Kind.NACK), int(Kind.GONE), int(Kind.EXTEND)))
_NOTHING: tuple[Event, ...] = ()


class Context:
    """The parts of a check that all rules use."""

    __slots__ = ("findings", "group_count", "marks", "settings", "store")

    def __init__(
        self, store: EventStore, marks: Marks, settings: CheckSettings, findings: Findings
    ) -> None:
        self.store = store
        self.marks = marks
        self.settings = settings
        self.findings = findings
        self.group_count = len(store.group_names)


class GroupLife:
    """Deliveries and settles of one message in one group; settles are sorted by `t0`."""

    __slots__ = ("deliveries", "settles", "stray_ms")

    def __init__(self) -> None:
        self.deliveries: list[Event] = []
        self.settles: list[Event] = []
        self.stray_ms = FOREVER
        """Start of a nack without a lease and with an unknown outcome: it may end any later lease.
        """

    def settles_of(self, delivery: Event, last_ms: int) -> Sequence[Event]:
        """Settles that may concern this delivery's lease and began by `last_ms`."""
        settles = self.settles
        if not settles:
            return _NOTHING
        lease = delivery.lease
        first = bisect_left(settles, delivery.t0, key=by_t0)
        last = bisect_right(settles, last_ms, key=by_t0)
        return [s for s in settles[first:last] if s.lease == lease or not s.lease or not lease]


class Life:
    """All events of one id."""

    __slots__ = ("cancels", "dead", "groups", "moves", "name", "sends", "unseen")

    def __init__(self, name: str, events: bytes | bytearray) -> None:
        self.name = name
        self.sends: list[Event] = []
        self.moves: list[Event] = []
        self.cancels: list[Event] = []
        self.dead: list[Event] = []
        self.unseen: list[Event] = []
        """Receives of this id whose answer was lost: they may or may not have taken the message."""
        self.groups: dict[int, GroupLife] = {}
        for event in unpack(events):
            kind = event.kind
            if kind == _SEND:
                self.sends.append(event)
            elif kind == _DELIVER:
                if event.t1 == FOREVER:
                    self.unseen.append(event)
                else:
                    self.group(event.group).deliveries.append(event)
            elif kind in _SETTLES:
                self.group(event.group).settles.append(event)
            elif kind == _CANCEL:
                self.cancels.append(event)
            elif kind == _RESCHEDULE:
                self.moves.append(event)
            else:
                assert kind == _DEAD
                self.dead.append(event)
        if 0 in self.groups and len(self.groups) > 1:
            self._find_groups()
        for group in self.groups.values():
            settles = group.settles
            if len(settles) > 1:
                settles.sort(key=by_t0)
            for settle in settles:
                if settle.kind == Kind.NACK and settle.t1 == FOREVER and not settle.lease:
                    group.stray_ms = settle.t0
                    break

    def _find_groups(self) -> None:
        """Move each settle without a group to the group of the delivery with the same lease."""
        of_lease = {d.lease: g for g in self.groups.values() for d in g.deliveries if d.lease}
        nameless = self.groups[0]
        settles, nameless.settles = nameless.settles, []
        for settle in settles:
            of_lease.get(settle.lease, nameless).settles.append(settle)

    def group(self, number: int) -> GroupLife:
        """The part of one group, created at its first event."""
        group = self.groups.get(number)
        if group is None:
            group = self.groups[number] = GroupLife()
        return group

    def key(self) -> int:
        """The key if all sends have the same one, else 0."""
        keys = {send.key for send in self.sends}
        return keys.pop() if len(keys) == 1 else 0

    def sources(self) -> list[Event]:
        """Sends that may have created a message, by `t0`.

        A send answered `kept` or `replaced` found a message and created none. If the history has
        only such sends, the first represents the creating send that was not recorded.
        """
        sends = self.sends
        if len(sends) == 1:
            return sends
        made = [s for s in sends if s.note not in (Result.KEPT, Result.REPLACED)]
        return sorted(made or sends[:1], key=by_t0)


def applies(event: Event, group: int) -> bool:
    """Whether a cancel or reschedule acts in this group; without a group it acts in all."""
    return event.group == 0 or event.group == group


def lease_end_ms(delivery: Event, settles: Sequence[Event], default_ms: int) -> tuple[int, int]:
    """Earliest end of the lease, by the client's clock and by the broker's.

    The client's is counted from the start of the call, so it may be too early but never too late.
    The broker's is `ABSENT` if unknown. An extension sets both, and may set an earlier end. Of two
    that overlap either may be the last; one without an answer may come after all.
    """
    client_ms = delivery.t0 + (delivery.span_ms or default_ms)
    broker_ms = delivery.until
    if broker_ms == ABSENT and delivery.now != ABSENT:
        broker_ms = delivery.now + (delivery.span_ms or default_ms)
    answered_ms, unknown_ms = -FOREVER, FOREVER
    for settle in settles:
        if settle.kind != Kind.EXTEND:
            continue
        span_ms = settle.span_ms or default_ms
        if settle.t1 == FOREVER:
            unknown_ms = min(unknown_ms, span_ms)
        elif settle.t0 > answered_ms:
            client_ms, broker_ms = settle.t0 + span_ms, settle.until
        else:
            client_ms = min(client_ms, settle.t0 + span_ms)
            broker_ms = min(broker_ms, settle.until)
        if settle.t0 + unknown_ms < client_ms:
            client_ms, broker_ms = settle.t0 + unknown_ms, ABSENT
        if settle.is_known:
            answered_ms = max(answered_ms, settle.t1)
    return client_ms, broker_ms


def tolerance_ms(delivery: Event, default_ms: int) -> int:
    """Allowed drift between two clocks during a lease: 0.1 %, and 1 ms for rounding."""
    return 1 + (delivery.span_ms or default_ms) // 1000


def expired_before(first: Event, second: Event, settles: Sequence[Event], context: Context) -> bool:
    """Whether the first delivery's lease may have expired before the second delivery."""
    default_ms, marks = context.settings.lease_ms, context.marks
    client_ms, broker_ms = lease_end_ms(first, settles, default_ms)
    slack_ms = tolerance_ms(first, default_ms)
    if broker_ms != ABSENT and second.now != ABSENT:
        if second.now >= broker_ms - slack_ms and not marks.clock_stepped(first.t0, second.t1):
            return True
        # After a backward step the broker's clock may stand still for long, but leases run on.
        if not marks.clock_stepped(-FOREVER, second.t1):
            return False
    return second.t1 >= client_ms - slack_ms


def held_at(delivery: Event, group: GroupLife, at_ms: int, context: Context) -> bool:
    """Whether the delivery's lease was certainly open until the client time `at_ms`."""
    settles = group.settles_of(delivery, at_ms)
    if group.stray_ms <= at_ms or any(s.kind != Kind.EXTEND for s in settles):
        return False
    if context.marks.lease_loss(delivery.t0, at_ms):
        return False
    default_ms = context.settings.lease_ms
    client_ms, _ = lease_end_ms(delivery, settles, default_ms)
    if at_ms >= client_ms - tolerance_ms(delivery, default_ms):
        return False
    # Another delivery that may be later proves that this lease may have ended.
    others = (d for d in group.deliveries if d is not delivery)
    return not any(d.t0 <= at_ms and d.t1 >= delivery.t0 for d in others)
