"""LuaPattern: the same matches as Lua 5.1 itself, which lupa brings along."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from lupa import lua51

from delaylog.client.queues.dyno.lua_pattern import LuaPattern

lua_match = lua51.LuaRuntime(encoding=None).eval(
    b"function(p, s) local ok, found = pcall(string.find, s, p); return ok, found ~= nil end"
)

PIECES = [
    *"ab1 .-+*?^$]_",
    *("%a", "%d", "%S", "%w+", "%.", "%%", "%z", "%P", "%x", "%g", "%f[%w]", "%f[^b]", "(a)%1"),
    *("[ab]", "[^a]", "[a-b1]", "[%d_]", "[^%a]", "[]]", "[^]]", "[a-]", "[-a]", "[b-a]", "[%%]"),
    *("()", "(a)", "(b*)", "a-b", ".*", ".-", "[ab]+", "é"),
]


@given(
    st.lists(st.sampled_from(PIECES), max_size=6).map("".join),
    st.text(st.sampled_from("ab1 .-_()]^$%é\x00"), max_size=10),
)
@example("%f[%a]a+%f[%A]", "1 ab")
@example("(a)%1", "aa")
@example("^b", "ab")
@example("a$", "ba")
@example("[a-%d]", "-")
def test_it_matches_as_lua_does(pattern: str, text: str) -> None:
    fine, found = lua_match(pattern.encode(), text.encode())
    assert fine
    assert LuaPattern(pattern).matches(text) == found


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("[a", "a set is not closed"),
        ("[%", "a set is not closed"),
        ("a%", "ends with %"),
        ("(a", "a capture is not closed"),
        ("a)", "closed that is not open"),
        ("%1", "no closed capture"),
        ("(%1)", "no closed capture"),
        ("%fa", "a set is missing"),
        ("%b()", "%b is not offered"),
        ("()" * 33, "too many captures"),
    ],
)
def test_what_cannot_be_used_is_refused(pattern: str, words: str) -> None:
    with pytest.raises(ValueError, match="cannot be used: .*" + words):
        LuaPattern(pattern)


def test_a_text_that_is_no_text_is_searched_as_bytes() -> None:
    assert LuaPattern("^a..b$").matches("aéb")
    assert LuaPattern("a.b").matches(b"a\xffb".decode(errors="surrogateescape"))
