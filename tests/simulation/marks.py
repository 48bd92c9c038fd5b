"""Marks: interesting places that runs must reach, or else they are blind there.

A mark is reached when the simulation sees the product in that state, at an operation of the disk,
at the death of a process, or in an answer. The product itself has no line for them. `MANDATORY` are
those that some tens of seeds must reach together.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from delaylog.broker.host.background import Background

if TYPE_CHECKING:
    from tests.simulation.broker import Broker

MANDATORY: Final = (
    "killed while it served",
    "killed during a start",
    "killed during a checkpoint",
    "killed between a write and its sync",
    "power cut",
    "an answer was lost",
    "a message was delivered again",
    "delivered again: lease",
    "delivered again: nack",
    "a message was dead",
    "a message expired",
    "a waiting message was kept",
    "a waiting message was replaced",
    "a start was refused",
    "a row went to the far tier",
    "far rows came near",
    "a segment of the log was removed",
    "an hour was removed",
    "the id index was written",
    "the log waited for space",
    "the clock stood still",
    "the clock jumped ahead",
    "a waiting message was read",
    "a waiting message was listed by all",
    "a schedule fired",
    "a transaction was committed",
    "a claim was made",
    "refused with 400",
    "refused with 404",
    "refused with 409",
    "refused with 413",
    "refused with 429",
    "refused with 507",
)
"""Reached by every thirty seeds."""

_PLACES: Final = (
    ("/data/hours/far/", "create", "a row went to the far tier"),
    ("/data/log/", "unlink", "a segment of the log was removed"),
    ("/data/ids/", "create", "the id index was written"),
    ("/data/texts/", "create", "the index of texts was written"),
    ("/data/schedules/", "create", "schedules were written"),
    ("/data/ready/", "create", "ready messages went to disk"),
    ("/data/checkpoint-", "unlink", "a checkpoint was removed"),
)


class Marks:
    """How often each was reached."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def reached(self, name: str) -> None:
        """It was."""
        self.counts[name] += 1

    def at_operation(self, broker: Broker, kind: str, path: str) -> None:
        """An operation of the disk begins."""
        for prefix, its, name in _PLACES:
            if kind == its and path.startswith(prefix):
                self.reached(name)
        if kind == "unlink" and path.startswith("/data/hours/") and path.count("/") == 3:
            self.reached("an hour was removed")
        node = broker.node
        if node is None:
            return
        works = running(node.background)
        if node.engine.upkeep.checkpoint_running:
            for name in works - {"checkpoint"}:
                self.reached(f"{name} during a checkpoint")
        if "split" in works:
            self.reached("far rows came near")
            if "merge" in works:
                self.reached("a merge during a split")

    def at_death(self, broker: Broker) -> None:
        """A process dies."""
        node = broker.node
        if node is None:
            self.reached("killed during a start")
            return
        self.reached("killed while it served")
        works = running(node.background)
        for name in works:
            self.reached(f"killed during {name}")
        if node.engine.upkeep.checkpoint_running:
            self.reached("killed during a checkpoint")
        log = node.engine.state.log
        if log.written_position > log.durable_position:
            self.reached("killed between a write and its sync")
        if log.pending_size:
            self.reached("killed with frames that were not written")
        if log.sealed:
            self.reached("killed with a finished segment that was not synced")

    def at_call(self, broker: Broker) -> None:
        """A client begins a call."""
        node = broker.node
        if node is not None and broker.serves:
            if node.clock.ahead_ms:
                self.reached("the clock stood still")
            if node.disk_full:
                self.reached("the log waited for space")


def running(background: Background) -> set[str]:
    """Names of the work that runs."""
    return set(background._running)
