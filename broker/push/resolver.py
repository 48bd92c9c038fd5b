"""Names of receivers by the system's resolver, on threads of their own.

A name whose server does not answer occupies a thread for as long as the system tries, whatever the
attempt takes. So these threads are nobody else's, their number is bounded, and they are daemons:
the process ends without waiting for them, which no executor of the standard library allows. Names
that had an address at their last look-up, new names, and names that had none wait for threads
apart, so that dead name servers stop no name that works.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from threading import Thread
from typing import Any, Final, TypeAlias

from aiohttp.abc import AbstractResolver, ResolveResult

LOOKUPS_MAX: Final = 64
"""Look-ups at one time: half for names that had an address, a quarter each for new and bad ones."""
NAMES_MAX: Final = 10_000
"""Names whose last look-up is remembered."""
_Found: TypeAlias = "list[tuple[Any, ...]]"


class Resolver(AbstractResolver):
    """Create it on the event loop."""

    def __init__(self) -> None:
        self._room = {
            True: asyncio.Semaphore(LOOKUPS_MAX // 2),
            None: asyncio.Semaphore(LOOKUPS_MAX // 4),
            False: asyncio.Semaphore(LOOKUPS_MAX // 4),
        }
        self._found: dict[str, bool] = {}
        """Whether the last look-up of a name had an address. One under way has none yet."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a name. Raises OSError."""
        room = self._room[self._found.get(host)]
        await room.acquire()
        self._remember(host, found=False)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_Found] = loop.create_future()

        def ended(found: _Found, error: Exception | None) -> None:
            room.release()
            self._remember(host, found=error is None)
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

    def _remember(self, host: str, *, found: bool) -> None:
        self._found.pop(host, None)
        if len(self._found) >= NAMES_MAX:
            del self._found[next(iter(self._found))]
        self._found[host] = found

    async def close(self) -> None:
        """Nothing: lookups under way end by themselves."""
