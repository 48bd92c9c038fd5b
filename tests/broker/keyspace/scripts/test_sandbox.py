"""Each way out of the sandbox, or to hang or fill the process, with what comes of it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from delaylog.broker.keyspace.replies import ErrorReply, Status
from delaylog.broker.keyspace.scripts import ScriptLimits

READ_ONLY = b"Attempt to modify a readonly table"
MISSING = b"Script attempted to access nonexistent global variable '%s'"


def _error(toy: Any, source: str, **options: Any) -> bytes:
    reply = toy.eval(source, **options)
    assert isinstance(reply, ErrorReply), reply
    return reply.text


_OUTSIDE = """
python os io package require module dofile loadfile debug newproxy getfenv setfenv print
__redis__err__handler
"""


@pytest.mark.parametrize("name", _OUTSIDE.split())
def test_what_is_not_listed_is_not_there(toy: Any, name: str) -> None:
    assert MISSING % name.encode() in _error(toy, f"return {name}")
    assert MISSING % name.encode() in _error(toy, f"return _G['{name}']")


def test_no_python_object_is_anywhere_in_reach(toy: Any) -> None:
    """A walk over all tables, metatables and upvalues' results that a script can reach."""
    source = """
    local seen, found = {}, {}
    local function walk(value, path)
      local kind = type(value)
      if kind == 'userdata' and value ~= cjson.null then found[#found + 1] = path end
      if kind ~= 'table' or seen[value] then return end
      seen[value] = true
      for k, v in pairs(value) do
        walk(k, path .. '.key')
        walk(v, path .. '.' .. tostring(k))
      end
      walk(getmetatable(value), path .. '.metatable')
    end
    walk(_G, '_G')
    walk(getmetatable(''), 'string')
    walk(getmetatable(redis.call), 'function')
    walk(getmetatable(cjson.null), 'null')
    walk({pcall(redis.call)}, 'error')
    walk({redis.pcall('nosuch')}, 'pcall')
    walk({xpcall(function() redis.call({}) end, function(e) return e end)}, 'xpcall')
    walk({coroutine.resume(coroutine.create(redis.call), 'nosuch')}, 'coroutine')
    walk({cjson.encode({}), cmsgpack.pack(1.1)}, 'library')
    return found
    """
    assert toy.eval(source) == []


@pytest.mark.parametrize(
    "source",
    [
        "return redis.call.__globals__",
        "return redis.call['__class__']",
        "return redis.sha1hex.__self__",
        "return cjson.null.x",
        "cjson.null.x = 1",
        "return cjson.null()",
        "return #redis.call",
        "return redis.call + 1",
    ],
)
def test_functions_and_null_have_no_attributes(toy: Any, source: str) -> None:
    assert b"attempt to" in _error(toy, source)


def test_an_exception_of_a_command_is_an_error_of_the_script(toy: Any) -> None:
    def fail(_argv: list[bytes]) -> None:
        raise RuntimeError("inside")

    toy.extra[b"fail"] = fail
    assert _error(toy, "return redis.call('fail')").startswith(b"ERR inside script: ")
    assert toy.eval("return type(redis.pcall('fail').err)") == b"string"
    assert toy.eval("local _, e = pcall(redis.call, 'fail') return type(e)") == b"string"


@pytest.mark.parametrize(
    "source",
    [
        "return loadstring(string.char(27) .. 'LuaQ')",
        "local n = 0 return load(function() n = n + 1 return ({string.char(27), 'LuaQ'})[n] end)",
        "return string.dump",
    ],
)
def test_bytecode_is_neither_read_nor_written(toy: Any, source: str) -> None:
    assert toy.eval(source) is None


def test_compiled_text_stays_in_the_sandbox(toy: Any) -> None:
    assert toy.eval("return loadstring('return _G')() == _G") == 1
    assert MISSING % b"os" in _error(toy, "return loadstring('return os')()")
    assert READ_ONLY in _error(toy, "loadstring('x = 1')()")


@pytest.mark.parametrize(
    "source",
    [
        "x = 1",
        "KEYS = 1",
        "_G.x = 1",
        "rawset(_G, 'x', 1)",
        "rawset(redis, 'call', 1)",
        "setmetatable(_G, {})",
        "setmetatable(redis, {})",
        "redis.call = 1",
        "string.find = 1",
        "getmetatable('').__index = 1",
        "getmetatable('').__index.find = 1",
        "getmetatable(_G).__index = 1",
        "getmetatable(redis).__newindex = nil",
        "local _, shown = pairs(redis) shown.call = 1",
        "table.insert(redis, 1)",
        "table.remove(redis)",
        "table.sort(redis)",
        "function string.new() end",
        "table.foreach = 1",
    ],
)
def test_what_scripts_share_is_read_only(toy: Any, source: str) -> None:
    assert READ_ONLY in _error(toy, source)
    assert toy.eval("return {redis.call('ping').ok, (('abc'):find('b')), #KEYS}") == [b"PONG", 2, 0]


