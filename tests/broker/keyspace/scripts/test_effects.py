"""What scripts leave for the log: what they called, and never themselves."""

import pytest

from tests.broker.keyspace.effects import Pair, shown

WRITES = b"redis.call('set', KEYS[1], ARGV[1]) redis.call('rpush', KEYS[2], ARGV[1]) "
SELECTS = b"redis.call('select', 3) " + WRITES + b"return 1"
EFFECTS = [[b"set", b"a", b"x"], [b"rpush", b"b", b"x"]]


@pytest.mark.parametrize("prefix", [False, True], ids=["alone", "in MULTI"])
@pytest.mark.parametrize("ending", [b"return 1", b"error('end')", b"redis.call('incr', KEYS[2])"])
def test_calls_are_logged(prefix: bool, ending: bytes) -> None:
    pair = Pair()
    sha = pair.call(b"SCRIPT", b"LOAD", WRITES + ending).split(b"\r\n")[1]
    for name, script in ((b"EVALSHA", sha), (b"EVAL", WRITES + ending)):
        pair.effects.clear()
        if prefix:
            pair.call(b"MULTI")
        pair.call(name, script, b"2", b"a", b"b", b"x")
        if prefix:
            pair.call(b"EXEC")
        assert pair.effects == EFFECTS
    pair.check()


def test_a_script_selects_for_itself() -> None:
    pair = Pair()
    pair.call(b"EVAL", SELECTS, b"2", b"a", b"b", b"x")
    assert pair.effects == [[b"SELECT", b"3"], *EFFECTS]
    pair.call(b"SET", b"a", b"y")
    assert pair.effects[3:] == [[b"SET", b"a", b"y"]]
    assert shown(pair.call(b"EXISTS", b"a", b"b")) == ":1"
    pair.check()


def test_statuses_are_tables_of_their_own() -> None:
    """OK, which most writes answer, is made in Lua; a script may change what it got."""
    pair = Pair()
    script = (
        b"local one = redis.call('set', KEYS[1], 1) one.ok = 'X' "
        b"local two = redis.pcall('set', KEYS[1], 2) "
        b"local three = redis.call('set', KEYS[1], 3) "
        b"return {one.ok, two.ok, three.ok, type(redis.call('get', 'none'))}"
    )
    assert shown(pair.call(b"EVAL", script, b"1", b"a")) == "*4 X OK OK boolean"


@pytest.mark.parametrize("keys", range(5))
@pytest.mark.parametrize("args", range(4))
def test_keys_and_arguments(keys: int, args: int) -> None:
    pair = Pair()
    words = [b"%d" % number for number in range(keys + args)]
    script = (
        b"local function ends(t) for k in pairs(t) do if k > #t then return false end end "
        b"return true end "
        b"return {#KEYS, #ARGV, tostring(ends(KEYS) and ends(ARGV)), table.concat(KEYS, ','), "
        b"table.concat(ARGV, ','), select('#', unpack(ARGV))}"
    )
    reply = pair.call(b"EVAL", script, b"%d" % keys, *words).split(b"\r\n")
    assert reply[1:3] == [b":%d" % keys, b":%d" % args]
    assert reply[4] == b"true"
    assert reply[6] == b",".join(words[:keys])
    assert reply[8] == b",".join(words[keys:])
    assert reply[9] == b":%d" % args


@pytest.mark.parametrize(
    ("count", "reply"),
    [
        (b"3", "-ERR Number of keys can't be greater than number of args"),
        (b"-1", "-ERR Number of keys can't be negative"),
        (b"x", "-ERR value is not an integer or out of range"),
        (b"10", "-ERR Number of keys can't be greater than number of args"),
        (b"02", "-ERR value is not an integer or out of range"),
    ],
)
def test_numbers_of_keys(count: bytes, reply: str) -> None:
    pair = Pair()
    sha = pair.call(b"SCRIPT", b"LOAD", b"return 1").split(b"\r\n")[1]
    assert shown(pair.call(b"EVALSHA", sha, count, b"a", b"b")) == reply
    assert shown(pair.call(b"EVAL", b"return 1", count, b"a", b"b")) == reply
