"""Channels and patterns, and who listens."""

from __future__ import annotations

from delaylog.broker.keyspace.globs import matcher
from delaylog.broker.keyspace.replies import Push
from delaylog.broker.keyspace.session import Session


class PubSub:
    """Delivers what is published, at once, to those who listen now."""

    def __init__(self) -> None:
        self.channels: dict[bytes, dict[Session, None]] = {}
        self.patterns: dict[bytes, dict[Session, None]] = {}
        self.shard_channels: dict[bytes, dict[Session, None]] = {}

    def publish(self, channel: bytes, message: bytes) -> int:
        """Deliver a message; returns to how many."""
        count = 0
        for session in self.channels.get(channel, ()):
            session.deliver(Push([b"message", channel, message]))
            count += 1
        for pattern, sessions in self.patterns.items():
            if matcher(pattern)(channel):
                for session in sessions:
                    session.deliver(Push([b"pmessage", pattern, channel, message]))
                    count += 1
        return count

    def publish_shard(self, channel: bytes, message: bytes) -> int:
        """Deliver a message of a shard channel."""
        sessions = self.shard_channels.get(channel, {})
        for session in sessions:
            session.deliver(Push([b"smessage", channel, message]))
        return len(sessions)

    def leave(self, session: Session) -> None:
        """A client listens to nothing any more."""
        for mine, all_of_them in (
            (session.channels, self.channels),
            (session.patterns, self.patterns),
            (session.shard_channels, self.shard_channels),
        ):
            for name in mine:
                self.drop(all_of_them, name, session)
            mine.clear()

    @staticmethod
    def drop(table: dict[bytes, dict[Session, None]], name: bytes, session: Session) -> None:
        """Take one listener of a name out."""
        sessions = table.get(name)
        if sessions is not None:
            sessions.pop(session, None)
            if not sessions:
                del table[name]
