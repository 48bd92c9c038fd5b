"""Whether a node can do a leader's work, and the moves of the leadership that follow from it.

It is pure: numbers and times come in, decisions go out, and it imports nothing of the broker.
`fitness_watch` collects the numbers of one member and acts on the decisions.

A node judges itself, with hysteresis: it is cut off while it leads and no majority acknowledges its
log, full while sends are refused for lack of space, and slow while its syncs take long and several
times as long as those of another voter. Each has to last before the judgement changes, so it cannot
flap whatever the readings do. Its clock may also be far off.

`refusal` says in one line why a node cannot take the leadership, with the figure; `best` ranks
those that can.

A leader that no majority acknowledges gives the leadership up, since a hand-over needs a majority.
Another unfit leader moves it to the fittest voter; a fit one to a voter of strictly higher priority
that has been able to lead for a while. Attempts are spaced, with exponential backoff after a
failure. The leadership stays while no other connected voter is able to lead.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

# -------------------------------------------------------------------------- judgement of a node

FULL_ON_MS: Final = 1_000
FULL_OFF_MS: Final = 5_000
SLOW_ON_MS: Final = 3_000
HANGS_ON_MS: Final = 1_000
"""The same while a sync does not end: nothing is acknowledged until another node leads."""
SLOW_OFF_MS: Final = 10_000
SLOW_SYNC_MS: Final = 200
"""A median sync below this is never slow: sends are acknowledged by the majority's disks anyway."""
SLOW_FACTOR: Final = 4
"""Compared with the fastest fit voter: when all disks are slow, a hand-over improves nothing."""
GOOD_SHARE: Final = 2
"""A slow node is good again below half of the greater of the two bounds."""
CUT_ON_MS: Final = 500
"""How long that lasts before the leader gives up, so that a stall of this process is no reason."""
CUT_OFF_MS: Final = 5_000
"""How long log has to arrive, here as a follower or at a majority, until the node is fit again."""
CUT_OFF_MS_MAX: Final = 1_800_000
CUT_AGAIN_MS: Final = 3_600_000
"""That time doubles if the node is cut off again within this time: a network that loses only what
it is rarely asked to carry looks sound in between."""
GAP_MS: Final = 2_000
"""Readings further apart than this say nothing about the time in between."""


class Unfit(StrEnum):
    """Why a node is not fit to lead; the values go over the wire and into metrics."""

    FULL = "full"
    SLOW = "slow"
    CLOCK = "clock"
    CUT = "cut"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitness:
    """What a node knows of its own disk and log at one moment."""

    full: bool = False
    """Sends are refused for lack of space, or the log finds none."""
    free_bytes: int = 0
    sync_ms: int = 0
    """Median of recent syncs of the log; 0 = there was none."""
    sync_max_ms: int = 0
    sync_fresh: bool = False
    """The log was synced a moment ago. Older syncs change no judgement: a short burst of slow ones
    before a pause does not make a node slow, and a pause does not make it fit."""
    sync_hangs: bool = False
    """A sync of the log has run for more than a second and has not ended."""
    unapplied_bytes: int = 0
    """Committed log that the engine has not applied."""
    cut: bool | None = None
    """It leads, and no majority acknowledges its log; False = log arrives, here or at a majority;
    None = unknown."""
    clock_off: bool = False
    """The node's clock is far from the median of all clocks; see watch/clock_watch.py."""


class Latch:
    """A condition that must hold for a time before it counts, and be gone for a time to end."""

    def __init__(self, *, on_ms: int, off_ms: int, off_ms_max: int = 0, again_ms: int = 0) -> None:
        """`off_ms` doubles, up to `off_ms_max`, if it counts again within `again_ms`."""
        self.on = False
        self._on_ms, self._off_ms = on_ms, off_ms
        self._off_ms_min, self._off_ms_max = off_ms, off_ms_max
        self._again_ms = again_ms
        self._ended_ms: int | None = None
        self._since_ms: int | None = None
        self._seen_ms = 0

    def look(self, now_ms: int, *, bad: bool, good: bool, on_ms: int | None = None) -> bool:
        """Take a reading, which is bad, good or neither; one that is neither changes nothing.

        `on_ms` replaces the time that bad readings have to last, for this reading.
        """
        assert not (bad and good), "a reading is bad, good or between"
        gap = now_ms - self._seen_ms > GAP_MS
        self._seen_ms = now_ms
        if not (good if self.on else bad):
            self._since_ms = None
        elif self._since_ms is None or gap:
            self._since_ms = now_ms
        elif now_ms - self._since_ms >= (self._off_ms if self.on else on_ms or self._on_ms):
            self.on, self._since_ms = not self.on, None
            if not self.on:
                self._ended_ms = now_ms
            elif self._ended_ms is not None and now_ms - self._ended_ms < self._again_ms:
                self._off_ms = min(2 * self._off_ms, self._off_ms_max)
            else:
                self._off_ms = self._off_ms_min
        return self.on


