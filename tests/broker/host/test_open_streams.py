"""The registry of open streams: who is ended by what."""

from __future__ import annotations

from delaylog.broker.engine.errors import EngineError, NotLeadingError, UnknownError
from delaylog.broker.host.waiters import OpenStreams, StopsError, Waiters

A, B = ("default", "a", "default"), ("default", "b", "default")


class Stream:
    def __init__(self) -> None:
        self.whys: list[EngineError] = []

    def end(self, why: EngineError) -> None:
        self.whys.append(why)


def test_streams_end_by_group_or_all() -> None:
    streams, a, b = OpenStreams(), Stream(), Stream()
    streams.add(A, a)
    streams.add(B, b)
    assert len(streams) == 2
    gone = UnknownError("gone")
    streams.end(A, gone)
    assert (a.whys, b.whys) == ([gone], [])
    streams.remove(A, a)
    assert len(streams) == 1
    streams.end_all(gone)
    assert (a.whys, b.whys) == ([gone], [gone])


async def test_events_of_the_node_end_them() -> None:
    waiters, a, b = Waiters(), Stream(), Stream()
    waiters.streams.add(A, a)
    waiters.streams.add(B, b)
    waiters.drop(A)
    (why,) = a.whys
    assert (why.code, b.whys) == ("unknown", [])
    lost = NotLeadingError("lost")
    waiters.end_leading(lost)
    assert b.whys == [lost]
    waiters.close()
    assert isinstance(b.whys[-1], StopsError)
