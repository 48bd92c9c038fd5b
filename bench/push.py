"""Pushes to a local receiver beside the floor of aiohttp's client, and beside targets that hang.

`python bench/push.py rate`: messages that are ready, pushed to one target; and the same number of
POSTs by a bare `aiohttp.ClientSession`. `python bench/push.py hang`: how late ten targets get their
messages, alone and beside a thousand targets that never answer. The receiver is a process of its
own: an asyncio protocol that reads `Content-Length` and answers 200.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, cast

import aiohttp
import uvloop
from broker_process import Brokers, ServerProcess, broker_program

from delaylog.client import PlainClient

ANSWER: Final = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
BODY_BYTES: Final = 100
HEADERS: Final = {
    "content-type": "text/plain; charset=utf-8",
    "ce-specversion": "1.0",
    "ce-id": "~3ce3d80100000001",
    "ce-source": "/v1/ns/default/topics/t",
    "ce-type": "delaylog.message",
    "ce-deliverat": "2026-11-26T12:00:00.000Z",
    "ce-attempt": "1",
    "webhook-id": "~3ce3d80100000001",
    "webhook-timestamp": "1795694400",
    "webhook-signature": "v1," + "A" * 44,
}
"""What a push has, so that a floor writes as many bytes."""
HEALTHY: Final = 10
SEND_MANY: Final = 1_000


class Receiving(asyncio.Protocol):
    """One connection. A path `/hang` is never answered; a body is the due time in ms."""

    late_ms: Final[list[float]] = []
    count = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        # uvloop's transports do not derive from asyncio's.
        self._transport, self._buffer = cast("asyncio.Transport", transport), b""

    def data_received(self, data: bytes) -> None:
        """Answer each whole request."""
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            at = head.find(b"content-length: ")
            size = int(head[at + 16 :].split(b"\r", 1)[0]) if at >= 0 else 0
            if len(self._buffer) < end + 4 + size:
                return
            body, self._buffer = (
                self._buffer[end + 4 : end + 4 + size],
                self._buffer[end + 4 + size :],
            )
            if head.startswith(b"get /stats"):
                said = json.dumps([Receiving.count, sorted(Receiving.late_ms)]).encode()
                Receiving.late_ms.clear()
                Receiving.count = 0
                lines = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(said)
                self._transport.write(lines + said)
            elif not head.startswith(b"post /hang"):
                Receiving.count += 1
                Receiving.late_ms.append(time.time() * 1_000 - int(body.strip(b"\0 ") or 0))
                self._transport.write(ANSWER)


async def receive() -> None:
    """The receiver's process."""
    server = await asyncio.get_running_loop().create_server(
        Receiving, "127.0.0.1", 0, backlog=4_096
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def receiver() -> Iterator[int]:
    """A receiver's port."""
    program = [sys.executable, __file__, "receive"]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


async def _stats(session: aiohttp.ClientSession, port: int) -> tuple[int, list[float]]:
    async with session.get(f"http://127.0.0.1:{port}/stats") as answer:
        count, late_ms = json.loads(await answer.read())
        return count, late_ms


async def _floor(
    port: int, count: int, concurrency: int, headers: dict[str, str]
) -> tuple[float, float]:
    """(POSTs a second by a bare client, its processor time for each in us)."""
    left = count
    body = b"0" * BODY_BYTES
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector) as session:

        async def send() -> None:
            nonlocal left
            while left > 0:
                left -= 1
                url = f"http://127.0.0.1:{port}/"
                async with session.post(url, data=body, headers=headers) as answer:
                    await answer.read()

        began, cpu_s = time.monotonic(), time.process_time()
        await asyncio.gather(*(send() for _ in range(concurrency)))
        seconds = time.monotonic() - began
        return count / seconds, (time.process_time() - cpu_s) / count * 1e6


async def _pushed(
    broker: ServerProcess, port: int, count: int, concurrency: int
) -> tuple[float, float]:
    """(pushes a second, processor time of the broker for each in us)."""
    with PlainClient(f"http://127.0.0.1:{broker.port}") as client:
        for _ in range(0, count, SEND_MANY):
            client.send_many("t", [{"body": "0" * BODY_BYTES}] * SEND_MANY)
        cpu_s = broker.cpu_seconds()
        url = f"http://127.0.0.1:{port}/"
        began = time.monotonic()
        client.put_target("t", "default", url, concurrency=concurrency)
        got = 0
        async with aiohttp.ClientSession() as session:
            while got < count:
                await asyncio.sleep(0.05)
                got += (await _stats(session, port))[0]
        seconds = time.monotonic() - began
        return count / seconds, (broker.cpu_seconds() - cpu_s) / count * 1e6


