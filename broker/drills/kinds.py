"""Names and descriptions of the drills, in a module that the command line can load quickly."""

from __future__ import annotations

from typing import Final

DRILLS: Final = {
    "kill-leader": "SIGKILL of the leader",
    "stop-leader": "SIGSTOP of the leader for two seconds",
    "handover": "planned handover of the leadership",
    "partition": "the leader, then a follower is cut off for two seconds (needs root)",
    "slow-disk": "syncs of a follower, then of the leader are slow (needs strace)",
    "blank-node": "a follower loses its disk and becomes a voter again, then the leader is killed",
    "clock-step": "the leader's clock is stepped, also just before it is killed",
    "restart-all": "SIGKILL of all three nodes at once",
}


class DrillError(Exception):
    """The drill cannot run on this machine, or the cluster failed it. The text says which."""
