"""What the server knows of itself: password, configuration, counters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class ServerState:
    """Shared by all sessions; the host fills in what only it can know."""

    accounts: dict[bytes, bytes] = field(default_factory=dict)
    """User name -> token; empty = nobody has to authenticate."""
    settings: dict[bytes, bytes] = field(default_factory=dict)
    """What CONFIG SET changed."""
    commands_run: int = 0
    errors_answered: int = 0
    connections: int = 0
    """Since the start."""
    started_ms: int = 0
    facts: Callable[[], dict[bytes, bytes]] = dict
    """Members of INFO that the host knows (role, ports, memory), by their names there."""

    @property
    def wants_password(self) -> bool:
        """Whether clients must authenticate."""
        return bool(self.accounts)
