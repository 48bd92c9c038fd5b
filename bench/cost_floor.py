"""The least that a durable queue can cost in one Python process: the floor of the section `cost`.

    python bench/cost_floor.py FOLDER

It does only what no broker can leave out: read a request from the socket, parse it, append its
bytes to a file, answer after an fdatasync that all requests of the meantime share, and keep what a
delivery and a settlement need. There is one topic; nothing is checked, indexed or read back, and
due times are ignored. The one rule: a change of this work makes earlier ratios worthless.

    HTTP    POST …/messages {"deliver_at_ms", "body"}, …/receive {"max"}, …/ack {"receipts"}
    RESP    SET key value, DL.SEND topic delay body: answered after the sync. GET key: at once
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
import threading
from collections import deque
from functools import partial
from typing import Any, Final

import hiredis
import orjson
import uvloop

# The file is written over and over within the second size; the space beyond takes the last write.
FILE_BYTES: Final = 256 << 20
WRAP_BYTES: Final = 200 << 20
HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b"
SENT: Final = b'{"messages":[{"id":"%d","deliver_at_ms":0}]}'
ACKED: Final = b'{"results":["acked"]}'


class Log:
    """A file that a thread appends to; a reply leaves after the sync that covers its request."""

    def __init__(self, folder: str) -> None:
        self._descriptor = os.open(f"{folder}/log", os.O_RDWR | os.O_CREAT, 0o600)
        os.posix_fallocate(self._descriptor, 0, FILE_BYTES)
        self._loop = asyncio.get_running_loop()
        self._position = 0
        self._records: list[bytes] = []
        self._replies: list[tuple[asyncio.Transport, bytes]] = []
        self._busy = False
        self._job = (b"", self._replies)
        self._job_is_there = threading.Event()
        threading.Thread(target=self._write, daemon=True).start()

    def append(self, record: bytes) -> None:
        self._records.append(record)

    def reply_when_synced(self, transport: asyncio.Transport, reply: bytes) -> None:
        self._replies.append((transport, reply))
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._hand_over)

    def _hand_over(self) -> None:
        self._job = (b"".join(self._records), self._replies)
        self._records, self._replies = [], []
        self._job_is_there.set()

    def _write(self) -> None:
        while True:
            self._job_is_there.wait()
            self._job_is_there.clear()
            records, replies = self._job
            os.pwrite(self._descriptor, records, self._position)
            self._position = (self._position + len(records)) % WRAP_BYTES
            os.fdatasync(self._descriptor)
            self._loop.call_soon_threadsafe(self._synced, replies)

    def _synced(self, replies: list[tuple[asyncio.Transport, bytes]]) -> None:
        by_transport: dict[asyncio.Transport, list[bytes]] = {}
        for transport, reply in replies:
            by_transport.setdefault(transport, []).append(reply)
        for transport, several in by_transport.items():
            if transport.is_closing():
                continue
            transport.write(several[0] if len(several) == 1 else b"".join(several))
        if self._replies:
            self._hand_over()
        else:
            self._busy = False


class Queue:
    """The messages of one topic: ready in order, or leased."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._count = 0
        self._ready: deque[tuple[int, bytes]] = deque()
        self._leased: dict[int, bytes] = {}

    def answer(self, transport: asyncio.Transport, call: bytes, asked: Any) -> None:
        """Do one call; `call` is the last word of its path."""
        log = self._log
        if call == b"messages":
            for message in asked if type(asked) is list else (asked,):
                self._count += 1
                body = message["body"].encode()
                due_ms = message.get("deliver_at_ms", 0)
                log.append(struct.pack("<qqI", self._count, due_ms, len(body)) + body)
                self._ready.append((self._count, body))
            sent = SENT % self._count
            log.reply_when_synced(transport, HEAD % (len(sent), sent))
        elif call == b"receive":
            messages = []
            for _ in range(min(asked["max"], len(self._ready))):
                number, body = self._ready.popleft()
                self._leased[number] = body
                log.append(struct.pack("<qq", number, -1))
                name = str(number)
                messages.append({"id": name, "receipt": name, "attempt": 1, "body": body.decode()})
            found = orjson.dumps({"messages": messages})
            transport.write(HEAD % (len(found), found))
        else:
            for receipt in asked["receipts"]:
                self._leased.pop(int(receipt), None)
                log.append(struct.pack("<qq", int(receipt), -2))
            log.reply_when_synced(transport, HEAD % (len(ACKED), ACKED))


class Http(asyncio.Protocol):
    """Finds requests; heads are parsed once each, since a client repeats them."""

    def __init__(self, queue: Queue, heads: dict[bytes, tuple[bytes, int]]) -> None:
        self._queue = queue
        self._heads = heads
        self._rest = b""

    # Any: uvloop's transports are no subclasses of asyncio's.
    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport

    def data_received(self, data: bytes) -> None:
        if self._rest:
            data, self._rest = self._rest + data, b""
        while data:
            end = data.find(b"\r\n\r\n") + 4
            if end < 4:
                self._rest = data
                return
            head = data[:end]
            known = self._heads.get(head)
            if known is None:
                size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
                call = head.split(b" ", 2)[1].rsplit(b"/", 1)[1]
                known = self._heads[head] = (call, end + size)
            call, size = known
            if len(data) < size:
                self._rest = data
                return
            asked, data = orjson.loads(data[end:size]), data[size:]
            self._queue.answer(self._transport, call, asked)


class Resp(asyncio.Protocol):
    """Answers the commands of one read together, as the log answers their requests."""

    def __init__(self, log: Log, values: dict[bytes, bytes]) -> None:
        self._log = log
        self._values = values
        self._reader = hiredis.Reader()

    def connection_made(self, transport: Any) -> None:
        self._transport: asyncio.Transport = transport

    def data_received(self, data: bytes) -> None:
        reader, values = self._reader, self._values
        reader.feed(data)
        replies, written = [], False
        while (words := reader.gets()) is not False:
            verb = words[0].upper()
            if verb == b"GET":
                value = values.get(words[1])
                replies.append(
                    b"$-1\r\n" if value is None else b"$%d\r\n%b\r\n" % (len(value), value)
                )
            elif verb == b"SET":
                values[words[1]] = words[2]
                self._log.append(b"%b\0%b\n" % (words[1], words[2]))
                replies.append(b"+OK\r\n")
                written = True
            elif verb == b"DL.SEND":
                self._log.append(b"%b\0%b\0%b\n" % (words[1], words[2], words[3]))
                replies.append(b"$16\r\n0123456789abcdef\r\n")
                written = True
            else:
                replies.append(b"*0\r\n")
        reply = b"".join(replies)
        if written:
            self._log.reply_when_synced(self._transport, reply)
        else:
            self._transport.write(reply)


async def main(folder: str) -> None:
    """Serve until killed."""
    log = Log(folder)
    loop = asyncio.get_running_loop()
    http = await loop.create_server(partial(Http, Queue(log), {}), "127.0.0.1", 0)
    resp = await loop.create_server(partial(Resp, log, {}), "127.0.0.1", 0)
    ports = [server.sockets[0].getsockname()[1] for server in (http, resp)]
    print("ready http=127.0.0.1:{} resp=127.0.0.1:{}".format(*ports), flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(main(*sys.argv[1:]))
