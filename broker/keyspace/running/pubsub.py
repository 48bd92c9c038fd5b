"""Channels and patterns, and who listens."""

from __future__ import annotations

import re
from typing import Final

from delaylog.broker.keyspace.replies import Push
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.values.globs import Match, matcher

_HEAD: Final = re.compile(rb"[^*?\[\\]*").match
"""What a name has to begin with to match a pattern."""


class PubSub:
    """Delivers what is published, at once, to those who listen now."""

    def __init__(self) -> None:
        self.channels: dict[bytes, dict[Session, None]] = {}
        self.patterns: dict[bytes, dict[Session, None]] = {}
        self._looks: dict[bytes, tuple[bytes, Match | None]] = {}
        """Of each pattern its head, and how to match the rest once that was needed."""

    def publish(self, channel: bytes, message: bytes) -> int:
        """Deliver a message; returns to how many."""
        count = 0
        for session in self.channels.get(channel, ()):
            session.deliver(Push([b"message", channel, message]))
            count += 1
        for pattern, sessions in self.patterns.items():
            if self._matches(pattern, channel):
                for session in sessions:
                    session.deliver(Push([b"pmessage", pattern, channel, message]))
                    count += 1
        return count

    def _matches(self, pattern: bytes, channel: bytes) -> bool:
        """Whether a pattern that somebody listens to matches. Making a matcher takes a hundred
        times as long as asking it, and there may be more patterns than are kept in common.
        """
        looks = self._looks
        look = looks.get(pattern)
        if look is None:
            if len(looks) > 2 * len(self.patterns):
                looks.clear()
            head = _HEAD(pattern)
            assert head is not None
            look = looks[pattern] = (head[0], None)
        start, match = look
        if not channel.startswith(start):
            return False
        if match is None:
            match = matcher(pattern)
            looks[pattern] = (start, match)
        return bool(match(channel))

    def leave(self, session: Session) -> None:
        """A client listens to nothing any more."""
        for mine, all_of_them in (
            (session.channels, self.channels),
            (session.patterns, self.patterns),
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
