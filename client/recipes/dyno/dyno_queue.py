"""A Dyno queue, first version: all of its calls in one class, and its timer.

The one rule: what the class answers is what the original answers, slips included, because both may
work on the same keys. Where it is silent the choice stands with the call.
"""

from __future__ import annotations

from typing import Self

from delaylog.client.recipes.dyno.looking import DynoLooking
from delaylog.client.recipes.dyno.settling import DynoSettling
from delaylog.client.recipes.dyno.taking import DynoTaking
from delaylog.client.recipes.dyno.upkeep import DynoUpkeep
from delaylog.client.recipes.repeating import Repeating

UNACK_SCHEDULE_MS = 60_000
"""Default period of the timer."""

SINGLE_RING_SHARDS = 3
"""With as many shards the original takes its endpoints for one ring and uses its scripts."""


class DynoQueue(DynoTaking, DynoSettling, DynoLooking, DynoUpkeep):
    """A delay queue in shards: at least once, in the order of due times within a shard.

    `DynoQueue(connection, "orders", shards=["a", "b", "c"], own_shard="a")` works on three keys a
    queue: `PREFIX.QUEUE.NAME.SHARD` and `PREFIX.UNACK.NAME.SHARD` of each shard, and the bodies in
    `PREFIX.MESSAGE.NAME`. `unack_ms` is how long a taken message may stay unacknowledged;
    `strategy` picks the shard of a push (default: round robin, beginning with the second).

    Some consumer must call `process_unacks` from time to time, or `start` the timer.
    Failures are `RecipeFailed`; a broken connection is tried twice more first.
    """

    _timer: Repeating | None = None

    def start(self, period_ms: int = UNACK_SCHEDULE_MS) -> None:
        """Process unacks at a fixed rate in a thread, the first time after one period."""
        if self._timer is not None:
            raise RuntimeError(f"the timer of {self.name} runs already")
        atomic = len(self._shards) == SINGLE_RING_SHARDS
        turn = self.atomic_process_unacks if atomic else self.process_unacks
        self._timer = Repeating(f"dyno-unacks-{self.name}", turn, period_ms=period_ms)

    def close(self) -> None:
        """Stop the timer, if it runs; the connection stays the caller's."""
        if self._timer is not None:
            self._timer.stop()
            self._timer = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
