"""A client that follows the leader: one attempt a call, and where the next one goes.

It does what a good SDK does, in the open: 307 names the leader, a node that is gone or silent is
left for the next one. An attempt either was answered, was certainly not carried out (`NotDone`),
or nobody knows (`Unclear`); what may be repeated is the caller's affair.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import aiohttp

ATTEMPT_S: Final = 0.3
"""A node that says nothing for so long beyond what it was asked to wait is left."""
REDIRECT: Final = 307
NOT_READY: Final = 503


class AttemptFailed(Exception):
    """The call was not answered; the route leads elsewhere now."""


class NotDone(AttemptFailed):
    """It never reached a node that would carry it out."""


class Unclear(AttemptFailed):
    """It may have been carried out, now or later."""


class Refused(Exception):
    """The leader answered that it will not do this."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer and the node that gave it."""

    node: int
    body: bytes


class Route:
    """Where the leader is thought to be, shared by all calls of a drill."""

    def __init__(self, urls: Mapping[int, str]) -> None:
        self._urls = dict(urls)
        self._order = sorted(urls)
        self._at = self._order[0]
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Route:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        # aiohttp would repeat some calls by itself; a repeat must be the drill's own.
        self._session._retry_connection = False
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._session is not None
        await self._session.close()

    async def call(
        self,
        path: str,
        body: bytes,
        headers: Mapping[str, str],
        *,
        wait_s: float = 0.0,
        method: str = "POST",
    ) -> Answered:
        """One attempt. Raises AttemptFailed and Refused."""
        assert self._session is not None
        node = self._at
        timeout = aiohttp.ClientTimeout(total=ATTEMPT_S + wait_s)
        url = self._urls[node] + path
        try:
            async with self._session.request(
                method, url, data=body, headers=headers, timeout=timeout, allow_redirects=False
            ) as answer:
                status = answer.status
                location = answer.headers.get("Location", "")
                read = await answer.read()
        except aiohttp.ClientConnectorError as error:
            self._leave(node)
            raise NotDone(str(error)) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._leave(node)
            raise Unclear(str(error) or type(error).__name__) from None
        if status == REDIRECT:
            self._go_to(location, node)
            raise NotDone(f"the leader is at {location}")
        if status == NOT_READY:
            # Also of a leader that lost its place while it carried the call out.
            self._leave(node)
            raise Unclear(read[:200].decode(errors="replace"))
        if status >= 300:
            raise Refused(f"{method} {path}: {status} {read[:300].decode(errors='replace')}")
        return Answered(node, read)

    def _leave(self, node: int) -> None:
        """Try the next one, unless somebody has gone elsewhere already."""
        if self._at == node:
            self._at = self._order[(self._order.index(node) + 1) % len(self._order)]

    def _go_to(self, location: str, asked: int) -> None:
        """Only a member that is known is gone to."""
        for node, url in self._urls.items():
            if location.startswith(url + "/") and node != asked:
                if self._at == asked:
                    self._at = node
                return
        self._leave(asked)
