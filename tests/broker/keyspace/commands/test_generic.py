"""Keys of any kind: expiry, scans. The differential tests compare the replies."""

from __future__ import annotations

from tests.broker.keyspace.effects import NOW_MS, Pair


def test_expired_keys_leave_by_an_effect() -> None:
    pair = Pair()
    pair.send("SET k v PX 5")
    pair.send("SET l v")
    pair.executor.begin(NOW_MS + 5)
    assert pair.send("KEYS *") == "*1 l"
    assert pair.send("RENAMENX l k") == ":1"
    assert pair.effects[-2:] == [[b"DEL", b"k"], [b"RENAMENX", b"l", b"k"]]
    pair.check()


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
