"""The seam to an endpoint: what redis-py hands over, and how calls fail and are repeated."""

from __future__ import annotations

import pytest
import redis

from delaylog.client.queues import DynoMessage
from tests.redis.recipes.calls import Calls, Script
from tests.redis.recipes.connection import (
    CommandRefused,
    Connection,
    EndpointUnreachable,
    RedisPyConnection,
)
from tests.redis.recipes.dyno.dyno_queue import DynoQueue
from tests.redis.recipes.support import Endpoint, FaultyConnection, HandClock, contents, deaf_port


def queue_on(connection: Connection, clock: HandClock) -> DynoQueue:
    return DynoQueue(connection, "q", shards=["a"], own_shard="a", clock=clock, sleep=clock.sleep)


def test_a_pipeline_answers_in_order_and_runs_to_its_end(
    connection: RedisPyConnection, client: redis.Redis
) -> None:
    assert connection.pipeline([("SET", "k", 1), ("INCR", "k"), ("GET", "k")])[1:] == [2, b"2"]
    with pytest.raises(CommandRefused) as caught:
        connection.pipeline([("HGET", "k", "f"), ("INCR", "k")])
    assert caught.value.code == "WRONGTYPE"
    assert client.get("k") == b"3"
    assert connection.pipeline([]) == []


def test_a_refusal_keeps_the_words_of_the_endpoint(connection: RedisPyConnection) -> None:
    with pytest.raises(CommandRefused) as caught:
        connection.execute("EVALSHA", "0" * 40, 0)
    assert caught.value.code == "NOSCRIPT"
    with pytest.raises(CommandRefused, match=r"^ERR "):
        connection.execute("ZADD", "k", "nonsense", "m")


def test_no_server_is_an_endpoint_out_of_reach() -> None:
    with deaf_port() as port, redis.Redis(host="127.0.0.1", port=port, retry=None) as client:
        connection = RedisPyConnection(client)
        with pytest.raises(EndpointUnreachable):
            connection.execute("PING")
        with pytest.raises(EndpointUnreachable):
            connection.pipeline([("PING",)])


def test_a_script_is_sent_whole_once(client: redis.Redis) -> None:
    """By digest after that; and again whole when the endpoint forgot it."""
    calls = Calls(RedisPyConnection(client))
    script = Script("return {KEYS[1], ARGV[1]}")
    client.script_flush()
    assert calls.script(script, ["k"], 7) == [b"k", b"7"]
    assert client.script_exists(script.digest) == [True]
    client.script_flush()
    assert calls.script(script, ["k"], "x") == [b"k", b"x"]


@pytest.mark.parametrize("carried_out", [False, True])
def test_a_broken_connection_is_tried_twice_more(
    connection: RedisPyConnection, clock: HandClock, *, carried_out: bool
) -> None:
    faulty = FaultyConnection(connection)
    queue = queue_on(faulty, clock)
    faulty.breaks, faulty.carried_out = 2, carried_out
    assert queue.push([DynoMessage("m")]) == ["m"]
    assert faulty.calls == 3
    assert queue.size() == 1


def test_a_connection_that_stays_broken_and_a_refusal_are_raised(
    connection: RedisPyConnection, client: redis.Redis, clock: HandClock
) -> None:
    """The first after three calls, the second at once."""
    faulty = FaultyConnection(connection)
    queue = queue_on(faulty, clock)
    faulty.breaks = 3
    with pytest.raises(EndpointUnreachable):
        queue.get("m")
    assert faulty.calls == 3
    client.set("dynoQueue.QUEUE.q.a", "no set")
    faulty.calls = 0
    with pytest.raises(CommandRefused, match="WRONGTYPE"):
        queue.peek(1)
    assert faulty.calls == 1


def test_a_client_that_decodes_serves_as_well(
    endpoint: Endpoint, client: redis.Redis, clock: HandClock
) -> None:
    """Text instead of bytes, on either protocol; the data is the same."""
    del client
    for protocol in (2, 3):
        with endpoint.client(protocol=protocol, decode_responses=True) as decoding:
            decoding.flushall()
            queue = queue_on(RedisPyConnection(decoding), clock)
            queue.push([DynoMessage("m", "é", priority=7)])
            [taken] = queue.pop(1)
            assert (taken.payload, taken.priority) == ("é", 7)
            clock.now_ms += 60_000
            assert queue.process_unacks() == 1
            assert queue.get_all_messages()[0].payload.startswith('{"id":"m"')
            assert queue.contains_predicate('"é"', local=True)
            assert contents(decoding)["dynoQueue.QUEUE.q.a"][1] == [("m", float(clock.now_ms))]
