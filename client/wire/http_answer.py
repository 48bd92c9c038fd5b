"""An incremental parser of one HTTP/1.1 answer.

An answer is either complete or an error: an answer that is truncated, too long or not HTTP raises
MalformedAnswer. The body may have a Content-Length, be chunked, or end with the connection. Interim
answers (100 Continue) are skipped. This module reads no sockets.
"""

from __future__ import annotations

import os
import ssl
from enum import IntEnum
from typing import Final

HEAD_BYTES_MAX: Final = 64 << 10
CHUNK_LINE_MAX: Final = 1 << 10
ANSWER_BYTES_MAX: Final = 512 << 20
"""An answer of a broker is much smaller; a longer one would use up the memory of the program."""
TOO_LONG: Final = f"the answer is longer than {ANSWER_BYTES_MAX >> 20} MiB"
_LENGTH_DIGITS_MAX: Final = 18
_NO_BODY: Final = (204, 304)


class MalformedAnswer(Exception):
    """The received bytes are not a complete HTTP answer."""


class NoAnswer(MalformedAnswer):
    """The connection ended before the first byte of an answer."""


def unreached(error: OSError) -> str:
    """What to say about a node to which no connection was made."""
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLCertVerificationError):
        return f"no TLS there ({error.reason}): is it an http address?"
    if isinstance(error, ConnectionError) and error.errno:
        return os.strerror(error.errno)
    return str(error) or type(error).__name__


def unanswered(node: str, *, closed: bool) -> str:
    """What to say about a connection that was closed without an answer; `closed`: the client is.

    TLS 1.3 tells a client only then that its certificate is refused, and event loops do not send
    the alert.
    """
    if closed:
        return "the client was closed"
    if node.startswith("https:"):
        hint = "a broker with client CAs does so to a certificate that it does not trust"
    else:
        hint = "a broker with TLS does so to http: use https then"
    return f"the connection was closed without an answer ({hint})"


def broken_off(error: Exception) -> str:
    """What to say about a connection that ended during a request. aiohttp's errors lack a cause."""
    if not isinstance(error, OSError):
        return str(error) or type(error).__name__
    why = f": {os.strerror(error.errno)}" if error.errno else ""
    return f"the connection broke off{why}"


class _Part(IntEnum):
    HEAD = 0
    LENGTH = 1
    CHUNKS = 2
    UNTIL_END = 3
    WHOLE = 4


