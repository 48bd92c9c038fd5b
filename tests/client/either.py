"""Both clients behind one face, so that a scene is written once: `Client` runs in threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Self

from delaylog.client import AsyncClient, Client

_AT_ONCE = ("broker", "shards", "mismatched", "producer")


class ThreadedClient:
    """`Client` with the methods of AsyncClient: each call in a thread, lists read in one."""

    def __init__(self, *endpoints: Any, **options: Any) -> None:
        self.inner = Client(*endpoints, **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name in _AT_ONCE:
            return found
        if name in ("messages", "dead"):
            return lambda *given, **options: _listed(found(*given, **options))

        async def call(*given: Any, **options: Any) -> Any:
            return await asyncio.to_thread(found, *given, **options)

        return call

    @asynccontextmanager
    async def transaction(self, *given: Any, **options: Any) -> AsyncIterator[Any]:
        """A transaction of the client, its steps in threads."""
        inner = self.inner.transaction(*given, **options)
        await asyncio.to_thread(inner.__enter__)
        error: BaseException | None = None
        try:
            yield _Staging(inner)
        except BaseException as raised:
            error = raised
            raise
        finally:
            await asyncio.to_thread(inner.__exit__, error and type(error), error, None)


class _Staging:
    def __init__(self, inner: Any) -> None:
        self.id = inner.id
        self._inner = inner

    async def stage(self, *given: Any, **options: Any) -> Any:
        """One body."""
        return await asyncio.to_thread(self._inner.stage, *given, **options)


async def _listed(found: Iterator[Any]) -> AsyncIterator[Any]:
    for each in await asyncio.to_thread(list, found):
        yield each


CLIENTS = [AsyncClient, ThreadedClient]
