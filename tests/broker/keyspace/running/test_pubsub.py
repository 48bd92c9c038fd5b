"""Patterns of channels: what matches, and that many of them are not made anew for each message."""

from __future__ import annotations

from random import Random

import pytest

from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.running import shared_state
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.running.shared_state import PubSub


@pytest.fixture
def session() -> Session:
    return Session(1, Keyspace(Random(1)).databases[0])


@pytest.mark.parametrize(
    ("pattern", "channel", "matches"),
    [
        (b"news.*", b"news.art", True),
        (b"news.*", b"new", False),
        (b"news", b"news", True),
        (b"news", b"newsx", False),
        (b"*", b"anything", True),
        (b"", b"", True),
        (b"\\*a", b"*a", True),
        (b"\\*a", b"ba", False),
        (b"a[bc]", b"ac", True),
        (b"a?c", b"abc", True),
        (b"a\nb*", b"a\nbc", True),
    ],
)
def test_what_matches(session: Session, pattern: bytes, channel: bytes, matches: bool) -> None:
    pubsub = PubSub()
    pubsub.patterns[pattern] = {session: None}
    for _ in range(2):
        assert pubsub.publish(channel, b"m") == matches


def test_a_matcher_is_made_once(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bytes] = []

    def matcher(pattern: bytes) -> object:
        made.append(pattern)
        return lambda name: name == b"p7"

    monkeypatch.setattr(shared_state, "matcher", matcher)
    pubsub = PubSub()
    for number in range(5_000):
        pubsub.patterns[b"p%d*" % number] = {session: None}
        pubsub.patterns[b"*%d" % number] = {session: None}
    pubsub.publish(b"p7", b"m")
    assert len(made) == 5_001, "those that begin as the channel does"
    pubsub.publish(b"p7", b"m")
    assert len(made) == 5_001
    pubsub.patterns.clear()
    pubsub.patterns[b"other"] = {session: None}
    pubsub.publish(b"p7", b"m")
    pubsub.patterns[b"p7*"] = {session: None}
    pubsub.publish(b"p7", b"m")
    assert len(made) == 5_002, "nothing is kept of patterns that have gone"
