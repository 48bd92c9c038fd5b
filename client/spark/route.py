"""Which node is asked: whoever answered last, or the next one when that one is gone.

The one rule: calls, and the token in them, go only to nodes that the options name or that such a
node names as a member of its cluster; never wherever a redirect says. (`delaylog.client` keeps the
same rule with the libraries of its event loop; this package must run without them.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit


class Route:
    """The nodes that one task knows. Pickled with its writer."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        assert endpoints, "somebody has to be asked"
        self._known = list(endpoints)
        self._at = 0

    @property
    def base(self) -> str:
        """The node to ask now."""
        return self._known[self._at]

    def next(self) -> None:
        """Try another node."""
        self._at = (self._at + 1) % len(self._known)

    def follow(self, location: str) -> bool:
        """Go where a node sends us; False if that is nobody we know."""
        wanted = _origin(location)
        for at, url in enumerate(self._known):
            if wanted is not None and _origin(url) == wanted:
                self._at = at
                return True
        return False

    def learn(self, cluster: Mapping[str, Any]) -> None:
        """A node that we asked has named its cluster's members."""
        for member in cluster.get("members") or ():
            url = str(member.get("http") or "").rstrip("/")
            if _origin(url) is not None and url not in self._known:
                self._known.append(url)


def _origin(url: str) -> tuple[str, str, int] | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    return parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80)
