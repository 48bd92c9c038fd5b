"""Streams and clients that mean harm, or fail: hostile frames, slow readers, cut connections.

A hostile frame ends its own stream with a documented code, and nothing else: the fixture's broker
must have logged no error at the end. Cut streams lose nothing, and deliver nothing a second time
before its lease has ended.
"""

from __future__ import annotations

import asyncio
import base64
import os
import random
import socket
import struct
import time
import zlib
from typing import Any

import msgpack
import pytest

from tests.broker.web.streams import path_of, streaming
from tests.waiting import await_that

CLOSE, TEXT, BINARY, PING, PONG, MORE = 8, 1, 2, 9, 10, 0
QUICK_BEATS = {"delaylog.broker.streams.websocket.HEARTBEAT_SECONDS": 1.0}


class Raw:
    """A WebSocket of bytes."""

    def __init__(self, broker: Any, topic: str, behind: bytes = b"", **query: Any) -> None:
        self.sock = broker.connect()
        key = base64.b64encode(os.urandom(16)).decode()
        self.sock.sendall(
            f"GET {path_of(topic, **query)} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
            "Sec-WebSocket-Extensions: permessage-deflate\r\n\r\n".encode()
            + behind
        )
        self.data = b""
        while b"\r\n\r\n" not in self.data:
            self.data += self.sock.recv(65_536)
        head, _, self.data = self.data.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head
        self.head = head.lower()

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, opcode: int, payload: bytes, *, fin: bool = True, **bits: Any) -> None:
        self.sock.sendall(frame(opcode, payload, fin=fin, **bits))

    def _take(self, count: int) -> bytes:
        while len(self.data) < count:
            part = self.sock.recv(65_536)
            if not part:
                raise EOFError
            self.data += part
        found, self.data = self.data[:count], self.data[count:]
        return found

    def next(self) -> tuple[int, bytes]:
        """Opcode and payload of the next frame."""
        first, size = self._take(2)
        if size == 126:
            (size,) = struct.unpack(">H", self._take(2))
        elif size == 127:
            (size,) = struct.unpack(">Q", self._take(8))
        return first & 15, self._take(size)

    def drain(self) -> None:
        """Read frames, and answer none, until the connection ends. Raises EOFError."""
        while True:
            self.next()

    def close_code(self) -> int:
        """The code of the broker's close frame, which has a reason too."""
        while True:
            opcode, payload = self.next()
            if opcode == CLOSE:
                assert payload[2:].decode()
                return int.from_bytes(payload[:2], "big")


