"""Precompiled Lua can read and write the process's memory: no command takes it for a script.

The bytecode is what Lua itself makes of a harmless text. The words of the refusal are those of
redis-server, whose Lua reads none either.
"""

from __future__ import annotations

import pytest

from tests.broker.keyspace.effects import Pair
from tests.redis_reference import reference

lua51 = pytest.importorskip("lupa.lua51")

BYTECODE = lua51.LuaRuntime(encoding=None).eval(b"string.dump(loadstring('return 12345'))")


@pytest.mark.processes
@pytest.mark.parametrize(
    "command",
    [
        [b"EVAL", BYTECODE, b"0"],
        [b"SCRIPT", b"LOAD", BYTECODE],
        [b"EVAL", b"#!lua\n" + BYTECODE, b"0"],
    ],
    ids=["EVAL", "SCRIPT LOAD", "shebang"],
)
def test_bytecode_is_no_script(command: list[bytes]) -> None:
    answer = Pair().call(*command)
    assert answer.startswith(b"-ERR Error compiling script (new function): "), answer
    assert b": unexpected symbol near 'char(27)'" in answer
    with reference() as redis:
        request = b"*%d\r\n" % len(command)
        request += b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in command)
        assert redis.ask(request, until=b"\r\n") == answer


def test_bytecode_is_no_library() -> None:
    answer = Pair().call(b"FUNCTION", b"LOAD", b"#!lua name=x\n" + BYTECODE)
    assert answer.startswith(b"-ERR Error compiling function: "), answer
