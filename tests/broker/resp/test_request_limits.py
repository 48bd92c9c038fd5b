"""What requests may take: before authentication, by the limits set, in time and in memory.

Refusals are compared with the real redis-server; the time and memory of large requests in small
pieces are held against bounds that copying them at each piece would pass by far.
"""

from __future__ import annotations

import time
import tracemalloc

import pytest

from delaylog.broker.resp.parser import CommandParser, RequestLimits
from tests.broker.resp.reading import full, read, written
from tests.broker.resp.request_table import MANY, MANY_READ, PING
from tests.redis_reference import reference

UNKNOWN = [
    (b"*10\r\n" + b"$1\r\na\r\n" * 10, None),
    (b"*11\r\n" + b"$1\r\na\r\n" * 11, b"unauthenticated multibulk length"),
    (b"*2\r\n$4\r\nAUTH\r\n$16384\r\n%b\r\n" % (b"a" * 16384), None),
    (b"*2\r\n$4\r\nAUTH\r\n$16385\r\n", b"unauthenticated bulk length"),
    (b"*2147483648\r\n", b"invalid multibulk length"),
    (b"*1\r\n$536870913\r\n", b"invalid bulk length"),
]


def test_before_authentication_less_is_allowed() -> None:
    with reference("--requirepass", "x") as redis:
        for request_bytes, error in UNKNOWN:
            parser = CommandParser(authenticated=False)
            commands = read(parser, [request_bytes])
            assert parser.error == full(error)
            assert len(commands) == (error is None)
            if error is not None:
                assert redis.ask(request_bytes) == b"-ERR %b\r\n" % parser.error
            else:
                answer = redis.ask(request_bytes, until=b"\r\n")
                assert answer.startswith((b"-ERR unknown command", b"-WRONGPASS")), answer
        # The limits are those of the moment at which a command is its turn.
        large = b"*11\r\n$3\r\nDEL\r\n" + b"$1\r\na\r\n" * 10
        assert redis.ask(b"AUTH x\r\n" + large, until=b":0\r\n") == b"+OK\r\n:0\r\n"
    parser = CommandParser(authenticated=False)
    parser.feed(b"AUTH x\r\n" + large * 20)
    assert parser.next_commands(100) == [[b"AUTH", b"x"]]
    parser.authenticated = True
    assert parser.next_commands(7) == [[b"DEL"] + [b"a"] * 10] * 7
    # And back, as RESET does it.
    parser.authenticated = False
    assert parser.next_commands(100) == []
    assert parser.error == b"Protocol error: unauthenticated multibulk length"


def test_limits_can_be_others() -> None:
    limits = RequestLimits(bulk_bytes_max=2000, arguments_max=100)
    for request_bytes in (written([[b"a" * 2000]]), written([[b"a"] * 100])):
        parser = CommandParser(limits)
        assert len(read(parser, [request_bytes * 3])) == 3
    for request_bytes, error in (
        (written([[b"a" * 2001]]), b"invalid bulk length"),
        (written([[b"a"] * 101]), b"invalid multibulk length"),
    ):
        # As soon as the head is read; and with commands before it.
        parser = CommandParser(limits)
        assert read(parser, [MANY + request_bytes[: request_bytes.index(b"a")]]) == MANY_READ
        parser = CommandParser(limits)
        assert read(parser, [MANY + request_bytes + MANY]) == MANY_READ
        assert parser.error == full(error)


def test_too_much_unread_closes_without_a_word() -> None:
    limits = RequestLimits(query_bytes_max=100_000)
    # One unfinished value, arguments that add up, and commands that nobody asks for.
    for head, piece in (
        (b"*1\r\n$200000\r\n", b"a" * 1000),
        (b"*10000\r\n", b"$100\r\n%b\r\n" % (b"a" * 100)),
    ):
        parser = CommandParser(limits)
        assert read(parser, [head]) == []
        fed = len(head)
        while parser.error is None:
            assert fed <= 100_000 + 2 * len(piece)
            assert read(parser, [piece]) == []
            fed += len(piece)
            assert parser.error is not None or parser.unread_bytes == fed
        assert fed > 100_000
        assert parser.error == b""
    parser = CommandParser(limits)
    for _ in range(200):
        parser.feed(MANY)
    assert parser.error == b""
    assert parser.next_commands(1) == []


@pytest.mark.parametrize("piece_bytes", [100, 999, 1 << 20])
def test_a_command_is_no_larger_than_the_log_takes(piece_bytes: int) -> None:
    limits = RequestLimits(command_bytes_max=10_000)
    fits = written([[b"a" * 9_985]])
    assert len(fits) == 9_998
    for command in ([b"a" * 9_988], [b"a" * 3_000] * 4, [b"ab"] * 1_300):
        request_bytes = fits * 2 + written([command]) + PING
        pieces = [
            request_bytes[i : i + piece_bytes] for i in range(0, len(request_bytes), piece_bytes)
        ]
        parser = CommandParser(limits)
        assert read(parser, pieces) == [[b"a" * 9_985]] * 2
        assert parser.error == b"Protocol error: a command may have 10000 bytes at most"
    # Its size is enough: what is too large is not waited for.
    parser = CommandParser(limits)
    assert read(parser, [b"*2\r\n$3\r\nGET\r\n$9990\r\n"]) == []
    assert parser.error is not None


def test_a_large_value_in_pieces_takes_linear_time_and_memory() -> None:
    """64 MiB in pieces of 16 KiB: copied at each piece that would be 128 GiB."""
    size, piece = 64 << 20, b"a" * (16 << 10)
    parser = CommandParser()
    parser.feed(b"*2\r\n$4\r\nECHO\r\n$%d\r\n" % size)
    tracemalloc.start()
    began = time.process_time()
    for _ in range(size // len(piece)):
        parser.feed(bytes(bytearray(piece)))  # a copy, as from a socket
        assert parser.next_commands(1000) == []
    parser.feed(b"\r\n" + PING)
    [echo, ping] = parser.next_commands(1000)
    seconds = time.process_time() - began
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(echo[1]) == size
    assert ping == [b"PING"]
    assert seconds < 5
    assert peak < 2.2 * size


def test_many_arguments_in_pieces_take_linear_time() -> None:
    count = 200_000
    request_bytes = b"*%d\r\n" % count + b"$2\r\nab\r\n" * count
    parser = CommandParser()
    began = time.process_time()
    pieces = [request_bytes[i : i + 1000] for i in range(0, len(request_bytes), 1000)]
    assert read(parser, pieces) == [[b"ab"] * count]
    assert time.process_time() - began < 10


def test_announced_arguments_take_no_memory() -> None:
    for kind in b"*~>|%":
        parser = CommandParser()
        tracemalloc.start()
        read(parser, [MANY + b"%c2000000000\r\n" % kind, MANY + b"*1\r\n%c999999999\r\n" % kind])
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak < 1 << 20
    # Values may look like that.
    commands = [[b"SET", b"*1000000", b"%c1700000000000" % kind] for kind in b"*~>|%"] * 40
    assert read(CommandParser(), [written(commands)]) == commands
