"""A worker as a program of its own, for tests that kill it; see `main` for its arguments.

Its handler writes a line into the book when it begins and when it has ended, each by one write, so
that what is in the book was done, whatever happens next. It prints `ready` when it runs. A body of
`block` holds up the thread, or the loop, for ever; a body of `exit` ends the process.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from datetime import timedelta
from typing import Any

from delaylog.client import AsyncClient, Client, Message


def main(kind: str, url: str, namespace: str, book: str, **members: float) -> None:
    """Consume until a signal comes. `members` are those of the consumer, and `handler_ms`."""
    lines = os.open(book, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    handler_s = members.pop("handler_ms") / 1000
    grace, lease_ms = timedelta(seconds=members.pop("grace_s")), members.pop("lease_ms")
    options: dict[str, Any] = {**members, "grace": grace, "lease": timedelta(milliseconds=lease_ms)}

    def write(word: str, message: Message) -> None:
        os.write(lines, f"{word} {message.id} {message.lease}\n".encode())

    def obey(message: Message) -> None:
        if message.text == "exit":
            os._exit(9)
        while message.text == "block":
            time.sleep(0.05)

    if kind == "threads":
        client = Client(url, namespace=namespace)

        @client.consumer("t", **options)
        def handle(message: Message) -> None:
            write("begin", message)
            obey(message)
            time.sleep(handler_s)
            write("end", message)

        print("ready", flush=True)
        with client:
            client.run()
        return

    async def run() -> None:
        async with AsyncClient(url, namespace=namespace) as client:

            @client.consumer("t", **options)
            async def handle(message: Message) -> None:
                write("begin", message)
                obey(message)
                await asyncio.sleep(handler_s)
                write("end", message)

            print("ready", flush=True)
            await client.run()

    asyncio.run(run())


if __name__ == "__main__":
    main(*sys.argv[1:5], **json.loads(sys.argv[5]))
