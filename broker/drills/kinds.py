"""Names and descriptions of the drills, in a module that the command line can load quickly."""

from __future__ import annotations

from typing import Final

DRILLS: Final = {
    "kill-leader": "SIGKILL of the leader",
    "stop-leader": "SIGSTOP of the leader for two seconds",
    "hang-leader": "SIGSTOP of the leader for 10 to 30 seconds, with clients of the SDK",
    "failovers": "SIGSTOP of the leader again and again: memory must not grow (use --rounds 100)",
    "handover": "planned handover of the leadership",
    "partition": "the leader, then a follower is cut off for two seconds (needs root)",
    "cut-tcp": "TCP between the leader and its peers is cut, UDP is not (needs root and nft)",
    "black-hole": "long TCP segments of the leader to its peers are lost (needs root and nft)",
    "slow-disk": "syncs of a follower, then of the leader are slow, then hang (needs strace)",
    "blank-node": "a follower loses its disk and becomes a voter again, then the leader is killed",
    "clock-step": "the leader's clock is stepped, also just before it is killed",
    "certificates": "certificates of a minute are renewed while the nodes run",
    "busy-machine": "twenty busy loops for a minute, and no fault: the leader should stay",
    "restart-all": "SIGKILL of all three nodes at once",
}


class DrillError(Exception):
    """The drill cannot run on this machine, or the cluster failed it. The text says which."""
