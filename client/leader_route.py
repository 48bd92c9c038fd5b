"""Which node of a cluster is asked: whoever led last, or the next one when that one is gone.

The one rule: calls, and the token in them, go only to nodes that the caller named or that a node
of those names as a member of its cluster. HTTP's own redirects are not followed: they would drop
the token, or bring it wherever somebody says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from yarl import URL


class LeaderRoute:
    """The nodes that one client knows."""

    def __init__(self, base_url: str, members: Sequence[str] = ()) -> None:
        self._base = base_url.rstrip("/")
        self._known = [self._base, *(url.rstrip("/") for url in members)]
        self._at = 0

    @property
    def knows_others(self) -> bool:
        """Whether there is another node to try."""
        return len(self._known) > 1

    def to(self, url: str) -> str:
        """Where to send a call whose address was made for the first node."""
        return self._known[self._at] + url.removeprefix(self._base)

    def learn(self, status: Mapping[str, Any]) -> None:
        """A node that is asked has named its cluster's members."""
        for member in status.get("members", ()):
            url = str(member.get("http", "")).rstrip("/")
            if url and url not in self._known:
                self._known.append(url)

    def follow(self, location: str) -> bool:
        """Go where a node sends us; False if that is no member that we know."""
        found = _origin(location)
        for at, url in enumerate(self._known):
            if found is not None and _origin(url) == found:
                self._at = at
                return True
        return False

    def next(self) -> None:
        """Try another node."""
        self._at = (self._at + 1) % len(self._known)


def _origin(url: str) -> URL | None:
    try:
        return URL(url).origin()
    except ValueError:
        return None
