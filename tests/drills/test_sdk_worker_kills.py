"""A worker that is killed leaves its messages to others: after the lease, and never half done.

The drill runs as the program that people run by hand; its page, with seed and folder, is what a
failure shows. Workers that ack too early, and somebody who ends the leases of others, show that it
can fail; the judge of lives is shown lives that cannot be as well.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.drills.sdk_lives import Handled, judge_life, tally
from tests.programs import run_program

PROGRAM = Path(__file__).with_name("sdk_worker_kills.py")


def run(folder: Path, kills: int, seed: int, timeout_s: float, plant: str = "none") -> str:
    """The page of a run, if it ended as it should: well, or with a planted fault that was found."""
    command = [sys.executable, str(PROGRAM), "--kills", str(kills), "--seed", str(seed)]
    command += ["--plant", plant]
    # A drill that fails keeps its folder, and it is one of this test's.
    done = run_program(*command, timeout=timeout_s, env={**os.environ, "TMPDIR": str(folder)})
    expected = 0 if plant == "none" else 1
    assert done.returncode == expected, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_a_few_kills(tmp_path: Path) -> None:
    run(tmp_path, 8, seed=20130101, timeout_s=300)


@pytest.mark.drill
def test_two_hundred_kills(tmp_path: Path) -> None:
    run(tmp_path, 200, seed=20131231, timeout_s=3_000)


@pytest.mark.drill
def test_acks_before_the_work_are_found(tmp_path: Path) -> None:
    page = run(tmp_path, 4, seed=20130101, timeout_s=300, plant="early-ack")
    assert "before its handler had ended" in page


@pytest.mark.drill
def test_attempts_at_what_waits_are_found(tmp_path: Path) -> None:
    page = run(tmp_path, 8, seed=20130101, timeout_s=300, plant="count-all")
    assert "that waited in a killed worker were counted" in page


@pytest.mark.drill
def test_deliveries_before_the_lease_is_over_are_found(tmp_path: Path) -> None:
    page = run(tmp_path, 4, seed=20130101, timeout_s=300, plant="meddler")
    assert "and not by its handler" in page
    assert "violated:" in page, "the checker finds it in the journals alone"


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
