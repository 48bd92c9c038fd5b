"""Looks names of hosts up by the system's resolver, each on a thread of its own.

A name whose server does not answer occupies a thread for as long as the system tries. The threads
are daemons: the process ends without waiting for them, which no executor of the standard library
allows. The caller bounds their number.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from threading import Thread
from typing import Any, Final, TypeAlias

Found: TypeAlias = "list[tuple[Any, ...]]"
"""Tuples as those of `socket.getaddrinfo`."""
KEEP_SECONDS: Final = 1.0
"""How long an answer is used again: a dial that fails is repeated several times a second."""


def look_up(
    host: str, port: int, family: int = socket.AF_UNSPEC, flags: int = 0
) -> asyncio.Future[Found]:
    """The addresses of a name, or an OSError. Cancelling the future does not end the thread.

    Raises RuntimeError if no thread can start.
    """
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[Found] = loop.create_future()

    def ended(found: Found, error: Exception | None) -> None:
        if answer.done():
            # Nobody waits for it any more.
            return
        if error is None:
            answer.set_result(found)
        else:
            answer.set_exception(error)

    def look() -> None:
        found: Found = []
        failure: Exception | None = None
        try:
            found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM, 0, flags)
        except UnicodeError as error:
            # A label of the name is empty, or too long for a name server.
            failure = socket.gaierror(socket.EAI_NONAME, str(error))
        except Exception as error:
            failure = error
        # The loop may have been closed meanwhile.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(ended, found, failure)

    Thread(target=look, name="names", daemon=True).start()
    return answer


class Names:
    """The addresses of a few hosts, by one look-up of a name at a time; an answer serves for
    KEEP_SECONDS.
    """

    def __init__(self) -> None:
        self._looking: dict[tuple[str, int], asyncio.Future[Found]] = {}
        self._known: dict[tuple[str, int], tuple[float, asyncio.Future[Found]]] = {}
        self._hosts: dict[str, frozenset[str]] = {}

    async def addresses(self, host: str, port: int) -> Found:
        """The addresses of a host at present. Raises OSError."""
        key, loop = (host, port), asyncio.get_running_loop()
        known = self._known.get(key)
        if known is not None and loop.time() - known[0] < KEEP_SECONDS:
            return known[1].result()
        looking = self._looking.get(key)
        if looking is None:
            try:
                looking = self._looking[key] = look_up(host, port)
            except RuntimeError as error:
                raise OSError(str(error)) from None
            looking.add_done_callback(lambda done: self._ended(key, loop.time(), done))
        return await asyncio.shield(looking)

    def _ended(self, key: tuple[str, int], now_s: float, looked: asyncio.Future[Found]) -> None:
        del self._looking[key]
        self._known[key] = now_s, looked
        if looked.exception() is None:
            self._hosts[key[0]] = frozenset(str(found[4][0]) for found in looked.result())

    def is_at(self, host: str, address: str) -> bool:
        """Whether a host had this address when it was last looked up."""
        return host == address or address in self._hosts.get(host, ())
