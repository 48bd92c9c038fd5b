"""Libraries as a whole: replacing, deleting, dumping; the words of refusals are compared with Redis
in tests/redis/differential/test_lua.py."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.scripts import FunctionLibraries
from tests.broker.keyspace.effects import Pair, shown


def _library(name: str, *functions: str) -> bytes:
    lines = [
        f"redis.register_function('{f}', function(k, a) return '{name}' end)" for f in functions
    ]
    return "\n".join([f"#!lua name={name}", *lines]).encode()


def _call(toy: Any, name: bytes) -> Any:
    return toy.functions.call(name, 0, [])


def test_a_library_replaces_deletes_and_lists(toy: Any) -> None:
    functions = toy.functions
    assert functions.load(_library("x", "f", "g")) == b"x"
    assert _call(toy, b"g") == b"x"
    with pytest.raises(CommandError, match="Library 'x' already exists"):
        functions.load(_library("x", "h"))
    with pytest.raises(CommandError, match="Function g already exists"):
        functions.load(_library("y", "g"))
    functions.load(_library("x", "g", "h"), replace=True)
    with pytest.raises(CommandError, match="Function not found"):
        _call(toy, b"f")
    (library,) = functions.libraries()
    assert (library.name, list(library.functions)) == (b"x", [b"g", b"h"])
    functions.delete(b"x")
    with pytest.raises(CommandError, match="Library not found"):
        functions.delete(b"x")
    assert list(functions.libraries()) == []


def test_a_replacement_that_fails_changes_nothing(toy: Any) -> None:
    toy.functions.load(_library("x", "f"))
    toy.functions.load(_library("y", "g"))
    for source in (_library("x"), b"#!lua name=x\nbad bad", _library("x", "g")):
        with pytest.raises(CommandError):
            toy.functions.load(source, replace=True)
    assert _call(toy, b"f") == b"x"
    assert _call(toy, b"g") == b"y"


def test_named_arguments_are_listed(toy: Any) -> None:
    toy.functions.load(
        b"#!lua name=x\nredis.register_function{function_name='f', description='does f', "
        b"flags={'no-writes', 'allow-stale'}, "
        b"callback=function(keys, args) return {keys[1], args[2]} end}"
    )
    function = toy.functions.function(b"f")
    assert (function.description, function.flags) == (b"does f", [b"no-writes", b"allow-stale"])
    assert toy.functions.call(b"f", 1, [b"k", b"1", b"2"]) == [b"k", b"2"]
    assert toy.functions.function(b"g") is None


def test_a_function_without_writes_cannot_write(toy: Any) -> None:
    toy.functions.load(
        b"#!lua name=x\nredis.register_function{function_name='f', flags={'no-writes'}, "
        b"callback=function() return redis.call('set', 'a', 'b') end}"
    )
    with pytest.raises(CommandError, match="Write commands are not allowed"):
        _call(toy, b"f")


def test_locals_of_a_library_are_kept_between_calls(toy: Any) -> None:
    toy.functions.load(
        b"#!lua name=x\nlocal n = 0\n"
        b"redis.register_function('f', function() n = n + 1 return n end)"
    )
    assert [_call(toy, b"f") for _ in range(3)] == [1, 2, 3]


def test_what_is_dumped_is_loaded_again(toy: Any, make_toy: Any) -> None:
    toy.functions.load(_library("x", "f"))
    toy.functions.load(_library("y", "g"))
    dump = toy.functions.dump()
    assert list(dump) == [b"x", b"y"]
    other = make_toy()
    for source in dump.values():
        other.functions.load(source)
    assert _call(other, b"g") == b"y"
    with pytest.raises(CommandError):
        other.functions.load(dump[b"x"])
    assert other.functions.dump() == dump
    assert _call(other, b"f") == b"x"


def test_a_library_that_does_not_end(toy: Any) -> None:
    toy.eval("redis.call('set', 'a', 'b')")  # which gives no library more time
    with pytest.raises(
        CommandError, match="Error registering functions: ERR FUNCTION LOAD timeout"
    ):
        toy.functions.load(b"#!lua name=x\nwhile true do end")
    assert toy.functions.load(_library("x", "f")) == b"x"
    assert _call(toy, b"f") == b"x"
    assert toy.eval("return {#KEYS, type(redis.call)}") == [0, b"function"]


def test_flushed_libraries_are_gone() -> None:
    pair = Pair()
    host = pair.executor.run.shared.scripting
    seen: list[weakref.ref[FunctionLibraries]] = []
    for number in range(5):
        source = _library("x", "f") + b"\n-- %d" % number
        assert shown(pair.call(b"FUNCTION", b"LOAD", b"REPLACE", source)) == "x"
        seen.append(weakref.ref(host.functions()))
        assert pair.send("FUNCTION FLUSH") == "+OK"
    assert pair.send("FCALL f 0") == "-ERR Function not found"
    gc.collect()
    assert [one() for one in seen] == [None] * 5
    assert pair.call(b"FUNCTION", b"LOAD", _library("x", "f")).endswith(b"x\r\n")
    hungry = pair.send("EVAL \"local s = 'a' while true do s = s .. s end\" 0")
    assert "not enough memory" in hungry
    assert pair.send("FCALL f 0") == "x"