async def rate(brokers: Brokers, count: int, rounds: int) -> None:
    """Pushes of ready messages to one target, and the floors, by turns."""
    for concurrency in (10, 50, 200):
        found: dict[str, list[tuple[float, float]]] = {}
        for _ in range(rounds):
            for name, headers in (("bare aiohttp", {}), ("with a push's headers", HEADERS)):
                with receiver() as port:
                    made = await _floor(port, count, concurrency, headers)
                found.setdefault(name, []).append(made)
            with receiver() as port, brokers.fresh(*_options(port)) as broker:
                made = await _pushed(broker, port, count, concurrency)
            found.setdefault("pushes", []).append(made)
        middle = {
            name: [median(column) for column in zip(*rows, strict=True)]
            for name, rows in found.items()
        }
        texts = [f"{name} {each:,.0f}/s ({us:,.0f} us)" for name, (each, us) in middle.items()]
        print(f"concurrency {concurrency:>3}: {', '.join(texts)}", flush=True)


def _options(port: int) -> list[str]:
    return ["--push-allow", "127.0.0.0/8", "--push-ports", str(port)]


async def hang(brokers: Brokers, count: int, seconds: int, rounds: int) -> None:
    """Lateness at healthy targets, alone and beside `count` that hang, by turns."""
    found: dict[int, list[tuple[float, ...]]] = {0: [], count: []}
    for _ in range(rounds):
        for dead, rows in found.items():
            with receiver() as port, brokers.fresh(*_options(port)) as broker:
                late_ms, cpu_s = await _healthy(broker, port, dead, seconds)
            p50, p99 = (late_ms[int(len(late_ms) * share)] for share in (0.5, 0.99))
            rows.append((len(late_ms), p50, p99, late_ms[-1], cpu_s))
            print(dead, rows[-1], file=sys.stderr)
    for dead, rows in found.items():
        got, p50, p99, longest, cpu_s = (median(column) for column in zip(*rows, strict=True))
        print(
            f"{dead:>5} targets that hang: {got:,.0f} pushes to {HEALTHY} healthy ones, late p50 "
            f"{p50:.1f} ms, p99 {p99:.1f} ms, max {longest:.1f} ms, broker {cpu_s:.1f} s of CPU"
        )


async def _healthy(
    broker: ServerProcess, port: int, dead: int, seconds: int
) -> tuple[list[float], float]:
    """(lateness of each push in ms, in order; processor time of the broker in s)."""
    with PlainClient(f"http://127.0.0.1:{broker.port}") as client:
        for number in range(dead):
            client.send_many(f"bad{number}", [{"body": "0", "max_retry": 100}] * 5)
            client.put_target(f"bad{number}", "default", f"http://127.0.0.1:{port}/hang")
        for number in range(HEALTHY):
            client.put_target(f"good{number}", "default", f"http://127.0.0.1:{port}/good")
            first_ms = time.time_ns() // 1_000_000 + 3_000
            due_ms = [first_ms + 50 * step + number * 5 for step in range(seconds * 20)]
            messages = [{"body": str(due), "deliver_at_ms": due} for due in due_ms]
            client.send_many(f"good{number}", messages)
        async with aiohttp.ClientSession() as session:
            late_ms: list[float] = []
            until = time.monotonic() + seconds + 20
            while len(late_ms) < seconds * 20 * HEALTHY and time.monotonic() < until:
                await asyncio.sleep(1)
                late_ms += (await _stats(session, port))[1]
    return sorted(late_ms), broker.cpu_seconds()


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("rate", "hang", "receive"))
    parser.add_argument("--count", type=int, help="messages, or targets that hang")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each kind, by turns")
    parser.add_argument("--seconds", type=int, default=30, help="length of a run of `hang`")
    args = parser.parse_args()
    if args.what == "receive":
        uvloop.run(receive())
        return
    with TemporaryDirectory(prefix="delaylog-bench-", dir="/var/tmp") as folder:
        brokers = Brokers(broker_program(), Path(folder))
        if args.what == "rate":
            uvloop.run(rate(brokers, args.count or 20_000, args.rounds))
        else:
            uvloop.run(hang(brokers, args.count or 1_000, args.seconds, args.rounds))


if __name__ == "__main__":
    main()