class Judge:
    """The judgement of one node on itself."""

    def __init__(self) -> None:
        self._cut = Latch(
            on_ms=CUT_ON_MS,
            off_ms=CUT_OFF_MS,
            off_ms_max=CUT_OFF_MS_MAX,
            again_ms=CUT_AGAIN_MS,
        )
        self._full = Latch(on_ms=FULL_ON_MS, off_ms=FULL_OFF_MS)
        self._slow = Latch(on_ms=SLOW_ON_MS, off_ms=SLOW_OFF_MS)
        self._clock_off = False
        self._cut_now = False

    @property
    def unfit(self) -> Unfit | None:
        """Why this node is not fit to lead; None while it is."""
        if self._full.on:
            return Unfit.FULL
        if self._slow.on:
            return Unfit.SLOW
        if self._clock_off:
            return Unfit.CLOCK
        return Unfit.CUT if self._cut.on else None

    @property
    def is_cut(self) -> bool:
        """Whether it is cut off at this moment; `unfit` stays until log has arrived for a while."""
        return self._cut.on and self._cut_now

    def look(self, mine: Fitness, others_sync_ms: Iterable[int], now_ms: int) -> Unfit | None:
        """Take a reading; `others_sync_ms` = the medians of the fit voters that have one."""
        self._cut_now = mine.cut is True
        self._cut.look(now_ms, bad=self._cut_now, good=mine.cut is False)
        self._full.look(now_ms, bad=mine.full, good=not mine.full)
        fastest = min((ms for ms in others_sync_ms if ms), default=0)
        self._slow.look(
            now_ms,
            bad=mine.sync_fresh and _is_slow(mine.sync_ms, fastest, 1),
            good=(mine.sync_fresh or not mine.sync_ms)
            and not _is_slow(mine.sync_ms, fastest, GOOD_SHARE),
            on_ms=HANGS_ON_MS if mine.sync_hangs else None,
        )
        # The clock watch has added hysteresis already.
        self._clock_off = mine.clock_off
        return self.unfit


def _is_slow(mine_ms: int, fastest_ms: int, share: int) -> bool:
    """Whether a median is beyond both bounds, divided by `share`."""
    if not fastest_ms:
        return False
    return mine_ms * share >= max(SLOW_SYNC_MS, SLOW_FACTOR * fastest_ms)


# ------------------------------------------------------------------ who can take the leadership

SILENT_MS_MAX: Final = 1_500
"""Three statuses are missing on an open connection: the process, or its event loop, is stopped."""
LAG_BYTES_MAX: Final = 8 << 20
"""Most log that a target may lack: a hand-over refuses sends, and its deadline is one second."""
PRIORITY_MAX: Final = 100
PRIORITY: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """Another member, as this node sees it now."""

    node: int
    name: str
    connected: bool = True
    votes: bool = True
    silent_ms: int = 0
    """Time since its last status."""
    lag_bytes: int = 0
    """Log that it does not hold durably, as far as this node knows."""
    unapplied_bytes: int = 0
    unfit: str = ""
    """Its own judgement; empty = fit."""
    full: bool = False
    free_bytes: int = 0
    sync_ms: int = 0
    priority: int = PRIORITY
    zone: str = ""


def refusal(peer: Peer) -> str | None:
    """Why the peer cannot take the leadership now; None if it can."""
    name = peer.name
    if not peer.connected:
        return f"{name} is not connected"
    if not peer.votes:
        return f"{name} is a learner and cannot lead yet"
    if peer.silent_ms > SILENT_MS_MAX:
        return f"{name} is stopped: its last status came {peer.silent_ms / 1000:.1f} s ago"
    if peer.unfit == Unfit.CUT:
        return f"{name} has led while no majority acknowledged its log"
    if peer.full or peer.unfit == Unfit.FULL:
        return f"{name} has a full disk: {peer.free_bytes:,} bytes are free for messages"
    if peer.unfit == Unfit.SLOW:
        return f"{name} has a slow disk: a sync takes {peer.sync_ms:,} ms"
    if peer.unfit == Unfit.CLOCK:
        return f"{name} has a wrong clock"
    if peer.unfit:
        return f"{name} is not fit to lead: {peer.unfit[:64]}"
    if peer.lag_bytes > LAG_BYTES_MAX:
        return f"{name} lacks {peer.lag_bytes:,} bytes of the log, more than {LAG_BYTES_MAX:,}"
    if peer.unapplied_bytes > LAG_BYTES_MAX:
        return (
            f"{name} has {peer.unapplied_bytes:,} bytes of the log to apply, "
            f"more than {LAG_BYTES_MAX:,}"
        )
    return None


