"""The table of claims: which messages each holds, in which order, and how the last ones ended.

A claim is a name under which a consumer holds many messages at once. They are under leases of a
few thousand each, so that expiry and settling go in slices as they do anyway; the claim remembers
their refs in order as columns, and one time at which all of it ends. What changes it are frames,
see claim_frames.py; this is what they say, and what a checkpoint keeps.
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
"""Ended claims of which it is still known how they ended: the newest."""
MAKING: Final = "making"
OPEN: Final = "open"
SETTLING: Final = {"acking": "acked", "releasing": "released"}
"""What a claim is while it is settled, and after that."""
EXPIRED: Final = "expired"
PURGED: Final = "purged"
ENDINGS: Final = (*SETTLING.values(), EXPIRED, PURGED)
LIVING: Final = (MAKING, OPEN, *SETTLING)
FORGOTTEN: Final = "forgotten"
"""Of one that is in no table any more, for whoever still works on it."""
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
    """When it ends by itself, in leader time; nothing while it is settled."""
    state: str = MAKING
    count: int = 0
    """Messages it was made of."""
    only: dict[str, Any] | None = None
    """The tags it takes messages by, if it does."""
    leases: list[int] = field(default_factory=list)
    """The leases its messages are under, in their order."""
    refs: list[Int64Array] = field(default_factory=list)
    """By lease: where its messages are. Nothing changes an array once it is here."""
    attempts: list[Attempts] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    """By lease: how many messages it and those before it have."""
    position: int = 0
    """End of the frame that changed it last; not state."""

    @property
    def living(self) -> bool:
        """Whether it holds its messages, or takes them."""
        return self.state in LIVING

    def part(self, start: int, stop: int) -> tuple[Int64Array, Attempts, list[tuple[int, int]]]:
        """Messages [start, stop): refs, attempts, and of each lease how many of them it has."""
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
        """It has ended: nobody asks for its messages any more."""
        self.leases, self.refs, self.attempts, self.ends = [], [], [], []


class ClaimTable:
    """All claims of a node."""

    def __init__(self) -> None:
        self._living: dict[int, Claim] = {}
        self._ended: dict[int, Claim] = {}
        """The oldest first."""
        self._saved_ended: dict[int, list[Any]] = {}
        """What checkpoints keep of those: nothing changes one that has ended."""
        self._by_place: dict[tuple[int, int, str], Claim] = {}
        self._first_ms: int | None = None
        self._first_known = True
        self.next_number = 1
        self.endings: Counter[str] = Counter()
        """How claims ended since this state was made; not state."""

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
        return self._by_place.get((topic, group, name))

    def of_groups(self, topic: int, groups: Iterable[int]) -> list[Claim]:
        """Claims of groups of a topic that have not ended."""
        wanted = set(groups)
        return [x for x in self._living.values() if x.topic == topic and x.group in wanted]

    # ------------------------------------------------------------------ what ends by itself

    def next_expiry_ms(self) -> int | None:
        """When `past` has something."""
        if not self._first_known:
            self._first_ms = min(
                (x.deadline_ms for x in self._living.values() if x.state not in SETTLING),
                default=None,
            )
            self._first_known = True
        return self._first_ms

    def past(self, now_ms: int) -> list[Claim]:
        """Claims whose time is over."""
        first = self.next_expiry_ms()
        if first is None or first > now_ms:
            return []
        return [
            claim
            for claim in self._living.values()
            if claim.deadline_ms <= now_ms and claim.state not in SETTLING
        ]

    # ------------------------------------------------------------------ what frames say

    def begin(self, claim: Claim) -> None:
        """A claim begins to take messages. One of its name that had ended is forgotten."""
        before = self._by_place.get((claim.topic, claim.group, claim.name))
        if before is not None:
            self.forget(before)
        self._living[claim.number] = claim
        self._by_place[claim.topic, claim.group, claim.name] = claim
        self.next_number = max(self.next_number, claim.number + 1)
        self._first_known = False

    def add(self, decision: LeaseDecision) -> None:
        """Messages were put under a lease for a claim."""
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
        """A claim that goes on has another state, or another time to end."""
        claim.state, claim.deadline_ms = state, deadline_ms
        self._first_known = False

    def end(self, claim: Claim, state: str) -> None:
        """A claim has ended. Its messages are nobody's business any more, its name is."""
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
        """Nothing is known of a claim any more; who holds on to a living one sees that."""
        if self._living.pop(claim.number, None) is not None:
            claim.state = FORGOTTEN
            claim.forget_rows()
        self._ended.pop(claim.number, None)
        self._saved_ended.pop(claim.number, None)
        place = (claim.topic, claim.group, claim.name)
        if self._by_place.get(place) is claim:
            del self._by_place[place]
        self._first_known = False

    def drop(self, topic: int, group: int) -> None:
        """A group goes, and its claims with it."""
        for claim in [*self._living.values(), *self._ended.values()]:
            if claim.topic == topic and claim.group == group:
                self.forget(claim)

    def purge(self, topic: int, group: int) -> None:
        """What was under lease in a group has been ended by force."""
        for claim in self.of_groups(topic, [group]):
            self.end(claim, PURGED)

    def shift(self, by_ms: int) -> None:
        """Leader time jumped by so much."""
        for claim in self._living.values():
            claim.deadline_ms += by_ms
        self._first_known = False

    # ------------------------------------------------------------------ checkpoints

    def snapshot(self) -> dict[str, Any]:
        """For a checkpoint. Columns are lent, not copied: nothing changes them."""
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
            self._by_place[claim.topic, claim.group, claim.name] = claim
        for item in saved["living"]:
            claim = Claim(**{name: item[name] for name in _SAVED})
            claim.leases, claim.ends = item["leases"], item["ends"]
            claim.refs = [np.frombuffer(raw, np.int64) for raw in item["refs"]]
            claim.attempts = [np.frombuffer(raw, np.uint16) for raw in item["attempts"]]
            self.begin(claim)
        self.next_number = saved["next"]
