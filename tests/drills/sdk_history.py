"""What a program that uses the SDK knows of each message, as lines of a history.

The one rule: what is recorded is what the SDK said. A Sent is a message that is there; NotReached
is a message that is not there, anywhere; AnswerLost may be either. Bodies are
unique, so beside the checker each body is counted: nothing but (producer, sequence) keeps one that
was sent again from being there twice.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from delaylog.broker.history import HistoryRecorder, body_hash
from delaylog.client import AnswerLost, Message, NotReached, Sent, Settled

SERVER_MADE: Final = "~"
EXAMPLES_MAX: Final = 5
BUFFER_BYTES: Final = 1 << 16


def now_ms() -> int:
    """The wall clock in whole milliseconds."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Begun:
    """A send that has been handed to the SDK."""

    topic: str
    body: bytes
    due_ms: int | None
    """None: at once, by the broker's clock."""
    own_id: str | None
    key: str | None
    t0: int


class SdkHistory:
    """The history of one process; threads may share it."""

    def __init__(self, path: Path, *, at_once: bool = False) -> None:
        """`at_once`: each line is in the file when its call returns, whoever is killed then."""
        self.path = path
        self.surprises: list[str] = []
        """What the SDK may not say under these faults."""
        self.acknowledged = 0
        self.under_way = 0
        """Sends that were handed over and have no end."""
        self.given_up: Counter[str] = Counter()
        buffer_bytes = 1 if at_once else BUFFER_BYTES
        self._recorder = HistoryRecorder(path, client="sdk", buffer_bytes=buffer_bytes)
        self._lock = threading.Lock()
        self._fates: dict[tuple[str, bytes], bool | None] = {}
        self._names: dict[tuple[str, bytes], set[str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._recorder.close()

    def mark(self, kind: str, t: int, *, until: int | None = None, planned: bool = False) -> None:
        """A fault, or the end."""
        self._recorder.mark(kind, t, until=until, planned=planned)

    def surprise(self, text: str) -> None:
        """Note what should not have happened."""
        with self._lock:
            self.surprises.append(text)

    # Sends

    def begin(
        self, topic: str, body: bytes, due_ms: int | None, *, own_id: str | None, key: str | None
    ) -> Begun:
        """A send is about to be handed over."""
        with self._lock:
            self.under_way += 1
        return Begun(topic, body, due_ms, own_id, key, now_ms())

    def sent(self, begun: Begun, sent: Sent) -> None:
        """The SDK says that it is there."""
        t1 = now_ms()
        if sent.result != "created":
            self.surprise(f"a unique body was {sent.result}: {begun}")
        self._tell(begun, True)
        self._recorder.call(
            "send",
            begun.t0,
            t1,
            True,
            id=_name(sent.id, sent.shard),
            due=sent.deliver_at_ms,
            body=body_hash(begun.body),
            key=begun.key,
            result=sent.result,
        )

    def not_sent(self, begun: Begun, error: BaseException) -> None:
        """The SDK gave up: for certain, or nobody knows."""
        t1 = now_ms()
        ok = None if isinstance(error, AnswerLost) else False
        if not isinstance(error, (AnswerLost, NotReached)):
            self.surprise(f"a send raised {error!r}")
        self._tell(begun, ok)
        with self._lock:
            self.given_up[type(error).__name__] += 1
        self._recorder.call(
            "send",
            begun.t0,
            t1,
            ok,
            id=begun.own_id,
            # Later the broker may have put its own now in the place of a time that had passed.
            due=begun.due_ms if (begun.due_ms or 0) > t1 else None,
            body=body_hash(begun.body),
            key=begun.key,
        )

    # Deliveries

    def delivered(self, message: Message, lease_ms: int) -> None:
        """A message came to a program, or to a handler, under a lease of that length."""
        t1 = now_ms()
        # When the broker handed it out, by its clock, which is ours. Its receive may have been over
        # long before a handler begins, and its lease may have been extended since.
        granted_ms = message.lease_until_ms - lease_ms
        if (told_ms := message.batch.columns.now_ms) is not None:
            granted_ms = min(granted_ms, told_ms)
        self.seen(message.topic, message.body, message.id, message.shard)
        self._recorder.call(
            "deliver",
            min(granted_ms, t1),
            t1,
            True,
            id=_name(message.id, message.shard),
            due=message.deliver_at_ms,
            attempt=message.attempts,
            lease=message.receipt,
            lease_until=message.lease_until_ms,
            lease_ms=lease_ms,
            now=granted_ms,
            key=message.key,
            body=body_hash(message.body),
        )

    def receive_lost(self, t0: int, lease_ms: int) -> None:
        """A receive whose answer was lost may have leased anything."""
        self._recorder.call("deliver", t0, now_ms(), None, lease_ms=lease_ms)

    def settled(
        self,
        verb: str,
        messages: Sequence[Message],
        t0: int,
        results: Sequence[Settled | BaseException] | None = None,
    ) -> None:
        """Messages were acked or nacked; without results nobody was told what came of it."""
        t1 = now_ms()
        for at, message in enumerate(messages):
            result = None if results is None else results[at]
            ok: bool | None = None
            if result is Settled.DONE or result is Settled.GONE:
                ok = result is Settled.DONE
            self._recorder.call(
                verb, t0, t1, ok, id=_name(message.id, message.shard), lease=message.receipt
            )

    # Bodies

    def seen(self, topic: str, body: bytes, id: str, shard: str) -> None:
        """The broker has, or had, this body under that id."""
        with self._lock:
            self._names.setdefault((topic, body), set()).add(_name(id, shard))

    def judge_bodies(self) -> tuple[list[str], str]:
        """What is wrong with the bodies, each of which has to be there once; and a summary."""
        wrong: dict[str, list[str]] = {}
        for place, fate in self._fates.items():
            n = len(self._names.get(place, ()))
            if n > 1:
                wrong.setdefault("there more than once", []).append(f"{place} {n} times")
            elif n == 0 and fate is True:
                wrong.setdefault("lost although it was acknowledged", []).append(str(place))
            elif n == 1 and fate is False:
                wrong.setdefault("there although it was told not to be", []).append(str(place))
        strangers = self._names.keys() - self._fates.keys()
        if strangers:
            wrong["never sent"] = [str(place) for place in strangers]
        fates = Counter(self._fates.values())
        summary = (
            f"{fates[True]:,} bodies acknowledged, {fates[None]:,} unknown, {fates[False]:,} "
            f"certainly not sent; {len(self._names):,} seen"
        )
        return [
            f"{len(places)} bodies are {what}: {', '.join(places[:EXAMPLES_MAX])}"
            for what, places in wrong.items()
        ], summary

    def _tell(self, begun: Begun, fate: bool | None) -> None:
        with self._lock:
            self._fates[begun.topic, begun.body] = fate
            self.acknowledged += fate is True
            self.under_way -= 1


def _name(id: str, shard: str) -> str:
    """An id for the history: those that a broker makes are unique in that broker only."""
    return f"{shard} {id}" if id.startswith(SERVER_MADE) else id
