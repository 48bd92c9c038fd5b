"""Bits answer as redis-server 7.0.15, and what they log brings about the same.

Method: the replies of the table were taken from the real server.
"""

from __future__ import annotations

from tests.broker.keyspace.effects import Pair

REPLIES: list[tuple[str, str]] = [
    ("SETBIT k 7 1", ":0"),
    ("SETBIT k 7 0", ":1"),
    ("SETBIT k 7 0", ":0"),
    ("SETBIT k 100 1", ":0"),
    ("STRLEN k", ":13"),
    ("GETBIT k 100", ":1"),
    ("GETBIT k 1000", ":0"),
    ("GETBIT none 0", ":0"),
    ("SETBIT k 4294967296 1", "-ERR bit offset is not an integer or out of range"),
    ("SETBIT k -1 1", "-ERR bit offset is not an integer or out of range"),
    ("SETBIT k 1 2", "-ERR bit is not an integer or out of range"),
    ("SETBIT k x 1", "-ERR bit offset is not an integer or out of range"),
    ("GETBIT k x", "-ERR bit offset is not an integer or out of range"),
    ("SET s foobar", "+OK"),
    ("BITCOUNT s", ":26"),
    ("BITCOUNT s 0 0", ":4"),
    ("BITCOUNT s 1 1", ":6"),
    ("BITCOUNT s 1 1 BYTE", ":6"),
    ("BITCOUNT s 5 30 BIT", ":17"),
    ("BITCOUNT s -30 -5 BIT", ":14"),
    ("BITCOUNT s -1 -2 NOPE", ":0"),
    ("BITCOUNT s 0", "-ERR syntax error"),
    ("BITCOUNT s 0 1 NOPE", "-ERR syntax error"),
    ("BITCOUNT none 0", ":0"),
    ("BITCOUNT s 0 x", "-ERR value is not an integer or out of range"),
    ('SET b "\\xff\\xf0\\x00"', "+OK"),
    ("BITPOS b 0", ":12"),
    ("BITPOS b 1 2", ":-1"),
    ("BITPOS b 1 7 15 BIT", ":7"),
    ("BITPOS b 0 0 -1 BYTE", ":12"),
    ("BITPOS b 2", "-ERR The bit argument must be 1 or 0."),
    ("BITPOS b 1 0 1 NOPE", "-ERR syntax error"),
    ('SET b "\\xff\\xff"', "+OK"),
    ("BITPOS b 0", ":16"),
    ("BITPOS b 0 0", ":16"),
    ("BITPOS b 0 0 -1", ":-1"),
    ("BITPOS none 0", ":0"),
    ("BITPOS none 1", ":-1"),
    ('SET e ""', "+OK"),
    ("BITPOS e 0", ":-1"),
    ("SET x abcdef", "+OK"),
    ("SET y foobar!", "+OK"),
    ("BITOP AND d x y", ":7"),
    ("GET d", "`bc`ab\\x00"),
    ("OBJECT ENCODING d", "raw"),
    ("BITOP OR d x y", ":7"),
    ("GET d", "goofev!"),
    ("BITOP XOR d x y none", ":7"),
    ("BITOP NOT d x", ":6"),
    ("GET d", "\\x9e\\x9d\\x9c\\x9b\\x9a\\x99"),
    ("BITOP NOT d x y", "-ERR BITOP NOT must be called with a single source key."),
    ("BITOP NOPE d x", "-ERR syntax error"),
    ("BITOP AND d none", ":0"),
    ("EXISTS d", ":0"),
    ("BITOP AND d none", ":0"),
    ("BITFIELD bf INCRBY i5 100 1 GET u4 0", "*2 :1 :0"),
    ("BITFIELD bf SET i8 #0 100 SET i8 #1 200", "*2 :0 :0"),
    ("BITFIELD bf GET i8 #0 GET i8 #1 GET u8 #1", "*3 :100 :-56 :200"),
    ("BITFIELD bf INCRBY u2 100 1 OVERFLOW SAT INCRBY u2 102 1", "*2 :1 :1"),
    ("BITFIELD bf INCRBY u2 100 1 OVERFLOW SAT INCRBY u2 102 1", "*2 :2 :2"),
    ("BITFIELD bf INCRBY u2 100 1 OVERFLOW SAT INCRBY u2 102 1", "*2 :3 :3"),
    ("BITFIELD bf INCRBY u2 100 1 OVERFLOW SAT INCRBY u2 102 1", "*2 :0 :3"),
    ("BITFIELD bf OVERFLOW FAIL INCRBY u2 102 1", "*1 $-1"),
    ("BITFIELD bf OVERFLOW NOPE", "-ERR Invalid OVERFLOW type specified"),
    (
        "BITFIELD bf SET i64 3 -9223372036854775808 INCRBY i64 3 -1",
        "*2 :2756202971950743552 :9223372036854775807",
    ),
    ("BITFIELD bf SET u8 0 -1 GET u8 0", "*2 :111 :255"),
    ("BITFIELD grown OVERFLOW FAIL SET u8 20 300", "*1 $-1"),
    ("STRLEN grown", ":4"),
    ("BITFIELD none GET u8 0", "*1 :0"),
    ("EXISTS none", ":0"),
    ("BITFIELD bf GET u8", "-ERR syntax error"),
    ("BITFIELD bf GET u8 -1", "-ERR bit offset is not an integer or out of range"),
    ("BITFIELD_RO bf GET u8 0", "*1 :255"),
    ("BITFIELD_RO bf SET u8 0 1", "-ERR BITFIELD_RO only supports the GET subcommand"),
]


def test_replies() -> None:
    pair = Pair()
    for line, reply in REPLIES:
        assert pair.send(line) == reply, line
        pair.check()


def test_nothing_is_logged_for_nothing() -> None:
    pair = Pair()
    pair.send("SETBIT k 7 1")
    assert pair.effects_of("SETBIT k 7 1") == []
    assert pair.effects_of("BITFIELD k GET u8 0") == []
    # It grew, though nothing was written: those who follow must know.
    assert pair.effects_of("BITFIELD k OVERFLOW FAIL SET u8 16 300") != []
    pair.check()
