"""The hour and row numbers of refs, computed once for several look-ups of the same array.

A send, its release, the receive that takes it and the ack that ends it ask for the rows, records
and states of one array of refs, one after another. The results for the last arrays are cached by
identity, so an array becomes read-only when it is looked up.
"""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

from delaylog.storage.columns.questions import consecutive, only_hour
from delaylog.storage.layout import INDEX_MASK, Int64Array

KEPT: Final = 4
"""Arrays in the cache: those of a send, a receive and an ack may overlap."""


class Place(NamedTuple):
    """The hour and row numbers of one or more refs."""

    hour: int | None
    """The hour of all refs, if they have the same one."""
    indexes: Int64Array
    """Their row numbers."""
    run: slice | None
    """The row numbers as a slice, if they are consecutive rows of one hour."""


class Whereabouts:
    """A cache of `Place` by array of refs."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: deque[tuple[Int64Array, Place]] = deque(maxlen=KEPT)

    def of(self, refs: Int64Array) -> Place:
        """The place of these refs."""
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
        """Cache the place of refs that were just assigned to the consecutive rows `index`."""
        run = slice(int(index[0]), int(index[-1]) + 1)
        self._keep(refs, Place(hour, index, run))

    def _keep(self, refs: Int64Array, place: Place) -> None:
        refs.flags.writeable = False
        self._known.append((refs, place))
