"""The three nodes of a drill, as far as that needs no processes."""

from __future__ import annotations

import asyncio

import pytest

from delaylog.broker.drills import trio
from delaylog.broker.drills.kinds import DrillError
from delaylog.broker.drills.trio import Trio


class Leader(Trio):
    """Nodes whose leader gives these answers, the last one again and again."""

    def __init__(self, *answers: tuple[int, str]) -> None:
        self._answers = list(answers)

    async def post(self, node: int, path: str, shape: object = None) -> tuple[int, str]:
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


def test_a_refused_hand_over_is_asked_for_again() -> None:
    asyncio.run(Leader((409, "gamma is not connected"), (200, "")).hand_over(1, 3))


@pytest.mark.parametrize("status", [409, 503, 0])
def test_a_hand_over_that_is_not_done_fails(status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refusal after some time, and else at once: it may have been done in part."""
    monkeypatch.setattr(trio, "REFUSED_DEADLINE_S", 0.1)
    with pytest.raises(DrillError, match="node 1 did not hand over to node 3: no"):
        asyncio.run(Leader((status, "no")).hand_over(1, 3))