class AnswerReader:
    """Takes bytes until the answer is complete; then `status`, `headers` and `body` are valid.

    `headers` has lower-case names; of repeated headers the last one counts.
    """

    __slots__ = (
        "_buffer",
        "_chunked",
        "_left",
        "_part",
        "_parts",
        "_taken",
        "headers",
        "reusable",
        "status",
    )

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.reusable = True
        """Whether the connection may be used for another request."""
        self._part = _Part.HEAD
        self._buffer = b""
        self._chunked = bytearray()
        self._parts: list[bytes] = []
        self._left = 0
        self._taken = 0

    @property
    def body(self) -> bytes:
        """The body of a complete answer."""
        parts = self._parts
        return parts[0] if len(parts) == 1 else b"".join(parts)

    @property
    def wanted(self) -> int:
        """How many more bytes will come; 0 if unknown."""
        return self._left if self._part is _Part.LENGTH else 0

    def header(self, name: bytes) -> str | None:
        """The value of a header, or None."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")

    def feed(self, data: bytes) -> bool:
        """Take the next bytes. Returns True once the answer is complete."""
        self._taken += len(data)
        if self._taken > ANSWER_BYTES_MAX:
            raise MalformedAnswer(TOO_LONG)
        if self._part is _Part.HEAD:
            if self._buffer:
                data = self._buffer + data
            rest = self._take_heads(data)
            if rest is None:
                return False
            data = rest
        if self._part is _Part.LENGTH:
            return self._take_length(data)
        if self._part is _Part.CHUNKS:
            return self._take_chunks(data)
        if self._part is _Part.UNTIL_END:
            if data:
                self._parts.append(data)
            return False
        if data:
            # Unexpected bytes after the answer: their meaning is unknown, so do not reuse.
            self.reusable = False
        return True

    def end(self) -> None:
        """Handle the end of the connection. MalformedAnswer unless it completes the answer."""
        if self._part is _Part.UNTIL_END:
            self._part = _Part.WHOLE
        if self._part is _Part.HEAD and not self._buffer:
            raise NoAnswer("the connection broke off before an answer")
        if self._part is not _Part.WHOLE:
            where = "in its head" if self._part is _Part.HEAD else "in its body"
            raise MalformedAnswer(f"the answer broke off {where}")

    def _take_heads(self, data: bytes) -> bytes | None:
        """Parse the head, skipping interim ones. Returns the bytes after it, or None for more."""
        while True:
            end = data.find(b"\r\n\r\n")
            if end < 0:
                if len(data) > HEAD_BYTES_MAX:
                    raise MalformedAnswer("the head of the answer has no end")
                self._check_start(data)
                self._buffer = data
                return None
            self._read_head(data[:end])
            data = data[end + 4 :]
            if self.status >= 200:
                self._buffer = b""
                self._choose_part()
                return data

    def _check_start(self, data: bytes) -> None:
        """Detect early that the peer does not speak HTTP."""
        start = b"HTTP/1."
        if data[: len(start)] != start[: len(data)]:
            raise MalformedAnswer("the answer is not HTTP/1")

    def _read_head(self, head: bytes) -> None:
        lines = head.split(b"\r\n")
        first = lines[0]
        digits = first[9:12]
        if first[:7] != b"HTTP/1." or first[8:9] != b" " or not digits.isdigit():
            raise MalformedAnswer("the answer is not HTTP/1")
        if first[12:13] not in (b"", b" "):
            raise MalformedAnswer("the answer has no status")
        self.status = int(digits)
        if self.status < 100 or self.status == 101:
            raise MalformedAnswer(f"unexpected status {self.status}")
        headers: dict[bytes, bytes] = {}
        for line in lines[1:]:
            name, colon, value = line.partition(b":")
            if not colon or not name or name[-1:] in b" \t" or name[:1] in b" \t":
                raise MalformedAnswer("a header of the answer cannot be read")
            name = name.lower()
            value = value.strip(b" \t")
            if name == b"content-length" and headers.get(name, value) != value:
                raise MalformedAnswer("the answer has two lengths")
            headers[name] = value
        self.headers = headers
        said = headers.get(b"connection", b"").lower()
        self.reusable = said != b"close" if first[7:8] == b"1" else said == b"keep-alive"

    def _choose_part(self) -> None:
        headers = self.headers
        coding = headers.get(b"transfer-encoding")
        if self.status in _NO_BODY:
            self._part = _Part.WHOLE
        elif coding is not None:
            if coding.lower() != b"chunked":
                raise MalformedAnswer("the answer has a coding that was not requested")
            self._part = _Part.CHUNKS
        elif (length := headers.get(b"content-length")) is not None:
            if not length.isdigit():
                raise MalformedAnswer("the length of the answer is not a number")
            if len(length) > _LENGTH_DIGITS_MAX or int(length) > ANSWER_BYTES_MAX:
                raise MalformedAnswer(TOO_LONG)
            self._left = int(length)
            self._part = _Part.LENGTH
        else:
            self._part = _Part.UNTIL_END
            self.reusable = False

    def _take_length(self, data: bytes) -> bool:
        size = len(data)
        if size > self._left:
            data = data[: self._left]
            size = self._left
            self.reusable = False
        if size:
            self._parts.append(data)
        self._left -= size
        if self._left:
            return False
        self._part = _Part.WHOLE
        return True

    def _take_chunks(self, data: bytes) -> bool:
        """Take complete chunks; `_chunked` starts with the size of the next one."""
        held = self._chunked
        held += data
        while True:
            end = held.find(b"\r\n")
            if end < 0:
                if len(held) > CHUNK_LINE_MAX:
                    raise MalformedAnswer("a chunk of the answer has no size")
                return False
            size = _chunk_size(bytes(held[:end]))
            if size == 0:
                break
            first, stop = end + 2, end + 2 + size
            if len(held) < stop + 2:
                return False
            if held[stop : stop + 2] != b"\r\n":
                raise MalformedAnswer("a chunk of the answer is longer than its size")
            self._parts.append(bytes(held[first:stop]))
            del held[: stop + 2]
        # After the last chunk come trailers, which are ignored, and an empty line.
        whole = held.find(b"\r\n\r\n", end) + 4
        if whole < 4:
            if len(held) > HEAD_BYTES_MAX:
                raise MalformedAnswer("the trailers of the answer have no end")
            return False
        if len(held) > whole:
            self.reusable = False
        self._part = _Part.WHOLE
        return True


def _chunk_size(line: bytes) -> int:
    digits = line.partition(b";")[0].strip(b" \t")
    if not digits or len(digits) > 16 or digits.strip(b"0123456789abcdefABCDEF"):
        raise MalformedAnswer("a chunk of the answer has no size")
    return int(digits, 16)
