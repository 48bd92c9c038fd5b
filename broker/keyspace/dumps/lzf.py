"""Decompresses LZF, with which Redis compresses strings of more than 20 bytes.

000lllll                        l + 1 bytes as they are
lllooooo oooooooo               l + 2 bytes again, from o + 1 bytes back
111ooooo llllllll oooooooo      l + 9 bytes again
"""

from __future__ import annotations

from delaylog.broker.keyspace.dumps.forms import BadDump


def unpacked(data: bytes, size: int) -> bytes:
    """Decompress to `size` bytes. Raises BadDump."""
    out = bytearray()
    at, end = 0, len(data)
    try:
        while at < end:
            control = data[at]
            at += 1
            if control < 32:
                if at + control + 1 > end:
                    raise BadDump("a run of bytes is cut off")
                out += data[at : at + control + 1]
                at += control + 1
            else:
                length = control >> 5
                if length == 7:
                    length += data[at]
                    at += 1
                back = ((control & 31) << 8 | data[at]) + 1
                at += 1
                length += 2
                start = len(out) - back
                if start < 0:
                    raise BadDump("a repetition begins before the start")
                piece = out[start : start + length]
                # The repeated range may overlap its own output.
                while len(piece) < length:
                    piece += piece[: length - len(piece)]
                out += piece
            if len(out) > size:
                raise BadDump("more bytes than the given size")
    except IndexError:
        raise BadDump("a repetition is cut off") from None
    if len(out) != size:
        raise BadDump("fewer bytes than the given size")
    return bytes(out)
