"""What the sections of `everyday` share: how a round is run, and targets that know the machine.

The targets were set on a machine whose bare aiohttp handler took so many microseconds. The one
rule: a bound on rates or processor time is scaled by what the same handler takes in this run, so
that a verdict speaks about the broker; a bound on lateness is not, since users see it as it is.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from broker_process import Brokers, ServerProcess
from clients import counts
from load import LoadError
from redis_peer import RedisProcess
from resp_lane import RespLane
from rounds import Case, Endpoint, Round, in_turns
from settings import Settings
from tables import Target, at_least, at_most, microseconds, rate

# The bare handler on 50 connections when the targets were set.
HANDLER_US: Final = 46.0
RESP: Final = ("--resp", "127.0.0.1:0")
READY_WITHIN_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Yardstick:
    """Processor time a request of bare handlers in this run, in us: with 50 clients, with one, and
    with one whose body is synced by a thread."""

    handler_us: float
    alone_us: float
    synced_us: float

    @property
    def slowness(self) -> float:
        """How many times as long as when the targets were set."""
        return self.handler_us / HANDLER_US

    def rate(self, figures: Mapping[str, Any], bound: float) -> Target:
        """At least so many a second."""
        scaled = bound / self.slowness
        return at_least(figures["rate"], scaled, f"{rate(scaled)}/s")

    def cost(self, figures: Mapping[str, Any], bound_us: float) -> Target:
        """At most so much processor time of the server."""
        scaled = bound_us * self.slowness
        return at_most(figures["server_us"], scaled, f"{microseconds(scaled)} us")


@dataclass(frozen=True, slots=True)
class Bench:
    """Where servers come from, and how long they are measured."""

    brokers: Brokers
    settings: Settings
    # The folder with redis-server.
    programs: Path

    def compare(self, cases: Mapping[str, Case]) -> dict[str, list[Round]]:
        """Rounds of all cases, in turns."""
        return in_turns(cases, self.settings.everyday_rounds, self.settings.everyday_round_s)

    @contextmanager
    def redis(self, fsync: str = "everysec") -> Iterator[RedisProcess]:
        """A running Redis without any data."""
        with self.brokers.folder() as folder, RedisProcess(self.programs, folder, fsync) as redis:
            yield redis


def http_of(server: ServerProcess) -> Endpoint:
    """Where a broker or a bare handler speaks HTTP."""
    return Endpoint(server.port, server.process_id)


def resp_of(server: ServerProcess) -> Endpoint:
    """Where a broker, or Redis, speaks RESP."""
    port = server.port if isinstance(server, RedisProcess) else server.port_of("resp")
    return Endpoint(port, server.process_id, RespLane)


def await_ready(port: int, topic: str, messages: int) -> None:
    """Wait until that many messages of a topic are ready."""
    deadline = time.monotonic() + READY_WITHIN_S
    while counts(port, topic)["ready"] != messages:
        if time.monotonic() > deadline:
            raise LoadError(f"{messages} messages should be ready, it is {counts(port, topic)}")
        time.sleep(0.05)


def check_counts(port: int, topic: str, **expected: int) -> None:
    """Raise LoadError unless a topic has so many messages in the states that are named."""
    found = counts(port, topic)
    if any(found[state] != count for state, count in expected.items()):
        raise LoadError(f"topic {topic} should have {expected}, it has {found}")
