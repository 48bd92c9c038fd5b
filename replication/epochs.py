"""Epochs: the numbers of leaderships, the table of their first positions in a log, and their ticks.

An epoch is a number: a counter (48 bits) and, in its low bits, the index of the leader (16 bits).
So every epoch has one owner, and any two are ordered. A log contains its table: each leadership
begins with an EPOCH_BEGIN frame, and every frame after it has the same epoch until the next one.
Two logs with a common epoch are equal up to the earlier end of that epoch in them, so two tables
are enough to find the common prefix of two logs.

The tick of a cluster is the watermark of dispatch, and its epoch. Ticks are ordered by epoch first.
A leader can start from the tick of any epoch because of the position that it covers: every message
before that position that is due by the tick was handed out; it states nothing about later messages.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from delaylog.replication.configuration import NODE_MAX, Configuration
from delaylog.replication.errors import DivergedError, PeerError
from delaylog.storage.layout import EPOCH_NODE_BITS
from delaylog.storage.log.frames import Tick

COUNTER_MAX: Final = (1 << (64 - EPOCH_NODE_BITS)) - 1

EpochEntries: TypeAlias = tuple[tuple[int, int], ...]
"""(epoch, first position) of each leadership, oldest first."""


def make_epoch(counter: int, node: int) -> int:
    """The epoch of a node's leadership."""
    assert 0 <= counter <= COUNTER_MAX, "an epoch's counter has 48 bits"
    assert 0 <= node <= NODE_MAX, "a node's index has 16 bits"
    return counter << EPOCH_NODE_BITS | node


def epoch_counter(epoch: int) -> int:
    """The counter of an epoch, which promises compare."""
    return epoch >> EPOCH_NODE_BITS


def epoch_node(epoch: int) -> int:
    """The node that leads in an epoch."""
    return epoch & NODE_MAX


class EpochTable:
    """The first position and the configuration of each epoch in one log."""

    __slots__ = ("_began_ms", "_configurations", "_epochs", "_starts")

    def __init__(
        self, entries: Iterable[tuple[int, int]] = (), newest: Configuration | None = None
    ) -> None:
        """`newest` = the configuration of the last entry, which is never cut."""
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self._configurations: list[Configuration | None] = []
        self._began_ms: list[int] = []
        for epoch, start in entries:
            self.begin(epoch, start)
        if self._epochs:
            self._configurations[-1] = newest

    def begin(
        self, epoch: int, start: int, configuration: Configuration | None = None, began_ms: int = 0
    ) -> None:
        """A new epoch begins at `start`, after all others. Raises DivergedError.

        `began_ms` = the leader's time in Unix ms; 0 = not known, as for a checkpoint's entries.
        """
        if self._epochs and not (epoch > self._epochs[-1] and start > self._starts[-1]):
            raise DivergedError("an epoch begins out of order", position=start, epoch=epoch)
        self._epochs.append(epoch)
        self._starts.append(start)
        self._configurations.append(configuration)
        self._began_ms.append(began_ms)

    def cut(self, position: int) -> None:
        """The log ends at `position` now."""
        keep = bisect_left(self._starts, position)
        for column in (self._epochs, self._starts, self._configurations, self._began_ms):
            del column[keep:]

    def forget(self, position: int) -> None:
        """Frames below `position` were removed: drop the epochs that only they have.

        The epoch of the frame before `position` stays, since `before` asks for it.
        """
        drop = max(bisect_left(self._starts, position) - 1, 0)
        for column in (self._epochs, self._starts, self._configurations, self._began_ms):
            del column[:drop]

    @property
    def last_epoch(self) -> int:
        """The newest epoch; 0 in an empty log."""
        return self._epochs[-1] if self._epochs else 0

    def configurations(self, version: int) -> list[Configuration]:
        """The known configurations with a version above `version`, oldest first."""
        known = (each for each in self._configurations if each is not None)
        return [each for each in known if each.version > version]

    @property
    def configuration(self) -> Configuration | None:
        """The configuration of the newest epoch; None = the founding one, which is in no log."""
        return self._configurations[-1] if self._configurations else None

    def at(self, position: int) -> int:
        """The epoch of the frame with the byte at `position`; 0 if none is known."""
        found = bisect_right(self._starts, position) - 1
        return self._epochs[found] if found >= 0 else 0

    def before(self, position: int) -> int:
        """The epoch of the frame that ends at `position`; 0 at the start of the log."""
        return self.at(position - 1)

    def newest(self, count: int) -> list[tuple[int, int]]:
        """(epoch, when it began in Unix ms, 0 = not known) of the newest epochs, newest first."""
        both = zip(self._epochs[-count:], self._began_ms[-count:], strict=True)
        return list(both)[::-1]

    def entries(self) -> EpochEntries:
        """All entries, oldest first."""
        return tuple(zip(self._epochs, self._starts, strict=True))


def common_end(mine: EpochEntries, my_end: int, theirs: EpochEntries, their_end: int) -> int | None:
    """The end of the common prefix of two logs; None if the tables cannot tell.

    It follows from the newest epoch that both have. The tables cannot tell if they share no epoch
    and one log has lost its beginning: then only a copy helps. Raises PeerError if an epoch begins
    at two positions, which correct logs never have.

    Example: [(1, 0), (2, 500)] to 700 and [(1, 0), (3, 400)] to 900 share epoch 1, which ends at
    400 in the second log, so the common prefix ends there.
    """
    if my_end == 0 or their_end == 0:
        return 0
    starts = dict(theirs)
    for at in range(len(mine) - 1, -1, -1):
        epoch, start = mine[at]
        other = starts.get(epoch)
        if other is None:
            continue
        if other != start:
            raise PeerError(f"epoch {epoch:#x} begins at {start} and at {other}")
        return min(_leaves(mine, epoch, my_end), _leaves(theirs, epoch, their_end))
    whole = bool(mine) and bool(theirs) and mine[0][1] == 0 and theirs[0][1] == 0
    return 0 if whole else None


def _leaves(entries: EpochEntries, epoch: int, end: int) -> int:
    """The end of an epoch in a log."""
    for other, start in reversed(entries):
        if other == epoch:
            break
        end = start
    return end


# ------------------------------------------------------------------------- the tick of an epoch


class EpochTick(NamedTuple):
    """The watermark (epoch, second, local_index, position); the wall time only refines it."""

    epoch: int = 0
    second: int = 0
    local_index: int = 0
    position: int = 0
    wall_ms: int = 0

    @property
    def tick(self) -> Tick:
        """The tick without its epoch, as frames carry it."""
        return Tick(self.second, self.local_index, self.position)

    @property
    def time_ms(self) -> int:
        """The time of the watermark: the second, or the wall time if it is in that second."""
        return self.wall_ms if self.wall_ms // 1000 == self.second else self.second * 1000


NO_TICK = EpochTick()
