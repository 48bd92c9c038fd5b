"""The values that forms draw: few keys, so that types collide, and numbers at the borders.

Each pool begins with its plainest value. Offsets and counts stop where a server would be made to
fill its memory; times are long ago or far away, so that nothing expires between two replies.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable

from hypothesis import strategies as st

from tests.redis.differential.grammar import Words

_INTS = [
    *(1, 0, -1, 2, 3, 5, 10, -2, -5, 100, 9999, 10000, 127, 128, -128, 255, 256, 32767, -32769),
    *(2**31 - 1, 2**31, 2**32, 2**53, 2**53 + 1, 10**15, 10**17, 2**63 - 1, -(2**63), 2**63 - 2),
]
_FLOATS = [
    *("1", "0", "-1", "2", "3", "1.5", "-1.5", "0.1", "0.2", "3.0", "5e3", "1e17", "1e20", "1e21"),
    *("1e-5", "-0", "-0.0", "inf", "-inf", "+inf", "1e308", "1.7e308", "-1.7e308", "1e-300"),
    *("3.14159265358979", "0.30000000000000004", "123456789012345678", "9007199254740993"),
    *("1658492212132.07", "1e15", "123456.789", "0x10", "1e", ".5", "5.", "Infinity", "100"),
]
_VALUES = [
    *(b"v", b"", b"1", b"10", b"-1", b"0", b"hello world", b"hello", b"1.5", b"abc", b"ABC"),
    *(b"\x00\xff\x80", b"9223372036854775807", b"-9223372036854775808", b"9999", b"10000", b"01"),
    *(b"1e5", b"inf", b" 1", b"x" * 44, b"x" * 45, b"y" * 64, b"z" * 65, b"\r\n", b"3.0"),
    *(b"ohmytext", b"mynewtext", b"\xc3\xa9", b"12345678901234567890", b"q" * 300),
]
_MEMBERS = [
    *(b"a", b"b", b"c", b"d", b"e", b"1", b"2", b"3", b"10", b"-5", b"", b"aa", b"ab", b"A", b"Z"),
    *(b"1.5", b"\xff", b"a\x00", b"m" * 65, b"9223372036854775807", b"0", b"07"),
]


def _pool(values: str | Iterable[bytes | str | int]) -> Words:
    """One of these values, or of the words of a text."""
    each = values.split() if isinstance(values, str) else values
    words = [(value if isinstance(value, bytes) else str(value).encode(),) for value in each]
    return st.sampled_from(words)


def _many(make: str, *, count: int) -> Words:
    """A long run of arguments, to pass the borders of the small encodings."""
    texts = (make % {"i": i} for i in range(count))
    return st.just(tuple(word.encode() for text in texts for word in text.split()))


_NOW_S = int(time.time())
_AHEAD_S = (100, 1000, 100000)

POOLS: dict[str, Words] = {
    "key": _pool(("a", "b", "c", "d", "e")),
    "other": _pool(("s", "l", "h", "t", "z")),
    "channel": _pool(("news", "n", "other", "")),
    "channels": _pool(("news", "n*", "*", "n[ae]ws", "o?her", "")),
    "value": _pool(_VALUES),
    "member": _pool(_MEMBERS),
    "field": _pool(_MEMBERS[:8]),
    "int": _pool(_INTS),
    "small": _pool((1, 0, 2, 3, -1, 5, 10, -2, -3, 100)),
    "natural": _pool((1, 0, 2, 3, 10, 100)),
    "positive": _pool((1, 2, 3, 10, 100)),
    "index": _pool((0, 1, -1, 2, -2, 3, 5, -5, 100, -100, 2**31, -(2**63), 2**63 - 1)),
    "float": _pool(_FLOATS),
    "score": _pool(_FLOATS),
    "min": _pool("-inf 0 1 (1 2 (2 (-inf 1.5 5 +inf inf (0 -1"),
    "max": _pool("+inf 5 3 (3 2 (2 inf (+inf 1.5 100 0 1 -inf"),
    "lexmin": _pool("- [a (a [b (b + [ ( [aa a"),
    "lexmax": _pool("+ [c (c [b [z - ( [ [ab c"),
    "pattern": _pool(
        ("*", "a*", "?", "[a-c]", "[^a]", "a", "\\*", "[", "", "*b*", "a[", "[b-a]", "**")
    ),
    "ttl": _pool(_AHEAD_S),
    # Never as long as a `ttl`: which of two equal ones is GREATER depends on the millisecond.
    "pttl": _pool(s * 1000 + 500 for s in _AHEAD_S),
    "at": _pool(_NOW_S + s for s in _AHEAD_S),
    "pat": _pool((_NOW_S + s) * 1000 for s in _AHEAD_S),
    "past": _pool((0, -1, -1000, -(2**63))),
    "toolong": _pool((2**63 - 1, 2**62, 9223372036854775, 10**16, -(2**62))),
    "db": _pool((0, 1, 0, 2, 15, 16, -1)),
    "id": _pool("1-1 1-2 2-1 2-2 3-0 3-5 5-1 7-1 1 2 0-0 0-1 0 10-1"),
    "newid": _pool("5-* 1-1 1-2 2-1 3-1 5-1 7-3 8 9-9 1-* 9-* 0-0 20-1"),
    "from": _pool("- 0 1 1-1 (1-1 2 (2 2-1 (2-1 5-1 + (- (+"),
    "to": _pool("+ 3 5-1 (5-1 2 (2 2-1 (2-1 1-1 - 99-1 (0-0"),
    "group": _pool(("g1", "g2", "nogroup")),
    "consumer": _pool(("alice", "bob", "carol")),
    "idle": _pool((0, 10**9, -1)),
    "cursor": _pool((0, 0, 0, 0, "abc", "")),
    "manymembers": st.one_of(
        _many("m%(i)d", count=130), _many("%(i)d", count=20), _many("%(i)d", count=514)
    ),
    "manypairs": _many("f%(i)d %(i)d", count=130),
    "manyscores": _many("%(i)d.25 m%(i)d", count=130),
}


def sha(script: bytes) -> bytes:
    """What EVALSHA wants to be told."""
    return hashlib.sha1(script).hexdigest().encode()
