"""The table of claims: the messages of each, in order, and how the latest claims ended.

A claim is a name under which a consumer leases up to a million messages at once. They are under
leases of a few thousand each, so that expiry and settling go in slices, as for other leases. The
claim stores their refs in order, as columns, and one deadline for all. Frames change the table
(apply/lease_frames.py), and checkpoints store it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from delaylog.storage.layout import Int64Array
from delaylog.storage.log.payloads import LeaseDecision

ENDED_KEPT: Final = 10_000
"""Ended claims that are remembered: the newest."""
MAKING: Final = "making"
OPEN: Final = "open"
SETTLING: Final = {"acking": "acked", "releasing": "released"}
"""State of a claim while it is being settled, and its state afterwards."""
EXPIRED: Final = "expired"
PURGED: Final = "purged"
ENDINGS: Final = (*SETTLING.values(), EXPIRED, PURGED)
LIVING: Final = (MAKING, OPEN, *SETTLING)
FORGOTTEN: Final = "forgotten"
"""State of a claim that was removed from the table, for work that still has the object."""
_SAVED: Final = (
    "number",
    "topic",
    "group",
    "name",
    "count_max",
    "lease_ms",
    "deadline_ms",
    "state",
    "count",
    "only",
)

Attempts = npt.NDArray[np.uint16]


@dataclass(slots=True)
class Claim:
    """One claim. Numbers are never used again."""

    number: int
    topic: int
    group: int
    name: str
    count_max: int
    lease_ms: int
    deadline_ms: int
    """When it expires, in leader time; meaningless while it is being settled."""
    state: str = MAKING
    count: int = 0
    """Number of its messages."""
    only: dict[str, Any] | None = None
    """Its tag filter, if it has one."""
    leases: list[int] = field(default_factory=list)
    """The leases of its messages, in order."""
    refs: list[Int64Array] = field(default_factory=list)
    """By lease: refs of its messages. The arrays are never changed."""
    attempts: list[Attempts] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """By lease: number of messages up to the end of that lease."""
    position: int = 0
    """End of the last frame that changed it; not in checkpoints."""

    @property
    def living(self) -> bool:
        """Whether it has not ended."""
        return self.state in LIVING

    def part(self, start: int, stop: int) -> tuple[Int64Array, Attempts, list[tuple[int, int]]]:
        """Messages [start, stop): refs, attempts, and (lease, number of these messages) pairs."""
        stop = min(stop, self.count)
        refs: list[Int64Array] = []
        attempts: list[Attempts] = []
        leases: list[tuple[int, int]] = []
        at = bisect_right(self.ends, start)
        while start < stop:
            first = self.ends[at - 1] if at else 0
            mine = slice(start - first, min(stop, self.ends[at]) - first)
            refs.append(self.refs[at][mine])
            attempts.append(self.attempts[at][mine])
            leases.append((self.leases[at], len(refs[-1])))
            start, at = self.ends[at], at + 1
        if not refs:
            return np.zeros(0, np.int64), np.zeros(0, np.uint16), leases
        return np.concatenate(refs), np.concatenate(attempts), leases

    def forget_rows(self) -> None:
        """Drop its columns: it has ended, and its messages cannot be read any more."""
        self.leases, self.refs, self.attempts, self.ends = [], [], [], []


class ClaimTable:
    """All claims of a node."""

    def __init__(self) -> None:
        self._living: dict[int, Claim] = {}
        self._ended: dict[int, Claim] = {}
        """The oldest first."""
        self._saved_ended: dict[int, list[Any]] = {}
        """What checkpoints store of those; an ended claim does not change."""
        self._by_name: dict[tuple[int, int, str], Claim] = {}
        self._first_ms: int | None = None
        self._first_known = True
        self.next_number = 1
        self.endings: Counter[str] = Counter()
        """Number of ended claims by final state, since this start; not in checkpoints."""

    def __len__(self) -> int:
        return len(self._living)

    @property
    def rows(self) -> int:
        """Messages of claims that have not ended."""
        return sum(claim.count for claim in self._living.values())

    def living(self) -> list[Claim]:
        """Claims that have not ended."""
        return list(self._living.values())

    def find(self, topic: int, group: int, name: str) -> Claim | None:
        """The claim of this name, ended or not."""
        return self._by_name.get((topic, group, name))

    def of_groups(self, topic: int, groups: Iterable[int]) -> list[Claim]:
        """Claims of groups of a topic that have not ended."""
        wanted = set(groups)
        return [x for x in self._living.values() if x.topic == topic and x.group in wanted]

    # ------------------------------------------------------------------ expiry

    def next_expiry_ms(self) -> int | None:
        """When the next claim expires; None if there is none."""
        if not self._first_known:
            self._first_ms = min(
                (x.deadline_ms for x in self._living.values() if x.state not in SETTLING),
                default=None,
            )
            self._first_known = True
        return self._first_ms

    def past(self, now_ms: int) -> list[Claim]:
        """Claims past their deadline."""
        first = self.next_expiry_ms()
        if first is None or first > now_ms:
            return []
        return [
            claim
            for claim in self._living.values()
            if claim.deadline_ms <= now_ms and claim.state not in SETTLING
        ]

    # ------------------------------------------------------------------ frames

    def begin(self, claim: Claim) -> None:
        """Add a claim. An ended claim of the same name is forgotten."""
        before = self._by_name.get((claim.topic, claim.group, claim.name))
        if before is not None:
            self.forget(before)
        self._living[claim.number] = claim
        self._by_name[claim.topic, claim.group, claim.name] = claim
        self.next_number = max(self.next_number, claim.number + 1)
        self._first_known = False

    def add(self, decision: LeaseDecision) -> None:
        """Add the messages of a lease to its claim."""
        claim = self._living.get(decision.claim)
        if claim is None:
            return
        n = len(decision.refs)
        claim.leases.append(decision.lease)
        claim.refs.append(np.array(decision.refs, np.int64))
        attempts = np.empty(n, np.uint16)
        attempts[:] = decision.attempts
        claim.attempts.append(attempts)
        claim.count += n
        claim.ends.append(claim.count)

    def get(self, number: int) -> Claim | None:
        """The claim of this number, if it has not ended."""
        return self._living.get(number)

    def change(self, claim: Claim, state: str, deadline_ms: int) -> None:
        """Change the state or the deadline of a living claim."""
        claim.state, claim.deadline_ms = state, deadline_ms
        self._first_known = False

    def end(self, claim: Claim, state: str) -> None:
        """End a claim: its messages are dropped, its name and final state are remembered."""
        self._living.pop(claim.number, None)
        claim.state = state
        claim.forget_rows()
        self._enter_ended(claim)
        while len(self._ended) > ENDED_KEPT:
            self.forget(next(iter(self._ended.values())))
        self.endings[state] += 1
        self._first_known = False

    def _enter_ended(self, claim: Claim) -> None:
        self._ended[claim.number] = claim
        self._saved_ended[claim.number] = [getattr(claim, name) for name in _SAVED]

    def forget(self, claim: Claim) -> None:
        """Remove a claim. A living one gets the state FORGOTTEN, for work that still has it."""
        if self._living.pop(claim.number, None) is not None:
            claim.state = FORGOTTEN
            claim.forget_rows()
        self._ended.pop(claim.number, None)
        self._saved_ended.pop(claim.number, None)
        key = (claim.topic, claim.group, claim.name)
        if self._by_name.get(key) is claim:
            del self._by_name[key]
        self._first_known = False

    def drop(self, topic: int, group: int) -> None:
        """Forget the claims of a group that is dropped."""
        for claim in [*self._living.values(), *self._ended.values()]:
            if claim.topic == topic and claim.group == group:
                self.forget(claim)

    def purge(self, topic: int, group: int) -> None:
        """End the claims of a group whose leased messages were purged."""
        for claim in self.of_groups(topic, [group]):
            self.end(claim, PURGED)

    def shift(self, by_ms: int) -> None:
        """Move deadlines: leader time jumped by `by_ms`."""
        for claim in self._living.values():
            claim.deadline_ms += by_ms
        self._first_known = False

    # ------------------------------------------------------------------ checkpoints

    def snapshot(self) -> dict[str, Any]:
        """For a checkpoint. Columns are not copied, since they never change."""
        living = [
            {name: getattr(claim, name) for name in _SAVED}
            | {
                "leases": list(claim.leases),
                "ends": list(claim.ends),
                "refs": [refs.data.cast("B") for refs in claim.refs],
                "attempts": [tries.data.cast("B") for tries in claim.attempts],
            }
            for claim in self._living.values()
        ]
        ended = list(self._saved_ended.values())
        return {"next": self.next_number, "living": living, "ended": ended}

    def restore(self, saved: dict[str, Any]) -> None:
        """Fill an empty table from a checkpoint."""
        for values in saved["ended"]:
            claim = Claim(**dict(zip(_SAVED, values, strict=True)))
            self._enter_ended(claim)
            self._by_name[claim.topic, claim.group, claim.name] = claim
        for item in saved["living"]:
            claim = Claim(**{name: item[name] for name in _SAVED})
            claim.leases, claim.ends = item["leases"], item["ends"]
            claim.refs = [np.frombuffer(raw, np.int64) for raw in item["refs"]]
            claim.attempts = [np.frombuffer(raw, np.uint16) for raw in item["attempts"]]
            self.begin(claim)
        self.next_number = saved["next"]
