"""Replies as `redis-cli --no-raw` shows them, for the sessions in documents.

A reader of its own for RESP2: what is shown differs for statuses and bulk strings, which libraries
give alike.
"""

from __future__ import annotations

from typing import IO

_ESCAPES = {0x22: '\\"', 0x5C: "\\\\", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t", 7: "\\a", 8: "\\b"}


def next_shown(stream: IO[bytes], indent: str = "") -> str:
    """Read one reply and give it as it is shown."""
    line = stream.readline()
    assert line.endswith(b"\r\n"), line
    kind, rest = line[:1], line[1:-2].decode("utf-8", "backslashreplace")
    if kind in b"+":
        return rest
    if kind == b"-":
        return f"(error) {rest}"
    if kind == b":":
        return f"(integer) {rest}"
    if rest == "-1":
        return "(nil)"
    if kind == b"$":
        data = stream.read(int(rest) + 2)[:-2]
        return '"' + "".join(map(_byte, data)) + '"'
    assert kind == b"*", line
    if rest == "0":
        return "(empty array)"
    lines = []
    for number in range(1, int(rest) + 1):
        head = f"{number:>{len(rest)}}) "
        lines.append(head + next_shown(stream, indent + " " * len(head)))
    return f"\n{indent}".join(lines)


def _byte(value: int) -> str:
    return _ESCAPES.get(value) or (chr(value) if 32 <= value < 127 else f"\\x{value:02x}")
