"""Packet filters between the leader and its peers: TCP is cut, or its long segments disappear.

UDP passes, and so do the packets of clients: the leader looks healthy but cannot commit. Another
node has to lead, and the end of the cut must not begin a series of elections.
"""

from __future__ import annotations

import asyncio
from typing import Final

from delaylog.broker.drills.faults.namespaces import NetworkTrio
from delaylog.broker.drills.faults.partition import cut_leader
from delaylog.broker.drills.node_log import LEADS, LogMark
from delaylog.broker.drills.rounds import Stage

CUT_S: Final = 8.0
"""Longer than the time within which another node has to serve."""
SETTLE_S: Final = 3.0
"""After the end of the cut changes of the leader are counted for this time."""
CHANGES_MAX: Final = 1
_DROP: Final = "meta l4proto tcp drop"
_RESET: Final = "meta l4proto tcp reject with tcp reset"
_LONG: Final = "meta l4proto tcp meta length 700-65535 drop"
"""What a tunnel with a wrong MTU does, if no message of ICMP tells the sender."""

Rules = dict[str, str]
CUTS: Final[tuple[tuple[str, Rules], ...]] = (
    ("TCP cut", {"input": _DROP, "output": _DROP}),
    ("TCP to the leader cut", {"input": _DROP}),
    ("TCP from the leader cut", {"output": _DROP}),
    ("TCP of the leader reset", {"input": _RESET, "output": _RESET}),
)


async def cut_tcp(stage: Stage) -> None:
    """Cut TCP between the leader and its peers, each round in another way."""
    await _filter_leader(stage, *CUTS[len(stage.rounds) % len(CUTS)])


async def black_hole(stage: Stage) -> None:
    """Drop long segments of TCP between the leader and its peers."""
    await _filter_leader(stage, "", {"input": _LONG, "output": _LONG})


async def _filter_leader(stage: Stage, what: str, rules: Rules) -> None:
    trio = stage.trio
    assert isinstance(trio, NetworkTrio)
    healed: list[LogMark] = []

    def heal(leader: int) -> None:
        trio.unfilter(leader)
        healed.append(LogMark(trio.nodes))

    def cut(leader: int) -> None:
        trio.filter(leader, rules)

    await cut_leader(stage, what, cut, heal, CUT_S)
    await asyncio.sleep(SETTLE_S)
    changes = len(healed[0].entries(LEADS))
    if changes > CHANGES_MAX:
        stage.broken.append(
            f"round {len(stage.rounds)}: the leader changed {changes} times after the cut had "
            f"ended; {CHANGES_MAX} is allowed"
        )
