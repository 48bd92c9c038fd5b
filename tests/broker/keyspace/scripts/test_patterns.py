"""The matcher that can be stopped gives what the native one gives, errors included.

With no native steps allowed every pattern goes through it; Hypothesis makes subjects and patterns
of few characters, so that they match often.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from delaylog.broker.keyspace.replies import ErrorReply
from delaylog.broker.keyspace.scripts import runtime
from tests.effort import tries

CALLS = [
    "return {string.find(ARGV[1], ARGV[2])}",
    "return {string.find(ARGV[1], ARGV[2], 2)}",
    "return {string.find(ARGV[1], ARGV[2], -2)}",
    "return {string.find(ARGV[1], ARGV[2], 9)}",
    "return {string.match(ARGV[1], ARGV[2])}",
    "return {string.match(ARGV[1], ARGV[2], -1)}",
    "local t = {} for a, b in string.gmatch(ARGV[1], ARGV[2]) do "
    "t[#t + 1] = tostring(a) .. tostring(b) end return t",
    "return {string.gsub(ARGV[1], ARGV[2], '<%0>')}",
    "return {string.gsub(ARGV[1], ARGV[2], '%1')}",
    "return {string.gsub(ARGV[1], ARGV[2], 'x', 1)}",
    "return {string.gsub(ARGV[1], ARGV[2], {a = 'A', b = 1, ab = false})}",
    "return {string.gsub(ARGV[1], ARGV[2], function(a, b) return tostring(b) .. a end)}",
]
_PIECES = """
a b c . ( ) () * + - ? ^ $ % %a %A %d %s %w %1 %2 %b() %bab %f[a] %f[%w] [ab] [^a] [a-c]
[%a] [] []] [a (a) (.-) (a*) (.) %% %( %z a- .- .* a? % %f %b
"""
PIECES = _PIECES.split()


def _compare(native: Any, slow: Any, subject: bytes, pattern: bytes) -> None:
    for source in CALLS:
        expected = native.eval(source, args=[subject, pattern])
        actual = slow.eval(source, args=[subject, pattern])
        if isinstance(expected, ErrorReply) and isinstance(actual, ErrorReply):
            assert actual.text == expected.text
        else:
            assert actual == expected, (source, subject, pattern)


@pytest.fixture
def both(make_toy: Any, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    native, slow = make_toy(), make_toy()
    native.eval("return 1")
    monkeypatch.setattr(runtime, "NATIVE_STEPS", 0)
    slow.eval("return 1")
    return native, slow


@settings(
    max_examples=tries(150),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    st.text("abc (1", max_size=8).map(str.encode),
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=5).map("".join),
)
@example(b"", "()%1")
def test_the_same_as_the_native_matcher(both: Any, subject: bytes, pattern: str) -> None:
    _compare(*both, subject, pattern.encode())


@pytest.mark.parametrize(
    ("subject", "pattern"),
    [
        (b"THE (quick) fox", b"%((%a+)%)"),
        (b"  trim me  ", b"^%s*(.-)%s*$"),
        (b"key = value", b"^(%w+)%s*=%s*(%w+)$"),
        (b"f(a(b)c)d", b"%b()"),
        (b"THE (quick) fox", b"%f[%a]%a+"),
        (b"aa bb", b"(%a)%1"),
        (b"\x00\x01\xff", b"[%z\xff]"),
        (b"a.b-c", b"[%.%-]"),
        (b'{"id":"x7","payload":"go"}', b'"payload":"(.-)"'),
        (b"abc", b"((a)(b)(c))"),
        (b"a" * 40, b"(" * 33 + b")" * 33),
    ],
)
def test_known_patterns(both: Any, subject: bytes, pattern: bytes) -> None:
    _compare(*both, subject, pattern)
