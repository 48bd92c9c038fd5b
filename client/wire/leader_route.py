"""Which node of a cluster is asked: whoever led last, or the next one when that one is gone.

The one rule: calls, and the token in them, go only to nodes that the caller named or that a node
of those names as a member of its cluster. HTTP's own redirects are not followed: they would drop
the token, or bring it wherever somebody says. Threads may share a route: at worst two of them pass
over a node that one would have asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit


class LeaderRoute:
    """The nodes that one client knows."""

    def __init__(self, base_url: str, members: Sequence[str] = ()) -> None:
        self._known = [url.rstrip("/") for url in (base_url, *members)]
        self._at = 0

    @property
    def node(self) -> str:
        """The address of the node to ask now, without a slash at its end."""
        return self._known[self._at]

    @property
    def known(self) -> int:
        """How many nodes there are to try."""
        return len(self._known)

    def learn(self, status: Mapping[str, Any]) -> None:
        """A node that is asked has named its cluster's members."""
        members = status.get("members")
        for member in members if isinstance(members, list) else ():
            url = str(member.get("http", "")).rstrip("/") if isinstance(member, dict) else ""
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

    def next(self, failed: str) -> None:
        """Try another node than the one that failed, unless somebody has gone on already."""
        if self.node == failed:
            self._at = (self._at + 1) % len(self._known)


def _origin(url: str) -> tuple[str, str, int] | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    return parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80)
