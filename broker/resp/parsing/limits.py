"""Size limits of requests; the defaults are those of Redis 7.0.15."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Limit of a line: an inline command, or the header with a count or a size.
LINE_BYTES_MAX: Final = 64 << 10

# Limits before authentication, which are enough for AUTH and HELLO.
UNAUTHENTICATED_ARGUMENTS_MAX: Final = 10
UNAUTHENTICATED_BULK_BYTES_MAX: Final = 16384

# Counts and sizes up to these are looked up in the tables below, without comparing them to a limit.
SMALL_COUNT_MAX: Final = 64
SMALL_BULK_BYTES_MAX: Final = 1024

# The headers of nearly all commands; one look-up parses a header.
COUNTS: Final = {b"*%d" % count: count for count in range(1, SMALL_COUNT_MAX + 1)}
SIZES: Final = {b"$%d" % size: size for size in range(SMALL_BULK_BYTES_MAX + 1)}


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Shared by all connections."""

    # Bytes of one connection that were received and not returned as commands.
    query_bytes_max: int = 1 << 30
    # Bytes of one argument, `proto-max-bulk-len`.
    bulk_bytes_max: int = 512 << 20
    # Arguments of one command, as in Redis 7.0. In practice query_bytes_max is reached first.
    arguments_max: int = (1 << 31) - 1
    # Bytes of one command on the wire. Redis has no such limit.
    command_bytes_max: int = 1 << 62

    def __post_init__(self) -> None:
        assert self.arguments_max >= SMALL_COUNT_MAX
        assert self.bulk_bytes_max >= SMALL_BULK_BYTES_MAX