def able(peers: Iterable[Peer]) -> list[Peer]:
    """The peers that can take the leadership."""
    return [peer for peer in peers if refusal(peer) is None]


def best(peers: Iterable[Peer], *, away_from: str = "") -> Peer | None:
    """The fittest: by priority, then in another zone than `away_from`, then by log and sync."""

    def rank(peer: Peer) -> tuple[int, bool, int, int, int]:
        elsewhere = bool(away_from) and peer.zone != away_from
        lag_bytes = peer.lag_bytes + peer.unapplied_bytes
        return (peer.priority, elsewhere, -lag_bytes, -peer.sync_ms, -peer.node)

    return max(able(peers), key=rank, default=None)


# ----------------------------------------------------------------------- when a leader moves it

RETRY_MS: Final = 5_000
"""Shortest time between two attempts of an unfit leader; it doubles with each failure."""
RETRY_MS_MAX: Final = 60_000
PRIORITY_EVERY_MS: Final = 30_000
PRIORITY_AFTER_MS: Final = 10_000
"""How long a voter of higher priority has to be able to lead without a break."""


class Reason(StrEnum):
    """Why the leadership moves; the values are labels of a metric."""

    FULL = "full"
    SLOW = "slow"
    CLOCK = "clock"
    CUT = "cut"
    PRIORITY = "priority"


@dataclass(frozen=True, slots=True)
class Me:
    """The leader that decides."""

    unfit: Unfit | None = None
    priority: int = PRIORITY
    zone: str = ""
    cut: bool = False
    """No majority acknowledges its log now. `Unfit.CUT` may be about the past: it moves nothing."""

    @property
    def unfit_now(self) -> bool:
        """Whether the leadership should move."""
        return self.cut or self.unfit not in (None, Unfit.CUT)


@dataclass(frozen=True, slots=True)
class Move:
    """A hand-over to begin now."""

    target: Peer
    reason: Reason


def gives_up(me: Me, peers: Sequence[Peer]) -> bool:
    """Whether a leader that is cut off gives up: another voter reports that it can lead, or no
    other member is connected, so that none can report anything.

    A voter that was cut off as the leader may reach those that this node does not reach.
    """
    others = [replace(peer, unfit="") if peer.unfit == Unfit.CUT else peer for peer in peers]
    return me.cut and (bool(able(others)) or not any(peer.connected for peer in others))


class Planner:
    """The plans of one node, whenever it leads."""

    def __init__(self) -> None:
        self._next_ms = 0
        self._next_priority_ms = 0
        self._failures = 0
        self._under_way = False
        self._seen_ms = 0
        self._better_since: dict[int, int] = {}
        """Voters of higher priority -> since when they have been able to lead."""

    def look(self, me: Me, peers: Sequence[Peer], now_ms: int) -> Move | None:
        """The move to begin now, if any; `ended` must follow it. Called while this node leads."""
        self._note_better(me, peers, now_ms)
        if self._under_way:
            return None
        if me.cut:
            return None
        if me.unfit is not None and me.unfit_now:
            target = best(peers, away_from=me.zone) if now_ms >= self._next_ms else None
            if target is None:
                return None
            self._next_ms = now_ms + min(RETRY_MS << self._failures, RETRY_MS_MAX)
            return self._begin(target, Reason(me.unfit.value))
        ripe = [peer for peer in peers if self._is_ripe(peer.node, now_ms)]
        target = best(ripe) if now_ms >= self._next_priority_ms else None
        if target is None:
            return None
        self._next_priority_ms = now_ms + (PRIORITY_EVERY_MS << self._failures)
        return self._begin(target, Reason.PRIORITY)

    def ended(self, *, done: bool) -> None:
        """The move has ended; `done` = the target has taken over."""
        assert self._under_way, "a move was begun"
        self._under_way = False
        self._failures = 0 if done else min(self._failures + 1, 4)

    def _begin(self, target: Peer, reason: Reason) -> Move:
        self._under_way = True
        return Move(target, reason)

    def _is_ripe(self, node: int, now_ms: int) -> bool:
        since_ms = self._better_since.get(node)
        return since_ms is not None and now_ms - since_ms >= PRIORITY_AFTER_MS

    def _note_better(self, me: Me, peers: Sequence[Peer], now_ms: int) -> None:
        if now_ms - self._seen_ms > GAP_MS:
            # The node did not lead, or was stopped: the time in between is unknown.
            self._better_since.clear()
        self._seen_ms = now_ms
        better = [peer.node for peer in able(peers) if peer.priority > me.priority]
        self._better_since = {node: self._better_since.get(node, now_ms) for node in better}
