"""A worker that is killed leaves its messages to others: after the lease, and never half done.

Workers that ack too early, and somebody who ends the leases of others, show that the drill can
fail; the judge of lives is shown lives that cannot be as well.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.drills.drill_program import page_of
from tests.drills.sdk_lives import Handled, judge_life, tally


@pytest.mark.parametrize("kills", [8, pytest.param(200, marks=pytest.mark.drill)])
def test_killed_workers(tmp_path: Path, kills: int) -> None:
    options = ("workers", "--rounds", kills, "--seed", 20130101)
    page_of(tmp_path, "sdk_kills", *options, timeout_s=3_000)


@pytest.mark.drill
@pytest.mark.parametrize(
    ("plant", "kills", "found"),
    [
        ("early-ack", 4, "before its handler had ended"),
        ("count-all", 8, "that waited in a killed worker were counted"),
        ("meddler", 4, "and not by its handler"),
        # The checker finds it in the journals alone.
        ("meddler", 4, "violated:"),
    ],
)
def test_workers_that_are_wrong_are_found(
    tmp_path: Path, plant: str, kills: int, found: str
) -> None:
    options = ("workers", "--rounds", kills, "--seed", 20130101, "--plant", plant)
    page = page_of(tmp_path, "sdk_kills", *options, timeout_s=300, statuses=(1,))
    assert found in page, page


def step(event: str, at_ms: int, **more: int) -> dict[str, Any]:
    return {"event": event, "at_ms": at_ms, **more}


SENT = step("sent", 0)
FIRST = step("leased", 10, attempts=1, lease_until_ms=110)
SECOND = step("leased", 120, attempts=2, lease_until_ms=220)
OVER = step("lease_expired", 111, attempts=1)
UNTRIED = step("nacked", 30, attempts=0)
WAITED = step("lease_expired", 111, attempts=0)
ONCE_MORE = step("leased", 120, attempts=1, lease_until_ms=220)
DEAD = step("dead", 150, attempts=2)
AGAIN = step("leased", 40, attempts=1, lease_until_ms=140)
LAST = step("acked", 150)
DONE = {2: Handled(130, ended_ms=140)}


@pytest.mark.parametrize(
    ("life", "handled"),
    [
        ([SENT, FIRST, OVER, SECOND, LAST], DONE),
        ([SENT, FIRST, OVER, SECOND, LAST], {1: Handled(20), **DONE}),
        (
            [SENT, FIRST, step("lease_extended", 60, lease_until_ms=160), LAST],
            {1: Handled(20, ended_ms=140)},
        ),
        (
            [SENT, FIRST, step("nacked", 30, attempts=1), {**SECOND, "at_ms": 40}, LAST],
            {1: Handled(20, raised_ms=25), **DONE},
        ),
        ([SENT, FIRST, UNTRIED, AGAIN, LAST], {1: Handled(50, ended_ms=60)}),
        ([SENT, FIRST, WAITED, ONCE_MORE, LAST], {1: Handled(130, ended_ms=140)}),
        (
            [SENT, FIRST, step("begun", 60, attempts=1, lease_until_ms=160), LAST],
            {1: Handled(140, ended_ms=145)},
        ),
    ],
)
def test_a_life_as_it_should_be(life: list[dict[str, Any]], handled: dict[int, Handled]) -> None:
    assert judge_life(life, handled) == []


@pytest.mark.parametrize(
    ("life", "handled", "found"),
    [
        ([SENT, FIRST, {**SECOND, "at_ms": 60}, LAST], DONE, "a lease was open"),
        ([SENT, FIRST, step("lease_expired", 109), SECOND, LAST], DONE, "already"),
        (
            [SENT, FIRST, OVER, step("lease_extended", 115, lease_until_ms=300)],
            {},
            "after its lease was over",
        ),
        ([SENT, FIRST, OVER, SECOND, step("acked", 135)], DONE, "before its handler had ended"),
        ([SENT, FIRST, OVER, SECOND, LAST], {2: Handled(130)}, "had ended"),
        ([SENT, FIRST, step("acked", 50)], {}, "before its handler had ended"),
        ([SENT, FIRST, step("nacked", 50, attempts=1)], {1: Handled(20)}, "not by its handler"),
        ([SENT, FIRST, UNTRIED, AGAIN, LAST], {1: Handled(20, ended_ms=60)}, "untried"),
        ([SENT, FIRST, OVER], {1: Handled(20)}, "never acked"),
        ([SENT, FIRST, OVER, SECOND, LAST], {1: Handled(115), **DONE}, "attempt 1"),
        ([SENT], {}, "never acked"),
        ([SENT, FIRST, WAITED, ONCE_MORE, LAST], {1: Handled(20)}, "not counted at 111"),
        ([SENT, FIRST, WAITED, SECOND, LAST], DONE, "attempt 2 follows 0"),
        ([SENT, FIRST, OVER, ONCE_MORE, LAST], DONE, "attempt 1 follows 1"),
    ],
)
def test_a_life_that_cannot_be(
    life: list[dict[str, Any]], handled: dict[int, Handled], found: str
) -> None:
    assert any(found in text for text in judge_life(life, handled))


def test_the_life_of_what_always_fails() -> None:
    failed = {1: Handled(20, raised_ms=30), 2: Handled(130, raised_ms=140)}
    back = step("nacked", 40, attempts=1)
    assert judge_life([SENT, FIRST, back, SECOND, DEAD], failed, retries=1) == []
    early = judge_life([SENT, FIRST, step("dead", 40, attempts=1)], failed, retries=1)
    assert "it always failed, and ended dead, not after 2 attempts" in early
    (acked, *_) = judge_life([SENT, FIRST, back, SECOND, LAST], failed, retries=1)[-1:]
    assert "ended acked" in acked


def test_leases_that_ended_without_a_handler() -> None:
    """Counted, if the attempt had begun ahead of its handler."""
    assert tally([SENT, FIRST, OVER, SECOND, LAST], DONE) == {"counted": 1}
    assert tally([SENT, FIRST, WAITED, ONCE_MORE, LAST], {1: Handled(130)}) == {"uncounted": 1}
    assert not tally([SENT, FIRST, OVER], {1: Handled(20)})
