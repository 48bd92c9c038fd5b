"""Requests cut anywhere come out the same, as the real redis-server reads them.

request_table.py holds requests with the commands and the error they must give. Each is fed as one
piece and cut at every byte; the reference gets the same bytes, and must answer as to the commands
of the table written plainly. Hypothesis adds random commands and random bytes with random cuts.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from delaylog.broker.resp.parser import PIPELINE_BYTES, CommandParser, cut_usual
from tests.broker.resp.reading import LineByLine, full, read, written
from tests.broker.resp.request_table import LONG, MANY, PING, REQUESTS, Case, Commands
from tests.effort import tries
from tests.redis_reference import Reference, reference


def name(case: Case) -> str:
    return case[0]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[first:last] for first, last in itertools.pairwise(edges)]


@pytest.mark.parametrize("case", REQUESTS, ids=name)
def test_requests_cut_at_every_byte(case: Case) -> None:
    _, request_bytes, commands, error = case
    size = len(request_bytes)
    step = 1 if size < 4000 else 97
    cuts = [[request_bytes], [request_bytes[i : i + 1] for i in range(size)]]
    cuts += [[request_bytes[:place], request_bytes[place:]] for place in range(1, size, step)]
    for pieces in cuts:
        for at_once in (1, 7, 1000) if len(pieces) == 1 else (1000,):
            parser = CommandParser()
            assert read(parser, pieces, at_once) == commands
            assert parser.error == full(error)
            if error is not None:  # It stays closed.
                parser.feed(PING)
                assert parser.next_commands(1) == []
                assert parser.unread_bytes == 0


@pytest.mark.parametrize("case", LONG, ids=name)
def test_long_requests_cut_anywhere(case: Case) -> None:
    _, request_bytes, commands, error = case
    for size in (1 << 30, 65536, 65537, 16384, 4095, 1000):
        parser = CommandParser()
        pieces = [request_bytes[i : i + size] for i in range(0, len(request_bytes), size)]
        assert read(parser, pieces) == commands
        assert parser.error == full(error)


@pytest.fixture(scope="module")
def redis() -> Iterator[Reference]:
    with reference() as running:
        yield running


@pytest.mark.parametrize("case", [*REQUESTS, *LONG], ids=name)
def test_the_table_is_what_redis_does(redis: Reference, case: Case) -> None:
    _, request_bytes, commands, error = case
    # The commands as a client writes them must answer the same as the bytes of the table.
    proof = b"*2\r\n$4\r\nECHO\r\n$5\r\nproof\r\n"
    clear = redis.ask(written(commands) + proof, until=b"$5\r\nproof\r\n").removesuffix(
        b"$5\r\nproof\r\n"
    )
    if error is not None:
        assert redis.ask(request_bytes) == clear + b"-ERR Protocol error: " + error + b"\r\n"
        return
    answer = redis.ask(request_bytes, until=clear) if clear else b""
    assert answer == clear
    parser = CommandParser()
    assert read(parser, [request_bytes]) == commands
    if parser.unread_bytes == 0:
        # Nothing is left over there either.
        assert redis.ask(request_bytes + proof, until=b"proof\r\n") == clear + b"$5\r\nproof\r\n"
    else:
        with redis.connect() as connection:
            connection.sendall(request_bytes)
            received = b""
            while len(received) < len(clear) and (piece := connection.recv(1 << 16)):
                received += piece
            assert received == clear
            # It waits for the rest.
            connection.settimeout(0.2)
            with pytest.raises(TimeoutError):
                connection.recv(1)


def test_what_is_unread_is_counted() -> None:
    parser = CommandParser()
    for size, byte in enumerate(b"*2\r\n$4\r\nECHO\r\n$40000\r\n" + b"a" * 40001, 1):
        parser.feed(bytes((byte,)))
        assert parser.next_commands(1) == []
        assert parser.unread_bytes == size
    parser.feed(b"\n*1")
    assert parser.unread_bytes == size + 3
    assert parser.next_commands(9) == [[b"ECHO", b"a" * 40000]]
    assert parser.unread_bytes == 2


def test_commands_come_in_turns() -> None:
    numbers = [[b"ECHO", b"%d" % number] for number in range(10_000)]
    parser = CommandParser()
    parser.feed(written(numbers[:6000]))
    turns = [parser.next_commands(1000) for _ in range(3)]
    parser.feed(written(numbers[6000:]))  # While others wait.
    while found := parser.next_commands(999):
        turns.append(found)
    assert list(itertools.chain(*turns)) == numbers
    assert parser.next_commands(0) == []


ODD = [b"SET", b"\r\n", b"*1\r\n", b"$1\r\n", b"+", b"~100000"]
WORDS = st.binary(max_size=12) | st.sampled_from([*ODD, b"a" * 1024, b"a" * 1025, b"b" * 70_000])
COMMANDS = st.lists(st.lists(WORDS, min_size=1, max_size=8), max_size=40)
PLACES = st.lists(st.integers(0, 1 << 20), max_size=12)


@given(commands=COMMANDS, places=PLACES, at_once=st.integers(1, 50))
def test_random_commands_in_random_pieces(
    commands: Commands, places: list[int], at_once: int
) -> None:
    parser = CommandParser()
    assert read(parser, cut(written(commands), places), at_once) == commands
    assert parser.error is None
    assert parser.unread_bytes == 0


LONG_COMMANDS = st.lists(
    st.tuples(
        st.integers(60, 400), st.lists(WORDS, max_size=3), st.sampled_from([b"", b"a", b"x" * 999])
    )
    | st.lists(WORDS, min_size=1, max_size=3),
    max_size=6,
)


@settings(max_examples=tries(60))
@given(drawn=LONG_COMMANDS, places=PLACES, at_once=st.integers(1, 3), seed=st.integers(0, 99))
def test_commands_of_many_arguments_in_random_pieces(
    drawn: list[tuple[int, list[bytes], bytes] | list[bytes]],
    places: list[int],
    at_once: int,
    seed: int,
) -> None:
    """Arguments that are alike, a few others among them, and now and then a short command."""
    chance = random.Random(seed)
    commands: Commands = []
    for one in drawn:
        if isinstance(one, tuple):
            count, others, usual = one
            command = [usual + b"%d" % number for number in range(count)]
            for other in others:
                command[chance.randrange(count)] = other
            commands.append(command)
        else:
            commands.append(one)
    parser = CommandParser()
    assert read(parser, cut(written(commands), places), at_once) == commands
    assert parser.error is None
    assert parser.unread_bytes == 0


@pytest.mark.parametrize("at", [1, 50, 120, 198])
@pytest.mark.parametrize(
    ("wrong", "right", "error"),
    [
        (b"$1\r\nazz", b"a", None),
        (b"$4\r\na\r\nb\r\n", b"a\r\nb", None),
        (b"$2\r\na\r\n\r\n", b"", b"expected '$', got ' '"),
        (b"$01\r\na\r\n", b"", b"invalid bulk length"),
        (b":1\r\na\r\n", b"", b"expected '$', got ':'"),
        (b"$9\r\na\r\n$1\r\nbc\r\n", b"a\r\n$1\r\nbc", None),
        (b"$2000\r\n%b\r\n" % (b"x" * 2000), b"x" * 2000, None),
        (b"+a\r\n", b"", b"expected '$', got '+'"),
        # Two of these and one of those are together as long as three arguments.
        (b"+abc\r\n+abcdefghij\r\n=9\r\ntxt:abcde\r\n", b"", b"expected '$', got '+'"),
        (b"*1\r\n$1\r\na\r\n", b"", b"expected '$', got '*'"),
        (b"$-1\r\n", b"", b"invalid bulk length"),
    ],
)
def test_an_unusual_argument_among_many(
    at: int, wrong: bytes, right: bytes, error: bytes | None
) -> None:
    texts = [b"$3\r\nabc\r\n"] * 200
    texts[at] = wrong
    parser = CommandParser()
    commands = read(parser, [b"*200\r\n" + b"".join(texts) + PING])
    assert parser.error == full(error)
    if error is None:
        assert commands == [[b"abc"] * at + [right] + [b"abc"] * (199 - at), [b"PING"]]
    else:
        assert commands == []


TOKENS = st.sampled_from(
    [
        *(b"*1\r\n", b"*2\r\n", b"*0\r\n", b"*-1\r\n"),
        b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n",
        *(b"$1\r\n", b"$2\r\n", b"$0\r\n", b"$-1\r\n", b"$1\r\na\r\n", b"$4\r\nPING\r\n"),
        *(b"a", b"\r\n", b"\r", b"\n", b"\0", b'"', b"'", b"\\", b" ", b"\v", b"zz"),
        *(b"+a\r\n", b"-a\r\n", b":0\r\n", b"#f\r\n", b"_\r\n", b"~1\r\n", b">1\r\n", b"%1\r\n"),
        *(b"=5\r\ntxt:a\r\n", b"|1\r\n", b",1\r\n", b"(1\r\n", b"*99999\r\n", b"$99999999999\r\n"),
        *(b"PING\r\n", b'ECHO "a"\r\n', PING, PING * 20, MANY),
    ]
)


@settings(max_examples=tries(400))
@given(
    data=st.lists(TOKENS | st.binary(max_size=4), max_size=30).map(b"".join),
    places=PLACES,
    at_once=st.integers(1, 50),
)
def test_random_bytes_are_read_alike_however_they_are_cut(
    data: bytes, places: list[int], at_once: int
) -> None:
    strict = LineByLine()
    commands = read(strict, [data])
    parser = CommandParser()
    assert read(parser, cut(data, places), at_once) == commands
    assert parser.error == strict.error
    assert parser.unread_bytes == strict.unread_bytes


def test_random_bytes_as_redis_reads_them(redis: Reference) -> None:
    """Typed words and sloppy requests, a hundred of a fixed seed."""
    chance = random.Random(7)
    alphabet = [b"ECHO ", b"\\x4a", b"\\n", *(b"%c" % char for char in b"a\\\"' \v\f\r\t")]
    for _ in range(100):
        line = b"ECHO " + b"".join(chance.choices(alphabet, k=chance.randrange(1, 9))) + b"\r\n"
        parser = CommandParser()
        commands = read(parser, [line])
        if parser.error is not None:
            assert redis.ask(line) == b"-ERR %b\r\n" % parser.error, line
        else:
            typed = redis.ask(line + b"QUIT\r\n")
            assert typed == redis.ask(written(commands) + b"QUIT\r\n"), line


# A pipeline that is cut at all line ends, against the parser that reads line by line.

VALUES = st.one_of(st.binary(max_size=12), st.sampled_from([b"", b"\r\n", b"$1\r\na", b"x" * 1025]))


@given(
    commands=st.integers(1, 4).flatmap(
        lambda count: st.lists(
            st.lists(VALUES, min_size=count, max_size=count), min_size=1, max_size=9
        )
    )
    | st.lists(st.lists(VALUES, min_size=1, max_size=4), min_size=1, max_size=9),
    before=st.binary(max_size=5),
    cut=st.integers(0, 40),
    most=st.integers(1, 12),
)
def test_what_is_cut_is_what_is_read_line_by_line(
    commands: list[list[bytes]], before: bytes, cut: int, most: int
) -> None:
    data = written(commands)
    data = data[: max(len(data) - cut, 0)]
    found, end = cut_usual(before + data, len(before), most)
    parser = LineByLine()
    parser.feed(data[: end - len(before)])
    assert found == parser.next_commands(100)
    assert parser.unread_bytes == 0
    assert len(found) <= most
    if all(b"\r\n" not in v and len(v) <= 1024 for command in commands for v in command):
        parser = LineByLine()
        parser.feed(data)
        expected = parser.next_commands(most)
        assert found == expected[: len(found)]
        # Of more words than the first has, fewer commands may be looked at than were asked for.
        assert found or not expected


def test_of_a_large_buffer_a_part_is_cut() -> None:
    commands = [[b"SET", b"%06d" % number, b"v" * 100] for number in range(2_000)]
    data = written(commands)
    found: list[list[bytes]] = []
    position = 0
    while position < len(data):
        some, end = cut_usual(data, position, 5_000)
        assert 0 < end - position <= PIPELINE_BYTES
        found += some
        position = end
    assert found == commands
