"""What a user with rules is refused on a connection: as redis-server refuses it, word for word."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest

from tests.broker.resp.conftest import RespSecured
from tests.broker.resp.resp_client import RespClient
from tests.redis_reference import reference

RULES = (
    *("+@all", "-@dangerous", "-incr", "-flushall", "+config|get", "-config|set"),
    *("~a*", "%R~r*", "%W~w*", "&n*"),
)
LIBRARY = (
    "#!lua name=lib\nredis.register_function('f', function(keys, args) "
    "return redis.call(unpack(args)) end)"
)
RUNS = [
    [
        "SET a1 x",
        "GET a1",
        "GET z",
        "SET z x",
        "GET r",
        "SET r x",
        "SET w x",
        "GET w",
        "SET w x GET",
    ],
    [
        "COPY a1 r1",
        "COPY r1 a2",
        "RENAME a1 w1",
        "RENAME w1 a1",
        "SMOVE a w x",
        "LMOVE a z LEFT LEFT",
    ],
    ["EXISTS r", "EXISTS w", "EXISTS z", "STRLEN w", "TYPE z", "DEL r", "DEL a z", "MGET a r z"],
    [
        "INCR a",
        "FLUSHALL",
        "CONFIG GET maxclients",
        "CONFIG SET maxclients 9",
        "KEYS *",
        "SWAPDB 0 1",
    ],
    ["MULTI", "SET a 1", "SET z 1", "SET a 2", "EXEC", "GET a"],
    ["MULTI", "INCR a", "DISCARD", "MULTI", "SET a 3", "GET a", "EXEC"],
    ["WATCH a z", "WATCH a", "UNWATCH"],
    [
        "ZUNIONSTORE a 2 r z",
        "ZUNIONSTORE a 2 r a",
        "ZUNIONSTORE r 1 a",
        "ZUNION 2 a z",
        "ZUNION x a",
    ],
    ["XREAD STREAMS a z 0 0", "XREAD COUNT 1 STREAMS a 0", "XREADGROUP GROUP g c STREAMS z >"],
    ["BLPOP a z 0.01", "BLPOP r 0.01", "BLPOP a 0.01", "BZPOPMIN z 0.01", "BLMPOP 0.01 1 z LEFT"],
    ["EVAL 'return 1' 1 z", "EVAL 'return 1' 1 r", "EVAL_RO 'return 1' 1 r", "EVAL 'return 7' 1 a"],
    ["EVAL \"return redis.call('GET', 'r')\" 0", "EVAL \"return redis.call('GET', 'z')\" 0"],
    ["EVAL \"return redis.call('INCR', 'a')\" 0", "EVAL \"return redis.pcall('SET', 'r', 1)\" 0"],
    [
        "EVAL \"return redis.call('PUBLISH', 'x', 1)\" 0",
        "EVAL \"return redis.call('PUBLISH', 'n', 1)\" 0",
    ],
    [
        "EVAL \"return redis.acl_check_cmd('GET', 'z')\" 0",
        "EVAL \"return redis.acl_check_cmd('INCR', 'a')\" 0",
    ],
    [
        "EVAL \"return redis.acl_check_cmd('GET', 'a')\" 0",
        "EVAL \"return redis.acl_check_cmd('NO')\" 0",
    ],
    [
        "FCALL f 1 z",
        "FCALL f 0 GET z",
        "FCALL f 0 SET r 1",
        "FCALL f 0 SET a 1",
        "FCALL f 0 INCR a",
    ],
    ["FUNCTION LIST", "FUNCTION FLUSH", "SCRIPT FLUSH", "CLIENT LIST", "CLIENT KILL ID 1"],
    [
        "PUBLISH n 1",
        "PUBLISH x 1",
        "SUBSCRIBE x",
        "SUBSCRIBE n x",
        "PSUBSCRIBE x*",
        "PSUBSCRIBE n1*",
    ],
    ["SUBSCRIBE n1", "PSUBSCRIBE n*"],
    [
        "OBJECT ENCODING z",
        "MEMORY USAGE z",
        "RESTORE z 0 x",
        "XINFO STREAM z",
        "XGROUP CREATE z g $",
    ],
]
"""Commands of one connection each."""


class Pair:
    """Connections of the same user to both servers."""

    def __init__(self, secured: RespSecured, theirs: int) -> None:
        self._secured, self._theirs = secured, theirs
        self._secret = secured.principal("u", redis=RULES)
        with_rules = (*RULES, f">{self._secret}")
        admins = [RespClient(theirs), secured.connect()]
        assert admins[0].call("ACL", "SETUSER", "u", "on", *with_rules) == b"OK"
        for admin in admins:
            assert admin.call("FUNCTION", "LOAD", LIBRARY) == b"lib"
            admin.call("LPUSH", "a-list", "x")
            admin.close()

    def connect(self, *, logged_in: bool) -> list[RespClient]:
        """A connection to each; as an administrator, or as the user."""
        clients = [RespClient(self._theirs), self._secured.connect()]
        for client in clients:
            if logged_in:
                assert client.call("AUTH", "u", self._secret) == b"OK"
        return clients

    def compare(self, lines: list[str], *, logged_in: bool = True) -> None:
        """Send the same commands to both; the replies must be the same."""
        clients = self.connect(logged_in=logged_in)
        for line in lines:
            words = [word.replace("SECRET", self._secret) for word in shlex.split(line)]
            theirs, ours = (shown(client.call(*words)) for client in clients)
            assert ours == theirs, line
        for client in clients:
            client.close()


def shown(reply: Any) -> Any:
    """A reply to compare: errors as text without the digest of a script."""
    if isinstance(reply, list):
        return [shown(each) for each in reply]
    if isinstance(reply, Exception):
        return re.sub(r"script: \w+", "script", str(reply))
    return reply


@pytest.fixture(scope="module")
def pair(secured: RespSecured) -> Iterator[Pair]:
    with reference() as server:
        yield Pair(secured, server.port)


@pytest.mark.processes
@pytest.mark.parametrize("lines", RUNS, ids=lambda lines: lines[0].split()[0])
def test_refusals(pair: Pair, lines: list[str]) -> None:
    pair.compare(lines)


@pytest.mark.processes
def test_rights_may_change_before_exec(pair: Pair) -> None:
    queued = ["MULTI", "SET z 1", "AUTH u SECRET", "SET z 2", "INCR a", "PUBLISH x 1", "SET a 9"]
    pair.compare([*queued, "EXEC", "GET a"], logged_in=False)
