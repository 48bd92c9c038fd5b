"""A broker in memory that keeps what it is sent as the real one does, and fails as it is told.

It reads bulk bodies by the server's own codec, remembers each (producer, sequence) with its answer
and its bytes, and answers a repeat as it answered the first.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from delaylog.client.errors import AnswerLost, NotReached, api_error
from delaylog.client.wire.bulk import SendAnswer, all_of
from delaylog.client.wire.exchange import OnRepeat
from delaylog.storage.messages.batch import MessageBatch, decode_send

Fault = Literal[
    "none", "unreached", "lost_before", "lost_after", "not_ready", "not_ready_after", "quota"
]
REFUSED = b"refused"
REFUSED_UNNAMED = b"refused, and not which"


@dataclass
class FakeBroker:
    """`fault()` says what becomes of each request; bodies that begin with REFUSED are refused."""

    fault: Callable[[], Fault] = lambda: "none"
    taken: list[tuple[str, bytes]] = field(default_factory=list)
    """(topic, body) of what was accepted, in order."""
    requests: int = 0
    limits_s: list[float | None] = field(default_factory=list)
    """How long each request was allowed to take."""
    quota_rows: int | None = None
    """More rows than this in a request are over the quota."""
    names_quota: bool = False
    """Whether a refusal names the quota, as that of a topic does and that of a principal not."""
    known: dict[tuple[str, str, int], tuple[bytes, SendAnswer]] = field(default_factory=dict)
    _seen_wires: dict[tuple[str, str, int], bytes] = field(default_factory=dict)

    def send(
        self,
        topic: str,
        wire: bytes,
        on_repeat: OnRepeat | None = None,
        limit_s: float | None = None,
    ) -> SendAnswer:
        """One request, as a post."""
        self.requests += 1
        self.limits_s.append(limit_s)
        fault = self.fault()
        if fault == "unreached":
            raise NotReached("nobody there")
        batch = decode_send(wire, rows_max=100_000)
        assert batch.producer is not None
        assert batch.sequence is not None
        name = (topic, batch.producer, batch.sequence)
        # A repeat under the same sequence is the same bytes, whatever came of the first.
        assert self._seen_wires.setdefault(name, bytes(wire)) == wire
        if fault == "lost_before":
            raise AnswerLost("cut off")
        if fault == "not_ready":
            raise api_error(503, {"code": "not_ready"}, 1.0)
        answer = self._take(topic, name, batch, fault)
        if fault == "lost_after":
            raise AnswerLost("cut off")
        if fault == "not_ready_after":
            raise api_error(503, {"code": "not_ready"}, 1.0)
        return answer

    def _take(
        self, topic: str, name: tuple[str, str, int], batch: MessageBatch, fault: Fault
    ) -> SendAnswer:
        bodies = batch.body.values(batch.n)
        for item, body in enumerate(bodies):
            if body == REFUSED:
                raise api_error(400, {"code": "bad_request", "field": "id", "item": item})
            if body == REFUSED_UNNAMED:
                raise api_error(413, {"code": "too_large", "field": "body"})
        if name in self.known:
            return self.known[name][1]
        over = self.quota_rows is not None and batch.n > self.quota_rows
        if fault == "quota" or over:
            named = {"quota": "pending"} if self.names_quota else {}
            raise api_error(429, {"code": "quota", **named}, 0.5)
        first = len(self.taken)
        self.taken += [(topic, body) for body in bodies]
        refs = array("q", range(first, first + batch.n))
        dues_ms = array("q", [ref * 10 for ref in refs])
        answer = SendAnswer(batch.n, refs, dues_ms, all_of(0, "<u1", batch.n))
        self.known[name] = (batch.wire if isinstance(batch.wire, bytes) else b"", answer)
        return answer
