"""Transactions on an engine without network: what the tests of them share."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from delaylog.broker.engine.engine import Engine
from delaylog.broker.engine.transactions import commands as deciding
from delaylog.broker.engine.transactions.commands import PartName, Winner
from tests.broker.engine.host import batch_of

ROOM = 1 << 60


class Transactions:
    """Calls about transactions of one engine, at a time that the caller keeps."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @property
    def table(self) -> Any:
        return self.engine.state.transactions

    def begin(self, name: str, now_ms: int, ttl_ms: int | None = None) -> str:
        return deciding.begin(self.engine.state, name, ttl_ms, now_ms)

    def stage(
        self,
        name: str,
        bodies: Sequence[bytes],
        now_ms: int,
        *,
        part: int = 0,
        attempt: int = 0,
        number: int = 0,
        topic: str = "t",
        **members: Any,
    ) -> bool:
        return deciding.stage(
            self.engine.state,
            name,
            PartName("", part, attempt, number),
            deciding.Content(("default", topic), batch_of(bodies, **members)),
            now_ms,
            free_bytes=ROOM,
        )

    def commit(self, name: str, now_ms: int, *winners: tuple[int, int, int]) -> bool:
        """Winners are (part, attempt, rows)."""
        named = [Winner(None, *winner) for winner in winners]
        return deciding.commit(self.engine.state, name, named, now_ms, free_bytes=ROOM)

    def abort(self, name: str, now_ms: int) -> bool:
        return deciding.abort(self.engine.state, name, now_ms)

    def look(self, name: str) -> Any:
        return deciding.find_transaction(self.engine.state, name)

    def publishing(self, now_ms: int, frame_s: float = 1.0) -> Any:
        """The publisher's work, in which each frame seems to take `frame_s`.

        With the default, a slice has one frame and stays small.
        """
        frames = itertools.count()
        return self.engine.publisher.work(lambda: now_ms, lambda: frame_s * next(frames))

    def publish(self, now_ms: int) -> None:
        """All of it."""
        self.engine.run_inline(self.publishing(now_ms))

    def slices(self, now_ms: int, count: int, frame_s: float = 1.0) -> None:
        """At most `count` slices."""
        if count == 0:
            return
        work, begun = self.publishing(now_ms, frame_s), self.table.published_rows
        seen = 0
        for step in work:
            if callable(step):
                step()
            elif step is not None:
                self.engine.state.log.write_pending()
                self.engine.state.log.sync()
            if self.table.published_rows != begun:
                begun, seen = self.table.published_rows, seen + 1
                if seen == count:
                    work.close()
                    return
