"""Names of receivers by the system's resolver, on threads of their own.

The number of threads is bounded. Names that had an address at their last look-up, new names, and
names that had none wait for threads apart, so that dead name servers stop no name that works.
"""

from __future__ import annotations

import asyncio
import socket
from enum import Enum
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

from delaylog.broker.host.system.name_lookup import Found, look_up

LOOKUPS_MAX: Final = 64
"""Look-ups at one time: half for names that had an address, a quarter each for new and bad ones."""
NAMES_MAX: Final = 10_000
"""Names whose last look-up is remembered."""


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
        try:
            looking = look_up(host, port, family, socket.AI_ADDRCONFIG)
        except BaseException:
            room.release()
            raise

        def ended(looked: asyncio.Future[Found]) -> None:
            room.release()
            self._remember(host, _Name.GOOD if looked.exception() is None else _Name.BAD)

        looking.add_done_callback(ended)
        return [
            ResolveResult(
                hostname=host,
                host=address[0],
                port=address[1],
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in await asyncio.shield(looking)
        ]

    def _remember(self, host: str, name: _Name) -> None:
        self._names.pop(host, None)
        if len(self._names) >= NAMES_MAX:
            del self._names[next(iter(self._names))]
        self._names[host] = name

    async def close(self) -> None:
        """Nothing: lookups under way end by themselves."""
