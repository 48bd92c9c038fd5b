"""Alarms about clocks that differ: logged, shown in the status, and used by the fitness judgement.

An alarm is raised once an offset exceeds its bound for certain, whatever the network did to the
measurement, and ends when the offset is below four fifths of the bound. This node's own clock is
compared with the median of all clocks, so three nodes are needed to tell which clock is wrong. An
alarm that three clocks have raised stays when one of the nodes fails, which is when a leader is
elected: until this node's clock agrees with one of the remaining clocks.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from delaylog.broker.cluster.members.node_status import Status
from delaylog.broker.host.watch.quiet_log import QuietLog

# How far the clocks of other nodes are ahead of this node's, measured as NTP does (RFC 5905).
#
# Every status completes one exchange of four times: this node sent its status at `sent` (its
# clock), the peer got it at `heard` and answered at `answered` (the peer's clock), and the answer
# came at `got` (this node's clock again):
#
#     offset = ((heard - sent) + (answered - got)) / 2        the peer's clock minus this node's
#     delay  = (got - sent) - (answered - heard)              the round-trip time
#
# However the delay is distributed over the two directions, the true offset is within half of it. So
# the sample with the smallest delay of the last eight counts. A sample that contradicts older ones
# (the ranges do not overlap) shows that a clock was stepped: the older ones are dropped.
#
# Pure: times are arguments. Offsets are in microseconds, positive where the other clock is ahead.

SAMPLES_KEPT: Final = 8
DRIFT_PPM: Final = 1_000
"""Fastest drift of two clocks during an exchange: twice the maximum slew rate of ntpd."""
CLOCKS_MIN: Final = 3
"""With two clocks it is not known which one is wrong."""


class Exchange(NamedTuple):
    """The four times of one exchange, in microseconds of the wall clocks."""

    sent: int
    heard: int
    answered: int
    got: int


@dataclass(frozen=True, slots=True)
class Offset:
    """A measured offset, and the range of the true offset."""

    us: int
    low_us: int
    high_us: int

    @property
    def uncertainty_us(self) -> int:
        """The largest possible difference of the true offset and the measured one."""
        return max(self.us - self.low_us, self.high_us - self.us)

    @property
    def at_least_us(self) -> int:
        """The least possible difference of the clocks; 0 if they may agree."""
        return max(self.low_us, -self.high_us, 0)

    def meets(self, other: Offset) -> bool:
        """Whether the ranges overlap, so that both can be true."""
        return self.low_us <= other.high_us and other.low_us <= self.high_us

    def less(self, other: Offset) -> Offset:
        """This offset relative to a clock that is itself ahead by `other`."""
        return Offset(self.us - other.us, self.low_us - other.high_us, self.high_us - other.low_us)


AGREES: Final = Offset(0, 0, 0)


def measure(exchange: Exchange) -> Offset | None:
    """The offset that one exchange shows; None if a clock was stepped during it."""
    sent, heard, answered, got = exchange
    delay = (got - sent) - (answered - heard)
    drift = abs(got - sent) * DRIFT_PPM // 1_000_000
    if delay < -drift or got < sent:
        return None
    us = ((heard - sent) + (answered - got)) // 2
    # One microsecond for rounding.
    uncertainty = max(delay, 0) // 2 + drift + 1
    return Offset(us, us - uncertainty, us + uncertainty)


class ClockOffsets:
    """The measured offsets of all connected peers."""

    def __init__(self) -> None:
        self._samples: dict[int, list[Offset]] = {}

    def take(self, peer: int, exchange: Exchange) -> None:
        """Add an exchange with a peer."""
        sample = measure(exchange)
        if sample is None:
            return
        kept = [each for each in self._samples.get(peer, ()) if each.meets(sample)]
        self._samples[peer] = [*kept, sample][-SAMPLES_KEPT:]

    def lost(self, peer: int) -> None:
        """Forget a peer that was disconnected; another process may answer next."""
        self._samples.pop(peer, None)

    def of(self, peer: int) -> Offset | None:
        """The offset of a peer's clock; None until it is measured."""
        samples = self._samples.get(peer)
        return _best(samples) if samples else None

    def all(self) -> dict[int, Offset]:
        """The offset of every measured peer."""
        return {peer: _best(samples) for peer, samples in self._samples.items()}

    def middle(self) -> Offset | None:
        """The offset of the median of all clocks, which include this node's.

        None while fewer than three clocks are known. With an even number, the one of the two middle
        clocks that is nearer to this node's: two equal groups of clocks prove nothing.
        """
        found = [AGREES, *self.all().values()]
        if len(found) < CLOCKS_MIN:
            return None
        # The median of the lower ends is below the true median, that of the upper ends above it.
        return Offset(
            _middle([each.us for each in found]),
            _middle([each.low_us for each in found]),
            _middle([each.high_us for each in found]),
        )


def _best(samples: Sequence[Offset]) -> Offset:
    return min(samples, key=lambda sample: sample.uncertainty_us)


