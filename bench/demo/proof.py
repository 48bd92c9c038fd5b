"""What the demo claims at its end, from what the processes wrote down: no more, no less.

The rules are judged by the history checker. Beside it stand two counts that need no checker to be
understood: every flight's reminder was received, and none before its time by the consumer's own
clock. Lateness is the consumer's receipt less the due time that the producer was answered; it
belongs to the outage if the message was due or under way while the broker was down, or waited
behind those before the consumers had caught up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from delaylog.broker.history import CheckReport, CheckSettings, check_files

RULES = frozenset("ABCJ")
"""Nothing is cancelled, rescheduled, keyed or sent under an id of its own here."""
CAUGHT_UP_MS = 50
"""The outage is over when no message waits longer than this behind those that it held up."""

Times = npt.NDArray[np.float64]
Refs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Outage:
    """From the kill to the broker's new ready line, by the wall clock."""

    killed_ms: int
    ready_ms: int


@dataclass(frozen=True, slots=True)
class Proof:
    """The numbers and the verdict."""

    sent: int
    deliveries: int
    received: int
    strangers: int
    early: int
    outside_ms: Times
    during_ms: Times
    caught_up_ms: float
    report: CheckReport

    @property
    def duplicates(self) -> int:
        """Deliveries beyond the first of a message."""
        return self.deliveries - self.received - self.strangers

    @property
    def holds(self) -> bool:
        """Sent = received, none early, none from nowhere, none lost by the recorded history."""
        counted = self.received == self.sent > 0 and not self.early and not self.strangers
        return counted and self.report.holds and self.report.fates.lost == 0


def prove(folder: Path, outage: Outage | None, *, lease_ms: int) -> Proof:
    """Read what the processes left in `folder` and judge it."""
    with np.load(folder / "sent.npz") as sent:
        refs, dues_ms = sent["refs"], sent["dues_ms"]
    got_refs, got_ms = _receipts(sorted(folder.glob("consumer-*.npz")))
    order = np.argsort(refs)
    refs, dues_ms = refs[order], dues_ms[order]
    place = np.minimum(np.searchsorted(refs, got_refs), max(len(refs) - 1, 0))
    known = refs[place] == got_refs if len(refs) else np.zeros(len(got_refs), bool)
    place, got_ms = place[known], got_ms[known]
    late_ms = got_ms - dues_ms[place]
    during, caught_up_ms = _during(dues_ms[place], got_ms, place, outage)
    # The end mark was set after the broker had said that nothing was open any more, so each
    # message is owed by then and rule A needs no bound.
    settings = CheckSettings(bound_ms=0, lease_ms=lease_ms, rules=RULES)
    return Proof(
        sent=len(refs),
        deliveries=len(got_refs),
        received=len(np.unique(place)),
        strangers=int((~known).sum()),
        early=int((late_ms < 0).sum()),
        outside_ms=late_ms[~during],
        during_ms=late_ms[during],
        caught_up_ms=caught_up_ms,
        report=check_files(sorted(folder.glob("*.jsonl")), settings),
    )


def _receipts(paths: Sequence[Path]) -> tuple[Refs, Times]:
    refs, times_ms = [np.empty(0, np.int64)], [np.empty(0)]
    for path in paths:
        with np.load(path) as columns:
            refs.append(columns["refs"])
            times_ms.append(columns["times_ms"])
    return np.concatenate(refs), np.concatenate(times_ms)


def _during(
    dues_ms: Refs, got_ms: Times, place: Refs, outage: Outage | None
) -> tuple[npt.NDArray[np.bool_], float]:
    """Which deliveries the outage touched, and when the consumers had caught up."""
    if outage is None:
        return np.zeros(len(got_ms), bool), 0.0
    order = np.argsort(got_ms, kind="stable")
    first = np.zeros(len(got_ms), bool)
    first[order[np.unique(place[order], return_index=True)[1]]] = True
    # What came due while the broker was down is followed, in due order, by what came due while
    # that was handed out, and so on until the consumers are close behind the clock again. What was
    # leased at the kill came due before it and waits for its lease, so it does not count here.
    first &= dues_ms >= outage.killed_ms
    caught_up_ms = float(outage.ready_ms)
    while True:
        waited = first & (dues_ms <= caught_up_ms)
        behind_ms = float(got_ms[waited].max(initial=caught_up_ms)) - caught_up_ms
        caught_up_ms += behind_ms
        if behind_ms < CAUGHT_UP_MS:
            break
    touched = (dues_ms <= caught_up_ms) & (got_ms >= outage.killed_ms)
    return touched, caught_up_ms
