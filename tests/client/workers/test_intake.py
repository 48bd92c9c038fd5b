"""How much is asked for, as plain numbers."""

from __future__ import annotations

from delaylog.client.workers.intake import AHEAD_S, BEGIN_AHEAD_S, Intake


def intake(
    *, concurrency: int = 8, places: int = 8, prefetch: int = 2_000, ports: int = 1
) -> Intake:
    return Intake(concurrency=concurrency, places=places, prefetch=prefetch, ports=ports)


def test_at_first_as_many_as_can_begin() -> None:
    assert intake().ask(waiting_here=0, waiting=0, running=0) == 8
    assert intake().ask(waiting_here=0, waiting=0, running=6) == 2
    assert intake().ask(waiting_here=2, waiting=2, running=6) == 0


def test_quick_handlers_have_a_quarter_of_a_second_ahead() -> None:
    quick = intake()
    quick.handled(1_000, 1_000 * 0.01)
    assert quick.window() == 8 * AHEAD_S / 0.01
    assert quick.ask(waiting_here=0, waiting=0, running=8) == 200


def test_never_more_than_prefetch_waits() -> None:
    quick = intake(prefetch=500)
    quick.handled(1_000, 0.001)
    assert quick.ask(waiting_here=0, waiting=0, running=8) == 500
    none = intake(prefetch=0)
    none.handled(1_000, 0.001)
    assert none.ask(waiting_here=0, waiting=0, running=8) == 0
    assert none.ask(waiting_here=0, waiting=0, running=7) == 1


def test_nothing_waits_behind_handlers_that_take_seconds() -> None:
    slow = intake()
    slow.handled(10, 100.0)
    assert slow.ask(waiting_here=0, waiting=0, running=8) == 0
    assert slow.ask(waiting_here=0, waiting=0, running=5) == 3


def test_a_window_is_filled_when_half_of_it_is_used_up() -> None:
    quick = intake()
    quick.handled(1_000, 10.0)
    assert quick.ask(waiting_here=101, waiting=101, running=8) == 0
    assert quick.ask(waiting_here=100, waiting=100, running=8) == 100


def test_shards_share_it() -> None:
    quick = intake(ports=2)
    quick.handled(1_000, 10.0)
    assert quick.ask(waiting_here=0, waiting=100, running=8) == 100
    assert intake(ports=3).ask(waiting_here=0, waiting=0, running=0) == 3


def test_handlers_that_become_slow_shrink_it() -> None:
    changing = intake()
    changing.handled(1_000, 0.1)
    assert changing.window() == 2_000
    for _ in range(20):
        changing.handled(100, 100.0)
        last = changing.window()
    assert last == 2


def test_attempts_begin_a_fiftieth_of_a_second_ahead() -> None:
    quick = intake()
    assert (quick.soon(running=0), quick.soon(running=8)) == (8, 0)
    quick.handled(1_000, 1_000 * 0.001)
    quick.window()
    assert quick.soon(running=8) == 8 * BEGIN_AHEAD_S / 0.001
    slow = intake()
    slow.handled(1_000, 1_000.0)
    slow.window()
    assert (slow.soon(running=5), slow.soon(running=8)) == (3, 0)


def test_attempts_begin_further_ahead_where_calls_are_slow() -> None:
    """Twice the time of a call, up to what is fetched ahead."""
    far = intake()
    far.handled(1_000, 1_000 * 0.1)
    far.window()
    for _ in range(40):
        far.begun(0.05)
    assert far.soon(running=8) in (7, 8)
    for _ in range(40):
        far.begun(60.0)
    assert far.soon(running=8) == 8 * AHEAD_S / 0.1