def test_nothing_leaks_from_one_script_to_the_next(toy: Any) -> None:
    toy.eval("KEYS.x = 1 ARGV[9] = 1")
    assert toy.eval("return {KEYS.x or 'no', ARGV[9] or 'no'}") == [b"no", b"no"]


@pytest.mark.parametrize(
    "poison",
    [
        "math.randomseed(1/0)",
        "math.randomseed(0/0)",
        "cjson.encode_max_depth(0/0)",
        "cjson.decode_max_depth(0/0)",
        "cjson.encode_number_precision(0/0)",
    ],
)
def test_what_outlives_a_script_cannot_be_spoiled(toy: Any, poison: str) -> None:
    toy.eval(poison)
    number = toy.eval("return math.random(5)")
    assert 1 <= number <= 5
    assert toy.eval("return cjson.encode(cjson.decode('[1]'))") == b"[1]"
    assert b"nesting" in _error(toy, "local t = {} t.x = t return cjson.encode(t)")


LOOPS = [
    "while true do end",
    "while true do pcall(function() while true do end end) end",
    "while true do pcall(error) end",
    "local f f = function() local ok = pcall(f) while true do end end f()",
    "coroutine.wrap(function() while true do end end)()",
    "local c = coroutine.create(function() while true do end end) "
    "while true do coroutine.resume(c) end",
    "for i = 1, 1e9 do pcall(coroutine.wrap(function() while true do end end)) end",
    "return xpcall(function() error('x') end, function() while true do end end)",
    "xpcall(error, function() xpcall(error, function() while true do end end) end)",
    "return table.foreach({1}, function() while true do end end)",
    "return string.gsub('a', 'a', function() while true do end end)",
    "table.sort({3, 2, 1}, function() while true do end end)",
    "return load(function() while true do end end)",
    "local t = setmetatable({}, {__index = function() while true do end end}) return t.x",
    "local f = function() while true do end end "
    "return setmetatable({}, {__eq = f}) == setmetatable({}, {__eq = f})",
    "return tostring(setmetatable({}, {__tostring = function() while true do end end}))",
    "local s = ('x'):rep(100000) while true do s:upper() end",
    "local t = {} for i = 1, 3e5 do t[i] = i end while true do table.insert(t, 1, 1) end",
    "local t = {} for i = 1, 3e5 do t[i] = i end while true do table.concat(t, ',') end",
    "return string.find(('a'):rep(28), ('a*'):rep(8) .. 'b')",
    "return string.find(('a'):rep(3000), ('a?'):rep(3000) .. ('a'):rep(3000))",
    "return string.match(('a'):rep(1e6), '.-b')",
    "return string.gsub(('a'):rep(1e6), 'a*b', '')",
    "for w in string.gmatch(('a'):rep(1e6), '.-b') do end",
    "return string.find(('a'):rep(2e7), ('a'):rep(1e6) .. 'b', 1, true)",
]


@pytest.mark.parametrize("source", LOOPS)
def test_a_script_without_end_is_stopped(make_toy: Any, source: str) -> None:
    toy = make_toy(ScriptLimits(seconds=0.1))
    start = time.monotonic()
    text = _error(toy, source)
    assert b"it ran longer than 0.1 seconds without writing" in text
    assert time.monotonic() - start < 10, "the machine may be slow, but not for good"
    assert toy.eval("return 1") == 1
    assert toy.eval("for i = 1, 1e4 do end return 2") == 2, "the hook is back to normal"


def test_after_a_write_only_the_hard_limit_stops(make_toy: Any) -> None:
    toy = make_toy(ScriptLimits(seconds=0.05, seconds_after_write=0.3))
    start = time.monotonic()
    text = _error(toy, "redis.call('set', 'a', ARGV[1]) while true do end", args=[b"first"])
    assert time.monotonic() - start >= 0.3
    assert text.startswith(b"ERR Script stopped: it ran longer than 0.3 seconds; its writes stay")
    assert toy.data[b"a"] == b"first"
    assert toy.scripts.wrote
    assert b"without writing" in _error(toy, "while true do end"), "a new script starts anew"


