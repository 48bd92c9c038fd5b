"""PlainClient as if it were AsyncPlainClient, so that one test asks both: each call in a thread."""

from __future__ import annotations

import asyncio
from typing import Any, Self

from delaylog.client import PlainClient


class Threaded:
    """Its methods are coroutines; each runs the method of that name in a thread."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._client = PlainClient(*arguments, **options)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            return await asyncio.to_thread(method, *arguments, **options)

        return call
