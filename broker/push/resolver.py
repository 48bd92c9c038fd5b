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
from enum import Enum
from threading import Thread
from typing import Any, Final, TypeAlias

from aiohttp.abc import AbstractResolver, ResolveResult

LOOKUPS_MAX: Final = 64
"""Look-ups at one time: half for names that had an address, a quarter each for new and bad ones."""
NAMES_MAX: Final = 10_000
"""Names whose last look-up is remembered."""
_Found: TypeAlias = "list[tuple[Any, ...]]"


class _Name(Enum):
    """What the last look-up of a name that has ended says of it."""

    GOOD = 1
    """It had an address."""
    NEW = 2
    """None has ended yet."""
    BAD = 3
    """It had none."""


class Resolver(AbstractResolver):
    """Create it on the event loop."""

    def __init__(self) -> None:
        self._room = {
            _Name.GOOD: asyncio.Semaphore(LOOKUPS_MAX // 2),
            _Name.NEW: asyncio.Semaphore(LOOKUPS_MAX // 4),
            _Name.BAD: asyncio.Semaphore(LOOKUPS_MAX // 4),
        }
        self._names: dict[str, _Name] = {}

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """The addresses of a name. Raises OSError, or RuntimeError if no thread can start."""
        room = self._room[self._names.get(host, _Name.NEW)]
        await room.acquire()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[_Found] = loop.create_future()

        def ended(found: _Found, error: Exception | None) -> None:
            room.release()
            self._remember(host, _Name.GOOD if error is None else _Name.BAD)
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

        try:
            Thread(target=look, name="push-resolver", daemon=True).start()
        except BaseException:
            room.release()
            raise
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

    def _remember(self, host: str, name: _Name) -> None:
        self._names.pop(host, None)
        if len(self._names) >= NAMES_MAX:
            del self._names[next(iter(self._names))]
        self._names[host] = name

    async def close(self) -> None:
        """Nothing: lookups under way end by themselves."""
