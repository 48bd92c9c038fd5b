"""How long until the cluster served again, and how long it was silent."""

from __future__ import annotations

import asyncio

from delaylog.broker.drills.timeline import Again, Served, Timeline
from delaylog.broker.drills.verdict import spread


def at(began_ms: float, ended_ms: float) -> Served:
    return Served(began_ms, ended_ms, 1)


def again(sends: list[Served], deliveries: list[Served], deadline_s: float = 0.2) -> Again | None:
    async def ask() -> Again | None:
        it = Timeline()
        loop = asyncio.get_running_loop()
        # Half of it is there, the rest comes while it is waited for.
        for calls, note in ((sends, it.sent), (deliveries, it.delivered)):
            for number, call in enumerate(calls):
                loop.call_later(0.002 * number, note, call)
        return await it.serving_again(1_000, 1_010, deadline_s)

    return asyncio.run(ask())


def test_only_what_began_after_the_fault_counts() -> None:
    sends = [at(990, 1_020), at(1_015, 1_300), at(1_305, 1_320)]
    deliveries = [at(1_005, 1_400), at(1_290, 1_350)]
    assert again(sends, deliveries) == Again(300, 350)


def test_the_delivery_has_to_come_after_the_send() -> None:
    found = again([at(1_100, 1_500)], [at(1_020, 1_200), at(1_400, 1_501)])
    assert found == Again(500, 501)
    assert found.serving_ms == 501


def test_who_does_not_serve_is_told() -> None:
    assert again([at(1_100, 1_500)], [], 0.02) is None
    assert again([at(900, 950)], [at(1_100, 1_200)], 0.02) is None


def test_the_longest_silence() -> None:
    async def ask() -> tuple[float, float]:
        it = Timeline()
        for ended_ms in (100, 150, 400, 900):
            it.sent(at(0, ended_ms))
        return it.longest_silence_ms(120, 600)

    assert asyncio.run(ask()) == (250, 480)


def test_spreads() -> None:
    assert spread([]) == {}
    assert spread(range(1, 101)) == {"median": 50, "p95": 95, "p99": 99, "max": 100}
