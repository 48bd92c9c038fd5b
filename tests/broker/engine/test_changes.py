"""Cancel and reschedule are truthful in every state, and ids work after moves and restarts."""

from __future__ import annotations

import numpy as np

from delaylog.broker.engine import changes
from delaylog.broker.engine.lookup.find_messages import find_origins

DONE, TOO_LATE, UNKNOWN = 0, 1, 2
HOUR = 3_600_000


def test_unknown_ids(host) -> None:
    """Unused names, refs without a message, and ids of another topic."""
    host.send([b"x"], delay=HOUR, ids=["m"])
    made = host.ids_of(host.send([b"y"], delay=HOUR))[0]
    host.topic_name = "other"
    for name in ("m", made, "n", "~ffffffffffffffff", "~0000000000000001", "~x", ""):
        assert host.cancel([name]) == [UNKNOWN], name
        assert host.reschedule([name], host.now_ms + HOUR) == [UNKNOWN], name


def test_a_repeated_id_acts_once(host) -> None:
    """One call that names a message twice counts it once."""
    host.send(2, delay=HOUR, ids=["m", "n"])
    assert host.reschedule(["m", "n", "m"], host.now_ms + 1_000) == [DONE] * 3
    assert host.topic.default.counts.living == 2
    assert host.cancel(["m", "m"]) == [DONE, DONE]
    assert host.topic.default.counts.cancelled == 1
    host.advance(2_000)
    assert host.bodies() == [b"1"]
    host.check_counts()


def test_the_last_naming_of_a_message_counts(host) -> None:
    """Two times for one message in one call: as two calls one after the other, and said so."""
    refs = host.send(2, delay=HOUR).refs[[0, 1, 0]]
    state, topic, now = host.engine.state, host.topic, host.now_ms
    due = np.array([now + 5_000, now + 6_000, now + 7_000])
    found = find_origins(state, refs, topic, now)
    result = changes.reschedule(state, topic, found, now, deliver_at_ms=due)
    assert result.codes.tolist() == [DONE] * 3
    assert result.deliver_at_ms.tolist() == [now + 7_000, now + 6_000, now + 7_000]
    host.advance(6_000)
    assert host.bodies() == [b"1"]
    host.advance(1_000)
    assert host.bodies() == [b"0"]
    host.check_counts()


def test_ids_of_every_kind_in_one_call(host) -> None:
    """Server-made, chosen, alien and broken ones, over many hours, in any order and repeated."""
    delays = [hour * HOUR for hour in (9, 1, 5, 5, 2, 9)]
    chosen = ["a", "", "bb", "é", "", "x" * 255]
    made = host.ids_of(host.send(6, delay=delays, ids=chosen))
    good = [name or own for name, own in zip(chosen, made, strict=True)]
    host.checkpoint()
    host.reschedule(good[:3], host.now_ms + 3 * HOUR)
    bad = [
        "~",
        "~zzzzzzzzzzzzzzzz",
        "~8000000000000000",
        made[1][:-1],
        made[1] + "0",
        "aa",
        "b",
        "",
    ]
    bad += [made[1].upper(), "~0000000000000000", "y" * 300]
    names = [good[5], *bad, *good, *bad[:3]]
    found = host.find(names)
    assert [item is not None for item in found] == [name in good for name in names]
    assert host.cancel(names) == [DONE if name in good else UNKNOWN for name in names]
    assert host.topic.default.counts.cancelled == 6
    host.check_counts()
