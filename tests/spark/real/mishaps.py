"""The faults of a bad day, by count: busy answers, lost answers, and the lost one of a commit.

Given to a FakeBroker or to a FaultProxy as its `fault`; `met` says which of them have happened, so
that a test can tell that it was not empty.
"""

from __future__ import annotations

from tests.client.spark.misbehaving_server import Call, Fault

BUSY_EACH = 7
LOST_EACH = 11


class Mishaps:
    """503 with `Retry-After` each 7th call, each 11th carried out but its answer lost, and the
    first commit's too."""

    def __init__(self) -> None:
        self.met: set[str] = set()
        self._calls = 0

    def __call__(self, call: Call) -> Fault | None:
        self._calls += 1
        if call.path.endswith("/commit") and "commit" not in self.met:
            self.met.add("commit")
            return Fault(lose_answer=True)
        if self._calls % BUSY_EACH == 0:
            self.met.add("busy")
            return Fault(503, {"Retry-After": "0.01"})
        if self._calls % LOST_EACH == 0:
            self.met.add("lost")
            return Fault(lose_answer=True)
        return None