HUNGRY = [
    "local s = 'a' while true do s = s .. s end",
    "return string.rep('a', 1e9)",
    "local t = {} for i = 1, 1e9 do t[i] = {} end",
    "local t = {} while true do t = {t} end",
    "local t = {} pcall(function() for i = 1, 1e9 do t[i] = {} end end) "
    "return redis.call('echo', 'x')",
    "local t = {} pcall(function() for i = 1, 1e9 do t[i] = {} end end) return redis.sha1hex('x')",
    "local t = {} pcall(function() for i = 1, 1e9 do t[i] = {} end end) "
    "while true do t[#t + 1] = redis.call('large') end",
    "return #redis.call('huge')",
    "return #redis.call('status')",
    "return redis.call('error')",
    "local s = ('x'):rep(5e7) return redis.call('half')",
    "local t = {} for i = 1, 1e9 do t[i] = redis.call('large') .. i end",
    "local t = {} for i = 1, 1e9 do t[i] = redis.call('many') end",
    "return cjson.decode('[' .. ('[],'):rep(1e7))",
]


@pytest.mark.parametrize("source", HUNGRY)
def test_a_script_that_takes_all_memory_fails_alone(make_toy: Any, source: str) -> None:
    toy = make_toy(ScriptLimits(seconds=60))
    toy.extra[b"huge"] = lambda argv: b"x" * (150 << 20)
    toy.extra[b"status"] = lambda argv: Status(b"x" * (150 << 20))
    toy.extra[b"error"] = lambda argv: ErrorReply(b"x" * (150 << 20))
    toy.extra[b"half"] = lambda argv: Status(b"x" * (60 << 20))
    toy.extra[b"large"] = lambda argv: b"x" * (900 << 10)
    toy.extra[b"many"] = lambda argv: [b"%d" % n for n in range(50_000)]
    assert b"not enough memory" in _error(toy, source)
    assert toy.eval("return redis.call('echo', ('x'):rep(10))") == b"x" * 10
    assert toy.eval("return #string.rep('a', 2e7)") == 20_000_000


def test_arguments_larger_than_the_memory_are_refused(toy: Any) -> None:
    """Pushed without room they would end the process."""
    assert b"not enough memory" in _error(toy, "return #ARGV[1]", args=[b"x" * (100 << 20)])
    assert b"not enough memory" in _error(toy, "return '" + "x" * (20 << 20) + "'")
    assert toy.eval("return #ARGV", args=[b"x"] * 100_000) == 100_000
    assert toy.eval("return {#KEYS, #ARGV, ARGV[5001]}", [b"k"] * 5000, [b"v"] * 5001) == [
        5000,
        5001,
        b"v",
    ]


@pytest.mark.parametrize(
    "source",
    [
        "local function f() return 1 + f() end return f()",
        "local function f(n) return coroutine.wrap(function() return f(n + 1) end)() end "
        "return f(1)",
        "return string.find(('a'):rep(300000), ('a?'):rep(300000))",
        "return cmsgpack.unpack(('\\145'):rep(1e6))",
        "local t = setmetatable({}, {}) getmetatable(t).__index = t return t.x",
        "return " + "(" * 300 + "1" + ")" * 300,
        "return " + "{" * 300 + "1" + "}" * 300,
        "return unpack({}, 1, 1e8)",
    ],
)
def test_deep_recursion_is_an_error(toy: Any, source: str) -> None:
    text = _error(toy, source)
    assert any(word in text for word in (b"overflow", b"levels", b"loop", b"unpack")), text
    assert toy.eval("return 1") == 1


def test_tail_recursion_needs_no_stack(toy: Any) -> None:
    source = "local function f(n) if n == 0 then return 'end' end return f(n - 1) end return f(1e5)"
    assert toy.eval(source) == b"end"


def test_the_collector_cannot_be_stopped(toy: Any) -> None:
    assert toy.eval("return collectgarbage('stop')") == 0
    assert toy.eval("for i = 1, 1e6 do local t = {i} end return collectgarbage('count') < 30000")


def test_scripts_do_not_nest(toy: Any) -> None:
    sha = toy.scripts.load(b"return 1")
    toy.extra[b"again"] = lambda argv: toy.scripts.run(sha, 0, [])
    assert b"not allowed from script" in _error(toy, "return redis.call('again')")


def test_without_the_library_the_error_says_what_to_install(
    toy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "lupa", None)
    assert _error(toy, "return 1").startswith(b"ERR scripts need Lua: install delaylog[redis]")
