"""Where refs lie, found once for all who ask about the same ones.

A send, its release, the receive that takes it and the ack that ends it ask for the rows, records
and states of one array of refs, one after another. What was asked for last is kept, by identity.
The one rule: refs do not change where they stand, so they cannot be written any more.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from delaylog.storage.columns.questions import consecutive, only_hour
from delaylog.storage.layout import INDEX_MASK, Int64Array

KEPT: Final = 4
"""Arrays whose places are kept: what is sent, taken and ended may overlap."""


class Place(NamedTuple):
    """Where refs lie, of which there is at least one."""

    hour: int | None
    """Of all of them, if it is one."""
    indexes: Int64Array
    """Their row numbers."""
    run: slice | None
    """The row numbers once more, where they follow one another in one hour."""


class Whereabouts:
    """Places of refs."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: deque[tuple[Int64Array, Place]] = deque(maxlen=KEPT)

    def of(self, refs: Int64Array) -> Place:
        """Where these lie."""
        for asked, place in self._known:
            if asked is refs:
                return place
        hour, index = only_hour(refs), refs & INDEX_MASK
        run = None
        if hour is not None and consecutive(index):
            run = slice(int(index[0]), int(index[-1]) + 1)
        place = Place(hour, index, run)
        self._keep(refs, place)
        return place

    def note(self, refs: Int64Array, hour: int, index: Int64Array) -> None:
        """Rows `index` of an hour, which follow one another, got these refs."""
        run = slice(int(index[0]), int(index[-1]) + 1)
        self._keep(refs, Place(hour, index, run))

    def _keep(self, refs: Int64Array, place: Place) -> None:
        refs.flags.writeable = False
        self._known.append((refs, place))
