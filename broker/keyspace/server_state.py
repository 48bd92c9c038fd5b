"""What the server knows of itself: password, settings, counters, and what only its host can tell.

It is pure: everything that has to be looked up (roles, memory, addresses, the leader) comes by
callables that the host sets. Alone, as in tests, each gives what can be said without a host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from secrets import randbits
from typing import Final

from delaylog.broker.keyspace.running.session import Session

RATE_MS: Final = 1_000
"""Commands a second are the mean since a look that is at least so long ago."""

Facts = dict[bytes, bytes]
"""Members of INFO by their names there."""
Setter = Callable[[bytes], None]


@dataclass(slots=True)
class ServerState:
    """Shared by all sessions; the host fills in what only it can know."""

    accounts: dict[bytes, bytes] = field(default_factory=dict)
    """User name -> token; empty = nobody has to authenticate."""
    settings: dict[bytes, bytes] = field(default_factory=dict)
    """What CONFIG SET changed, by the names in commands/server/configuration.py."""
    given: dict[bytes, bytes] = field(default_factory=dict)
    """What the host's own configuration decides: CONFIG GET shows it, CONFIG SET keeps off."""
    on_setting: dict[bytes, Setter] = field(default_factory=dict)
    """Called with the new value of a setting that means something to the host."""
    commands_run: int = 0
    errors_answered: int = 0
    connections: int = 0
    """Since the start."""
    refused_connections: int = 0
    forgotten: dict[str, int] = field(default_factory=dict)
    """Counters as they stood at CONFIG RESETSTAT: INFO counts from there, metrics do not."""
    started_ms: int = 0
    run_id: bytes = b"0" * 40
    process_id: int = 0
    facts: Callable[[], Facts] = dict
    """Members of INFO that the host knows better (memory and the like): they replace ours."""
    delaylog_facts: Callable[[], Facts] = dict
    """Members of INFO's section on delaylog itself."""
    role: Callable[[], bytes] = lambda: b"master"
    """`master` where writes are taken, otherwise `slave`."""
    on_wrong_password: Callable[[Session], None] = lambda session: None
    """Called when a client that has to showed a wrong token."""
    leader: Callable[[], tuple[bytes, int] | None] = lambda: None
    """Where the leader takes Redis clients; None = here, or it is not known (see `role`)."""
    secret_bits: Callable[[int], int] = randbits
    """A number of so many bits that nobody can guess."""
    address: tuple[bytes, int] = (b"127.0.0.1", 0)
    """Where clients are listened to."""
    _looks: tuple[tuple[int, int], tuple[int, int]] = ((0, 0), (0, 0))

    @property
    def wants_password(self) -> bool:
        """Whether clients must authenticate."""
        return bool(self.accounts)

    def since_reset(self, name: str, value: int) -> int:
        """A counter as INFO shows it."""
        return value - self.forgotten.get(name, 0)

    def commands_a_second(self, now_ms: int) -> int:
        """How many commands a second ran lately. Nothing is measured while nobody asks."""
        older, newer = self._looks
        if newer == (0, 0):
            newer = older = (self.started_ms, 0)
        if now_ms - newer[0] >= RATE_MS:
            older, newer = newer, (now_ms, self.commands_run)
        self._looks = (older, newer)
        passed_ms = now_ms - older[0]
        return (self.commands_run - older[1]) * 1000 // passed_ms if passed_ms > 0 else 0
