"""The table of messages: what a sound node sends passes, anything else is refused with a reason."""

from __future__ import annotations

import json
from typing import Any

import pytest

from delaylog.replication.raftos_oracle.datagrams import (
    SHAPES,
    Envelope,
    Refusal,
    Refused,
    Stamp,
    check,
    pack,
    unpack,
)

ID = "10.0.0.1:7001"
LIFE = "0f" * 16
STANDING = [1 << 63, 0]
SOUND: list[dict[str, Any]] = [
    {"type": "hello", "ask": None, "answer": LIFE},
    {"type": "pre_vote", "term": 0, "round": 1, "standing": STANDING},
    {"type": "pre_vote_response", "term": 0, "round": 1, "vote_granted": False},
    {
        "type": "request_vote",
        "term": 1,
        "candidate_id": ID,
        "last_log_index": 0,
        "last_log_term": 0,
        "standing": STANDING,
        "by_transfer": False,
    },
    {"type": "request_vote_response", "term": 1, "vote_granted": True},
    {
        "type": "append_entries",
        "term": 1,
        "leader_id": ID,
        "commit_index": 0,
        "request_id": 5,
        "entries": [],
        "prev_log_index": 0,
        "prev_log_term": 0,
        "tick": [1, 2, 3, 4, -5],
    },
    {
        "type": "append_entries_response",
        "term": 1,
        "success": True,
        "last_log_index": 0,
        "request_id": 5,
    },
    {"type": "timeout_now", "term": 1},
]
WRONG: dict[str, list[Any]] = {
    "term": [-1, 1 << 48, 1.0, True, None, "1"],
    "ask": ["", LIFE[1:], 1],
    "answer": ["", LIFE + "0", b"".hex()],
    "by_transfer": [None, 0],
    "round": [-1, "1"],
    "request_id": [-1, None, 1 << 64],
    "vote_granted": [1, None],
    "success": [0, "true"],
    "standing": [None, [1], [1, 2, 3], [1, -1], (1 << 64, 0), "ab"],
    "candidate_id": ["10.0.0.2:7001", 1, None],
    "leader_id": ["10.0.0.2:7001", 1, None],
    "last_log_index": [1, False],
    "last_log_term": [1],
    "commit_index": [1],
    "prev_log_index": [1],
    "prev_log_term": [1],
    "entries": [[{}], None, {}],
    "tick": [[], [1, 2, 3, 4], [1, 2, 3, -4, 5], [1, 2, 3, 4, 1 << 63], [1, 2, 3, 4, 5.0], {}],
}


def refusal(message: Any) -> Refusal:
    with pytest.raises(Refused) as caught:
        check(message, ID)
    return caught.value.reason


def test_each_kind_passes() -> None:
    assert [message["type"] for message in SOUND] == list(SHAPES)
    for message in SOUND:
        check(message, ID)
    check({**SOUND[5], "tick": None}, ID)


@pytest.mark.parametrize("message", SOUND, ids=lambda message: str(message["type"]))
def test_each_member_is_looked_at(message: dict[str, Any]) -> None:
    assert refusal({**message, "more": 1}) == Refusal.MALFORMED
    for name in message.keys() - {"type"}:
        assert refusal({key: message[key] for key in message if key != name}) == Refusal.MALFORMED
        for value in WRONG[name]:
            assert refusal({**message, name: value}) == Refusal.MALFORMED, (name, value)


@pytest.mark.parametrize("kind", ["__init__", "request_vote_", "", None, 1, [], {}])
def test_other_kinds(kind: Any) -> None:
    assert refusal({"type": kind, "term": 1}) == Refusal.UNKNOWN_TYPE


def test_the_envelope() -> None:
    envelope = Envelope(1, 2, Stamp(LIFE, 3), {"type": "hello"})
    assert unpack(pack(envelope)) == envelope
    assert json.loads(pack(envelope)) == [1, 1, 2, LIFE, 3, {"type": "hello"}]


def test_envelopes_that_make_no_sense() -> None:
    sound: list[Any] = [1, 1, 2, LIFE, 3, {}]
    unpack(json.dumps(sound).encode())
    wrong: list[list[Any]] = [
        [2, 0, "1", None],
        [-1, 1 << 16, "1", True],
        [-1, 1 << 16, None],
        [None, "", LIFE[1:], 1],
        [0, -1, None, 1 << 64],
        [[], None, "x"],
    ]
    texts = [
        json.dumps([*sound[:at], value, *sound[at + 1 :]])
        for at, values in enumerate(wrong)
        for value in values
    ]
    texts += ["", "[", "{}", "1", "null", "[]", json.dumps(sound[:-1]), "[" * 1_000, '"123456"']
    for text in texts:
        with pytest.raises(Refused) as caught:
            unpack(text.encode())
        assert caught.value.reason == Refusal.MALFORMED, text
    with pytest.raises(Refused):
        unpack(b"\xff\xfe")
