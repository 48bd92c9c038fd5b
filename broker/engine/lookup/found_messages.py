"""The messages of a look-up, as columns: one slot for each id that was requested.

Bulk control goes from the columns of a request to the columns of a frame, so no object is created
for a message. `one` is a view of a single message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from delaylog.broker.engine.model import FoundMessage
from delaylog.broker.engine.topics.groups import Group
from delaylog.storage.columns import rising, take_rows
from delaylog.storage.layout import (
    INDEX_ENTRY,
    STATE_ENTRY,
    Int64Array,
    MessageState,
    RowArray,
    StateArray,
)


@dataclass(frozen=True, slots=True)
class FoundMessages:
    """Messages by slot; where `known` is false the other columns are zero."""

    known: npt.NDArray[np.bool_]
    origins: Int64Array
    refs: Int64Array
    """Refs of their newest rows."""
    rows: RowArray
    entries: StateArray
    states: npt.NDArray[np.uint8]
    """The states that clients see."""
    group: Group
    """The group whose states these are."""

    def __len__(self) -> int:
        return len(self.known)

    def __getitem__(self, at: int) -> FoundMessage | None:
        return self.one(at)

    def __iter__(self) -> Iterator[FoundMessage | None]:
        return (self.one(at) for at in range(len(self)))

    def one(self, at: int) -> FoundMessage | None:
        """The message of one slot; None if it is not known."""
        if not self.known[at]:
            return None
        return FoundMessage(
            int(self.origins[at]),
            int(self.refs[at]),
            self.rows[at],
            self.entries[at],
            MessageState(int(self.states[at])),
        )

    def take(self, at: Int64Array) -> FoundMessages:
        """The slots `at`, which are distinct, in that order."""
        if len(at) == len(self) and rising(at):
            return self
        return FoundMessages(
            self.known[at],
            self.origins[at],
            self.refs[at],
            take_rows(self.rows, at),
            take_rows(self.entries, at),
            self.states[at],
            self.group,
        )

    def without(self, at: Int64Array) -> FoundMessages:
        """A copy in which the slots `at` are not known."""
        stays = np.ones(len(self), np.bool_)
        stays[at] = False
        # Not in place: `Whereabouts` shares the refs and has made them read-only.
        return replace(
            self,
            known=self.known & stays,
            origins=np.where(stays, self.origins, 0),
            refs=np.where(stays, self.refs, 0),
            states=np.where(stays, self.states, 0).astype(np.uint8),
        )


def just(found: FoundMessage, group: Group) -> FoundMessages:
    """One message as columns."""
    return FoundMessages(
        np.ones(1, np.bool_),
        np.array([found.origin], np.int64),
        np.array([found.ref], np.int64),
        np.array([found.row], INDEX_ENTRY),
        np.array([found.entry], STATE_ENTRY),
        np.array([found.state], np.uint8),
        group,
    )
