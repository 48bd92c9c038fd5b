"""RESP2 and RESP3 as a strict reader sees them: where one reply ends, and what it says.

A reply becomes a Node: its first byte, and a value of bytes (the text as sent: `,1` and `,1.0` are
different), None for the nulls of RESP2, or a tuple of nodes. Anything that is not exactly RESP is
Malformed, so that a server is not forgiven what a lenient client would overlook.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

Argv = tuple[bytes, ...]


class Malformed(Exception):
    """These bytes are not RESP."""


class Incomplete(Exception):
    """So far these bytes are RESP; more must come."""


class Node(NamedTuple):
    """One reply or one element of it."""

    kind: bytes
    value: bytes | tuple[Node, ...] | None

    def leaves(self) -> list[Node]:
        """The elements that hold no others, in order."""
        if isinstance(self.value, tuple):
            return [leaf for node in self.value for leaf in node.leaves()]
        return [self]


_DOUBLE = re.compile(rb"-?(inf|nan|\d+(\.\d+)?(e[+-]?\d+)?)\Z")
_INTEGER = re.compile(rb"-?(0|[1-9]\d*)\Z")
_FORMS = {
    b"+": re.compile(rb"[^\r\n]*\Z"),
    b"-": re.compile(rb"[^\r\n]*\Z"),
    b":": _INTEGER,
    b"_": re.compile(rb"\Z"),
    b"#": re.compile(rb"[tf]\Z"),
    b",": _DOUBLE,
    b"(": _INTEGER,
}
_AGGREGATES = {b"*": 1, b"~": 1, b">": 1, b"%": 2, b"|": 2}


def request(argv: Sequence[bytes]) -> bytes:
    """A command as clients send it."""
    parts = [b"*%d\r\n" % len(argv)]
    parts += [b"$%d\r\n%b\r\n" % (len(word), word) for word in argv]
    return b"".join(parts)


def read(data: bytes, start: int = 0) -> tuple[Node, int]:
    """The reply that begins at `start`, and where the next begins."""
    end = data.find(b"\r\n", start)
    if end < 0:
        if len(data) - start > 0 and data[start : start + 1] not in b"+-:_#,($=*~>%|":
            raise Malformed(data[start : start + 40])
        raise Incomplete
    kind, text, at = data[start : start + 1], data[start + 1 : end], end + 2
    form = _FORMS.get(kind)
    if form is not None:
        if not form.match(text):
            raise Malformed(data[start:at])
        return Node(kind, text), at
    if text == b"-1" and kind in (b"$", b"*"):
        return Node(kind, None), at
    if not _INTEGER.match(text) or text.startswith(b"-"):
        raise Malformed(data[start:at])
    count = int(text)
    if kind in (b"$", b"="):
        if len(data) < at + count + 2:
            raise Incomplete
        if data[at + count : at + count + 2] != b"\r\n":
            raise Malformed(data[start : at + count + 2])
        return Node(kind, data[at : at + count]), at + count + 2
    if kind not in _AGGREGATES:
        raise Malformed(data[start : start + 40])
    nodes = []
    for _ in range(count * _AGGREGATES[kind]):
        node, at = read(data, at)
        nodes.append(node)
    return Node(kind, tuple(nodes)), at


def parse(data: bytes) -> Node:
    """One whole reply and nothing behind it."""
    try:
        node, end = read(data)
    except Incomplete as error:
        raise Malformed(data[:40]) from error
    if end != len(data):
        raise Malformed(data[end : end + 40])
    return node


def split(data: bytes) -> tuple[list[bytes], bytes]:
    """The whole replies at the front of `data`, and the rest."""
    replies, start = [], 0
    while start < len(data):
        try:
            _, end = read(data, start)
        except Incomplete:
            break
        replies.append(data[start:end])
        start = end
    return replies, data[start:]
