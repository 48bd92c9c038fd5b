"""Pipelines cut at all line ends, against the parser that reads line by line: the same commands."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.resp.parser import PIPELINE_BYTES, cut_usual
from tests.broker.resp.reading import LineByLine, written

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


@pytest.mark.parametrize(
    "unusual",
    [
        b"*01\r\n$4\r\nPING\r\n",
        b"*1\r\n$04\r\nPING\r\n",
        b"*1\r\n+PING\r\n+PING\r\n",
        b"*1\r\n$5\r\nPING\r\n",
        b"PING\r\nPING\r\nPING\r\n",
        b"*0\r\n*0\r\n",
        b"*-1\r\n",
        b"*65\r\n" + b"$1\r\na\r\n" * 65,
        b"*1",
        b"",
    ],
)
def test_what_is_unusual_is_left_alone(unusual: bytes) -> None:
    assert cut_usual(unusual, 0, 100) == ([], 0)
    for before in ([[b"PING"]] * 3, [[b"PING"], [b"ECHO", b"a"]]):
        data = written(before)
        assert cut_usual(data + unusual, 0, 100) == (before, len(data))


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


@pytest.mark.parametrize("head", [b"*1\rJUNK", b"*1\r", b"*1\r$4"])
def test_a_head_with_a_lone_return_is_unusual(head: bytes) -> None:
    """However many follow, and alike: the parser refuses it line by line."""
    data = (head + b"\r\n$4\r\nPING\r\n") * 20
    assert cut_usual(data, 0, 64) == ([], 0)
