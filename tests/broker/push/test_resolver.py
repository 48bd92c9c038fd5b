"""Look-ups of names: those that hang, fail or cannot start stop no others."""

from __future__ import annotations

import asyncio
import socket
from threading import Event, Thread
from typing import Any

import pytest

from delaylog.broker.push.attempts import LOOKUPS_MAX, Resolver
from tests.waiting import until

LOOPBACK = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 80))]


class Names:
    """A name server: names that begin with `hangs` have no address, once `go_on` is set."""

    def __init__(self) -> None:
        self.go_on = Event()
        self.hangs: tuple[str, ...] = ("hangs",)
        self.asked: list[str] = []

    def look(self, host: str, *_: Any) -> list[Any]:
        self.asked.append(host)
        if not host.startswith(self.hangs):
            return LOOPBACK
        assert self.go_on.wait(60)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    made = Names()
    monkeypatch.setattr(socket, "getaddrinfo", made.look)
    return made


def looking(resolver: Resolver, *hosts: str, port: int = 0) -> list[asyncio.Task[Any]]:
    """Look-ups that have begun."""
    return [asyncio.create_task(resolver.resolve(host, port)) for host in hosts]


async def ended(names: Names, tasks: list[asyncio.Task[Any]]) -> None:
    """Let hanging look-ups end."""
    names.go_on.set()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_dead_name_servers_block_no_name_that_works(names: Names) -> None:
    """More names hang than may be looked up; one that worked before is found."""
    resolver = Resolver()
    await resolver.resolve("works")
    tasks = looking(resolver, *(f"hangs{number}" for number in range(2 * LOOKUPS_MAX)))
    await asyncio.sleep(0.1)
    async with asyncio.timeout(30):
        (found,) = await resolver.resolve("works")
    assert found["host"] == "127.0.0.1"
    await ended(names, tasks)


async def test_a_name_that_works_is_good_while_it_is_looked_up(names: Names) -> None:
    """The look-ups of bad names are all in use; one at another port does not wait for them."""
    resolver = Resolver()
    bad = [f"hangs{number}" for number in range(LOOKUPS_MAX // 4)]
    await resolver.resolve("works")
    await ended(names, looking(resolver, *bad))
    names.go_on.clear()
    names.hangs = ("hangs", "works")
    tasks = looking(resolver, *bad, "works")
    await asyncio.sleep(0.1)
    names.hangs = ("hangs",)
    async with asyncio.timeout(30):
        assert await resolver.resolve("works", 443)
    await ended(names, tasks)


async def test_new_names_that_hang_do_not_wait_among_good_ones(names: Names) -> None:
    """Neither at the first look-up nor at others, whether the first one has ended or not."""
    resolver = Resolver()
    hosts = [f"hangs{number}" for number in range(LOOKUPS_MAX)]
    tasks = looking(resolver, *hosts) + looking(resolver, *hosts, port=443)
    await until(lambda: len(names.asked) >= LOOKUPS_MAX // 4)
    await asyncio.sleep(0.1)
    assert len(names.asked) == LOOKUPS_MAX // 4
    await ended(names, tasks)
    names.go_on.clear()
    names.asked.clear()
    tasks = looking(resolver, *hosts)
    await until(lambda: len(names.asked) >= LOOKUPS_MAX // 4)
    await asyncio.sleep(0.1)
    assert len(names.asked) == LOOKUPS_MAX // 4
    await ended(names, tasks)


async def test_look_ups_without_a_thread_use_up_no_room(
    names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: Thread) -> None:
        raise RuntimeError("can't start new thread")

    resolver = Resolver()
    with monkeypatch.context() as patch:
        patch.setattr(Thread, "start", start)
        for number in range(LOOKUPS_MAX):
            with pytest.raises(RuntimeError, match="new thread"):
                await resolver.resolve(f"new{number}")
    async with asyncio.timeout(30):
        assert await resolver.resolve("new")
