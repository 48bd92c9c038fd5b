"""Keys of any kind answer as redis-server 7.0.15, and what they log brings about the same.

Method: the replies of the table were taken from the real server.
"""

from __future__ import annotations

from delaylog.broker.keyspace.replies import OK
from delaylog.broker.keyspace.values.kinds import HashValue
from tests.broker.keyspace.effects import NOW_MS, Pair

REPLIES: list[tuple[str, str]] = [
    ("MSET a 1 b 2 c 3", "+OK"),
    ("DEL a a none", ":1"),
    ("UNLINK b", ":1"),
    ("EXISTS c c none", ":2"),
    ("TOUCH c c", ":2"),
    ("TYPE c", "+string"),
    ("TYPE none", "+none"),
    ("EXPIRE c 100", ":1"),
    ("TTL c", ":100"),
    ("EXPIRE c 200 NX", ":0"),
    ("EXPIRE c 50 GT", ":0"),
    ("EXPIRE c 200 GT", ":1"),
    ("EXPIRE c 100 LT", ":1"),
    ("PERSIST c", ":1"),
    ("PERSIST c", ":0"),
    ("EXPIRE c 100 XX", ":0"),
    ("EXPIRE c 100 GT", ":0"),
    ("EXPIRE c 100 LT", ":1"),
    ("EXPIRE c 100 NX XX", "-ERR NX and XX, GT or LT options at the same time are not compatible"),
    ("EXPIRE c 100 GT LT", "-ERR GT and LT options at the same time are not compatible"),
    ("EXPIRE c 100 SOON", "-ERR Unsupported option SOON"),
    ("EXPIRE c x", "-ERR value is not an integer or out of range"),
    ("EXPIRE c 9223372036854775807", "-ERR invalid expire time in 'expire' command"),
    ("PEXPIRE c 9223372036854775807", "-ERR invalid expire time in 'pexpire' command"),
    ("EXPIREAT c -9223372036854775807", "-ERR invalid expire time in 'expireat' command"),
    ("EXPIRE c -9223372036854775807", "-ERR invalid expire time in 'expire' command"),
    ("EXPIREAT c 9999999999", ":1"),
    ("EXPIRETIME c", ":9999999999"),
    ("PEXPIREAT c 9999999999999", ":1"),
    ("PEXPIRETIME c", ":9999999999999"),
    ("PEXPIRETIME none", ":-2"),
    ("EXPIRE none 10", ":0"),
    ("EXPIRE c -1", ":1"),
    ("EXISTS c", ":0"),
    ("SET a 1 PXAT 9999999999999", "+OK"),
    ("SET b 2", "+OK"),
    ("RENAME none x", "-ERR no such key"),
    ("RENAME a a", "+OK"),
    ("RENAMENX a a", ":0"),
    ("RENAMENX a b", ":0"),
    ("RENAME a b", "+OK"),
    ("PEXPIRETIME b", ":9999999999999"),
    ("RENAMENX b a", ":1"),
    ("COPY a b", ":1"),
    ("COPY a b", ":0"),
    ("SET b 5", "+OK"),
    ("COPY a b REPLACE", ":1"),
    ("PEXPIRETIME b", ":9999999999999"),
    ("COPY a a", "-ERR source and destination objects are the same"),
    ("COPY a b DB 16", "-ERR DB index is out of range"),
    ("COPY a b DB x", "-ERR value is not an integer or out of range"),
    (
        "COPY a b DB 9999999999",
        "-ERR value is out of range, value must between -2147483648 and 2147483647",
    ),
    ("COPY a b NOPE", "-ERR syntax error"),
    ("COPY a a DB 3", ":1"),
    ("MOVE a 3", ":0"),
    ("MOVE a 0", "-ERR source and destination objects are the same"),
    ("MOVE a 16", "-ERR DB index is out of range"),
    ("MOVE a x", "-ERR value is not an integer or out of range"),
    ("MOVE b 3", ":1"),
    ("SWAPDB 0 3", "+OK"),
    ("SWAPDB 0 x", "-ERR invalid second DB index"),
    ("SWAPDB x 0", "-ERR invalid first DB index"),
    ("SWAPDB 0 16", "-ERR DB index is out of range"),
    ("GET b", "1"),
    ("DBSIZE", ":2"),
    ("KEYS *", "*2 a b"),
    ("RANDOMKEY", "a"),
    ("SELECT 3", "+OK"),
    ("DBSIZE", ":1"),
    ("FLUSHDB NOW", "-ERR syntax error"),
    ("FLUSHDB ASYNC", "+OK"),
    ("SELECT 0", "+OK"),
    ("SCAN 0", "*2 0 *2 a b"),
    ("SCAN x", "-ERR invalid cursor"),
    ("SCAN 0 COUNT 0", "-ERR syntax error"),
    ("SCAN 0 MATCH z* COUNT 100", "*2 0 *0"),
    ("SCAN 0 TYPE list", "*2 0 *0"),
    ("SCAN 0 TYPE STRING MATCH a", "*2 0 *1 a"),
    ("OBJECT ENCODING a", "int"),
    ("SET shared 77", "+OK"),
    ("OBJECT NOPE a", "-ERR unknown subcommand 'NOPE'. Try OBJECT HELP."),
    ("OBJECT ENCODING", "-ERR wrong number of arguments for 'object|encoding' command"),
    ("SET long xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "+OK"),
    ("OBJECT ENCODING long", "raw"),
    ("SET long xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "+OK"),
    ("OBJECT ENCODING long", "embstr"),
    ("WAIT 0 0", ":0"),
    ("WAIT x 0", "-ERR value is not an integer or out of range"),
    ("WAIT 0 -1", "-ERR timeout is negative"),
    ("WAIT 0 x", "-ERR timeout is not an integer or out of range"),
    ("SET num 5", "+OK"),
    ("RESTORE num 0 x", "-BUSYKEY Target key name already exists."),
    ("RESTORE new -1 x", "-ERR Invalid TTL value, must be >= 0"),
    ("RESTORE new 0 x", "-ERR DUMP payload version or checksum are wrong"),
    ("RESTORE new 0 x IDLETIME -1", "-ERR Invalid IDLETIME value, must be >= 0"),
    ("RESTORE new 0 x FREQ 256", "-ERR Invalid FREQ value, must be >= 0 and <= 255"),
    ("RESTORE new 0 x NOPE", "-ERR syntax error"),
    (
        'RESTORE new 0 "\\xc0\\x05\\n\\x00\\x01\\x02\\x03\\x04\\x05\\x06\\x07\\x08"',
        "-ERR DUMP payload version or checksum are wrong",
    ),
    ("FLUSHALL SYNC", "+OK"),
    ("DBSIZE", ":0"),
    ("RANDOMKEY", "$-1"),
]


def test_replies() -> None:
    pair = Pair()
    for line, reply in REPLIES:
        assert pair.send(line) == reply, line
        pair.check()


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
