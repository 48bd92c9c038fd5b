"""Which messages held the keys of other messages, and when, by the frames of the log.

A message locks its key from its lease to its end: also while it waits for a retry. Rows give the
keys of the messages that a LEASE frame names, as long as they are kept.
"""

from __future__ import annotations

import numpy as np

from delaylog.broker.engine.late.explaining import Held
from delaylog.broker.engine.state import EngineState
from delaylog.storage.columns.whole_rows import take_rows
from delaylog.storage.layout import STATE_ENDED_FIRST, Cause, Int64Array
from delaylog.storage.log.payloads import LeaseDecision, MoveDecision, SettleDecision

_RETURNS = (Cause.NACK, Cause.LEASE_EXPIRED)


class KeyHolders:
    """The holders of some keys in one group. Frames are shown to it in the order of the log."""

    def __init__(self, state: EngineState, keys: set[int], due_ms: int) -> None:
        """`due_ms` = the first time that matters: leases that ended before are not looked at."""
        self._state = state
        self._keys = np.array(sorted(keys), np.uint64)
        self._due_ms = due_ms
        self._held: dict[int, dict[int, Held]] = {}
        """By hash of the key and origin of the holder."""

    def leased(self, lease: LeaseDecision, at_ms: int) -> None:
        """A LEASE frame of the group."""
        if len(self._keys) == 0 or lease.deadline_ms < self._due_ms:
            return
        refs = lease.refs[np.flatnonzero(self._state.hours.known(lease.refs))]
        rows = self._state.hours.rows(refs)
        at = np.flatnonzero(np.isin(rows["key_hash"], self._keys))
        rows = take_rows(rows, at)
        for key, origin in zip(rows["key_hash"].tolist(), rows["origin"].tolist(), strict=True):
            self._held.setdefault(key, {}).setdefault(origin, Held(at_ms, None, origin))

    def settled(self, settle: SettleDecision, at_ms: int) -> None:
        """A SETTLE frame of the group: what has ended holds no key."""
        ended = settle.entries["state"] >= STATE_ENDED_FIRST
        if np.count_nonzero(ended):
            origins = settle.refs if settle.origins is None else settle.origins
            self._release(origins[ended], at_ms)

    def moved(self, move: MoveDecision, at_ms: int) -> None:
        """A MOVE frame of the group: a client that reschedules a message frees its key."""
        if move.cause not in _RETURNS:
            refs = move.refs[np.flatnonzero(self._state.hours.known(move.refs))]
            self._release(self._state.hours.rows(refs)["origin"].astype(np.int64), at_ms)

    def _release(self, origins: Int64Array, at_ms: int) -> None:
        for holders in self._held.values():
            if not holders:
                continue
            mine = np.fromiter(holders, np.int64, len(holders))
            for origin in mine[np.isin(mine, origins)].tolist():
                held = holders[origin]
                if held.until_ms is None:
                    holders[origin] = held._replace(until_ms=at_ms)

    def of(self, key: int, origin: int) -> list[Held]:
        """When other messages than `origin` held a key."""
        return [held for holder, held in self._held.get(key, {}).items() if holder != origin]