def _middle(values: Sequence[int]) -> int:
    ordered = sorted(values)
    low, high = ordered[(len(ordered) - 1) // 2], ordered[len(ordered) // 2]
    return max(low, min(high, 0))


WARN_MS: Final = 250
"""Offset between the clocks of two nodes: NTP keeps them within some milliseconds, so a larger one
means that it does not work on one of them."""
STAND_MS: Final = 2_000
"""Offset of a node's clock from the median of all nodes beyond which it does not lead."""

log = logging.getLogger("delaylog.cluster")


class Alarm:
    """The alarm for one offset and one bound, with hysteresis."""

    def __init__(self) -> None:
        self.raised = False

    def look(self, offset: Offset | None, bound_ms: int) -> bool:
        """Take the newest offset (None = unknown); returns whether the alarm has changed."""
        before = self.raised
        if offset is None:
            return False
        if self.raised:
            self.raised = abs(offset.us) >= bound_ms * 800
        else:
            self.raised = offset.at_least_us > bound_ms * 1_000
        return self.raised != before


class ClockWatch:
    """The clocks as one node measures them."""

    def __init__(self, name: Callable[[int], str]) -> None:
        """`name` = the name of a peer for log lines."""
        self._name = name
        self.offsets = ClockOffsets()
        self._peers: dict[int, Alarm] = {}
        self._own = Alarm()
        self._unfit = Alarm()
        self._quiet = QuietLog(log)

    def hear(self, peer: int, status: Status, wall_us: int) -> None:
        """A peer's status came at `wall_us`; it may answer a status of this node."""
        if status.echo_wall_us:
            times = (status.echo_wall_us, status.echo_heard_us, status.wall_us, wall_us)
            self.offsets.take(peer, Exchange(*times))

    def lost(self, peer: int) -> None:
        """A peer was disconnected. Its alarm stays until its clock is measured again."""
        self.offsets.lost(peer)

    def look(self) -> None:
        """Update all alarms; called twice a second."""
        for peer, offset in self.peers.items():
            if self._peers.setdefault(peer, Alarm()).look(offset, WARN_MS):
                self._tell_peer(peer, offset)
        own = self._verdict(self._own)
        if self._own.look(own, WARN_MS) and own is not None:
            self._tell_own(own)
        if self._unfit.look(self._verdict(self._unfit), STAND_MS):
            self._log_fitness()

    def _verdict(self, alarm: Alarm) -> Offset | None:
        """The offset for an alarm about this node's clock; None leaves the alarm as it is."""
        own = self.own
        if own is None and alarm.raised:
            left = [AGREES.less(offset) for offset in self.peers.values()]
            return min(left, key=lambda offset: abs(offset.us), default=None)
        return own

    # ------------------------------------------------------------------ status

    @property
    def peers(self) -> dict[int, Offset]:
        """The offset of each measured peer's clock."""
        return self.offsets.all()

    @property
    def own(self) -> Offset | None:
        """The offset of this node's clock from the median; None with fewer than three clocks."""
        middle = self.offsets.middle()
        return None if middle is None else AGREES.less(middle)

    @property
    def is_off(self) -> bool:
        """Whether this node's clock is so far off that others should lead."""
        return self._unfit.raised

    def facts(self) -> dict[str, Any]:
        """Fields of this node's status."""
        return {"clock_offset_ms": _ms(self.own), "clock_stands_aside": self._unfit.raised}

    def facts_of(self, peer: int | None) -> dict[str, Any]:
        """Fields of a member's row (None = this node's): its clock compared with this node's, and
        whether it is wrong by the median, or by this node's clock while only two are known.
        """
        offset = AGREES if peer is None else self.offsets.of(peer)
        return {
            "clock_ahead_ms": _ms(offset),
            "clock_uncertainty_ms": None if offset is None else -(-offset.uncertainty_us // 1000),
            "clock_off": self._marks(peer, offset),
        }

    def _marks(self, peer: int | None, offset: Offset | None) -> bool | None:
        middle = self.offsets.middle()
        if peer is None:
            return self._own.raised or (None if middle is None else False)
        if offset is None:
            return None
        if middle is None:
            return peer in self._peers and self._peers[peer].raised and not self._own.raised
        return offset.less(middle).at_least_us > WARN_MS * 1_000

    # ------------------------------------------------------------------ log lines

    def _tell_peer(self, peer: int, offset: Offset) -> None:
        extra = {"offset_ms": _ms(offset)}
        if not self._peers[peer].raised:
            log.info("the clocks of this node and %s agree again", self._name(peer), extra=extra)
            return
        self._quiet.tell(
            f"clock {peer}",
            "the clock of %s is %s this node's: one of the two is wrong, look at NTP on both",
            self._name(peer),
            _relation(offset),
        )

    def _tell_own(self, own: Offset) -> None:
        extra = {"offset_ms": _ms(own)}
        if not self._own.raised:
            log.info("the clock of this node agrees with the others again", extra=extra)
            return
        self._quiet.tell(
            "own clock",
            "the clock of this node is %s the median clock of all nodes: look at NTP here",
            _relation(own),
        )

    def _log_fitness(self) -> None:
        if self._unfit.raised:
            self._quiet.tell(
                "stands aside",
                "the clock of this node is off by more than %d ms: it leaves the leadership to "
                "other nodes while one of them can take it",
                STAND_MS,
            )
        else:
            log.info("this node may lead again: its clock is right")


def _ms(offset: Offset | None) -> int | None:
    return None if offset is None else round(offset.us / 1_000)


def _relation(offset: Offset) -> str:
    return f"{abs(offset.us) / 1_000:,.0f} ms {'ahead of' if offset.us > 0 else 'behind'}"
