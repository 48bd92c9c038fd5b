"""Scans of keys. The differential tests compare the replies."""

from __future__ import annotations

from tests.broker.keyspace.effects import Pair


def test_scan_finds_all() -> None:
    pair = Pair()
    for number in range(100):
        pair.send(f"SET {number} x")
    cursor, seen, turns = b"0", [], 0
    while turns == 0 or cursor != b"0":
        reply = pair.executor.execute(pair.session, [b"SCAN", cursor, b"COUNT", b"7"])
        assert isinstance(reply, list)
        cursor, names = reply
        seen += names
        pair.send(f"DEL {99 - turns}")
        turns += 1
    # What was removed before its turn is not given.
    assert len(seen) == len(set(seen)) < 100
    assert set(pair.leader.databases[0].values) <= set(seen)
