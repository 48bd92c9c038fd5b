"""Which messages held the keys of other messages, and when, by the frames of the log.

A message locks its key from its lease to its end: also while it waits for a retry. At most one
message holds a key at a time. Rows give the keys of the messages that a frame names, as long as
they are kept. A message may also wait for the end of another one that was under lease with its id
when it was sent: here that one holds a key of its own, minus the successor's origin.

A holder that was leased before the first frame is found when a frame extends, returns or ends its
lease, or else by the leases of now (`look`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

import numpy as np

from delaylog.broker.engine.late.explaining import Held
from delaylog.broker.engine.state import EngineState
from delaylog.storage.columns.questions import Mask, some
from delaylog.storage.layout import STATE_ENDED_FIRST, Cause, Int64Array
from delaylog.storage.log.payloads import LeaseDecision, MoveDecision, SettleDecision
from delaylog.storage.messages.batch import Column

_RETURNS: Final = (Cause.NACK, Cause.LEASE_EXPIRED)
HOLDS_MAX: Final = 4_096
"""Holds of a key that are kept; those that follow are joined to one without a name."""


class KeyHolders:
    """The holders of some keys in one group. Frames are shown to it in the order of the log."""

    def __init__(self, state: EngineState, place: tuple[int, int], keys: set[int]) -> None:
        """`keys` are hashes; `place` has the numbers of topic and group."""
        self._state, self._place = state, place
        self._keys = np.array(sorted(keys), np.uint64)
        self._unseen = set(keys)
        """Keys of which no frame has named a holder: it may have been leased before."""
        self._open: dict[int, Held] = {}
        self._retrying: set[int] = set()
        """Keys whose holders are not under lease."""
        self._closed: dict[int, list[Held]] = {key: [] for key in keys}

    # ------------------------------------------------------------------ frames

    def follows(self, origin: int, id_hash: int, predecessors: Int64Array) -> None:
        """A message was sent while one of these was under lease with the same id."""
        known = predecessors[self._state.hours.known(predecessors)]
        same = known[self._state.hours.rows(known)["id_hash"] == id_hash]
        if len(same):
            self._open[-origin] = Held(0, None, int(same[0]))
            self._closed[-origin] = []

    def named(self, refs: Int64Array) -> Mask:
        """Which rows are of messages with one of the keys, or that others wait for by their id. No
        other frames need to be shown.
        """
        out = np.zeros(len(refs), np.bool_)
        if len(refs) and (len(self._keys) or self._open):
            known = np.flatnonzero(self._state.hours.known(refs))
            rows = self._state.hours.rows(refs[known])
            before = np.array([each.origin for each in self._open.values()], np.int64)
            out[known] = np.isin(rows["key_hash"], self._keys) | np.isin(rows["origin"], before)
        return out

    def leased(self, lease: LeaseDecision, at_ms: int) -> None:
        """A LEASE frame of the group."""
        attempts = lease.attempts
        for at, key, origin in self._keyed(lease.refs):
            self._retrying.discard(key)
            held = self._open.get(key)
            if held is None or held.origin != origin:
                self._close(key, at_ms)
                # A retry whose first lease was not seen has held the key all the time.
                tried = attempts if isinstance(attempts, int) else int(attempts[at])
                before = lease.extends or (tried > 1 and key in self._unseen)
                self._begin(key, 0 if before else at_ms, origin)

    def settled(self, settle: SettleDecision, at_ms: int) -> None:
        """A SETTLE frame of the group: what has ended holds no key."""
        if settle.was:
            return
        entries = settle.entries
        held = _under_lease(settle.leases, len(settle.refs)) | (entries["attempts"] > 0)
        self._appeared(settle.refs, held)
        origins = settle.refs if settle.origins is None else settle.origins
        ended = entries["state"] >= STATE_ENDED_FIRST
        self._release(origins[ended], at_ms)
        self._returned(origins[~ended])

    def moved(self, move: MoveDecision, at_ms: int) -> None:
        """A MOVE frame of the group: a client that reschedules a message frees its key."""
        if move.from_ended or not (self._open or self._unseen):
            return
        held = _under_lease(move.leases, len(move.refs)) | (move.attempts > 0)
        self._appeared(move.refs, held)
        refs = move.refs[self._state.hours.known(move.refs)]
        origins = self._state.hours.rows(refs)["origin"].astype(np.int64)
        if move.cause in _RETURNS:
            self._returned(origins)
        else:
            # Successors go on waiting.
            for key in self._named(origins):
                if key > 0:
                    self._close(key, at_ms)

    def purged(self, at_ms: int, *, force: bool) -> None:
        """A purge ended what waited for a retry, and with `force` what was under lease."""
        for key in [key for key in self._open if force or key in self._retrying]:
            self._close(key, at_ms)

    def _keyed(self, refs: Int64Array) -> Iterator[tuple[int, int, int]]:
        """(index, key, origin) of the messages among `refs` that have one of the keys."""
        if not len(self._keys) or not len(refs):
            return
        known = np.flatnonzero(self._state.hours.known(refs))
        rows = self._state.hours.rows(refs[known])
        at = np.flatnonzero(np.isin(rows["key_hash"], self._keys))
        columns = known[at].tolist(), rows["key_hash"][at].tolist(), rows["origin"][at].tolist()
        yield from zip(*columns, strict=True)

    def _appeared(self, refs: Int64Array, held: Mask) -> None:
        """Messages that held their keys until this frame: an unknown holder was one of them."""
        if self._unseen and some(held):
            for _, key, origin in self._keyed(refs[held]):
                if key in self._unseen:
                    self._begin(key, 0, origin)

    def _begin(self, key: int, at_ms: int, origin: int) -> None:
        self._unseen.discard(key)
        self._open[key] = Held(at_ms, None, origin)

    def _named(self, origins: Int64Array) -> list[int]:
        """The keys that messages of these origins hold."""
        if not self._open or not len(origins):
            return []
        holders = np.fromiter((held.origin for held in self._open.values()), np.int64)
        hit = np.isin(holders, origins).tolist()
        return [key for key, there in zip(self._open, hit, strict=True) if there]

    def _returned(self, origins: Int64Array) -> None:
        self._retrying.update(self._named(origins))

    def _release(self, origins: Int64Array, at_ms: int) -> None:
        for key in self._named(origins):
            self._close(key, at_ms)

    def _close(self, key: int, at_ms: int) -> None:
        held = self._open.pop(key, None)
        self._retrying.discard(key)
        if held is None:
            return
        closed = self._closed[key]
        if len(closed) < HOLDS_MAX:
            closed.append(held._replace(until_ms=at_ms))
        else:
            closed[-1] = closed[-1]._replace(until_ms=at_ms, origin=0)

    # ------------------------------------------------------------------ what is known

    def look(self) -> Generator[None, None, dict[int, Held]]:
        """By key, holders of now that no frame has named: they have held it all the time."""
        out: dict[int, Held] = {}
        group = self._state.group(*self._place)
        gate = None if group is None else group.made_gate
        if gate is None:
            return out
        locked = {key for key in self._unseen if not gate.is_free(key)}
        for key in list(locked):
            if (origin := gate.retrying(key)) is not None:
                out[key] = Held(0, None, origin)
                locked.discard(key)
        if locked:
            found = yield from self._state.leases.holding(*self._place, locked)
            out |= {key: Held(0, None, origin) for key, origin in found.items()}
        return out

    def of(self, key: int, origin: int) -> list[Held]:
        """When a message waited for others, by its key and its origin."""
        holds = [held for each in (key, -origin) for held in self._closed.get(each, ())]
        holds += [self._open[each] for each in (key, -origin) if each in self._open]
        return [held for held in holds if held.origin != origin]


def _under_lease(leases: Column | None, count: int) -> Mask:
    """Which rows of a decision were under lease."""
    if leases is None or isinstance(leases, int):
        return np.full(count, bool(leases))
    mask: Mask = leases != 0
    return mask
