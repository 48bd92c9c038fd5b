"""Effects as frames: what is more than one holds comes in several, and brings about the same."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import msgpack
import pytest

from delaylog.broker.engine import keyspace_log
from delaylog.broker.engine.keyspace_base import KeyspaceBase
from delaylog.broker.keyspace.executor import Executor
from delaylog.broker.keyspace.keyspace import Keyspace
from tests.broker.keyspace.snapshots.contents import contents_of


def test_what_is_more_than_a_frame_comes_in_several(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large turns, and single effects that are large though no client sends such a command."""
    monkeypatch.setattr(keyspace_log, "PAYLOAD_BYTES_MAX", 2_000)
    keyspace, copy = Keyspace(Random(1)), Keyspace(Random(2))
    payloads: list[bytes] = []
    state: Any = SimpleNamespace(
        keyspace=keyspace,
        keyspace_base=KeyspaceBase(),
        position=0,
        append=lambda _kind, parts, _now_ms: payloads.extend(parts),
    )
    executor = Executor(keyspace)
    session = executor.connect(0)
    executor.execute(session, [b"SELECT", b"3"])
    members = [b"member %d" % number for number in range(300)]
    for commands in (
        *([[b"SADD", b"set", *members[start : start + 50]]] for start in range(0, 300, 50)),
        [[b"SORT", b"set", b"ALPHA", b"STORE", b"list"], [b"SET", b"between", b"1"]],
        [[b"SPOP", b"set", b"290"], [b"RPUSH", b"list", b"last"]],
        [[b"SET", b"key %d" % number, b"value"] for number in range(100)],
    ):
        for argv in commands:
            executor.execute(session, argv)
        keyspace_log.log_keyspace(state, 0)
        assert not keyspace.effects
    assert len(payloads) > 12
    assert state.keyspace_base.frames == len(payloads)
    for payload in payloads:
        assert len(payload) <= 2_000
        copy.apply(msgpack.unpackb(payload))
    assert contents_of(copy) == contents_of(keyspace)
    assert len(copy.databases[3].values) == 103
