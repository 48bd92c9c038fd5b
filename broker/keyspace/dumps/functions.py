"""Function libraries as FUNCTION DUMP serialises them: an opcode and the source of each."""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.dumps.forms import BadDump
from delaylog.broker.keyspace.dumps.reading import Reader, is_whole
from delaylog.broker.keyspace.errors import CommandError

_FUNCTION: Final = 245
_FOOTER_BYTES: Final = 10
_BAD: Final = b"ERR DUMP payload version or checksum are wrong"


def load_libraries(payload: bytes) -> list[bytes]:
    """The sources of a payload. Raises CommandError."""
    if not is_whole(payload):
        raise CommandError(_BAD)
    reader = Reader(payload, len(payload) - _FOOTER_BYTES)
    out: list[bytes] = []
    try:
        while not reader.at_end:
            if reader.take(1)[0] != _FUNCTION:
                raise CommandError(b"ERR given type is not a function")
            out.append(reader.string())
    except BadDump:
        raise CommandError(b"ERR failed loading the payload") from None
    return out
