"""Which node of a cluster is asked: the last known leader, or the next node if it fails.

Calls, and the token in them, go only to nodes that the caller named, and to nodes that those name
as members of their cluster. With a token, a node reached over https leads to https addresses only,
and a member that may not receive the token is not learned. HTTP redirects are not followed by the
HTTP library: it would drop the token, or send it to any address. Threads may share a route: in the
worst case two threads skip a node. `make twins` copies this module into `pyspark_delaylog`.

Made from client/wire/leader_route.py by `make twins`: change that one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from pyspark_delaylog.credentials import Credentials, CredentialsError


class LeaderRoute:
    """The nodes that one client knows."""

    def __init__(
        self, base_url: str, members: Sequence[str] = (), credentials: Credentials | None = None
    ) -> None:
        """Raises CredentialsError for an address that may not receive the token."""
        self.credentials = Credentials(environ={}) if credentials is None else credentials
        self._known = [url.rstrip("/") for url in (base_url, *members)]
        for url in self._known:
            self.credentials.check(url)
        self._at = 0

    @property
    def node(self) -> str:
        """The address of the node to ask, without a trailing slash."""
        return self._known[self._at]

    @property
    def nodes(self) -> tuple[str, ...]:
        """The addresses of all known nodes, from the one to ask on."""
        known, at = self._known, self._at
        return (*known[at:], *known[:at])

    @property
    def known(self) -> int:
        """The number of known nodes."""
        return len(self._known)

    def learn(self, status: Mapping[str, Any]) -> None:
        """Add the members that a node listed in its cluster status."""
        members = status.get("members")
        for member in members if isinstance(members, list) else ():
            url = str(member.get("http", "")).rstrip("/") if isinstance(member, dict) else ""
            if _origin(url) is None or url in self._known:
                continue
            if self._obstacle(url) is None:
                self._known.append(url)

    def follow(self, location: str) -> bool:
        """Switch to the target of a redirect; False if it is not a known member."""
        found = _origin(location)
        if found is None or self._obstacle(location) is not None:
            return False
        for at, url in enumerate(self._known):
            if _origin(url) == found:
                self._at = at
                return True
        return False

    def why_not(self, location: str) -> str:
        """Why `follow` refused a redirect."""
        return self._obstacle(location) or "it is no known member of the cluster"

    def only(self, url: str) -> LeaderRoute:
        """The route to one node that this one names. CredentialsError if it may not be called."""
        if (obstacle := self._obstacle(url)) is not None:
            raise CredentialsError(f"{url} is not called: {obstacle}")
        return LeaderRoute(url, (), self.credentials)

    def next(self, failed: str) -> None:
        """Switch to the next node, unless another thread has already left the failed one."""
        if self.node == failed:
            self._at = (self._at + 1) % len(self._known)

    def _obstacle(self, url: str) -> str | None:
        return self.credentials.obstacle(self.node, url)


def same_node(url: str, other: str) -> bool:
    """Whether two addresses have the same scheme, host and port."""
    return _origin(url) == _origin(other)


def _origin(url: str) -> tuple[str, str, int] | None:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        return None
    return parts.scheme, parts.hostname, port or (443 if parts.scheme == "https" else 80)
