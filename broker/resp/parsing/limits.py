"""How large requests may be, by default as Redis 7.0.15 has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# A line (a command typed by hand, or the head of a count or size) is found within so many bytes.
LINE_BYTES_MAX: Final = 64 << 10

# Before AUTH, nobody needs more than its own arguments.
UNKNOWN_ARGUMENTS_MAX: Final = 10
UNKNOWN_BULK_BYTES_MAX: Final = 16384

# What the parsers read by look-up tables without asking for the limits.
SMALL_COUNT_MAX: Final = 64
SMALL_BULK_BYTES_MAX: Final = 1024

# The heads that nearly all commands are made of, read by one look-up.
COUNTS: Final = {b"*%d" % count: count for count in range(1, SMALL_COUNT_MAX + 1)}
SIZES: Final = {b"$%d" % size: size for size in range(SMALL_BULK_BYTES_MAX + 1)}


@dataclass(slots=True)
class RequestLimits:
    """Shared by all connections; a change (CONFIG SET) holds from the next request on."""

    # Of one connection: received and not yet given out, an unfinished command included.
    query_bytes_max: int = 1 << 30
    # One argument, `proto-max-bulk-len`.
    bulk_bytes_max: int = 512 << 20
    # Arguments of one command. Redis 7.0 stops at no less either; query_bytes_max comes first.
    arguments_max: int = (1 << 31) - 1
    # One command with all its arguments, as it is sent. Redis has no such limit.
    command_bytes_max: int = 1 << 62

    def __post_init__(self) -> None:
        assert self.arguments_max >= SMALL_COUNT_MAX
        assert self.bulk_bytes_max >= SMALL_BULK_BYTES_MAX
