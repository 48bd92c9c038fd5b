"""The end of a request that aiohttp parses, found as its bytes arrive.

aiohttp does not say where a request ends, and one malformed request costs those before it that
arrived with it. So it gets one request at a time (`connection`). The end follows from the head, or
from the chunks of the body. It is not known of what aiohttp refuses, which ends the connection.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from delaylog.broker.web.request_heads import FIELD_BYTES_MAX, LINE_BYTES_MAX

if TYPE_CHECKING:
    from delaylog.broker.web.fast_lane import Head

HEAD_BYTES_MAX: Final = 65_536
"""Largest head, of those that arrive in pieces, whose end is looked for. After a larger one the
connection stays with aiohttp.
"""
_SIZE: Final = re.compile(rb"([0-9a-fA-F]{1,15})(?:;[^\r\n]*)?\r\n")
_NEVER: Final = sys.maxsize
"""Bytes that a request without a known end lacks."""


class RequestEnd:
    """Counts the bytes that one request still lacks."""

    __slots__ = ("_chunks", "_head", "_head_of", "_left", "opening")

    def __init__(self, head_of: Callable[[bytes], Head | None], head: Head | None) -> None:
        """`head_of` finds the head at the start of bytes, `head` is it if it is known already."""
        self._head_of = head_of
        self._head = head
        self._left = _NEVER
        self._chunks: _Chunks | None = None
        self.opening = b""
        """The beginning of the request; all of it until its head is whole."""

    @property
    def is_reached(self) -> bool:
        """Whether the whole request has arrived."""
        return not self._left

    def take(self, data: bytes) -> int:
        """Take bytes that have arrived; returns how many of them belong to the request."""
        if self._chunks is not None:
            return self._take_chunks(self._chunks, data, 0)
        if self._left != _NEVER:
            size = min(self._left, len(data))
            self._left -= size
            return size
        if len(self.opening) > HEAD_BYTES_MAX:
            return len(data)
        # aiohttp skips empty lines before a request, too.
        opening = self.opening = (self.opening + data).lstrip(b"\r\n")
        head = self._head or self._head_of(opening)
        if head is None:
            return len(data)
        self.opening = opening[:LINE_BYTES_MAX]
        before = len(opening) - len(data)
        if head.chunked:
            self._chunks = _Chunks()
            return self._take_chunks(self._chunks, data, head.end - before)
        self._left = max(head.size - len(opening), 0)
        return min(head.size - before, len(data))

    def _take_chunks(self, chunks: _Chunks, data: bytes, at: int) -> int:
        at = chunks.take(data, at)
        if chunks.is_ended:
            self._left = 0
        return at


class _Chunks:
    """The framing of a chunked body; what is malformed has no end."""

    __slots__ = ("_in_trailers", "_left", "_line", "is_ended")

    def __init__(self) -> None:
        self._line = b""
        """The beginning of a line between chunks."""
        self._left = 0
        """Bytes that a chunk lacks, with the end of its line."""
        self._in_trailers = False
        self.is_ended = False

    def take(self, data: bytes, at: int) -> int:
        """Take the bytes of `data` from `at` on; returns where those behind the body begin."""
        while at < len(data) and not self.is_ended:
            if self._left:
                step = min(self._left, len(data) - at)
                self._left -= step
                at += step
                continue
            stop = data.find(b"\n", at) + 1 or len(data)
            self._line += data[at:stop]
            at = stop
            if self._line.endswith(b"\n"):
                self._read(self._line)
                self._line = b""
            elif len(self._line) > FIELD_BYTES_MAX:
                self._left = _NEVER
        return at

    def _read(self, line: bytes) -> None:
        if self._in_trailers:
            self.is_ended = line == b"\r\n"
            return
        found = _SIZE.fullmatch(line)
        if found is None:
            self._left = _NEVER
            return
        size = int(found[1], 16)
        self._in_trailers = not size
        self._left = size + 2 if size else 0
