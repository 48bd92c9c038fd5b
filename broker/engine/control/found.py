"""What a look-up found, as columns: a slot for each message that was asked for.

Bulk control goes from the columns of the wire to the columns of a frame, so nothing is made per
message; `one` is the view of a single message for the faces that need one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.model import Found
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns.questions import rising
from delaylog.storage.columns.whole_rows import take_rows
from delaylog.storage.layout import (
    INDEX_ENTRY,
    STATE_ENTRY,
    Int64Array,
    MessageState,
    RowArray,
    StateArray,
)


@dataclass(frozen=True, slots=True)
class FoundColumns:
    """Messages by slot; where `known` is false the other columns hold zeros."""

    known: npt.NDArray[np.bool_]
    origins: Int64Array
    refs: Int64Array
    """Where the messages are now."""
    rows: RowArray
    entries: StateArray
    states: npt.NDArray[np.uint8]
    """The states a client sees."""
    group: Group
    """Whose states they are."""

    def __len__(self) -> int:
        return len(self.known)

    def __getitem__(self, at: int) -> Found | None:
        return self.one(at)

    def __iter__(self) -> Iterator[Found | None]:
        return (self.one(at) for at in range(len(self)))

    def one(self, at: int) -> Found | None:
        """The message of one slot, if it is known."""
        if not self.known[at]:
            return None
        return Found(
            int(self.origins[at]),
            int(self.refs[at]),
            self.rows[at],
            self.entries[at],
            MessageState(int(self.states[at])),
        )

    def take(self, at: Int64Array) -> FoundColumns:
        """The slots `at`, in that order; none of them twice."""
        if len(at) == len(self) and rising(at):
            return self
        return FoundColumns(
            self.known[at],
            self.origins[at],
            self.refs[at],
            take_rows(self.rows, at),
            take_rows(self.entries, at),
            self.states[at],
            self.group,
        )

    def without(self, at: Int64Array) -> FoundColumns:
        """The same with the slots `at` unknown: they turned out to be other messages."""
        stays = np.ones(len(self), np.bool_)
        stays[at] = False
        # Not in place: refs are shared with `Whereabouts`, which has made them read-only.
        return replace(
            self,
            known=self.known & stays,
            origins=np.where(stays, self.origins, 0),
            refs=np.where(stays, self.refs, 0),
            states=np.where(stays, self.states, 0).astype(np.uint8),
        )


def just(found: Found, group: Group) -> FoundColumns:
    """One message as columns."""
    return FoundColumns(
        np.ones(1, np.bool_),
        np.array([found.origin], np.int64),
        np.array([found.ref], np.int64),
        np.array([found.row], INDEX_ENTRY),
        np.array([found.entry], STATE_ENTRY),
        np.array([found.state], np.uint8),
        group,
    )
