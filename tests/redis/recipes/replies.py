"""Read replies whatever shape they came in.

The one rule: RESP2 and RESP3, decoding clients and raw ones differ in form only, so a score may be
text or a float, a map flat or a dict, pairs flat or nested; what leaves here has one form.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tests.redis.recipes.connection import Reply


def text(reply: Reply) -> str:
    """A bulk string that is there."""
    return reply.decode() if isinstance(reply, bytes) else str(reply)


def text_or_none(reply: Reply) -> str | None:
    """A bulk string or a null."""
    return None if reply is None else text(reply)


def texts(reply: Reply) -> list[str]:
    """An array of bulk strings, nulls left out; a null array is an empty one."""
    return [text(item) for item in reply or () if item is not None]


def score(reply: Reply) -> float | None:
    """What ZSCORE answers."""
    return None if reply is None else float(reply)


def scored(reply: Reply) -> list[tuple[str, float]]:
    """Members with their scores, from a flat array or from one of pairs."""
    if not reply:
        return []
    if isinstance(reply[0], list | tuple):
        return [(text(member), float(value)) for member, value in reply]
    return [(text(reply[at]), float(reply[at + 1])) for at in range(0, len(reply), 2)]


def mapping(reply: Mapping[Reply, Reply] | Sequence[Reply]) -> dict[str, str]:
    """What HGETALL answers."""
    if isinstance(reply, Mapping):
        return {text(field): text(value) for field, value in reply.items()}
    return {text(reply[at]): text(reply[at + 1]) for at in range(0, len(reply), 2)}
