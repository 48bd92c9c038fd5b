"""Traces that are asked for again and again are read on, and only a few are kept."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from delaylog.broker.calls.forms import descriptions
from tests.broker.engine.host import Host


class Asking:
    """Asks for traces as a call does, and notes where each reads the log from."""

    def __init__(self, host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
        self.host = host
        self.starts: list[int] = []
        log = host.engine.state.log
        hops = log.hops

        def noted(start: int) -> Any:
            self.starts.append(start)
            return hops(start)

        monkeypatch.setattr(log, "hops", noted)

    def ask(self, *ids: str) -> list[list[str]]:
        """The events of each message."""
        host = self.host

        async def run(work: Any) -> None:
            host.engine.run_inline(work)

        host.sync()
        node: Any = SimpleNamespace(
            engine=host.engine,
            clock=SimpleNamespace(now_ms=lambda: host.now_ms),
            machine=SimpleNamespace(steady_s=lambda: 0.0),
            run=run,
        )
        ctx: Any = SimpleNamespace(node=node)
        topic = host.topic
        asked = descriptions.traces_of(ctx, topic, topic.default, host.find(ids))  # type: ignore[arg-type]
        return [[step["event"] for step in trace.steps] for trace in asyncio.run(asked)]


@pytest.fixture
def asking(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    host = Host(tmp_path)
    yield Asking(host, monkeypatch)
    host.close()


def test_the_log_is_read_on(asking: Any) -> None:
    host = asking.host
    host.send(1, ids=["a"])
    assert asking.ask("a") == [["sent", "ready"]]
    end = host.engine.state.log.written_position
    taken = host.receive()
    assert asking.ask("a") == [["sent", "ready", "leased"]]
    host.ack(taken)
    assert asking.ask("a") == [["sent", "ready", "leased", "acked"]]
    assert asking.starts[0] < end == asking.starts[1] < asking.starts[2]


def test_few_are_kept(asking: Any) -> None:
    """The ones asked for least recently go; pages of several messages are not kept."""
    host = asking.host
    names = host.ids_of(host.send(descriptions.TRACES_KEPT + 1))
    for name in names:
        asking.ask(name)
    asking.ask(*names[:2])
    assert len(host.engine.state.recent_traces) == descriptions.TRACES_KEPT
    first = asking.starts[0]
    asking.ask(names[0])
    asking.ask(names[-1])
    assert asking.starts[-2] == first < asking.starts[-1]


def test_what_was_erased_is_not_told(asking: Any) -> None:
    host = asking.host
    host.send(1, ids=["a"])
    asking.ask("a")
    host.purge(force=True, erase=True)
    host.send(1, ids=["a"])
    assert asking.ask("a") == [["sent", "ready"]]
    ((_, erased, *_), _) = host.engine.state.recent_traces.popitem()
    assert erased == host.topic.erased > 0
