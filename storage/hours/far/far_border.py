"""The border between near and far hours, which follows the present hour.

Hours that come near leave the far tier: each gets a folder (hour_split.py), oldest first. The
switch of an hour is one step on the caller's thread, so look-ups find its rows in exactly one
place.
"""

from __future__ import annotations

from functools import partial

from delaylog.storage.hours.far.far_tier import FarTier
from delaylog.storage.hours.far.hour_split import fill_folder
from delaylog.storage.hours.hour_flusher import HourFlusher
from delaylog.storage.hours.hour_folders import HourFolders
from delaylog.storage.hours.hour_table import HourTable
from delaylog.storage.hours.tail_pile import TailPile
from delaylog.storage.work import Work


class FarBorder:
    """Gives folders to far hours that come near."""

    def __init__(
        self,
        near_hours: int,
        *,
        counts: HourTable,
        pile: TailPile,
        far: FarTier,
        folders: HourFolders,
        flusher: HourFlusher,
    ) -> None:
        """`near_hours` = how many hours from the present one on have a folder each."""
        self._near_hours = near_hours
        self._counts = counts
        self._pile = pile
        self._far = far
        self._folders = folders
        self._flusher = flusher
        self._near_until = -1
        self._splitting = False

    def look_ahead(self, hour: int) -> None:
        """`hour` is the present one: the border follows it by `split_work`."""
        last = hour + self._near_hours - 1
        border = self._counts.far_from
        if border <= last + 1 + self._near_hours:
            self._far.merges.shed_below(0)
        elif self._far.merges.shed_below(border):
            # The first time, or after the clock was set back by more than a few hours.
            self._counts.set_border(last + 1)
        self._near_until = last

    @property
    def split_due(self) -> bool:
        """Whether hours have come near that the far tier still keeps."""
        return self._counts.far_from <= self._near_until

    def split_work(self) -> Work:
        """Give folders to the hours that have come near."""
        return self.bring_near(self._near_until)

    def bring_near(self, last: int) -> Work:
        """Give a folder to every far hour up to `last`, oldest first."""
        while self._splitting:
            yield 0.001
        self._splitting = True
        try:
            yield from self._flusher.make_room()
            while (hour := self._counts.next_far(last)) is not None:
                if hour > self._counts.far_from:
                    # Hours before it are empty, and near from now on: a frame beside the split
                    # may bring their first rows.
                    self._counts.bring_near(hour - 1)
                self._far.merges.splitting = hour
                yield from self._split(hour)
                yield from self._flusher.make_room()
            if self._counts.far_from <= last:
                self._counts.bring_near(last)
        finally:
            self._splitting, self._far.merges.splitting = False, None

    def _split(self, hour: int) -> Work:
        folder = self._folders.make(hour)
        # An earlier try may have ended half-way, for lack of space.
        folder.cut(0)
        try:
            flushed = partial(self.flushed, hour)
            yield from fill_folder(self._far, folder, flushed)
            while self._busy or flushed() > folder.row_count:
                yield 0.001
                yield from fill_folder(self._far, folder, flushed)
        except BaseException:
            folder.close()
            raise
        # From here to the end nothing yields: look-ups find the hour in one place or the other.
        states = self._far.states.of_hour(hour)
        chunks = self._far.pile.pop_hour(hour)
        self._counts.bring_near(hour)
        if folder.row_count or states:
            self._folders.add(folder)
        for group, (indexes, entries) in states.items():
            folder.states(group).put(indexes, entries)
        self._pile.adopt(hour, chunks)
        self._far.leave(hour)

    @property
    def _busy(self) -> bool:
        """Whether a checkpoint is being taken or rows of far hours are being flushed."""
        return self._far.merges.frozen or self._flusher.writes_far

    def flushed(self, hour: int) -> int:
        """Rows of a far hour that are in runs."""
        first = self._far.pile.first_index(hour)
        return self._counts[hour].rows if first is None else first - 1
