"""A wire that loses answers: a TCP proxy that cuts connections just when a broker answers.

A broker that is killed loses an answer only if it dies between its disk and its socket, which is
rare. Behind this wire it is not: requests always reach the broker whole, and a share of the
answers is dropped with their connection. So whatever is repeated has been carried out already.
"""

from __future__ import annotations

import asyncio
from random import Random
from typing import Final, Self

CHUNK_BYTES: Final = 1 << 16
DONE: Final = b"HTTP/1.1 2"


class Asked:
    """What a connection was last asked; it carries one request at a time."""

    is_send = False

    def note(self, chunk: bytes) -> None:
        """Look at bytes on their way to the broker."""
        line = chunk.partition(b"\r\n")[0]
        if line.endswith(b" HTTP/1.1"):
            self.is_send = line.startswith(b"POST ") and b"/messages " in line


class LossyWire:
    """Listens on a free port of loopback for one broker's port, for as long as the block lasts."""

    def __init__(self, port: int, *, share: float, seed: int) -> None:
        """`share` of the chunks that come back are lost."""
        self.lost = 0
        self.lost_sends = 0
        """Of those, answers to sends that were carried out."""
        self.share = share
        self._port = port
        self._random = Random(seed)
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    @property
    def url(self) -> str:
        """Where clients find it."""
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for writer in list(self._open):
            writer.transport.abort()
        await self._server.wait_closed()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        ends = (writer, back)
        self._open.update(ends)
        asked = Asked()
        try:
            await asyncio.gather(
                self._pump(reader, back, ends, asked, lossy=False),
                self._pump(there, writer, ends, asked, lossy=True),
            )
        finally:
            self._open.difference_update(ends)

    async def _pump(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        ends: tuple[asyncio.StreamWriter, ...],
        asked: Asked,
        *,
        lossy: bool,
    ) -> None:
        try:
            while chunk := await source.read(CHUNK_BYTES):
                if not lossy:
                    asked.note(chunk)
                elif self._random.random() < self.share:
                    self.lost += 1
                    self.lost_sends += asked.is_send and chunk.startswith(DONE)
                    return
                target.write(chunk)
                await target.drain()
        except OSError:
            return
        finally:
            # Whichever way it ended, there is no wire any more.
            for each in ends:
                each.transport.abort()
