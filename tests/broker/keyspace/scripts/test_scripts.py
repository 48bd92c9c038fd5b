"""The script cache, conversions that the comparison with Redis cannot reach, and log and flags."""

from __future__ import annotations

import time
from typing import Any

import pytest

from delaylog.broker.keyspace.replies import (
    NO_ARRAY,
    PONG,
    Double,
    ErrorReply,
    Map,
    Members,
    Status,
    Verbatim,
    encode,
)
from delaylog.broker.keyspace.scripts import ScriptLimits
from delaylog.broker.keyspace.scripts.runtime import integer, number_text


def test_the_oldest_script_makes_room(make_toy: Any) -> None:
    toy = make_toy(ScriptLimits(scripts_max=2))
    shas = [toy.scripts.load(b"return %d" % n) for n in range(3)]
    assert [toy.scripts.known(sha) for sha in shas] == [False, True, True]
    assert toy.scripts.known(shas[2].upper())


def test_scripts_that_are_too_large_together_make_room_too(make_toy: Any) -> None:
    toy = make_toy(ScriptLimits(scripts_bytes_max=1_000))
    sources = [b"return '%s'" % (b"%d" % n * 300) for n in range(5)]
    shas = [toy.scripts.load(source) for source in sources]
    assert [toy.scripts.known(sha) for sha in shas] == [False, False, True, True, True]
    assert toy.scripts.load(sources[3]) == shas[3]
    assert toy.scripts.known(shas[2])
    large = toy.scripts.load(b"return '%s'" % (b"x" * 2_000))
    assert toy.scripts.known(large)
    assert not any(map(toy.scripts.known, shas))
    toy.scripts.flush()
    shas = [toy.scripts.load(source) for source in sources[:3]]
    assert all(map(toy.scripts.known, shas))


def test_a_script_of_a_megabyte_loads_at_once(toy: Any) -> None:
    """Nothing interrupts loading. A tail call looks up who wrote its register, not all before."""
    calls = b"if x then return redis.call('ping') end\n" * 25_000
    source = b"local function f(x)\n" + calls + b"return x end return f"
    before = time.process_time()
    assert toy.scripts.load(source)
    assert time.process_time() - before < 2
    assert toy.eval(source + b"(true)") == PONG


def test_scripts_and_functions_outlive_their_lua_state(make_toy: Any) -> None:
    toy = make_toy(ScriptLimits(seconds=60))
    sha = toy.scripts.load(b"return 'here'")
    toy.functions.load(b"#!lua name=lib\nredis.register_function('f', function() return 7 end)")
    assert b"not enough memory" in toy.eval("local s = 'a' while true do s = s .. s end").text
    assert toy.functions.call(b"f", 0, []) == 7
    assert toy.scripts.run(sha, 0, []) == b"here"
    assert b"not enough memory" in toy.eval("local s = 'b' while true do s = s .. s end").text
    assert toy.scripts.run(sha, 0, []) == b"here"


def test_flags_of_the_shebang(toy: Any) -> None:
    source = b"#!lua flags=no-writes,allow-stale\nreturn redis.call('set', 'a', 'b')"
    sha = toy.scripts.load(source)
    assert toy.eval(source).text == (
        b"ERR Write commands are not allowed from read-only scripts. script: %s, "
        b"on @user_script:2." % sha
    )
    assert toy.eval("return redis.call('set', 'a', 'b')") == Status(b"OK")
    assert b"read-only" in toy.eval("#!lua flags=no-writes\nredis.call('set', 'a', 'b')").text


def test_the_log(toy: Any) -> None:
    assert toy.eval("redis.log(redis.LOG_WARNING, 'a', 1, true, 'b')") is None


