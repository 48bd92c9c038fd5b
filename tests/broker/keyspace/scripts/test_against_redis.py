"""The same scripts go to a real redis-server 7.0 and to ours; the replies are the same bytes.

Each runs in RESP2 and RESP3, with one key and one argument. Addresses in the text of values are
left out. Where we differ on purpose is in test_known_differences.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.keyspace.encoding import encode
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.replies import ErrorReply
from tests.redis_reference import Reference, reference

HERE = Path(__file__).parent


def _texts(name: str) -> list[str]:
    """The texts of a file, with `---` between them."""
    return (HERE / name).read_text().removesuffix("\n").split("\n---\n")


def _plain(reply: bytes) -> bytes:
    return re.sub(rb"0x[0-9a-f]+", b"0x", reply)


@pytest.fixture(scope="module")
def server() -> Iterator[Reference]:
    with reference() as server:
        yield server


@pytest.fixture
def redis(server: Reference) -> Iterator[Callable[..., bytes]]:
    with server.session() as command:
        yield command


@pytest.mark.processes
@pytest.mark.parametrize("resp", [2, 3])
def test_scripts_answer_the_same_bytes(
    redis: Callable[..., bytes], make_toy: Callable[..., Any], resp: int
) -> None:
    toy = make_toy()
    redis("FLUSHALL")
    redis("HELLO", str(resp))
    wrong = []
    scripts = _texts("scripts.txt")
    assert len(scripts) >= 150
    for source in scripts:
        expected = redis("EVAL", source, "1", "key", "argument")
        actual = encode(toy.eval(source, [b"key"], [b"argument"]), resp)
        if _plain(actual) != _plain(expected):
            wrong.append(f"{source}\n  redis {expected!r}\n  ours  {actual!r}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.processes
def test_libraries_are_refused_and_called_in_the_same_words(
    redis: Callable[..., bytes], make_toy: Callable[..., Any]
) -> None:
    wrong = []
    for source in _texts("libraries.txt"):
        toy = make_toy()
        redis("FUNCTION", "FLUSH")
        expected = [
            redis("FUNCTION", "LOAD", source),
            redis("FCALL", "f", "1", "a", "b"),
            redis("FCALL_RO", "f", "1", "a", "b"),
        ]
        actual = [encode(_tried(toy.functions.load, source.encode()), 2)]
        call = partial(toy.functions.call, b"f", [b"a"], [b"b"])
        actual.extend(encode(_tried(call, read_only=each), 2) for each in (False, True))
        if actual != expected:
            wrong.append(f"{source}\n  redis {expected!r}\n  ours  {actual!r}")
    assert not wrong, "\n".join(wrong)


def _tried(function: Callable[..., Any], *args: Any, **options: Any) -> Any:
    try:
        return function(*args, **options)
    except CommandError as problem:
        return ErrorReply(problem.text)


@pytest.mark.parametrize(
    ("source", "ours"),
    [
        # A tail call of a local leaves no frame, so the line is its caller's.
        ("local c = redis.call\nlocal function g() return c('nosuch') end\nlocal x = g()", b":3."),
        # Dumps of code are not given out: nothing could be done with them.
        ("return string.dump", b"$-1\r\n"),
        # A table that holds itself ends early: replies are encoded by recursion.
        ("local t = {} t[1] = t return t", b"-ERR reached lua stack limit\r\n"),
        # Lua's -0 is 0 once it has left Lua.
        ("return redis.call('echo', -0)", b"$1\r\n0\r\n"),
    ],
)
def test_known_differences(toy: Any, source: str, ours: bytes) -> None:
    assert encode(toy.eval(source), 2).rstrip(b"\r\n").endswith(ours.rstrip(b"\r\n"))
