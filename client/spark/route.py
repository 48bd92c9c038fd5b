"""Which node is asked: the one that answered last, or the next one if it fails.

Calls, and the token in them, go only to nodes that the options name, and to nodes that those name
as members of their cluster, but not to arbitrary targets of redirects. With a token, a node reached
over https leads to https addresses only. `delaylog.client` has the same rules; this package must
run without it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from pyspark_delaylog.credentials import Credentials


class Route:
    """The nodes known to one task. It is pickled with its writer."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        assert endpoints, "there is an endpoint"
        self._known = list(endpoints)
        self._at = 0

    @property
    def base(self) -> str:
        """The address of the node to ask."""
        return self._known[self._at]

    @property
    def known(self) -> tuple[str, ...]:
        """The addresses of all nodes."""
        return tuple(self._known)

    def next(self) -> None:
        """Switch to the next node."""
        self._at = (self._at + 1) % len(self._known)

    def follow(self, location: str, credentials: Credentials) -> bool:
        """Switch to the target of a redirect; False if it is not a known node."""
        wanted = _origin(location)
        if wanted is None or credentials.obstacle(self.base, location) is not None:
            return False
        for at, url in enumerate(self._known):
            if _origin(url) == wanted:
                self._at = at
                return True
        return False

    def learn(self, cluster: Mapping[str, Any], credentials: Credentials) -> None:
        """Add the members that a node listed in its cluster status."""
        for member in cluster.get("members") or ():
            url = str(member.get("http") or "").rstrip("/")
            if _origin(url) is None or url in self._known:
                continue
            if credentials.obstacle(self.base, url) is None:
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
