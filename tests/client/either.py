"""Clients for threads with the methods of those for asyncio, so that one test asks both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any, Self

from delaylog.client import AsyncClient, AsyncPlainClient, Client, PlainClient

_AT_ONCE = ("broker", "shards", "mismatched", "producer")


class _Threaded:
    """Methods of the inner client as coroutines: each call runs in a thread."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name in _AT_ONCE:
            return found
        if name in ("browse", "dead"):
            return lambda *given, **options: _listed(found(*given, **options))

        async def call(*given: Any, **options: Any) -> Any:
            return await asyncio.to_thread(found, *given, **options)

        return call


class ThreadedPlainClient(_Threaded):
    """`PlainClient` with the methods of AsyncPlainClient."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(PlainClient(*given, **options))


class ThreadedClient(_Threaded):
    """`Client` with the methods of AsyncClient; lists are read in one call."""

    def __init__(self, *endpoints: Any, **options: Any) -> None:
        super().__init__(Client(*endpoints, **options))

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
PLAIN_CLIENTS = [AsyncPlainClient, ThreadedPlainClient]
