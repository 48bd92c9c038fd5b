"""The requests of the bench as ready bytes: bulk sends, receives, acks, single sends.

Encoded here by hand, with msgpack and nothing of the server's, so that the bench can talk to any
build. The one rule: whatever does not change from request to request is packed once; a bulk send
is three pieces, of which only the due times differ.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgpack
import numpy as np
import numpy.typing as npt
from load import Buffer, LoadError

BULK_TYPE: Final = "application/vnd.delaylog.batch"


def http_request(method: str, path: str, body_bytes: int, *, content: str, accept: str) -> bytes:
    """The head of a keep-alive request."""
    return (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content}\r\n"
        f"Accept: {accept}\r\nContent-Length: {body_bytes}\r\n\r\n"
    ).encode()


def json_request(path: str, body: bytes, *, accept: str = "application/json") -> bytes:
    """A whole request with a JSON body."""
    head = http_request("POST", path, len(body), content="application/json", accept=accept)
    return head + body


class SendTemplate:
    """A bulk send of n messages whose due times are put in later."""

    def __init__(
        self,
        topic: str,
        n: int,
        bodies: bytes,
        sizes: int | npt.NDArray[np.uint32],
        columns: Mapping[str, int | bytes] | None = None,
    ):
        self.n = n
        packer = msgpack.Packer()
        more = dict(columns or {})
        start = packer.pack_map_header(5 + len(more))
        fixed = {"v": 1, "n": n, "body_size": _column(sizes)}
        for key, value in (fixed | more).items():
            start += packer.pack(key) + packer.pack(value)
        start += packer.pack("deliver_at_ms") + _bytes_header(8 * n)
        self._end: bytes = packer.pack("bodies") + packer.pack(bodies)
        self.body_bytes = len(start) + 8 * n + len(self._end)
        head = http_request(
            "POST",
            f"/v1/topics/{topic}/messages",
            self.body_bytes,
            content=BULK_TYPE,
            accept=BULK_TYPE,
        )
        self._body_start: bytes = start
        self._start = head + start

    def body(self, dues: bytes) -> bytes:
        """The request's body alone, for clients that write their own head."""
        return self._body_start + dues + self._end

    def pieces(self, dues: Buffer) -> Sequence[Buffer]:
        """The request for these n due times (little-endian int64)."""
        assert len(dues) == 8 * self.n, "as many due times as messages"
        return (self._start, dues, self._end)


def even_template(
    topic: str, n: int, body_size: int, columns: Mapping[str, int | bytes] | None = None
) -> SendTemplate:
    """A template whose bodies are all of one size; `columns` are packed as they are."""
    text = bytes(range(97, 123)) * (n * body_size // 26 + 1)
    return SendTemplate(topic, n, text[: n * body_size], body_size, columns)


def uneven_template(topic: str, n: int, low: int, high: int, seed: int) -> SendTemplate:
    """A template whose body sizes are spread evenly over [low, high]."""
    sizes = np.random.default_rng(seed).integers(low, high + 1, n).astype("<u4")
    total = int(sizes.sum())
    text = bytes(range(97, 123)) * (total // 26 + 1)
    return SendTemplate(topic, n, text[:total], sizes)


def receive_request(
    topic: str, *, rows_max: int, wait_ms: int, lease_ms: int = 60_000, **members: Any
) -> bytes:
    """A receive that wants its messages as columns."""
    members |= {"max": rows_max, "wait_ms": wait_ms, "lease_ms": lease_ms}
    body = json.dumps(members).encode()
    return json_request(f"/v1/topics/{topic}/receive", body, accept=BULK_TYPE)


class AckTemplate:
    """Acks of everything under one lease, as fixed-size requests."""

    def __init__(self, topic: str) -> None:
        packer = msgpack.Packer()
        before = packer.pack_map_header(3) + packer.pack("v") + packer.pack(1)
        before += packer.pack("all") + packer.pack(True) + packer.pack("lease") + b"\xcf"
        head = http_request(
            "POST",
            f"/v1/topics/{topic}/ack",
            len(before) + 8,
            content=BULK_TYPE,
            accept=BULK_TYPE,
        )
        self._start: bytes = head + before

    def request(self, lease: int) -> bytes:
        """The request for one lease; the lease is always packed as a uint64."""
        return self._start + lease.to_bytes(8, "big")


def unpack(body: Buffer) -> dict[str, Any]:
    """A bulk answer as a dict of scalars and bytes."""
    try:
        fields = msgpack.unpackb(body)
    except (ValueError, msgpack.UnpackException) as error:
        raise LoadError(f"not a msgpack answer ({error}): {bytes(body[:200])!r}") from None
    if not isinstance(fields, dict) or "n" not in fields:
        raise LoadError(f"not a bulk answer: {bytes(body[:200])!r}")
    return fields


def int64_column(fields: dict[str, Any], name: str) -> npt.NDArray[np.int64]:
    """A column of an answer: raw bytes, or one number for all rows."""
    value = fields[name]
    if isinstance(value, int):
        return np.full(fields["n"], value, np.int64)
    return np.frombuffer(value, "<i8")


def _column(values: int | npt.NDArray[Any]) -> int | bytes:
    return values if isinstance(values, int) else values.tobytes()


def _bytes_header(size: int) -> bytes:
    return b"\xc6" + size.to_bytes(4, "big")
