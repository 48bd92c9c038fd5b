"""Sessions without the right `redis`, without sockets: which commands run, in pipelines too."""

from __future__ import annotations

from random import Random

import pytest

from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.running.executor import Executor
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.running.shared_state import OneUser

OPEN = {
    *("auth", "command", "echo", "hello", "ping", "quit", "reset", "select", "acl|whoami"),
    *("client|getname", "client|id", "client|info", "client|setinfo", "client|setname"),
    *("command|count", "command|docs", "command|info"),
    *("sentinel|get-master-addr-by-name", "sentinel|master", "sentinel|masters"),
    *("sentinel|replicas", "sentinel|sentinels", "sentinel|slaves"),
}
"""They show and change nothing but the connection, or find the leader."""


@pytest.fixture
def executor() -> Executor:
    return Executor(Keyspace(Random(1)))


@pytest.fixture
def limited(executor: Executor) -> Session:
    session = executor.connect(0)
    session.limited = True
    session.update_special()
    return session


def run(executor: Executor, session: Session, *lines: str) -> list[str]:
    """The replies to commands that arrive together, each of one line."""
    argvs = [line.encode().split() for line in lines]
    while argvs:
        del argvs[: executor.handle(session, argvs)]
    out, session.out = b"".join(session.out).decode(), []
    return out.splitlines()


def denied(name: str) -> str:
    return f"-NOPERM this user has no permissions to run the '{name}' command"


@pytest.mark.parametrize("count", [2, 20])
def test_pipelines(executor: Executor, limited: Session, count: int) -> None:
    """A run of one command takes another way through the executor than single ones."""
    assert run(executor, limited, *["SET k x"] * count) == [denied("set")] * count
    assert run(executor, limited, *["GET k"] * count) == [denied("get")] * count
    assert not executor.keyspace.databases[0].values


class Logins(OneUser):
    """Every login is that of a user without the right `redis`."""

    required = True

    def login(self, session: Session, name: bytes, secret: bytes) -> None:
        session.limited = True
        session.update_special()


def test_a_user_that_changes_before_exec(executor: Executor) -> None:
    """What was queued is refused when it runs."""
    executor.server.users = Logins()
    session = executor.connect(0)
    queued = ["SET k old", "AUTH shop token", "SET k new", "PING"]
    replies = run(executor, session, "MULTI", *queued, "EXEC")
    assert replies == ["+OK", *["+QUEUED"] * 4, "*4", "+OK", "+OK", denied("set"), "+PONG"]
    assert executor.keyspace.databases[0].values == {b"k": b"old"}
