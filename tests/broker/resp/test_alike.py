"""Pipelines of commands that are alike, against the strict parser: the same commands, or none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delaylog.broker.resp.parsing.alike import PIPELINE_BYTES, cut_alike
from delaylog.broker.resp.parsing.strict import CommandParser

VALUES = st.one_of(st.binary(max_size=12), st.sampled_from([b"", b"\r\n", b"$1\r\na", b"x" * 1025]))


def _written(commands: list[list[bytes]]) -> bytes:
    return b"".join(
        b"*%d\r\n" % len(command) + b"".join(b"$%d\r\n%b\r\n" % (len(v), v) for v in command)
        for command in commands
    )


@given(
    commands=st.integers(1, 4).flatmap(
        lambda count: st.lists(
            st.lists(VALUES, min_size=count, max_size=count), min_size=1, max_size=9
        )
    ),
    before=st.binary(max_size=5),
    cut=st.integers(0, 40),
    most=st.integers(1, 12),
)
def test_what_is_cut_is_what_is_read_strictly(
    commands: list[list[bytes]], before: bytes, cut: int, most: int
) -> None:
    written = _written(commands)
    written = written[: max(len(written) - cut, 0)]
    found, end = cut_alike(before + written, len(before), most)
    parser = CommandParser()
    parser.feed(written[: end - len(before)])
    assert found == parser.next_commands(100)
    assert parser.unread_bytes == 0
    assert not found or len(found) <= most
    if all(b"\r\n" not in v and len(v) <= 1024 for command in commands for v in command):
        parser = CommandParser()
        parser.feed(written)
        assert found == parser.next_commands(most)


@pytest.mark.parametrize(
    "unusual",
    [
        b"*1\r\n$4\r\nPING\r\n*2\r\n$4\r\nPING\r\n$1\r\na\r\n",
        b"*1\r\n$4\r\nPING\r\n*01\r\n$4\r\nPING\r\n",
        b"*1\r\n$4\r\nPING\r\n*1\r\n$04\r\nPING\r\n",
        b"*1\r\n$4\r\nPING\r\n*1\r\n+PING\r\n+PING\r\n",
        b"*1\r\n$4\r\nPING\r\n*1\r\n$5\r\nPING\r\n",
        b"PING\r\nPING\r\nPING\r\n",
        b"*0\r\n*0\r\n",
        b"*-1\r\n",
        b"*65\r\n" + b"$1\r\na\r\n" * 65,
        b"*1",
        b"",
    ],
)
def test_what_is_unusual_is_left_alone(unusual: bytes) -> None:
    assert cut_alike(unusual, 0, 100) == ([], 0)


def test_of_a_large_buffer_a_part_is_cut() -> None:
    commands = [[b"SET", b"%06d" % number, b"v" * 100] for number in range(2_000)]
    written = _written(commands)
    found: list[list[bytes]] = []
    position = 0
    while position < len(written):
        some, end = cut_alike(written, position, 5_000)
        assert 0 < end - position <= PIPELINE_BYTES
        found += some
        position = end
    assert found == commands
