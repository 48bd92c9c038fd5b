"""Refs that an ordered queue gave out and got back: they keep the ranks that they had.

A caller of `pop` gets and returns refs only, so the queue remembers the ranks of the refs that it
gave out last. A returned ref whose rank is not remembered goes before everything: it was popped
before all that is here.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from delaylog.broker.engine.ready.ordered_runs import NO_RANKED, RankedRefs, join, sort_ranked
from delaylog.storage.layout import Int64Array

REMEMBERED_MAX: Final = 16_384
"""Entries remembered beyond the last pop: some rounds of one receive."""
_BEFORE_ALL: Final = np.iinfo(np.int64).min


class ReturnedRefs:
    """The returned entries, in order, and the entries that were popped last."""

    def __init__(self) -> None:
        self.entries: RankedRefs = NO_RANKED
        """With equal ranks they go before the entries of the queue."""
        self._popped: deque[RankedRefs] = deque()
        """Popped entries, the latest first."""
        self._popped_count = 0

    def __len__(self) -> int:
        return int(self.entries.shape[1])

    def remember(self, entries: RankedRefs) -> None:
        """Remember popped entries, which may be returned."""
        self._popped.appendleft(entries)
        self._popped_count += entries.shape[1]
        while len(self._popped) > 1 and self._popped_count > REMEMBERED_MAX:
            self._popped_count -= self._popped.pop().shape[1]

    def give_back(self, refs: Int64Array) -> None:
        """Take back popped refs, in the order they had; before equal ones of earlier calls."""
        back = np.full((3, len(refs)), _BEFORE_ALL)
        back[2] = refs
        if self._popped:
            popped = join(list(self._popped))
            # Stable: for a ref that was popped twice, the latest entry comes first.
            order = np.argsort(popped[2], kind="stable")
            found = np.searchsorted(popped[2], refs, sorter=order)
            found = order[np.minimum(found, len(order) - 1)]
            known = popped[2][found] == refs
            back[:2, known] = popped[:2, found[known]]
        self.entries = sort_ranked(join([back, self.entries]))

    def clear(self) -> None:
        """Forget everything."""
        self.entries = NO_RANKED
        self._popped.clear()
        self._popped_count = 0
