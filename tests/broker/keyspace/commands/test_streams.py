"""Streams: effects, watchers, waiting readers. The differential tests compare the replies."""

from __future__ import annotations

from random import Random

from delaylog.broker.keyspace.values.stream import IdOrder, StreamValue
from tests.broker.keyspace.effects import NOW_MS, Pair


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
