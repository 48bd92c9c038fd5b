"""A client that follows the leader. Each call is one attempt at the node believed to lead.

A 307 names the leader. After a failed or timed-out attempt the next one goes to the next node. An
attempt was answered, was certainly not carried out (`NotDone`), or has an unknown outcome
(`Unclear`). The caller decides what to repeat.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import aiohttp

ATTEMPT_S: Final = 1.0
"""Timeout of an attempt, added to the wait that the call itself asks for. Careful clients use this
value; a shorter one would hide how long a node that hangs keeps its clients."""
REDIRECT: Final = 307
NOT_READY: Final = 503


class AttemptFailed(Exception):
    """The call was not answered. The route now points to another node."""


class NotDone(AttemptFailed):
    """The call certainly had no effect: no connection, or the node was not the leader."""


class Unclear(AttemptFailed):
    """The call may have been carried out, or may still be."""


class Refused(Exception):
    """The leader refused the call."""


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer and the node that gave it."""

    node: int
    body: bytes


class Route:
    """The node believed to lead, shared by all calls of a drill."""

    def __init__(self, urls: Mapping[int, str], tls: ssl.SSLContext | None = None) -> None:
        self._urls = dict(urls)
        self._tls = tls
        self._order = sorted(urls)
        self._at = self._order[0]
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Route:
        connector = aiohttp.TCPConnector(limit=0, ssl=self._tls or True)
        self._session = aiohttp.ClientSession(connector=connector)
        # aiohttp would repeat some calls by itself; only the load may repeat a call.
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
        """Make one attempt. Raises AttemptFailed and Refused."""
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
            # A leader that loses its leadership during a call answers this too.
            self._leave(node)
            raise Unclear(read[:200].decode(errors="replace"))
        if status >= 300:
            raise Refused(f"{method} {path}: {status} {read[:300].decode(errors='replace')}")
        return Answered(node, read)

    def _leave(self, node: int) -> None:
        """Move on to the next node, unless another call has changed the route already."""
        if self._at == node:
            self._at = self._order[(self._order.index(node) + 1) % len(self._order)]

    def _go_to(self, location: str, asked: int) -> None:
        """Follow a redirect, if it names another known member; otherwise try the next node."""
        for node, url in self._urls.items():
            if location.startswith(url + "/") and node != asked:
                if self._at == asked:
                    self._at = node
                return
        self._leave(asked)
