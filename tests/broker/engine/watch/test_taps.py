"""Taps: what is kept of hand-outs, in order, numbered, and bounded."""

from __future__ import annotations

from typing import Any

import pytest

from delaylog.broker.engine.errors import QuotaRefusal
from delaylog.broker.engine.watch.taps import IDLE_MS, KEPT, TAPS_MAX, Taps


def tap_of(host: Any) -> Any:
    return host.engine.state.taps.of(host.topic.number, host.now_ms)


def test_hand_outs_are_kept_as_they_were_made(host: Any) -> None:
    """Purpose: a watcher sees ids, groups, consumers and attempts. Method: own and given ids, two
    groups, a retry."""
    host.put_group("mail")
    tap = tap_of(host)
    start = tap.next
    host.send([b"abc", b"d"], ids=["own", ""], keys=["k", ""])
    host.advance(5)
    got = host.receive()
    host.receive(group="mail")
    found, complete = tap.since(start, 100)
    assert complete
    assert [(each.id, each.group) for each in found] == [
        ("own", "default"),
        (got[1].any_id, "default"),
        ("own", "mail"),
        (got[1].any_id, "mail"),
    ]
    assert [each.number for each in found] == list(range(start, start + 4))
    assert {each.at_ms - each.deliver_at_ms for each in found} == {5}
    assert [each.size for each in found[:2]] == [len("own") + len("k") + 3, 1]
    host.nack(got[:1], delay=0)
    host.receive()
    found, complete = tap.since(tap.next - 1, 100)
    assert [(each.id, each.attempts) for each in found] == [("own", 2)]
    assert tap.since(tap.next, 100) == ([], True)


def test_a_slow_watcher_is_told_that_it_missed_some(host: Any) -> None:
    tap = tap_of(host)
    start = tap.next
    host.send(KEPT + 5, delay=0)
    host.receive(KEPT + 5)
    found, complete = tap.since(start, 3)
    assert not complete
    assert [each.number for each in found] == [start + 5, start + 6, start + 7]
    assert tap.since(start + 5, 1)[1]


def test_a_new_tap_repeats_no_number(host: Any) -> None:
    """After a restart a watcher goes on with its number, and learns that it missed some."""
    before = tap_of(host)
    host.send(10, delay=0)
    host.receive()
    host.restart(pause_ms=1_000)
    after = tap_of(host)
    assert after.next > before.next
    assert after.since(before.next, 10) == ([], False)


def test_taps_are_few_and_end() -> None:
    taps = Taps()
    for topic in range(TAPS_MAX):
        taps.of(topic, topic)
    with pytest.raises(QuotaRefusal, match="16 topics are being watched"):
        taps.of(100, IDLE_MS - 1)
    assert sorted(taps.by_topic) == list(range(TAPS_MAX))
    # The first one has become idle, and makes room.
    taps.of(100, IDLE_MS)
    assert sorted(taps.by_topic) == [*range(1, TAPS_MAX), 100]
    taps.of(3, 2 * IDLE_MS)
    taps.drop_idle(2 * IDLE_MS + 20)
    assert sorted(taps.by_topic) == [3]
