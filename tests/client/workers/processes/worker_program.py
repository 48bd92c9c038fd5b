"""A worker as a program of its own, for tests that kill it; see `main` for its arguments.

Its handler writes a line into the book when it begins and when it has ended, each by one write, so
that what is in the book was done, whatever happens next. It prints `ready` when it runs. A body of
`block` holds up the thread, or the loop, for ever.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import Any

from delaylog.client import AsyncClient, Client, Message


def main(
    kind: str, url: str, namespace: str, book: str, lease_ms: str, handler_ms: str, grace_s: str
) -> None:
    """Consume until a signal comes."""
    lines = os.open(book, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    members: dict[str, Any] = {
        "lease_ms": int(lease_ms),
        "concurrency": 4,
        "grace_s": float(grace_s),
    }

    def write(word: str, message: Message) -> None:
        os.write(lines, f"{word} {message.id} {message.lease}\n".encode())

    def block(message: Message) -> None:
        while message.text == "block":
            time.sleep(0.05)

    if kind == "threads":
        client = Client(url, namespace=namespace)

        @client.consumer("t", **members)
        def handle(message: Message) -> None:
            write("begin", message)
            block(message)
            time.sleep(float(handler_ms) / 1000)
            write("end", message)

        print("ready", flush=True)
        with client:
            client.run()
        return

    async def run() -> None:
        async with AsyncClient(url, namespace=namespace) as client:

            @client.consumer("t", **members)
            async def handle(message: Message) -> None:
                write("begin", message)
                block(message)
                await asyncio.sleep(float(handler_ms) / 1000)
                write("end", message)

            print("ready", flush=True)
            await client.run()

    asyncio.run(run())


if __name__ == "__main__":
    main(*sys.argv[1:])
