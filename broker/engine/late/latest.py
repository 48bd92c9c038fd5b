"""The latest messages of the last minute, for `delaylog report`: one a group, of a few groups.

A hand-out costs one look at its earliest due time; a message is kept only if it is later than what
is kept already. What made it late is read from the timeline when the minute ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from delaylog.storage.layout import Int64Array, RowArray, ref_to_id

LATE_MS_MIN: Final = 10
"""A message that is handed out sooner after its due time is not kept."""
LATEST_MAX: Final = 3
"""Groups of which a message is kept."""
STEP: Final = 64
"""A message is kept instead of another one of its group if it is later by more than a 64th."""


class HandOut(NamedTuple):
    """Messages that a receive hands out."""

    now_ms: int
    refs: Int64Array
    rows: RowArray
    attempts: Int64Array
    records: bytes
    """Of all rows; empty if they are handed out for a claim, which reads them later."""
    parked: Sequence[Int64Array]
    """The refs of those that had waited for their keys."""


class LatestMessage(NamedTuple):
    """A message at its first hand-out."""

    late_ms: int
    at_ms: int
    """When it was handed out; it was due `late_ms` earlier."""
    id: str
    parked: bool
    """Whether its key was locked when a consumer asked for it before."""
    tag_mask: int = 0


class LatestMessages:
    """The latest message of each of the latest groups."""

    def __init__(self) -> None:
        self._by_place: dict[tuple[int, int], LatestMessage] = {}
        self._beyond_ms = LATE_MS_MIN - 1
        """Messages that are not later than this are of no interest."""

    def take(self) -> dict[tuple[int, int], LatestMessage]:
        """The messages by the numbers of topic and group; begins anew."""
        taken, self._by_place = self._by_place, {}
        self._beyond_ms = LATE_MS_MIN - 1
        return taken

    def note(self, place: tuple[int, int], due_ms: int, out: HandOut) -> None:
        """A receive hands out messages of a group; `due_ms` = their earliest due time."""
        if self.wants(place, out.now_ms - due_ms):
            self._keep(place, out)

    def _keep(self, place: tuple[int, int], out: HandOut) -> None:
        """Keep the latest message, unless a message that is kept already is later."""
        refs, rows = out.refs, out.rows
        # A message that is given back without a new due time was late before, or was not.
        fresh = np.flatnonzero((out.attempts == 1) | (rows["origin"] != refs))
        if not len(fresh):
            return
        at = int(fresh[np.argmin(rows["deliver_at"][fresh])])
        late_ms = out.now_ms - int(rows["deliver_at"][at])
        size = int(rows["id_size"][at])
        if size and not out.records:
            # Its id would have to be read.
            return
        start = int(rows["size"][:at].astype(np.int64).sum())
        own = out.records[start : start + size].decode("utf-8", "replace")
        parked = any(int(refs[at]) in each for each in out.parked)
        named, tag_mask = own or ref_to_id(int(rows["origin"][at])), int(rows["tag_mask"][at])
        self.keep(place, LatestMessage(late_ms, out.now_ms, named, parked, tag_mask))

    def wants(self, place: tuple[int, int], late_ms: int) -> bool:
        """Whether a message that is this late may be kept."""
        if late_ms <= self._beyond_ms:
            return False
        kept = self._by_place.get(place)
        # While a queue grows each message is later than the one before: not every one is kept.
        return kept is None or late_ms > kept.late_ms + kept.late_ms // STEP

    def keep(self, place: tuple[int, int], message: LatestMessage) -> None:
        """Keep a message, unless one that is kept already is later."""
        kept = self._by_place.get(place)
        late_ms = message.late_ms
        if late_ms <= self._beyond_ms or (kept is not None and late_ms <= kept.late_ms):
            return
        self._by_place[place] = message
        if len(self._by_place) > LATEST_MAX:
            del self._by_place[min(self._by_place, key=lambda each: self._by_place[each].late_ms)]
        if len(self._by_place) == LATEST_MAX:
            self._beyond_ms = min(each.late_ms for each in self._by_place.values())
