"""The drills by name, apart from what runs them: the command line is read without loading that."""

from __future__ import annotations

from typing import Final

DRILLS: Final = {
    "kill-leader": "SIGKILL of the leader",
    "stop-leader": "SIGSTOP of the leader for two seconds",
    "handover": "the leader hands over as planned",
    "partition": "the leader, then a follower is cut off for two seconds (needs root)",
    "slow-disk": "syncs of a follower, then of the leader are slow (needs strace)",
    "blank-node": "a follower loses its disk and is let in again, then the leader is killed",
    "clock-step": "the leader's clock is stepped, also just before it is killed",
    "restart-all": "SIGKILL of all three nodes at once",
}


class DrillError(Exception):
    """A drill cannot be run, or the cluster did not do what it must; the text says which."""
