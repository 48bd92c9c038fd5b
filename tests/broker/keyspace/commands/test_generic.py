"""Keys of any kind: copies, expiry, scans. The differential tests compare the replies."""

from __future__ import annotations

from delaylog.broker.keyspace.replies import OK
from delaylog.broker.keyspace.values.kinds import HashValue
from tests.broker.keyspace.effects import NOW_MS, Pair


def test_keys_move_with_what_they_hold() -> None:
    pair = Pair()
    database = pair.leader.databases[0]
    large = HashValue({b"%d" % n: b"" for n in range(1_000)})
    large.large = True
    database.values[b"h"] = large
    assert pair.executor.execute(pair.session, [b"COPY", b"h", b"c"]) == 1
    assert pair.executor.execute(pair.session, [b"RENAME", b"h", b"r"]) == OK
    pair.leader.free_slice()
    assert database.values[b"r"] is large
    copy = database.values[b"c"]
    assert copy == large
    assert copy is not large
    assert copy.large  # type: ignore[union-attr]


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


def test_a_random_key_is_any_key() -> None:
    pair = Pair()
    for number in range(3_000):
        pair.send(f"SET {number} x")
    first = {pair.send("RANDOMKEY") for _ in range(200)}
    assert len(first) > 150
    for number in range(2_999):
        pair.send(f"DEL {number}")
    assert pair.send("RANDOMKEY") == "2999"


def test_swapped_databases_expire() -> None:
    pair = Pair()
    pair.send("SET k v PX 5000")
    pair.send("SWAPDB 0 1")
    assert pair.leader.expire_due(NOW_MS + 7_000) == 1
    assert not pair.leader.databases[1].values
