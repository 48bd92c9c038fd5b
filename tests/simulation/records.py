"""What clients know: histories for the checker, and the messages that certainly wait.

A history is of one topic. `Waiting` is a message of which a client knows all that the broker may
say of it: the send was answered, and no call about it is under way or in doubt. Times are the
clients', which share one clock that is never stepped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from delaylog.broker.history import Call, Mark, body_hash
from delaylog.broker.history.model import ScheduleCall


@dataclass(slots=True)
class Waiting:
    """A message that waits, as far as its sender knows."""

    topic: str
    id: str
    due: int
    body: str
    key: str | None
    tag: str | None
    priority: int
    known_ms: int
    """When its time was answered."""
    version: int = 0
    """Grows with each call about it."""
    certain: bool = True


class Try(NamedTuple):
    """A delivery of a message."""

    number: int
    """Of the attempt."""
    granted_ms: int
    start: int
    """The number of the process that delivered it."""


class Begin(NamedTuple):
    """A call about a message began."""

    topic: str
    id: str
    number: int
    """Among those about it; 0 = another one was under way."""
    found: Waiting | None
    """What certainly waited until then."""


class Records:
    """All topics of a run."""

    def __init__(self, now_ms: Callable[[], int], broker_ms: Callable[[], int]) -> None:
        self.now_ms, self.broker_ms = now_ms, broker_ms
        self.items: dict[str, list[Call | Mark | ScheduleCall]] = {}
        self.waiting: dict[tuple[str, str], Waiting] = {}
        self.known: dict[str, list[str]] = {}
        """Ids of each topic that a client may name."""
        self._begun: Counter[tuple[str, str]] = Counter()
        self._open: Counter[tuple[str, str]] = Counter()
        """Calls about a message: of all, and of those under way or in doubt."""
        self._tries: dict[tuple[str, str, str], Try] = {}
        """By topic, group and id."""
        self.ttls: dict[tuple[str, str], int] = {}
        self.ends: dict[tuple[str, str], int] = {}
        """When messages certainly expire: nobody has changed their times."""
        self.latest_due_ms = 0
        self.refused = 0
        self.lost = 0

    def mark(self, kind: str, t: int, until: int | None = None, group: str | None = None) -> None:
        """For all topics."""
        for items in self.items.values():
            items.append(Mark(kind, t, t if until is None else until, group=group))

    def of(self, topic: str) -> list[Call | Mark | ScheduleCall]:
        """The history of a topic."""
        return self.items[topic]

    def sent(
        self,
        t0: int,
        message: dict[str, Any],
        topic: str,
        ok: bool | None,
        answer: Any = None,
        *,
        alone: bool = True,
    ) -> None:
        """The end of one send of one message; `alone` = no other call about its id overlapped."""
        due = message.get("deliver_at_ms")
        if ok:
            due = answer["deliver_at_ms"]
        elif due is not None and due <= self.now_ms():
            due = None
        name = answer["id"] if ok else message.get("id")
        ttl = message.get("ttl_ms", -1)
        expires = None if due is None or ttl < 0 else due + ttl
        result = answer["result"] if ok else None
        if ok and result == "rejected":
            ok, result = False, None
        body = message["body"]
        self.of(topic).append(
            Call(
                t0,
                self.now_ms(),
                "send",
                ok,
                name,
                due=due,
                expires=expires,
                key=message.get("key"),
                body=body_hash(body.encode()),
                priority=message.get("priority", 0),
                result=result,
            )
        )
        if ttl >= 0 and name is not None:
            self.ttls[topic, name] = ttl
            if ok and result == "created" and due is not None:
                self.ends[topic, name] = due + ttl
        if ok is not False and name is not None:
            self.known.setdefault(topic, []).append(name)
        latest = due or self.broker_ms() + message.get("delay_ms", 0)
        self.latest_due_ms = max(self.latest_due_ms, latest)
        if ok and result in ("created", "replaced") and ttl < 0 and alone and name is not None:
            tags = message.get("tags")
            self.waiting[topic, name] = Waiting(
                topic,
                name,
                due or 0,
                body,
                message.get("key"),
                tags[0] if tags else None,
                message.get("priority", 0),
                self.broker_ms(),
            )

    def begin(self, topic: str, name: str) -> Begin:
        """A call that may change a message begins."""
        key = topic, name
        self.ends.pop(key, None)
        self._begun[key] += 1
        self._open[key] += 1
        found = self.waiting.get(key)
        sure = found if found is not None and found.certain else None
        if found is not None:
            found.version += 1
            found.certain = False
        return Begin(topic, name, self._begun[key] if self._open[key] == 1 else 0, sure)

    def end(self, begin: Begin, *, known: bool) -> bool:
        """A call ends; whether no other one about the message overlapped with it."""
        key = begin.topic, begin.id
        alone = self._begun[key] == begin.number and self._open[key] == 1
        if known:
            self._open[key] -= 1
        return alone

    def try_again(self, topic: str, group: str, name: str, tried: Try) -> Try | None:
        """Note an attempt; the one before, if it had no smaller number."""
        if name[0] == "s":
            # Messages of one id begin anew.
            return None
        before = self._tries.get((topic, group, name), tried)
        self._tries[topic, group, name] = max(before, tried)
        # A power cut may lose a lease.
        is_later = tried.granted_ms > before.granted_ms and tried.start == before.start
        return before if is_later and tried.number <= before.number else None

    def untried(self, topic: str, group: str, messages: Sequence[dict[str, Any]]) -> None:
        """They were given back, perhaps: their attempts do not count."""
        for each in messages:
            self._tries.pop((topic, group, each["id"]), None)

    def moved(self, topic: str, name: str, due: int | None) -> None:
        """It certainly waits again, for this time; None: as before."""
        found = self.waiting.get((topic, name))
        if found is not None:
            found.certain = True
            if due is not None:
                found.due, found.known_ms = due, self.broker_ms()

    def gone(self, topic: str, name: str) -> None:
        """It waits no more, or nobody knows."""
        self.waiting.pop((topic, name), None)

    def expires(self, topic: str, name: str, due: int | None) -> int | None:
        """When a message expires that is due at another time."""
        ttl = self.ttls.get((topic, name))
        return None if ttl is None or due is None else due + ttl
