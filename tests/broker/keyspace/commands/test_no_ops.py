"""What changes nothing leaves nothing for the log, and nobody who watches hears of it.

Method: every write command in a form that finds nothing to do, on the data of SETUP.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from delaylog.broker.keyspace.registry import COMMANDS
from tests.broker.keyspace.effects import Pair, words

ROOT: Final = Path(__file__).parents[4]

SETUP = """
SET s v
SET n 5 PX 100000
RPUSH l a b
HSET h f v
SADD t a
SADD u b
ZADD z 1 a
XADD x 1-1 f v
XGROUP CREATE x g 0
"""

NO_OPS = """
SET s w NX
SET none w XX
SET s w NX GET
SETNX s w
GETDEL none
INCR s
INCRBY s x
DECR s
DECRBY s 1
INCRBYFLOAT s 1
SETEX s 0 v
PSETEX s 0 v
DEL none
UNLINK none other
EXPIRE none 100
EXPIRE s 100 XX
EXPIRE s 100 GT
PEXPIRE n 200000 NX
PEXPIRE n 1 GT
EXPIREAT none 99999999999
PEXPIREAT none 1
PERSIST s
PERSIST none
RENAME none other
RENAMENX s n
RESTORE s 0 x
LPOP none
LPOP l 0
RPOP none
LREM l 0 nosuch
LREM none 0 a
LSET l 9 a
LTRIM none 0 1
RPOPLPUSH none l
LMOVE none l LEFT LEFT
BLPOP s 0
BRPOP s 0
BRPOPLPUSH s l 0
BLMOVE s l LEFT LEFT 0
BZPOPMIN s 0
BZPOPMAX s 0
HSETNX h f w
HDEL h nosuch
HDEL none f
HINCRBY h f 1
HINCRBYFLOAT h f 1
SADD t a
SREM t nosuch
SREM none a
SPOP none
SPOP t 0
ZADD z 1 a
ZADD z NX 2 a
ZADD z XX 2 nosuch
ZADD none XX 1 a
ZADD z GT 0 a
ZADD z LT 2 a
ZADD z NX INCR 2 a
ZINCRBY z x a
ZINCRBY z 0 a
ZREM z nosuch
ZREM none a
ZREMRANGEBYSCORE z 5 6
ZREMRANGEBYRANK z 5 6
ZREMRANGEBYLEX z [x [y
ZPOPMIN none
ZPOPMAX z 0
XADD none NOMKSTREAM * f v
XADD x 1-1 f v
XDEL x 9-9
XDEL none 1-1
XTRIM x MAXLEN 5
XTRIM none MAXLEN 0
XACK x g 9-9
XACK none g 1-1
XGROUP CREATE x g 0
XGROUP DESTROY x nosuch
XGROUP DELCONSUMER x g nosuch
XGROUP SETID x nosuch 0
XCLAIM x nosuch c 0 1-1
XAUTOCLAIM x nosuch c 0 0
XREADGROUP GROUP nosuch c STREAMS x >
GETSET l v
MSET s
EVAL "return redis.call('del', 'none')" 0
EVAL "return redis.call('sadd', KEYS[1], 'a')" 1 t
"""

ALWAYS = {
    *("flushall", "flushdb", "hset", "hmset", "lpush", "rpush", "function"),
}
"""Write commands that change something whenever they are answered, or are tested elsewhere."""

LINES = [line for line in NO_OPS.splitlines() if line]


def filled() -> Pair:
    pair = Pair()
    for line in SETUP.split("\n"):
        if line:
            assert pair.effects_of(line), line
    return pair


@pytest.mark.parametrize("line", LINES)
def test_nothing_is_logged_when_nothing_changed(line: str) -> None:
    pair = filled()
    keys = [key for database in pair.leader.databases for key in database.values]
    watcher = pair.executor.connect(pair.leader.now_ms)
    pair.executor.handle(watcher, [[b"WATCH", *keys, b"none", b"other"]])
    assert pair.effects_of(line) == []
    assert not watcher.dirty_watch
    pair.check()


def test_all_write_commands_are_here() -> None:
    tried = {words(line)[0].lower().decode() for line in LINES}
    writes = {
        name.decode() for name, command in COMMANDS.items() if command.write and b"." not in name
    }
    missing = sorted(writes - tried - ALWAYS)
    assert not missing, "LINES has a call without an effect, or ALWAYS the name if there is none"


def test_every_command_is_compared_and_listed() -> None:
    """With redis-server, by its family or its traps; and no page calls it unknown."""
    compared = "".join(
        path.read_text().upper()
        for folder in ("families", "traps")
        for path in (ROOT / "tests/redis/differential" / folder).iterdir()
    )
    page = (ROOT / "docs/REDIS.md").read_text()
    unknown = page.partition("**Unknown commands:**")[2].partition("**Unknown sub")[0]
    names = {name.decode().upper() for name in COMMANDS if b"." not in name}
    # A redis-server that keeps data is no sentinel.
    missing = names - set(re.findall(r"[A-Z]+", compared)) - {"SENTINEL"}
    assert not missing, "tests/redis/differential has a line with each command"
    listed = set(re.findall(r"(?<!but )\b[A-Z]{3,}\b", unknown))
    assert not names & listed, "docs/REDIS.md calls no known command unknown"
