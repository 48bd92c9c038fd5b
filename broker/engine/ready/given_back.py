"""Entries that an ordered queue gave and took back: they go by the keys that they had.

Who pops looks at refs only, so the queue remembers what it gave last. A ref of which it does not
know keys (any more) goes before everything: it was popped before all that is here.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from delaylog.broker.engine.ready.sorted_runs import NO_ENTRIES, Entries, join, sort_entries
from delaylog.storage.layout import Int64Array

LENT_MAX: Final = 16_384
"""Entries remembered beyond the last pop: some rounds of one receive."""
_BEFORE_ALL: Final = np.iinfo(np.int64).min


class GivenBack:
    """The entries given back, in order, and where they come from."""

    def __init__(self) -> None:
        self.entries: Entries = NO_ENTRIES
        """Of equal keys, they came before those in the queue."""
        self._lent: deque[Entries] = deque()
        """What was popped, latest first."""
        self._lent_count = 0

    def __len__(self) -> int:
        return int(self.entries.shape[1])

    def lend(self, entries: Entries) -> None:
        """These are popped, and may be given back."""
        self._lent.appendleft(entries)
        self._lent_count += entries.shape[1]
        while len(self._lent) > 1 and self._lent_count > LENT_MAX:
            self._lent_count -= self._lent.pop().shape[1]

    def give_back(self, refs: Int64Array) -> None:
        """Popped refs come back, in the order they had; before equal ones of earlier calls."""
        back = np.full((3, len(refs)), _BEFORE_ALL)
        back[2] = refs
        if self._lent:
            lent = join(list(self._lent))
            # Stable: of a ref that was popped twice the latest entry is the first.
            order = np.argsort(lent[2], kind="stable")
            places = np.searchsorted(lent[2], refs, sorter=order)
            places = order[np.minimum(places, len(order) - 1)]
            known = lent[2][places] == refs
            back[:2, known] = lent[:2, places[known]]
        self.entries = sort_entries(join([back, self.entries]))

    def clear(self) -> None:
        """Forget everything."""
        self.entries = NO_ENTRIES
        self._lent.clear()
        self._lent_count = 0
