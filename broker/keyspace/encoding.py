"""Replies as bytes, RESP2 and RESP3."""

from __future__ import annotations

from typing import Any

from delaylog.broker.keyspace.numbers import score_text
from delaylog.broker.keyspace.replies import (
    NO_ARRAY,
    BigNumber,
    Double,
    ErrorReply,
    Map,
    Members,
    Push,
    Status,
    Verbatim,
)


def encode_into(out: list[bytes], reply: Any, resp: int) -> None:
    """Append a reply's bytes."""
    kind = reply.__class__
    if kind is bytes or kind is bytearray:
        out.append(b"$%d\r\n%b\r\n" % (len(reply), reply))
    elif kind is int:
        out.append(b":%d\r\n" % reply)
    elif reply is None:
        out.append(b"_\r\n" if resp == 3 else b"$-1\r\n")
    elif kind is Status:
        out.append(b"+%b\r\n" % reply)
    elif kind is list or kind is tuple:
        out.append(b"*%d\r\n" % len(reply))
        for item in reply:
            encode_into(out, item, resp)
    elif kind is ErrorReply:
        out.append(b"-%b\r\n" % reply.text)
    elif reply is NO_ARRAY:
        out.append(b"_\r\n" if resp == 3 else b"*-1\r\n")
    elif kind is Double:
        text = score_text(reply)
        out.append(b",%b\r\n" % text if resp == 3 else b"$%d\r\n%b\r\n" % (len(text), text))
    elif kind is Map:
        n = len(reply.flat)
        out.append(b"%%%d\r\n" % (n // 2) if resp == 3 else b"*%d\r\n" % n)
        for item in reply.flat:
            encode_into(out, item, resp)
    elif kind is Members or kind is Push:
        mark = b"*" if resp == 2 else b"~" if kind is Members else b">"
        out.append(b"%b%d\r\n" % (mark, len(reply.items)))
        for item in reply.items:
            encode_into(out, item, resp)
    elif kind is bool:
        out.append((b"#t\r\n" if reply else b"#f\r\n") if resp == 3 else b":%d\r\n" % reply)
    elif kind is Verbatim:
        if resp == 3:
            out.append(b"=%d\r\n%b:%b\r\n" % (len(reply.text) + 4, reply.form, reply.text))
        else:
            out.append(b"$%d\r\n%b\r\n" % (len(reply.text), reply.text))
    elif kind is BigNumber:
        if resp == 3:
            out.append(b"(%b\r\n" % reply.digits)
        else:
            out.append(b"$%d\r\n%b\r\n" % (len(reply.digits), reply.digits))
    else:
        raise TypeError(f"no reply: {reply!r}")
