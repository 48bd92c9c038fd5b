"""What moves the messages of a namespace: the scans of its topics.

The one rule: a round is given the time and does all that is due then. Any number of schedulers may
serve one namespace: each chore of a topic is done under a lock of that topic, and who finds it
taken leaves the chore to its holder.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.redis.recipes.calls import Calls
from tests.redis.recipes.camellia.keys import CamelliaSettings, NamespaceKeys, TopicKeys
from tests.redis.recipes.camellia.lock import Lock
from tests.redis.recipes.camellia.scans import TopicScans
from tests.redis.recipes.camellia.store import ReadyEvents
from tests.redis.recipes.camellia.topics import TopicKeeper
from tests.redis.recipes.clock import Clock, wall_clock_ms
from tests.redis.recipes.connection import Connection


class CamelliaScheduler:
    """Makes due messages ready, brings back what was not acknowledged, drops what has ended.

    `clock` only measures how long a lock has been held; rounds are told their time.
    """

    def __init__(
        self,
        connection: Connection,
        *,
        namespace: str = "default",
        settings: CamelliaSettings | None = None,
        clock: Clock = wall_clock_ms,
    ) -> None:
        self.namespace = namespace
        self.settings = settings or CamelliaSettings()
        self._calls = Calls(connection)
        self._keys = NamespaceKeys(namespace)
        self._events = ReadyEvents(self._calls, self._keys, self.settings)
        self._topics = TopicKeeper(self._calls, self._keys, self.settings)
        self._clock = clock
        self._topics_due_ms: int | None = None

    def run_round(self, now_ms: int) -> None:
        """One turn over all topics; every 600 s, counted from the first round, the topics
        themselves are looked through.
        """
        for topic in self._topics.all():
            self._scan(self._keys.topic(topic), now_ms)
        if self._topics_due_ms is None:
            self._topics_due_ms = now_ms + self.settings.topic_period_ms
        elif now_ms >= self._topics_due_ms:
            self._topics_due_ms = now_ms + self.settings.topic_period_ms
            self._look_through_topics(now_ms)
        self._events.flush(now_ms)

    def _scan(self, keys: TopicKeys, now_ms: int) -> None:
        scans = TopicScans(self._calls, keys, self.settings)
        with self._locked(keys, "trigger") as lock:
            if lock is not None and scans.waiting(now_ms, lock):
                self._events.note(keys.topic, now_ms)
        with self._locked(keys, "timeout") as lock:
            if lock is not None and scans.in_work(now_ms, lock):
                # The original tells nobody, and a retried message waits for the next event.
                self._events.note(keys.topic, now_ms)
        with self._locked(keys, "expire") as lock:
            if lock is not None:
                scans.ready(now_ms, lock)

    def _look_through_topics(self, now_ms: int) -> None:
        parked = set(self._topics.parked())
        for topic in self._topics.all():
            with self._locked(self._keys.topic(topic), "active") as lock:
                if lock is None:
                    continue
                if topic in parked:
                    self._topics.drop_if_unused(topic, now_ms)
                else:
                    self._topics.park_if_unused(topic, now_ms)

    @contextmanager
    def _locked(self, keys: TopicKeys, purpose: str) -> Iterator[Lock | None]:
        """The lock of a chore, or none if another has it."""
        lock = Lock(self._calls, keys.lock(purpose), self.settings, self._clock)
        if not lock.take():
            yield None
            return
        try:
            yield lock
        finally:
            lock.release()
