"""Names of receivers by the system's resolver, on threads of their own.

A name whose server does not answer occupies a thread for as long as the system tries, whatever the
attempt takes. So these threads are nobody else's, their number is bounded, and they are daemons:
the process ends without waiting for them, which no executor of the standard library allows.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from threading import Thread
from typing import Any, Final, TypeAlias

from aiohttp.abc import AbstractResolver, ResolveResult

LOOKUPS_MAX: Final = 64
_Found: TypeAlias = "list[tuple[Any, ...]]"


class Resolver(AbstractResolver):
    """Create it on the event loop."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(LOOKUPS_MAX)

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a name. Raises OSError."""
        await self._room.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_Found] = loop.create_future()

        def ended(found: _Found, error: Exception | None) -> None:
            self._room.release()
            if answer.done():
                # Nobody waits for it any more.
                return
            if error is None:
                answer.set_result(found)
            else:
                answer.set_exception(error)

        def look() -> None:
            found: _Found = []
            failure: Exception | None = None
            try:
                found = socket.getaddrinfo(
                    host, port, family, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG
                )
            except Exception as error:
                failure = error
            # The loop may have been closed meanwhile.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(ended, found, failure)

        Thread(target=look, name="push-resolver", daemon=True).start()
        return [
            ResolveResult(
                hostname=host,
                host=address[0],
                port=address[1],
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in await answer
        ]

    async def close(self) -> None:
        """Nothing: lookups under way end by themselves."""
