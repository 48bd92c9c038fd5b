"""The queues of Dyno-queues, RMQ and camellia get the same replies from redis-server and from us.

Each file is a transcript (`tests/redis/differential/transcript.py`): the commands that the recipe
sends, recorded from a port of it with two consumers, a clock moved by hand and random calls, and
the replies of redis-server. Sections end with the content of all keys. Commands of a section go out
in one pipeline. What a transcript cannot show, scripts of competing clients, has its own test.
"""

from __future__ import annotations

import threading
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Final

import pytest

from tests.redis.differential.compare import alike
from tests.redis.differential.endpoints import SocketEndpoint
from tests.redis.differential.resp import parse
from tests.redis.differential.runner import plain
from tests.redis.differential.transcript import sections
from tests.redis.servers import TIMEOUT_S, RedisServer

FILES: Final = sorted(Path(__file__).parent.glob("*.txt"))
EMPTY: Final = [(b"FLUSHALL",), (b"SCRIPT", b"FLUSH")]
POP: Final = """\
local popped = {}
for at = 1, #ARGV do
  redis.call('ZADD', KEYS[2], 'NX', 1, ARGV[at])
  if redis.call('ZREM', KEYS[1], ARGV[at]) == 1 then
    popped[#popped + 1] = redis.call('HGET', KEYS[3], ARGV[at])
  end
end
return popped
"""
MESSAGES: Final = 3_000
PRODUCERS: Final = 3
CONSUMERS: Final = 3


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_replies_are_those_of_redis(endpoint: RedisServer, path: Path) -> None:
    with closing(SocketEndpoint(endpoint.host, endpoint.port)) as served:
        for section in sections(path):
            with closing(served.session()) as session:
                session.send(EMPTY)
                replies = session.send([line.argv for line in section.lines])
            for line, reply in zip(section.lines, map(parse, replies), strict=True):
                ((_, expected),) = line.said
                assert alike(line.argv, reply, expected), (
                    f"{section.title}: {line.text}\n  got {plain(reply)}\n  not {plain(expected)}"
                )


def test_each_message_is_popped_once_by_competing_clients(endpoint: RedisServer) -> None:
    """Consumers read the same ids, and pop them by one script while producers push."""
    popped: Counter[bytes] = Counter()
    guard = threading.Lock()

    def produce(first: int) -> None:
        with endpoint.client() as client:
            for number in range(first, MESSAGES, PRODUCERS):
                with client.pipeline(transaction=False) as pipe:
                    pipe.hset("bodies", f"m{number}", f"body {number}")
                    pipe.zadd("queue", {f"m{number}": number})
                    pipe.execute()

    def consume() -> None:
        with endpoint.client() as client:
            pop = client.register_script(POP)
            while popped.total() < MESSAGES:
                ids = client.zrange("queue", 0, 99)
                bodies = pop(keys=["queue", "unack", "bodies"], args=ids)
                with guard:
                    popped.update(bodies)

    works = [threading.Thread(target=produce, args=(n,), daemon=True) for n in range(PRODUCERS)]
    works += [threading.Thread(target=consume, daemon=True) for _ in range(CONSUMERS)]
    for work in works:
        work.start()
    for work in works:
        work.join(TIMEOUT_S)
    assert popped == Counter(b"body %d" % number for number in range(MESSAGES))
    with endpoint.client() as client:
        assert (client.zcard("queue"), client.zcard("unack")) == (0, MESSAGES)
