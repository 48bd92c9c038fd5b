"""What Redis clients leave in the audit log: administration, changes, refusals, and no secrets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.broker.resp.conftest import RespBroker, RespSecured
from tests.broker.resp.resp_client import is_error
from tests.waiting import await_that


def test_administration(secured: RespSecured) -> None:
    client = secured.connect()
    client.call("SET", "a", "value-of-a-key")
    assert client.call("FLUSHALL") == b"OK"
    (line,) = secured.broker.await_audit_lines("FLUSHALL", 1)
    assert (line["principal"], line["right"], line["outcome"]) == ("admin", "admin", "done")
    assert (line["face"], line["address"]) == ("redis", "127.0.0.1")
    assert client.call("CLIENT", "KILL", "ID", 999_999) == 0
    assert is_error(client.call("CLIENT", "KILL", "ID", "x"), "ERR")
    lines = secured.broker.await_audit_lines("CLIENT KILL", 2)
    assert [line["outcome"] for line in lines] == ["done", "ERR"]
    assert lines[0]["facts"] == {"name": "ID 999999"}
    whole = "".join(file.read_text() for file in (secured.broker.data_dir / "audit").iterdir())
    assert "value-of-a-key" not in whole


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
    client = secured.connect(secured.principal("nosy", "viewer"))
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
    )
    assert client.call("SET", "a", "1") == b"OK", "data go on"
    assert is_error(client.call("FLUSHALL"), "ERR the audit log")
    assert client.call("GET", "a") == b"1"
    (data / "audit").unlink()
    await_that(lambda: client.call("FLUSHALL") == b"OK", lambda: "it stays refused")
