"""The checks of a batch: what was checked before is not checked again."""

from __future__ import annotations

from typing import Any

import pytest

from delaylog.broker.engine.send import sends
from delaylog.contract.members import MemberError
from delaylog.storage.messages.batch import MessageBatch, decode_send, encode_send

ROOM = 1 << 40


def batch_with(key: bytes) -> MessageBatch:
    columns = {"n": 1, "delay_ms": 0, "key_size": len(key), "key": key, "body_size": 0}
    return decode_send(encode_send(columns | {"bodies": b""}), rows_max=1)


def test_texts_are_checked_once(host: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first send to a topic checks the batch before it makes the topic, and when it sends."""
    checked: list[MessageBatch] = []
    inner = sends._check_texts

    def counted(batch: MessageBatch) -> None:
        checked.append(batch)
        inner(batch)

    monkeypatch.setattr(sends, "_check_texts", counted)
    state, batch = host.engine.state, batch_with(b"k")
    topic = sends.topic_of_send(state, ("", "new"), batch, host.now_ms, free_bytes=ROOM)
    sends.send(state, topic, batch, host.now_ms, free_bytes=ROOM)
    assert len(checked) == 1


def test_a_batch_that_was_refused_is_refused_again(host: Any) -> None:
    batch = batch_with(b"k" * 256)
    for _ in range(2):
        with pytest.raises(MemberError):
            sends.check_batch(host.engine.state, batch, host.now_ms)
