"""Streams answer as redis-server 7.0.15: ids, trimming, ranges, groups, claims, what is known.

Method: the replies of the table were taken from the real server; what depends on the clock has the
time of the test.
"""

from __future__ import annotations

from random import Random

from delaylog.broker.keyspace.streams.order import IdOrder
from delaylog.broker.keyspace.values.stream import StreamValue
from tests.broker.keyspace.effects import NOW_MS, Pair

REPLIES: list[tuple[str, str]] = [
    ("XADD s 1-1 a 1", "1-1"),
    (
        "XADD s 1-1 a 1",
        "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
    ),
    ("XADD s 0-0 a 1", "-ERR The ID specified in XADD must be greater than 0-0"),
    ("XADD s 1-* b 2", "1-2"),
    ("XADD s 5--01 a 1", "5-18446744073709551615"),
    ('XADD s +6-007 c "3"', "6-7"),
    ("XADD s 7 a", "-ERR wrong number of arguments for 'xadd' command"),
    (
        "XADD s MAXLEN ~ 2 LIMIT 0 x-1 a 1",
        "-ERR Invalid stream ID specified as stream command argument",
    ),
    (
        "XADD s LIMIT 5 7-1 a 1",
        "-ERR syntax error, LIMIT cannot be used without specifying a trimming strategy",
    ),
    (
        "XADD s MAXLEN 1 LIMIT 5 7-1 a 1",
        "-ERR syntax error, LIMIT cannot be used without the special ~ option",
    ),
    (
        "XADD s MAXLEN 1 MINID 5 7-1 a 1",
        "-ERR syntax error, MAXLEN and MINID options at the same time are not compatible",
    ),
    ("XADD none NOMKSTREAM * a 1", "$-1"),
    ("XTRIM s LIMIT 0", "-ERR syntax error, XTRIM must be called with a trimming strategy"),
    ("XLEN s", ":4"),
    (
        "XRANGE s - +",
        "*4 *2 1-1 *2 a 1 *2 1-2 *2 b 2 *2 5-18446744073709551615 *2 a 1 *2 6-7 *2 c 3",
    ),
    ("XRANGE s (1-1 (6-7", "*2 *2 1-2 *2 b 2 *2 5-18446744073709551615 *2 a 1"),
    ("XREVRANGE s + - COUNT 2", "*2 *2 6-7 *2 c 3 *2 5-18446744073709551615 *2 a 1"),
    ("XRANGE s - + COUNT 0", "*-1"),
    (
        "XRANGE s (18446744073709551615-18446744073709551615 +",
        "-ERR invalid start ID for the interval",
    ),
    ("XRANGE none x +", "-ERR Invalid stream ID specified as stream command argument"),
    ("XREAD COUNT 1 STREAMS s none 1-1 0", "*1 *2 s *1 *2 1-2 *2 b 2"),
    ("XREAD STREAMS s $", "*-1"),
    (
        "XREAD STREAMS s t 0",
        "-ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must "
        "be specified.",
    ),
    ("XREAD BLOCK -1 STREAMS s 0", "-ERR timeout is negative"),
    (
        "XREADGROUP GROUP g c STREAMS s 0 0",
        "-ERR Unbalanced XREAD list of streams: for each stream key an ID or '$' must "
        "be specified.",
    ),
    ("XDEL s 1-2 9-9", ":1"),
    ("XDEL none x", ":0"),
    ("XSETID s 6-6", "-ERR The ID specified in XSETID is smaller than the target stream top item"),
    ("XSETID s 10-0 ENTRIESADDED 7 MAXDELETEDID 1-2", "+OK"),
    (
        "XINFO STREAM s",
        "*20 length :3 radix-tree-keys :1 radix-tree-nodes :2 last-generated-id 10-0 "
        "max-deleted-entry-id 1-2 entries-added :7 recorded-first-entry-id 1-1 groups "
        ":0 first-entry *2 1-1 *2 a 1 last-entry *2 6-7 *2 c 3",
    ),
    (
        "XGROUP CREATE none g $",
        "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE you "
        "may want to use the MKSTREAM option to create an empty stream automatically.",
    ),
    ("XGROUP CREATE s g 0", "+OK"),
    ("XGROUP CREATE s g 0", "-BUSYGROUP Consumer Group name already exists"),
    ("XGROUP CREATE s h $ ENTRIESREAD -2", "-ERR value for ENTRIESREAD must be positive or -1"),
    ("XGROUP CREATE s h $ ENTRIESREAD 7", "+OK"),
    (
        "XGROUP SETID s h 0 MKSTREAM",
        "-ERR unknown subcommand or wrong number of arguments for 'SETID'. Try XGROUP HELP.",
    ),
    ("XGROUP CREATECONSUMER s nog c", "-NOGROUP No such consumer group 'nog' for key name 's'"),
    ("XGROUP CREATECONSUMER s h c", ":1"),
    ("XGROUP CREATECONSUMER s h c", ":0"),
    (
        "XINFO GROUPS s",
        "*2 *12 name g consumers :0 pending :0 last-delivered-id 0-0 entries-read $-1 "
        "lag $-1 *12 name h consumers :1 pending :0 last-delivered-id 10-0 entries-read "
        ":7 lag :0",
    ),
    (
        "XREADGROUP GROUP g c STREAMS s >",
        "*1 *2 s *3 *2 1-1 *2 a 1 *2 5-18446744073709551615 *2 a 1 *2 6-7 *2 c 3",
    ),
    ("XREADGROUP GROUP g c STREAMS s >", "*-1"),
    (
        "XREADGROUP GROUP g c STREAMS s 1-1",
        "*1 *2 s *2 *2 5-18446744073709551615 *2 a 1 *2 6-7 *2 c 3",
    ),
    (
        "XREADGROUP GROUP nog c STREAMS s >",
        "-NOGROUP No such key 's' or consumer group 'nog' in XREADGROUP with GROUP option",
    ),
    ("XPENDING s g", "*4 :3 1-1 6-7 *1 *2 c 3"),
    ("XPENDING s g - + 1 c", "*1 *4 1-1 c :0 :1"),
    ("XPENDING s g IDLE 1 - +", "-ERR syntax error"),
    ("XPENDING s g - + 5 nobody", "*0"),
    ("XCLAIM s g d 0 1-1 JUSTID", "*1 1-1"),
    ("XCLAIM s g e 100000 1-1", "*0"),
    ("XCLAIM s g e 0 99-1 FORCE", "*0"),
    ("XCLAIM s g e 0 1-1 IDLE", "-ERR Unrecognized XCLAIM option 'IDLE'"),
    ("XINFO CONSUMERS s nog", "-NOGROUP No such consumer group 'nog' for key name 's'"),
    ("XDEL s 1-1", ":1"),
    ("XREADGROUP GROUP g d STREAMS s 0", "*1 *2 s *1 *2 1-1 *-1"),
    ("XAUTOCLAIM s g e 0 - COUNT 1", "*3 5-18446744073709551615 *0 *1 1-1"),
    ("XAUTOCLAIM s g e 0 0-0 COUNT 1", "*3 6-7 *1 *2 5-18446744073709551615 *2 a 1 *0"),
    ("XAUTOCLAIM s g e 0 (6-7", "*3 0-0 *0 *0"),
    ("XAUTOCLAIM s g e 0 0 COUNT 0", "-ERR COUNT must be > 0"),
    ("XACK s g 6-7 6-7", ":1"),
    ("XACK s nog x", ":0"),
    ("XPENDING s g", "*4 :1 5-18446744073709551615 5-18446744073709551615 *1 *2 e 1"),
    ("XGROUP DELCONSUMER s g c", ":0"),
    ("XGROUP DESTROY s h", ":1"),
    ("XGROUP DESTROY s h", ":0"),
    (
        "XINFO GROUPS s",
        "*1 *12 name g consumers :2 pending :1 last-delivered-id 6-7 entries-read $-1 lag $-1",
    ),
    ("XTRIM s MAXLEN 0", ":2"),
    ('XGROUP "no\\x00pe" s g', "-ERR unknown subcommand 'no'. Try XGROUP HELP."),
    ("TYPE s", "+stream"),
    ("OBJECT ENCODING s", "stream"),
    ("EXISTS s", ":1"),
    ("XADD s * a 1 b", "-ERR wrong number of arguments for 'xadd' command"),
    (
        "XADD s 9-1 a 1",
        "-ERR The ID specified in XADD is equal or smaller than the target stream top item",
    ),
    ("SET t 1", "+OK"),
    ("XADD t * a 1", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    (
        "XREADGROUP GROUP g c STREAMS t >",
        "-WRONGTYPE Operation against a key holding the wrong kind of value",
    ),
    ("COPY s u", ":1"),
    (
        "XPENDING u g - + 9",
        "*1 *4 5-18446744073709551615 e :0 :3",
    ),
    ("XINFO CONSUMERS u g", "*2 *6 name d pending :0 idle :0 *6 name e pending :1 idle :0"),
    ("HELLO 3", ""),
    ("XADD s 11-1 a 1", "11-1"),
    ("XREAD STREAMS s 0", "%1 s *1 *2 11-1 *2 a 1"),
    ("XRANGE s - + COUNT 0", "_"),
    (
        "XINFO STREAM u",
        "%10 length :0 radix-tree-keys :0 radix-tree-nodes :1 last-generated-id 10-0 "
        "max-deleted-entry-id 1-2 entries-added :7 recorded-first-entry-id 0-0 groups "
        ":1 first-entry _ last-entry _",
    ),
    ("XPENDING s g", "*4 :1 5-18446744073709551615 5-18446744073709551615 *1 *2 e 1"),
]


def test_replies() -> None:
    pair = Pair()
    for line, reply in REPLIES:
        shown = pair.send(line)
        if line != "HELLO 3":
            assert shown == reply, line


def test_what_is_logged_needs_no_clock_and_no_limits() -> None:
    pair = Pair()
    now = str(NOW_MS).encode()
    assert pair.effects_of("XADD s * f v") == [[b"XADD", b"s", now + b"-0", b"f", b"v"]]
    assert pair.effects_of("XADD s * f v") == [[b"XADD", b"s", now + b"-1", b"f", b"v"]]
    assert pair.effects_of("XADD s MAXLEN ~ 1 LIMIT 5 * f v") == [
        [b"XADD", b"s", now + b"-2", b"f", b"v"]
    ]
    assert pair.effects_of("XADD s MAXLEN 3 * f v") == [
        [b"XADD", b"s", b"MAXLEN", b"=", b"3", now + b"-3", b"f", b"v"]
    ]
    pair.send("XGROUP CREATE s g 0")
    ids = [b"%b-%d" % (now, n) for n in (1, 2)]
    claim = [b"XCLAIM", b"s", b"g", b"c", b"0", *ids, b"TIME", now, b"RETRYCOUNT", b"1"]
    assert pair.effects_of("XREADGROUP GROUP g c COUNT 2 STREAMS s >") == [
        [b"XGROUP", b"CREATECONSUMER", b"s", b"g", b"c", now],
        [*claim, b"FORCE", b"JUSTID", b"LASTID", ids[1]],
        [b"XGROUP", b"SETID", b"s", b"g", ids[1], b"ENTRIESREAD", b"3"],
    ]
    assert pair.effects_of("XREADGROUP GROUP g c NOACK STREAMS s >") == [
        [b"XGROUP", b"SETID", b"s", b"g", now + b"-3", b"ENTRIESREAD", b"4"]
    ]
    assert pair.effects_of("XDEL s 1-1") == []
    assert pair.effects_of("XTRIM s MAXLEN ~ 2") == []


def test_watchers_are_told_of_entries_but_not_of_groups() -> None:
    pair = Pair()
    other = pair.executor.connect(NOW_MS)
    pair.send("XADD s 1-1 f v")
    for line, told in (
        ("XADD s 2-1 f v", True),
        ("XDEL s 1-1", True),
        ("XDEL s 1-1", False),
        ("XTRIM s MAXLEN 5", False),
        ("XSETID s 3-1", False),
        ("XGROUP CREATE s g 0", False),
        ("XREADGROUP GROUP g c STREAMS s >", False),
        ("XACK s g 2-1", False),
        ("XGROUP DESTROY s g", False),
        ("XTRIM s MAXLEN 0", True),
        ("XGROUP CREATE t g 0 MKSTREAM", False),
    ):
        pair.executor.execute(other, [b"WATCH", b"s"])
        pair.send(line)
        assert other.dirty_watch is told, line
        pair.executor.execute(other, [b"UNWATCH"])


def waited(line: str, *then: str) -> str:
    """What a client that waits is told after these lines."""
    pair = Pair()
    for before in ("XADD s 1-1 f v", "XGROUP CREATE s g $"):
        pair.send(before)
    client = pair.executor.connect(NOW_MS)
    pair.executor.handle(client, [line.encode().split()])
    assert client.blocked is not None
    for each in then:
        pair.send(each)
    return b" ".join(b"".join(client.out).split()).decode()


GONE = "-UNBLOCKED the stream key no longer exists"
NO_GROUP = "-NOGROUP the consumer group this client was blocked on no longer exists"


def test_who_waits_for_entries() -> None:
    read = "XREAD BLOCK 0 STREAMS s $"
    entry = "*1 *2 $1 s *1 *2 $3 2-1 *2 $1 f $1 v"
    assert waited(read, "XADD s 2-1 f v") == entry
    assert waited(read, "XADD s MAXLEN 0 2-1 f v") == "*1 *2 $1 s *0"
    assert waited(read, "DEL s", "SET s x", "DEL s", "XADD s 1-1 a b") == ""
    assert waited("XREAD BLOCK 0 STREAMS s s 9-9 $", "XADD s 2-1 f v") == ""
    assert waited("XREAD BLOCK 0 STREAMS no s $ $", "XADD s 2-1 f v") == entry


def test_who_waits_in_a_group() -> None:
    read = "XREADGROUP GROUP g c BLOCK 0 STREAMS s >"
    assert waited(read, "XADD s 2-1 f v") == "*1 *2 $1 s *1 *2 $3 2-1 *2 $1 f $1 v"
    assert waited(read, "XGROUP DESTROY s g") == NO_GROUP
    for line in ("DEL s", "SET s x", "RENAME s t", "FLUSHALL", "PEXPIRE s 0"):
        assert waited(read, line) == GONE, line
    assert waited(read, "XGROUP SETID s g 0", "XDEL s 1-1") == ""


def test_an_order_of_ids_is_that_of_a_sorted_dict() -> None:
    random, order, model = Random(5), IdOrder[str](), dict[int, str]()
    for _ in range(20_000):
        number = random.randrange(4_000)
        if random.random() < 0.6:
            order.put(number, str(number))
            model[number] = str(number)
        else:
            assert order.remove(number) == model.pop(number, None)
        if random.random() < 0.005:
            start = random.randrange(4_100)
            expected = [(n, held) for n, held in sorted(model.items()) if n >= start]
            assert list(order.starting(start)) == expected
            assert (len(order), order.first(), order.last()) == (len(model), min(model), max(model))


def test_a_removed_stream_is_taken_apart_in_slices() -> None:
    pair = Pair()
    for number in range(1, 1_001):
        assert pair.call(b"XADD", b"s", b"%d-0" % number, b"f", b"v")
    value = pair.leader.databases[0].values[b"s"]
    assert isinstance(value, StreamValue)
    assert pair.send("DEL s") == ":1"
    assert pair.leader.free_slice(50)
    assert len(value) == 900
    assert not pair.leader.free_slice()
    assert not pair.leader.garbage