def test_arguments_are_written_as_redis_writes_them(toy: Any) -> None:
    toy.eval("redis.call('echo', 1, 1.5, 0.1, 1e17, -3, 2^53, 1e100, '1.50')")
    assert toy.calls[-1][1:] == [
        b"1",
        b"1.5",
        b"0.10000000000000001",
        b"1e+17",
        b"-3",
        b"9007199254740992",
        b"1e+100",
        b"1.50",
    ]


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        (5, "number:5"),
        (2**63 - 1, "number:9.2233720368547758e+18"),
        (b"x", "string:x"),
        (None, "boolean:false"),
        (NO_ARRAY, "boolean:false"),
        (Double(1.5), "string:1.5"),
        (Status(b"OK"), "ok=OK"),
        ([1, None, b"x"], "1=1 2=false 3=x"),
        ([], ""),
        (Map([b"a", 1, b"b", None]), "1=a 2=1 3=b 4=false"),
        (Members([b"a"]), "1=a"),
        (Verbatim(b"hi"), "string:hi"),
        ([[1], ErrorReply(b"ERR x")], "1={1=1} 2={err=ERR x ignore_error_stats_update=true}"),
    ],
)
def test_replies_in_lua(toy: Any, reply: Any, shown: str) -> None:
    toy.extra[b"give"] = lambda argv: reply
    source = """
    local function show(t)
      local parts = {}
      for k, v in pairs(t) do
        local text = type(v) == 'table' and '{' .. show(v) .. '}' or tostring(v)
        parts[#parts + 1] = tostring(k) .. '=' .. text
      end
      table.sort(parts)
      return table.concat(parts, ' ')
    end
    local v = redis.call('give')
    if type(v) == 'table' then return show(v) end
    if type(v) == 'number' then return 'number:' .. string.format('%.17g', v) end
    return type(v) .. ':' .. tostring(v)
    """
    assert toy.eval(source) == shown.encode()


def test_long_replies_and_results(toy: Any) -> None:
    many = [b"%d" % n for n in range(9001)]
    toy.extra[b"many"] = lambda argv: many
    toy.extra[b"map"] = lambda argv: Map(many[:9000])
    assert toy.eval("return redis.call('many')") == many
    assert toy.eval("local t = redis.call('many') return {#t, t[9001]}") == [9001, b"9000"]
    assert toy.eval("return redis.call('map')") == many[:9000]
    assert toy.eval("local t = {} for i = 1, 9000 do t[i] = {i} end return t") == [
        [n] for n in range(1, 9001)
    ]


def test_numbers() -> None:
    assert number_text(3) == b"3"
    assert number_text(0.1) == b"0.10000000000000001"
    assert number_text(10**17) == b"1e+17"
    assert number_text(float("inf")) == b"inf"
    assert integer(1.9) == 1
    assert integer(-1.9) == -1
    assert integer(1e300) == integer(float("nan")) == -(2**63)


def test_a_scripts_error_text_stands_on_one_line(toy: Any) -> None:
    assert toy.eval("error('a\\r\\nb')").text.startswith(b"ERR user_script:1: a  b script: ")
    assert toy.eval("return {err = 'MY a\\nb'}") == ErrorReply(b"MY a b")


@pytest.mark.parametrize(
    ("source", "ours"),
    [
        # A tail call of a local leaves no frame, so the line is its caller's.
        ("local c = redis.call\nlocal function g() return c('nosuch') end\nlocal x = g()", b":3."),
        # Dumps of code are not given out: nothing could be done with them.
        ("return string.dump", b"$-1\r\n"),
        # A table that holds itself ends early: replies are encoded by recursion.
        ("local t = {} t[1] = t return t", b"-ERR reached lua stack limit\r\n"),
        # Lua's -0 is 0 once it has left Lua.
        ("return redis.call('echo', -0)", b"$1\r\n0\r\n"),
    ],
)
def test_known_differences(toy: Any, source: str, ours: bytes) -> None:
    assert encode(toy.eval(source), 2).rstrip(b"\r\n").endswith(ours.rstrip(b"\r\n"))
