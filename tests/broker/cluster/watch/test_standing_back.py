"""Who lets others be elected first, and for how long at most."""

from __future__ import annotations

from typing import Any

import pytest

from delaylog.broker.cluster.watch.fitness import Me, Peer, Unfit
from delaylog.broker.cluster.watch.fitness_watch import (
    CUT_MS,
    LEADER_MS,
    PRIORITY_MS,
    UNFIT_MS,
    stands_back,
)


def peer(**changed: Any) -> Peer:
    return Peer(node=2, name="beta", **changed)


@pytest.mark.parametrize(
    ("me", "peers", "until_ms"),
    [
        (Me(), [], 0),
        (Me(), [peer()], 0),
        (Me(priority=60), [peer()], 0),
        (Me(), [peer(priority=51)], PRIORITY_MS),
        (Me(), [peer(priority=51, full=True)], 0),
        (Me(Unfit.FULL), [peer()], UNFIT_MS),
        (Me(Unfit.SLOW, priority=60), [peer()], UNFIT_MS),
        (Me(Unfit.FULL), [peer(full=True)], 0),
        (Me(Unfit.FULL), [peer(connected=False)], 0),
        (Me(Unfit.CUT), [peer()], CUT_MS),
        (Me(Unfit.CUT), [peer(unfit="cut")], 0),
    ],
)
def test_it_stands_back_for_a_bounded_time(me: Me, peers: list[Peer], until_ms: int) -> None:
    """While the leader is heard it would stand, as a transfer asks it to."""
    back = [ms for ms in range(0, 2 * CUT_MS, 50) if stands_back(me, peers, ms)]
    assert back == list(range(LEADER_MS, until_ms, 50))
