"""Blocked commands: their sessions, keys and timeouts.

A database lists the sessions that wait for each key, oldest first, and the executor runs their
commands again. This module begins waits, and ends them with or without a reply.
"""

from __future__ import annotations

from collections.abc import Callable

from delaylog.broker.keyspace.replies import Reply
from delaylog.broker.keyspace.running.session import Blocked, Session
from delaylog.wheel import DelayQueue


class Waits:
    """The waits of one executor's sessions."""

    def __init__(self, clock_ms: Callable[[], int]) -> None:
        self.sessions: dict[int, Session] = {}
        """Sessions with a blocked command, by number."""
        self.clock_ms = clock_ms
        """The clock of the timeouts; the host sets a monotonic one."""
        self._deadlines: DelayQueue[int] = DelayQueue()

    def begin(self, session: Session, blocked: Blocked) -> None:
        """Block a session on its keys; called by `Run.wait`."""
        session.blocked = blocked
        self.sessions[session.number] = session
        if blocked.deadline_ms is not None:
            self._deadlines.push(session.number, blocked.deadline_ms)
        for key in blocked.keys:
            blocked.database.waiters.setdefault(key, {})[session.number] = None

    def end(self, session: Session) -> Blocked | None:
        """End a wait without a reply; returns the blocked command, or None."""
        blocked, session.blocked = session.blocked, None
        if blocked is not None:
            del self.sessions[session.number]
            self._deadlines.discard(session.number)
            for key in blocked.keys:
                waiters = blocked.database.waiters.get(key)
                if waiters is not None:
                    waiters.pop(session.number, None)
                    if not waiters:
                        del blocked.database.waiters[key]
        return blocked

    def end_late(self) -> int | None:
        """End the waits that timed out; returns the next deadline, by `clock_ms`, or None."""
        now_ms = self.clock_ms()
        while (number := self._deadlines.pop_due(now_ms)) is not None:
            session = self.sessions[number]
            blocked = self.end(session)
            assert blocked is not None
            session.deliver(blocked.timeout_reply)
        return self._deadlines.head_ms

    def end_held(self, reply: Reply) -> None:
        """End the waits of commands that a hold refuses, with this reply."""
        for session in list(self.sessions.values()):
            if session.blocked is not None and session.blocked.command.held_back:
                self.end(session)
                session.deliver(reply)

    def end_all(self) -> None:
        """End all waits without a reply, and close the connections of their clients.

        Client libraries repeat a command whose connection broke. They raise an error reply to the
        program, which ends workers of job systems.
        """
        for session in list(self.sessions.values()):
            self.end(session)
            session.close()
