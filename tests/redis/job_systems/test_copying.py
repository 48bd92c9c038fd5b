"""The program of docs/job-systems/redis-endpoint.md that copies the keys of another Redis."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import redis
from rq import Queue

from tests.redis.workers import Bench, now_ms
from tests.redis_reference import reference

PAGE = Path(__file__).parents[3] / "docs" / "job-systems" / "redis-endpoint.md"


def program(old_port: int, new_port: int) -> str:
    (text,) = re.findall(
        r"^```python\n(import redis\n.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL
    )
    return str(text.replace("6379", str(old_port)).replace("6380", str(new_port)))


def test_keys_copied_from_redis_are_jobs_here(bench: Bench) -> None:
    """Of RQ, which keeps lists, hashes, sets and sorted sets, and some keys for a time only."""
    with reference() as old, redis.Redis(port=old.port) as source:
        queue = Queue(connection=source)
        queue.enqueue("rq_jobs.add", 1, 0)
        begin = now_ms()
        queue.enqueue_in(timedelta(seconds=2), "rq_jobs.add", 2, 0)
        source.set("kept", "for a time", px=60_000)
        source.xadd("stream", {"not": "copied"})
        exec(program(old.port, bench.server.port))
    with bench.server.client() as here:
        assert 0 < here.pttl("kept") <= 60_000
        assert not here.exists("stream")
    with bench.worker("rq", "worker", "--with-scheduler", "--url", bench.server.url):
        assert bench.at_ms("add:2+0") >= begin // 1000 * 1000 + 2000
    assert bench.names() == ["add:1+0", "add:2+0"]
