"""What Redis clients leave in the audit log: administration, changes, refusals, and no secrets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import cast

import pytest

from delaylog.broker.host.audit.audit_log import AuditError, AuditLog
from delaylog.broker.host.audit.lines import AuditLine, AuditSettings
from delaylog.broker.host.machine import REAL
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.replies import OK, Reply
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.running.shared_state import SharedState
from delaylog.broker.resp.auditing import CommandAudit
from delaylog.broker.resp.users import Carry, NodeUsers
from tests.broker.resp.conftest import RespBroker, RespSecured
from tests.broker.resp.resp_client import is_error
from tests.storage.fake_disk import FakeDisk
from tests.waiting import await_that

PASSWORD = "a-password-of-24-letters"


def test_administration(secured: RespSecured) -> None:
    client = secured.connect()
    client.call("SET", "a", "value-of-a-key")
    assert client.call("FLUSHALL") == b"OK"
    (line,) = secured.broker.await_audit_lines("FLUSHALL", 1)
    assert (line["principal"], line["right"], line["outcome"]) == ("admin", "admin", "done")
    assert (line["face"], line["address"]) == ("redis", "127.0.0.1")
    client.call("ACL", "SETUSER", "seen", "on", f">{PASSWORD}", "+get", "~a")
    begun, done = secured.broker.await_audit_lines("ACL SETUSER", 2)
    assert (begun["outcome"], done["outcome"]) == ("begun", "done")
    assert begun["facts"] == done["facts"] == {"name": "seen"}
    assert client.call("CONFIG", "SET", "maxclients", "9000") == b"OK"
    assert is_error(client.call("CONFIG", "SET", "port", "1"), "ERR")
    outcomes = [line["outcome"] for line in secured.broker.await_audit_lines("CONFIG SET", 2)]
    assert outcomes == ["done", "ERR"]
    whole = "".join(file.read_text() for file in (secured.broker.data_dir / "audit").iterdir())
    assert PASSWORD not in whole
    assert "value-of-a-key" not in whole


def test_each_user_that_is_removed_is_named(secured: RespSecured) -> None:
    client = secured.connect()
    for name in ("first", "second"):
        secured.principal(name)
    assert client.call("ACL", "DELUSER", "first", "second") == 2
    assert is_error(client.call("ACL", "DELUSER", "admin"), "CONFLICT")
    lines = secured.broker.await_audit_lines("ACL DELUSER", 4)
    assert [(line["outcome"], line["facts"]["name"]) for line in lines] == [
        ("begun", "first second"),
        ("done", "first second"),
        ("begun", "admin"),
        ("CONFLICT", "admin"),
    ]


def test_no_change_of_users_before_its_line_is_written() -> None:
    """The disk is full, and no line has failed yet."""

    class FullLog(AuditLog):
        def __init__(self) -> None:
            super().__init__(FakeDisk(), "audit", 0, AuditSettings(), REAL, lambda: False)
            self.outcomes: list[str] = []

        async def _durable(self, line: AuditLine) -> None:
            raise AuditError("the disk is full", full=True)

        def record(self, line: AuditLine) -> None:
            self.outcomes.append(line.outcome)

    class Users:
        carry: Carry

    log, shared, users = FullLog(), SharedState(Keyspace(Random(0))), Users()
    CommandAudit(log, shared, cast("NodeUsers", users))
    session = Session(1, shared.keyspace.databases[0])
    changes: list[str] = []

    async def change() -> Reply:
        changes.append("a user")
        return OK

    with pytest.raises(CommandError, match="audit log cannot be written"):
        asyncio.run(users.carry(session, b"acl|setuser", [b"seen"], change))
    assert not changes
    assert log.outcomes == ["audit_failed"]


def test_also_in_transactions_and_scripts(secured: RespSecured) -> None:
    client = secured.connect()
    for words in (("MULTI",), ("FLUSHDB",), ("EXEC",)):
        client.call(*words)
    assert len(secured.broker.await_audit_lines("FLUSHDB", 1)) == 1
    client.call("EVAL", "return redis.call('FLUSHDB')", "0")
    assert len(secured.broker.await_audit_lines("FLUSHDB", 2)) == 2


def test_changes_of_messages(secured: RespSecured) -> None:
    client = secured.connect()
    client.call("DL.SEND", "space/topic", "60000", "secret-body", "ID", "one")
    client.call("DL.CANCEL", "space/topic", "one")
    (line,) = secured.broker.await_audit_lines("DL.CANCEL", 1)
    assert (line["right"], line["namespace"], line["topic"]) == ("change", "space", "topic")
    assert line["outcome"] in ("begun", "done")


def test_refusals(secured: RespSecured) -> None:
    token = secured.principal("nosy", redis=["+get", "~mine:*"])
    client = secured.connect(token)
    for words in (("GET", "theirs"), ("KEYS", "*"), ("DL.SEND", "t", "0", "x")):
        assert is_error(client.call(*words), "NOPERM")
    for call in ("GET", "KEYS", "DL.SEND"):
        (line,) = secured.broker.await_audit_lines(call, 1)
        assert (line["principal"], line["outcome"]) == ("nosy", "forbidden")
    bare = secured.connect(None)
    assert is_error(bare.call("AUTH", "nosy", "wrong-secret-text"), "WRONGPASS")
    (line,) = secured.broker.await_audit_lines("AUTH", 1)
    assert (line["principal"], line["outcome"]) == (None, "unauthorized")


def test_no_administration_without_an_audit(
    start_broker: Callable[..., RespBroker], tmp_path: Path
) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    (data / "audit").write_text("in the way")
    broker = start_broker(folder=tmp_path)
    client = broker.connect()
    # The first lines, of the start, have failed by now.
    await_that(
        lambda: is_error(client.call("FLUSHALL"), "ERR the audit log"),
        lambda: "it is not refused",
        seconds=10,
    )
    assert client.call("SET", "a", "1") == b"OK", "data go on"
    assert is_error(client.call("FLUSHALL"), "ERR the audit log")
    assert client.call("GET", "a") == b"1"
    (data / "audit").unlink()
    await_that(lambda: client.call("FLUSHALL") == b"OK", lambda: "it stays refused", seconds=10)
