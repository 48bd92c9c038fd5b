"""A command that fails as none should: one that reads is answered, one that writes is not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random

import pytest

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.registry import COMMANDS, WORDS, Run, command
from delaylog.broker.keyspace.replies import Reply
from delaylog.broker.keyspace.running.executor import Executor


@pytest.fixture
def breaks() -> Iterator[Callable[[str], None]]:
    """Makes commands that break."""
    names: list[bytes] = []

    def make(flags: str) -> None:
        name = f"breaks{len(names)}"

        @command(name, 1, "generic", flags)
        def broken(run: Run, argv: Args) -> Reply:
            """Fail."""
            raise ZeroDivisionError

        names.append(name.encode())

    yield make
    for name in names:
        del COMMANDS[name], WORDS[name], WORDS[name.upper()]


@pytest.mark.parametrize("flags", ["readonly", "readonly noscript"])
def test_a_read_is_answered_and_noted(breaks: Callable[[str], None], flags: str) -> None:
    breaks(flags)
    executor = Executor(Keyspace(Random(1)))
    noted: list[tuple[bytes, str]] = []
    executor.on_bug = lambda command, bug: noted.append((command.name, type(bug).__name__))
    session = executor.connect(0)
    assert executor.handle(session, [[b"BREAKS0"], [b"PING"]]) == 2
    assert session.out[0].startswith(b"-ERR internal error")
    assert session.out[1] == b"+PONG\r\n"
    assert noted == [(b"breaks0", "ZeroDivisionError")]


@pytest.mark.parametrize("flags", ["write", "write noscript"])
def test_a_write_is_the_hosts_to_end(breaks: Callable[[str], None], flags: str) -> None:
    breaks(flags)
    executor = Executor(Keyspace(Random(1)))
    executor.on_bug = lambda command, bug: None
    session = executor.connect(0)
    with pytest.raises(ZeroDivisionError):
        executor.handle(session, [[b"BREAKS0"]])
