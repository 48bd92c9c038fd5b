"""Sorted sets answer as redis-server 7.0.15, and what they log brings about the same.

Method: the replies of the table were taken from the real server, in RESP2 and (third column, where
it differs) in RESP3, with the lengths of bulk strings left out.
"""

from __future__ import annotations

import re
from random import Random

import pytest

from delaylog.broker.keyspace.applying import apply_effects
from delaylog.broker.keyspace.keyspace import Keyspace
from delaylog.broker.keyspace.running.executor import Executor
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.values.sorted_set import SortedSetValue

REPLIES: list[tuple[str, ...]] = [
    ("ZADD z 1 a 2 b 3 c", ":3"),
    ("ZADD z CH 1 a 5 b 4 d", ":2"),
    ("ZADD z NX 9 a 9 e", ":1"),
    ("ZADD z XX CH 7 a 7 nobody", ":1"),
    ("ZADD z GT CH 6 a 8 b", ":1"),
    ("ZADD z LT CH 6 a 9 b", ":1"),
    ("ZADD z INCR 1.5 a", "7.5", ",7.5"),
    ("ZADD z NX INCR 1 a", "$-1", "_"),
    ("ZADD z GT INCR -1 a", "$-1", "_"),
    ("ZADD none XX INCR 1 a", "$-1", "_"),
    ("ZADD z NX XX 1 a", "-ERR XX and NX options at the same time are not compatible"),
    ("ZADD z GT NX 1 a", "-ERR GT, LT, and/or NX options at the same time are not compatible"),
    ("ZADD z GT LT 1 a", "-ERR GT, LT, and/or NX options at the same time are not compatible"),
    ("ZADD z INCR 1 a 2 b", "-ERR INCR option supports a single increment-element pair"),
    ("ZADD z 1 a 2", "-ERR syntax error"),
    ("ZADD z NX a", "-ERR syntax error"),
    ("ZADD z one a", "-ERR value is not a valid float"),
    ("ZADD z nan a", "-ERR value is not a valid float"),
    ("ZADD z 1e400 a", "-ERR value is not a valid float"),
    ("ZADD z 1e-400 a", "-ERR value is not a valid float"),
    ("ZINCRBY z inf i", "inf", ",inf"),
    ("ZINCRBY z -inf i", "-ERR resulting score is not a number (NaN)"),
    ("ZADD z 0.1 tenth 1658492212132.07 due 1e17 big 0x10 hex -0 zero", ":5"),
    (
        "ZRANGE z 0 -1 WITHSCORES",
        "*22 zero 0 tenth 0.10000000000000001 c 3 d 4 a 7.5 b 8 e 9 hex 16 "
        "due 1658492212132.0701 big 1e+17 i inf",
        "*11 *2 zero ,0 *2 tenth ,0.10000000000000001 *2 c ,3 *2 d ,4 *2 a "
        ",7.5 *2 b ,8 *2 e ,9 *2 hex ,16 *2 due ,1658492212132.0701 "
        "*2 big ,1e+17 *2 i ,inf",
    ),
    ("ZSCORE z due", "1658492212132.0701", ",1658492212132.0701"),
    ("ZMSCORE z tenth nobody", "*2 0.10000000000000001 $-1", "*2 ,0.10000000000000001 _"),
    ("ZRANK z a", ":4"),
    ("ZREVRANK z a", ":6"),
    ("ZRANK z nobody", "$-1", "_"),
    ("ZCARD z", ":11"),
    ("ZCOUNT z (0 +inf", ":10"),
    ("ZCOUNT z a b", "-ERR min or max is not a float"),
    ("ZRANGE z 0 (9 BYSCORE LIMIT 1 2", "*2 tenth c"),
    (
        "ZRANGE z +inf 3 BYSCORE REV LIMIT 0 2 WITHSCORES",
        "*4 i inf big 1e+17",
        "*2 *2 i ,inf *2 big ,1e+17",
    ),
    (
        "ZRANGE z 0 1 LIMIT 0 1",
        "-ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX",
    ),
    (
        "ZRANGE z - + BYLEX WITHSCORES",
        "-ERR syntax error, WITHSCORES not supported in combination with BYLEX",
    ),
    ("ZRANGE z 0 x", "-ERR value is not an integer or out of range"),
    ("ZRANGE z x y BYLEX", "-ERR min or max not valid string range item"),
    ("ZRANGEBYSCORE z 0 1700000000000 LIMIT 0 1", "*1 zero"),
    ("ZREVRANGEBYSCORE z inf 0 WITHSCORES LIMIT 0 1", "*2 i inf", "*1 *2 i ,inf"),
    ("ZREVRANGE z 0 1 WITHSCORES", "*4 i inf big 1e+17", "*2 *2 i ,inf *2 big ,1e+17"),
    ("ZADD l 0 a 0 b 0 c 0 d", ":4"),
    ("ZRANGEBYLEX l [b (d", "*2 b c"),
    ("ZREVRANGEBYLEX l + (b LIMIT 1 1", "*1 c"),
    ("ZLEXCOUNT l - (c", ":2"),
    ("ZRANGESTORE t z 0 2", ":3"),
    ("ZRANGESTORE t z 5 2", ":0"),
    ("ZREMRANGEBYLEX l [a (b", ":1"),
    ("ZREMRANGEBYRANK l -1 -1", ":1"),
    ("ZREMRANGEBYSCORE l 0 0", ":2"),
    ("ZPOPMIN z", "*2 zero 0", "*2 zero ,0"),
    ("ZPOPMIN z 2", "*4 tenth 0.10000000000000001 c 3", "*2 *2 tenth ,0.10000000000000001 *2 c ,3"),
    ("ZPOPMAX z -1", "-ERR value is out of range, must be positive"),
    ("ZPOPMAX none", "*0"),
    (
        "ZMPOP 2 none z MAX COUNT 2",
        "*2 z *2 *2 i inf *2 big 1e+17",
        "*2 z *2 *2 i ,inf *2 big ,1e+17",
    ),
    ("ZMPOP 1 none MIN", "*-1", "_"),
    ("ZMPOP 0 z MIN", "-ERR numkeys should be greater than 0"),
    ("ZMPOP 1 z MIN COUNT 0", "-ERR count should be greater than 0"),
    ("BZPOPMIN none z 0", "*3 z d 4", "*3 z d ,4"),
    ("BZMPOP 1 1 z MAX", "*2 z *1 *2 due 1658492212132.0701", "*2 z *1 *2 due ,1658492212132.0701"),
    ("BZPOPMAX z -1", "-ERR timeout is negative"),
    ("BZPOPMAX z 1e400", "-ERR timeout is negative"),
    ("ZADD x 1 a 2 b 3 c", ":3"),
    ("ZADD y 10 b 20 c inf d", ":3"),
    (
        "ZUNION 2 x y WEIGHTS 2 0 WITHSCORES",
        "*8 d 0 a 2 b 4 c 6",
        "*4 *2 d ,0 *2 a ,2 *2 b ,4 *2 c ,6",
    ),
    ("ZINTER 2 x y AGGREGATE MAX WITHSCORES", "*4 b 10 c 20", "*2 *2 b ,10 *2 c ,20"),
    ("ZDIFF 2 x y WITHSCORES", "*2 a 1", "*1 *2 a ,1"),
    ("ZINTERCARD 2 x y LIMIT 1", ":1"),
    ("ZINTERCARD 2 x y LIMIT -1", "-ERR LIMIT can't be negative"),
    ("ZUNIONSTORE u 2 x y AGGREGATE MIN", ":4"),
    ("ZINTERSTORE u 2 x none", ":0"),
    ("ZUNION 0 x", "-ERR at least 1 input key is needed for 'zunion' command"),
    ("ZDIFFSTORE u 9 x", "-ERR syntax error"),
    ("ZUNION 1 x WEIGHTS one", "-ERR weight value is not a float"),
    ("ZRANDMEMBER x 9 WITHSCORES", "*6 c 3 b 2 a 1", "*3 *2 c ,3 *2 b ,2 *2 a ,1"),
    ("ZRANDMEMBER none", "$-1", "_"),
    ("ZRANDMEMBER none 2", "*0"),
    ("ZSCAN x 0 MATCH [ab]", "*2 0 *4 a 1 b 2"),
    ("ZREM x a nobody", ":1"),
    ("ZREM x b c", ":2"),
    ("ZCARD x", ":0"),
    ("SET string 1", "+OK"),
    ("ZADD string 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
    ("ZPOPMIN string", "-WRONGTYPE Operation against a key holding the wrong kind of value"),
]


class Client:
    """A session that is spoken to in words."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor
        self.session: Session = executor.connect(0)

    def ask(self, *words: str) -> str:
        """The reply to a command, or to each of several, in words."""
        self.executor.handle(self.session, [line.encode().split(b" ") for line in words])
        return self.told()

    def told(self) -> str:
        text = b"".join(self.session.out).decode()
        self.session.out.clear()
        return re.sub(r"\$\d+ ", "", text.replace("\r\n", " ")).strip()


@pytest.fixture
def keyspace() -> Keyspace:
    return Keyspace(Random(1))


@pytest.fixture
def executor(keyspace: Keyspace) -> Executor:
    return Executor(keyspace)


@pytest.fixture
def client(executor: Executor) -> Client:
    return Client(executor)


def contents(keyspace: Keyspace) -> dict[bytes, tuple[list[tuple[float, bytes]], bool]]:
    found = {}
    for key, value in keyspace.databases[0].values.items():
        if isinstance(value, SortedSetValue):
            assert {member: score for score, member in value.order} == value.scores
            found[key] = (list(value.order), value.large)
    return found


@pytest.mark.parametrize("resp", [2, 3])
def test_replies(client: Client, keyspace: Keyspace, resp: int) -> None:
    client.ask(f"HELLO {resp}")
    for command, *replies in REPLIES:
        assert client.ask(command) == replies[0 if resp == 2 else -1], command
    other = Keyspace(Random(2))
    apply_effects(other, keyspace.take_effects())
    assert repr(contents(other)) == repr(contents(keyspace))


def test_what_changes_nothing_is_not_logged(client: Client, keyspace: Keyspace) -> None:
    client.ask("ZADD z 1 a", "ZUNIONSTORE u 1 z")
    keyspace.take_effects()
    other = Client(client.executor)
    other.ask("WATCH z none")
    client.ask("ZADD z 1 a", "ZADD z NX 2 a", "ZADD z GT 0 a", "ZADD z XX 1 b", "ZINCRBY z 0 a")
    client.ask("ZADD none XX 1 a", "ZREM z b", "ZREMRANGEBYSCORE z 5 6", "ZPOPMIN z 0")
    client.ask("ZADD z one b", "ZRANGESTORE none2 z 5 6", "ZRANDMEMBER z 3", "ZMPOP 1 none MIN")
    assert keyspace.take_effects() == []
    assert other.ask("MULTI", "ZCARD z", "EXEC") == "+OK +QUEUED *1 :1"


@pytest.mark.parametrize(
    ("waits", "then", "reply", "effects"),
    [
        ("BZPOPMIN a b 0", "ZADD b 2 y 1 x", "*3 b x 1", ["ZADD b 2 y 1 x", "ZPOPMIN b"]),
        ("BZPOPMAX a b 0", "ZADD b 2 y 1 x", "*3 b y 2", ["ZADD b 2 y 1 x", "ZPOPMAX b"]),
        (
            "BZMPOP 0 2 a b MIN COUNT 5",
            "ZADD b 2 y 1 x",
            "*2 b *2 *2 x 1 *2 y 2",
            ["ZADD b 2 y 1 x", "ZPOPMIN b 2"],
        ),
        ("BZPOPMIN a 0.01", "SET a 1", "", ["SET a 1"]),
    ],
)
def test_waiting(
    client: Client, executor: Executor, waits: str, then: str, reply: str, effects: list[str]
) -> None:
    waiting = Client(executor)
    assert waiting.ask(waits) == ""
    client.ask(then)
    assert waiting.told() == reply
    logged = [b" ".join(effect).decode() for effect in executor.keyspace.take_effects()]
    assert logged == effects


def test_who_waited_longest_is_served_first(client: Client, executor: Executor) -> None:
    first, second, third = (Client(executor) for _ in range(3))
    for waiting in (first, second, third):
        waiting.ask("BZPOPMIN z 0")
    client.ask("ZADD z 1 a 2 b")
    assert [waiting.told() for waiting in (first, second, third)] == ["*3 z a 1", "*3 z b 2", ""]


def test_the_key_that_changed_first_is_served(client: Client, executor: Executor) -> None:
    waiting = Client(executor)
    waiting.ask("BZPOPMIN a b 0")
    client.ask("MULTI", "ZADD b 1 x", "ZADD a 1 z", "EXEC")
    assert waiting.told() == "*3 b x 1"


def test_inside_of_multi_nobody_waits(client: Client) -> None:
    replies = client.ask("MULTI", "BZPOPMIN z 0", "BZMPOP 0 1 z MIN", "EXEC")
    assert replies == "+OK +QUEUED +QUEUED *2 *-1 *-1"


def test_large_sets(client: Client, keyspace: Keyspace) -> None:
    """Many blocks: ranks, ranges of many members, and scans are complete."""
    numbers = list(range(3_000))
    Random(5).shuffle(numbers)
    for number in numbers:
        client.ask(f"ZADD z {number // 2} m{number:04}")
    assert client.ask("ZRANK z m1999", "ZREVRANK z m1999") == ":1999 :1000"
    assert client.ask("ZRANGE z 2000 2001", "ZREVRANGE z 2 3") == "*2 m2000 m2001 *2 m2997 m2996"
    assert client.ask("ZCOUNT z 100 (1000", "ZCOUNT z (100 inf") == ":1800 :2798"
    limited = client.ask("ZRANGEBYSCORE z (700 inf LIMIT 600 2")
    assert limited == "*2 m2002 m2003"
    assert client.ask("ZREMRANGEBYSCORE z 100 1399", "ZCARD z") == ":2600 :400"
    assert client.ask("ZREMRANGEBYRANK z 10 -11", "ZRANGE z 9 10") == ":380 *2 m0009 m2990"
    value = keyspace.databases[0].values[b"z"]
    assert isinstance(value, SortedSetValue)
    assert value.large


def test_a_listpack_has_no_minus_zero(client: Client) -> None:
    assert client.ask("ZADD z -0 a", "ZSCORE z a") == ":1 0"
    long = "x" * 65
    assert client.ask(f"ZADD z -0 {long}", f"ZSCORE z {long}") == ":1 -0"


def test_a_copy_shares_nothing() -> None:
    executor = Executor(Keyspace(Random(1)))
    session = executor.connect(0)
    for words in (b"ZADD a 1 x 2 y", b"COPY a b", b"ZPOPMIN a", b"ZREM b x", b"ZADD b 5 y"):
        executor.execute(session, words.split())
    for key, score in (b"a", 2.0), (b"b", 5.0):
        value = executor.keyspace.databases[0].values[key]
        assert isinstance(value, SortedSetValue)
        assert list(value.order) == [(score, b"y")] == [(s, m) for m, s in value.scores.items()]
