"""State of the server itself: users, settings, counters, and facts that the host provides.

It is pure: everything that has to be looked up (role, memory, addresses, the leader) comes from
callables that the host sets. Their defaults serve tests without a host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.users import OneUser, Users

RATE_MS: Final = 1_000
"""Commands per second are averaged over at least this time."""

Facts = dict[bytes, bytes]
"""Fields of INFO by name."""


@dataclass(slots=True)
class ServerState:
    """Shared by all sessions; the host sets the callables."""

    users: Users = field(default_factory=OneUser)
    given: dict[bytes, bytes] = field(default_factory=dict)
    """Settings that the host gives, which CONFIG GET shows."""
    commands_run: int = 0
    errors_answered: int = 0
    connections: int = 0
    """Since the start."""
    refused_connections: int = 0
    failed_logins: int = 0
    started_ms: int = 0
    run_id: bytes = b"0" * 40
    process_id: int = 0
    facts: Callable[[], Facts] = dict
    """Fields of INFO from the host (memory and the like), which replace the defaults."""
    delaylog_facts: Callable[[], Facts] = dict
    """Fields of the Delaylog section of INFO."""
    role: Callable[[], bytes] = lambda: b"master"
    """`master` where writes are accepted, otherwise `slave`."""
    on_wrong_password: Callable[[Session, bytes], None] = lambda session, secret: None
    """Called with a client that sent a wrong secret."""
    login_wait_s: Callable[[Session, Iterable[bytes]], float] = lambda session, secrets: 0.0
    """Returns the seconds until these secrets of a client may be checked, after wrong ones."""
    leader: Callable[[], tuple[bytes, int] | None] = lambda: None
    """Host and port of the leader's endpoint; None = this node, or unknown (see `role`)."""
    address: tuple[bytes, int] = (b"127.0.0.1", 0)
    """The address that the endpoint listens on."""
    _rate_samples: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))

    def commands_a_second(self, now_ms: int) -> int:
        """Return the recent number of commands per second, measured between calls of this."""
        older, newer = self._rate_samples
        if newer == (0, 0):
            newer = older = (self.started_ms, 0)
        if now_ms - newer[0] >= RATE_MS:
            older, newer = newer, (now_ms, self.commands_run)
        self._rate_samples = (older, newer)
        passed_ms = now_ms - older[0]
        return (self.commands_run - older[1]) * 1000 // passed_ms if passed_ms > 0 else 0
