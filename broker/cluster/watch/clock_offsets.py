"""How far the clocks of other nodes are ahead of this node's, measured as NTP does (RFC 5905).

Every status completes one exchange of four times: this node sent its status at `sent` (its clock),
the peer got it at `heard` and answered at `answered` (the peer's clock), and the answer came at
`got` (this node's clock again):

    offset = ((heard - sent) + (answered - got)) / 2        the peer's clock minus this node's
    delay  = (got - sent) - (answered - heard)              the round-trip time

However the delay is distributed over the two directions, the true offset is within half of it. So
the sample with the smallest delay of the last eight counts. A sample that contradicts older ones
(the ranges do not overlap) shows that a clock was stepped: the older ones are dropped.

Pure: times are arguments. Offsets are in microseconds, positive where the other clock is ahead.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

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
