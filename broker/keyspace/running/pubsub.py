"""Channels, patterns and their subscribers."""

from __future__ import annotations

import re
from typing import Final

from delaylog.broker.keyspace.replies import Push
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.values.globs import Match, matcher

_HEAD: Final = re.compile(rb"[^*?\[\\]*").match
"""The literal prefix of a pattern."""


class PubSub:
    """Delivers messages at once to the present subscribers."""

    def __init__(self) -> None:
        self.channels: dict[bytes, dict[Session, None]] = {}
        self.patterns: dict[bytes, dict[Session, None]] = {}
        self._matchers: dict[bytes, tuple[bytes, Match | None]] = {}
        """Pattern -> its prefix, and its matcher once one was needed."""

    def publish(self, channel: bytes, message: bytes) -> int:
        """Deliver a message; returns the number of recipients."""
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
        """Whether a subscribed pattern matches.

        Compiling a matcher takes a hundred times as long as calling it, and there may be more
        patterns than the shared cache of matchers keeps.
        """
        matchers = self._matchers
        entry = matchers.get(pattern)
        if entry is None:
            if len(matchers) > 2 * len(self.patterns):
                matchers.clear()
            head = _HEAD(pattern)
            assert head is not None
            entry = matchers[pattern] = (head[0], None)
        start, match = entry
        if not channel.startswith(start):
            return False
        if match is None:
            match = matcher(pattern)
            matchers[pattern] = (start, match)
        return bool(match(channel))

    def leave(self, session: Session) -> None:
        """Remove all subscriptions of a client."""
        for mine, all_of_them in (
            (session.channels, self.channels),
            (session.patterns, self.patterns),
        ):
            for name in mine:
                self.drop(all_of_them, name, session)
            mine.clear()

    @staticmethod
    def drop(table: dict[bytes, dict[Session, None]], name: bytes, session: Session) -> None:
        """Remove one subscriber of a channel or pattern."""
        sessions = table.get(name)
        if sessions is not None:
            sessions.pop(session, None)
            if not sessions:
                del table[name]