def frame(
    opcode: int, payload: bytes, *, fin: bool = True, masked: bool = True, reserved: int = 0
) -> bytes:
    """A frame as a client sends it."""
    first = (fin << 7) | reserved | opcode
    size = len(payload)
    mask_bit = 0x80 if masked else 0
    if size < 126:
        head = bytes([first, mask_bit | size])
    elif size < 1 << 16:
        head = bytes([first, mask_bit | 126]) + struct.pack(">H", size)
    else:
        head = bytes([first, mask_bit | 127]) + struct.pack(">Q", size)
    if not masked:
        return head + payload
    mask = b"\x01\x02\x03\x04"
    spread = (mask * (size // 4 + 1))[:size]
    mixed = int.from_bytes(payload, "big") ^ int.from_bytes(spread, "big")
    return head + mask + mixed.to_bytes(size, "big")


BOMB = zlib.compress(b"[" * 10_000_000)
FRAMES: dict[str, tuple[bytes, int]] = {
    "too large": (frame(TEXT, b"x" * ((1 << 20) + 1)), 1009),
    "a length of 2**63": (bytes([0x82, 0xFF]) + b"\xff" * 8 + b"mask", 1009),
    "too large in fragments": (
        frame(TEXT, b"x" * (1 << 19), fin=False) + frame(MORE, b"x" * (1 << 20)),
        1009,
    ),
    "no UTF-8": (frame(TEXT, b'{"ack": "\xff"}'), 1007),
    "compressed": (frame(TEXT, BOMB[:1_000], reserved=0x40), 1002),
    "a reserved bit": (frame(TEXT, b"{}", reserved=0x20), 1002),
    "a continuation of nothing": (frame(MORE, b"x"), 1002),
    "a fragmented ping": (frame(PING, b"", fin=False), 1002),
    "an unknown opcode": (frame(5, b""), 1002),
    "a long ping": (frame(PING, b"x" * 126), 1002),
    "a close frame of one byte": (frame(CLOSE, b"x"), 1002),
    "no JSON": (frame(TEXT, b"{"), 4400),
    "deep JSON": (frame(TEXT, b"[" * 100_000), 4400),
    "wide JSON": (frame(TEXT, b"[" + b"[]," * 340_000 + b"0]"), 4413),
    "no object": (frame(TEXT, b"[]"), 4400),
    "no member": (frame(TEXT, b"{}"), 4400),
    "two members": (frame(TEXT, b'{"stop": {}, "credit": {}}'), 4400),
    "an unknown frame": (frame(TEXT, b'{"die": {}}'), 4400),
    "an unknown member": (frame(TEXT, b'{"credit": {"x": 1}}'), 4400),
    "negative credit": (frame(TEXT, b'{"credit": {"messages": -1}}'), 4400),
    "endless credit": (frame(TEXT, b'{"credit": {"bytes": 1000000000000000}}'), 4400),
    "fractions of credit": (frame(TEXT, b'{"credit": {"messages": 0.5}}'), 4400),
    "no receipts": (frame(TEXT, b'{"ack": {}}'), 4400),
    "no receipt": (frame(TEXT, b'{"ack": {"receipts": ["x"]}}'), 4400),
    "a delay of an ack": (frame(TEXT, b'{"ack": {"receipts": [], "delay_ms": 1}}'), 4400),
    "no msgpack": (frame(BINARY, b"\xc1"), 4400),
    "a map of 2**32 items": (frame(BINARY, b"\xdf\xff\xff\xff\xff"), 4400),
    "an array of 2**32 items": (frame(BINARY, b"\x81\xa3ack\xdd\xff\xff\xff\xff"), 4400),
    "columns that are none": (
        frame(BINARY, msgpack.packb({"ack": {"lease": 1, "refs": b"x"}})),
        4400,
    ),
    "columns of another version": (
        frame(BINARY, msgpack.packb({"ack": {"v": 2, "lease": 1, "all": True}})),
        4400,
    ),
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_hostile_frame_ends_its_stream(broker: Any, topic: str, name: str) -> None:
    wire, code = FRAMES[name]
    with Raw(broker, topic) as raw:
        raw.sock.sendall(wire)
        assert raw.close_code() == code
    broker.await_metric("delaylog_streams", 0)


def test_credit_that_adds_up_to_too_much(broker: Any, topic: str) -> None:
    with Raw(broker, topic) as raw:
        for _ in range(3):
            raw.send(TEXT, b'{"credit": {"messages": 400000}}')
        assert raw.close_code() == 4400


def test_compression_is_not_offered(broker: Any, topic: str) -> None:
    with Raw(broker, topic) as raw:
        assert b"sec-websocket-extensions" not in raw.head


def test_fragments_with_a_ping_between_them(broker: Any, topic: str) -> None:
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x"})
    with Raw(broker, topic, messages=0) as raw:
        raw.send(TEXT, b'{"credit": {"mess', fin=False)
        raw.send(PING, b"here?")
        raw.send(MORE, b'ages": 1}}')
        got = [raw.next() for _ in range(3)]
        assert (PONG, b"here?") in got
        assert any(b'"messages":[' in payload for _, payload in got)


@pytest.mark.parametrize("opcode", [PING, PONG])
def test_a_flood_of_pings_ends_its_stream(broker: Any, topic: str, opcode: int) -> None:
    """Each is answered up to the burst, and no further one is read."""
    with Raw(broker, topic) as raw:
        raw.sock.sendall(frame(opcode, b"x") * 5_000)
        pongs = 0
        while (got := raw.next())[0] != CLOSE:
            pongs += got == (PONG, b"x")
        assert got[1][2:] == b"quota: a stream takes 10 pings or pongs a second"
        assert int.from_bytes(got[1][:2], "big") == 4429
        # Some more tokens are earned while they are read.
        assert pongs in range(100, 200) if opcode == PING else pongs == 0


def test_a_message_of_endless_fragments_ends_its_stream(broker: Any, topic: str) -> None:
    """Empty ones, which no limit of a message's size counts."""
    with Raw(broker, topic) as raw:
        raw.send(TEXT, b"", fin=False)
        raw.sock.sendall(frame(MORE, b"", fin=False) * 700_000)
        assert raw.close_code() == 4400


def test_whole_frames_may_have_more_together(broker: Any, topic: str) -> None:
    wire = frame(TEXT, b'{"credit":{}' + b" " * 500_000 + b"}")
    with Raw(broker, topic) as raw:
        for _ in range(10):
            raw.sock.sendall(wire)
        raw.send(PING, b"still here")
        while raw.next() != (PONG, b"still here"):
            pass


def test_frames_behind_the_handshake_are_read(broker: Any, topic: str) -> None:
    with Raw(broker, topic, frame(PING, b"here?") + frame(TEXT, b'{"ack"')[:5]) as raw:
        raw.sock.sendall(frame(TEXT, b'{"ack"')[5:])
        while raw.next() != (PONG, b"here?"):
            pass
        assert raw.close_code() == 4400


def test_an_unmasked_frame_does_no_harm(broker: Any, topic: str) -> None:
    """aiohttp reads it; masks protect proxies, not this server."""
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x"})
    with Raw(broker, topic, messages=0) as raw:
        raw.send(TEXT, b'{"credit": {"messages": 1}}', masked=False)
        assert raw.next()[0] == TEXT
        assert b'"messages":[' in raw.next()[1]


def test_frames_drip_byte_by_byte(broker: Any, topic: str) -> None:
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x"})
    with Raw(broker, topic, messages=0) as raw:
        for byte in frame(TEXT, b'{"credit": {"messages": 1}}'):
            raw.sock.sendall(bytes([byte]))
            time.sleep(0.002)
        raw.next()
        assert b'"messages":[' in raw.next()[1]


# --------------------------------------------------------------------------- slow and silent ones


def test_a_reader_that_reads_nothing_costs_one_frame(sound_broker: Any) -> None:
    """Credit for 64 MiB, and 64 MiB ready: the broker leases what the kernel takes and a frame."""
    broker = sound_broker()
    body = "x" * 10_000
    for _ in range(64):
        broker.post("/v1/topics/slow/messages", [{"body": body}] * 100)
    with Raw(broker, "slow", messages=10_000, bytes=64 << 20, form="bulk") as raw:
        raw.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        before = broker.memory_bytes("VmRSS")
        leased = -1
        while leased != (leased := broker.counts("slow")["leased"]):
            time.sleep(0.5)
        # What the kernel buffers on both sides of a local connection is some megabytes.
        assert leased < 1_500, leased
        assert broker.memory_bytes("VmRSS") - before < 16 << 20
    broker.await_metric("delaylog_streams", 0)


@pytest.mark.parametrize("reads", [True, False])
def test_a_client_that_answers_no_ping_is_gone(sound_broker: Any, reads: bool) -> None:
    """Half-open: the peer is silent, or does not even read. Its leases end by themselves."""
    broker = sound_broker(constants=QUICK_BEATS)
    broker.post("/v1/topics/t/messages", [{"body": "x" * 10_000}] * 2_000)
    with Raw(broker, "t", messages=2_000, bytes=64 << 20, lease_ms=3_000) as raw:
        if reads:
            raw.sock.settimeout(20)
            with pytest.raises((EOFError, ConnectionError)):
                raw.drain()
        broker.await_metric("delaylog_streams", 0)
        assert broker.counts("t")["acked"] == 0
        await_that(lambda: broker.counts("t")["leased"] == 0)


def test_a_flood_of_settling_frames_is_read_at_the_brokers_pace(broker: Any, topic: str) -> None:
    """Frames beyond those in progress wait in the socket; each is counted once."""
    wire = frame(TEXT, b'{"ack": {"receipts": ["%s"]}}' % (b"0" * 32))
    count = 5_000
    with Raw(broker, topic) as raw:
        raw.sock.sendall(wire * count)
        settled = gone = 0
        while settled < count:
            _, payload = raw.next()
            if b'"settled"' in payload:
                settled = int(payload.rpartition(b":")[2].rstrip(b"}"))
            gone += b'"gone"' in payload
        assert gone == count


# --------------------------------------------------------------------------- cut connections


async def test_streams_that_are_cut_lose_nothing(broker: Any, topic: str) -> None:
    """Four consumers, each cut every few hundred ms, in order or not, some acks unsent.

    Every message is acked by someone; one that was acked with an answer is never seen again, and
    no message is delivered a second time before its lease has ended.
    """
    count, lease_ms = 2_000, 2_000
    rng = random.Random(11)
    topics = f"/v1/topics/{topic}"
    broker.call("PUT", topics, {"backoff": {"first_ms": 0, "jitter": 0}, "max_retry": 1_000})
    for start in range(0, count, 500):
        broker.post(f"{topics}/messages", [{"body": str(n)} for n in range(start, start + 500)])
    leases: dict[str, tuple[int, int]] = {}
    """By body the newest lease, from and until, in milliseconds: nobody else may get the message.
    By the broker's times, since a stream may be read late, after one that got the message later.
    """
    acked: dict[str, int] = {}
    """Acks whose outcome was told, and good: by body the begin of the lease."""
    early: list[str] = []
    finished = asyncio.Event()

    async def consume(seed: int) -> None:
        chance = random.Random(seed)
        while not finished.is_set():
            async with streaming(
                broker, topic, messages=20, bytes=1 << 20, lease_ms=lease_ms
            ) as stream:
                cut_s = time.monotonic() + chance.uniform(0.1, 0.4)
                sent: list[list[dict[str, Any]]] = []
                gone: set[str] = set()
                while (left_s := cut_s - time.monotonic()) > 0:
                    try:
                        async with asyncio.timeout(left_s):
                            found = await stream.frame()
                    except TimeoutError:
                        break
                    if "messages" in found:
                        for each in found["messages"]:
                            body, until_ms = each["body"], each["lease_until_ms"]
                            from_ms = until_ms - lease_ms
                            other_from_ms, other_until_ms = leases.get(body, (0, 0))
                            overlaps = from_ms < other_until_ms and other_from_ms < until_ms
                            if overlaps or from_ms > acked.get(body, from_ms):
                                early.append(body)
                            leases[body] = max((from_ms, until_ms), (other_from_ms, other_until_ms))
                        await stream.ack(found["messages"])
                        sent.append(found["messages"])
                        await stream.send(
                            credit={"messages": len(found["messages"]), "bytes": found["bytes"]}
                        )
                    gone |= set(found.get("gone", ()))
                    for batch in sent[: found.get("settled", 0)]:
                        acked.update(
                            (each["body"], each["lease_until_ms"] - lease_ms)
                            for each in batch
                            if each["receipt"] not in gone
                        )
                if chance.random() < 0.7:
                    stream.break_off()
                else:
                    # In order: all its leases end now.
                    for batch in sent:
                        for each in batch:
                            leases.pop(each["body"], None)
                    await stream.socket.close()
            await asyncio.sleep(chance.uniform(0, 0.05))

    async def watch() -> None:
        """The outcome of an ack may be cut off, so only the broker knows the end."""
        for _ in range(1_200):
            if (await asyncio.to_thread(broker.counts, topic))["acked"] == count:
                break
            await asyncio.sleep(0.1)
        finished.set()

    async with asyncio.timeout(150):
        await asyncio.gather(watch(), *(consume(rng.randrange(1 << 30)) for _ in range(4)))
    counts = broker.counts(topic)
    assert counts["acked"] == count, counts
    assert early == []
