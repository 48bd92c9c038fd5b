"""Recent refusals and failed logins, for ACL LOG. Nothing in it is secret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

ENTRIES_MAX: Final = 128
"""The default of Redis."""
SAME_MS: Final = 60_000
"""A refusal adds to the count of a similar one that is not older than this."""


@dataclass(slots=True)
class Entry:
    """One kind of refusal to one user."""

    reason: str
    """`command`, `key`, `channel` or `auth`."""
    context: str
    """`toplevel`, `multi` or `lua`."""
    name: bytes
    """The command, key or channel."""
    user: bytes
    client: bytes
    """The client's line in CLIENT LIST."""
    at_ms: int
    count: int = 1


class AclLog:
    """The entries, newest first."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []

    def note(self, new: Entry) -> None:
        """Add an entry, or count it as one more of a recent entry, which then is the newest."""
        for at, old in enumerate(self.entries):
            if (old.reason, old.context, old.name, old.user) == (
                new.reason,
                new.context,
                new.name,
                new.user,
            ) and new.at_ms - old.at_ms <= SAME_MS:
                new.count += old.count
                del self.entries[at]
                break
        self.entries.insert(0, new)
        del self.entries[ENTRIES_MAX:]
