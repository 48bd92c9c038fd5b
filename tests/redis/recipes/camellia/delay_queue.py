"""One topic of camellia's delay queue: send, pull, acknowledge, read, delete, count.

The one rule: where the original's code does other than it means to, this does what it means, as
long as both can work on the same keys. Messages become ready by `CamelliaScheduler`; some process
must run one.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from tests.redis.recipes.calls import Calls
from tests.redis.recipes.camellia import scripts
from tests.redis.recipes.camellia.keys import CamelliaSettings, NamespaceKeys
from tests.redis.recipes.camellia.message import DelayMessage, Status, check_life
from tests.redis.recipes.camellia.store import MessageStore, ReadyEvents
from tests.redis.recipes.camellia.topic_info import read_topic_info
from tests.redis.recipes.clock import Clock, wall_clock_ms
from tests.redis.recipes.connection import Command, Connection
from tests.redis.recipes.replies import text_or_none

PULL_PAGE = 100
"""Scripts of a pull sent in one trip."""


class CamelliaQueue:
    """A topic of a namespace, for producers and consumers. Delivery is at least once.

    A pulled message must be acknowledged within its ack timeout, else it comes back, at most
    `max_retry` times and not after its time to live.
    """

    def __init__(
        self,
        connection: Connection,
        topic: str,
        *,
        namespace: str = "default",
        settings: CamelliaSettings | None = None,
        clock: Clock = wall_clock_ms,
    ) -> None:
        if not topic:
            raise ValueError("a topic has a name")
        self.topic = topic
        self.namespace = namespace
        self.settings = settings or CamelliaSettings()
        self._calls = Calls(connection)
        self._namespace_keys = NamespaceKeys(namespace)
        self._keys = self._namespace_keys.topic(topic)
        self._store = MessageStore(self._calls, self._keys, self.settings)
        self._events = ReadyEvents(self._calls, self._namespace_keys, self.settings)
        self._clock = clock
        self._tagged_at_ms: int | None = None

    def send(
        self,
        msg: str,
        *,
        delay_ms: int,
        msg_id: str | None = None,
        ttl_ms: int = -1,
        max_retry: int = -1,
    ) -> DelayMessage:
        """Put a message in; answer what is stored. While a message of this id lives, that one is
        answered and nothing is put in. Negative limits mean the defaults.
        """
        if not msg:
            raise ValueError("a message has a text")
        now_ms = self._clock()
        message = self._new_message(msg, delay_ms, msg_id, ttl_ms, max_retry, now_ms)
        self._note_use(now_ms)
        self._register(now_ms)
        living = self._put(message, now_ms)
        if living is not None:
            return living
        if message.status == Status.WAITING:
            self._calls.one("ZADD", self._keys.waiting, message.trigger_time, message.msg_id)
        else:
            self._calls.one("LPUSH", self._keys.ready, message.msg_id)
            self._events.note(self.topic, now_ms)
        return message

    def pull(self, batch: int = 1, *, ack_timeout_ms: int = -1) -> list[DelayMessage]:
        """Take up to `batch` ready messages, the longest ready first. Limits of 0 or less mean 1
        message and the default timeout.
        """
        now_ms = self._clock()
        self._note_use(now_ms)
        batch = max(1, batch)
        timeout_ms = ack_timeout_ms if ack_timeout_ms > 0 else self.settings.ack_timeout_ms
        # Twice, as the original means to: all that was taken first may have ended.
        for _ in range(2):
            ids = self._take(batch, now_ms + timeout_ms)
            living, ended = self._store.split_by_life(ids, now_ms, pulled=True)
            if ended:
                self._calls.one("ZREM", self._keys.ack, *ended)
            if living or not ids:
                return living
        return []

    def ack(self, msg_id: str) -> bool:
        """It is done with, in whatever state it is. False if nothing of it is stored."""
        now_ms = self._clock()
        self._note_use(now_ms)
        message = self._store.read(msg_id)
        if message is not None:
            self._store.save([replace(message, status=int(Status.CONSUMED))], now_ms)
        self._calls.one("ZREM", self._keys.ack, msg_id)
        return message is not None

    def nack(self, msg_id: str) -> bool:
        """It failed: ready again at once, behind the others. False if it was not in work."""
        now_ms = self._clock()
        self._note_use(now_ms)
        keys = [self._keys.ack, self._keys.ready]
        if int(self._calls.script(scripts.GIVE_BACK, keys, msg_id)) == 0:
            return False
        self._events.note(self.topic, now_ms)
        return True

    def get(self, msg_id: str) -> DelayMessage | None:
        """The message, living or ended. Reading one past its time to live ends it."""
        now_ms = self._clock()
        self._note_use(now_ms)
        message = self._store.read(msg_id)
        if message is None:
            return None
        checked = check_life(message, now_ms)
        if checked is not message:
            self._store.save([checked], now_ms)
        return checked

    def delete(self, msg_id: str, *, release: bool = False) -> bool:
        """End it. True if it lived. With `release` nothing of it is kept to be read."""
        now_ms = self._clock()
        self._note_use(now_ms)
        message = self._store.read(msg_id)
        checked = None if message is None else check_life(message, now_ms)
        lived = checked is not None and not checked.ended
        if release:
            commands: list[Command] = [
                ("DEL", self._keys.message(msg_id)),
                ("ZREM", self._keys.waiting, msg_id),
                ("LREM", self._keys.ready, 1, msg_id),
            ]
            self._calls.many(commands)
        elif checked is not None and lived:
            self._store.save([replace(checked, status=int(Status.DELETED))], now_ms)
        elif checked is not None and checked is not message:
            self._store.save([checked], now_ms)
        return lived

    def topic_info(self) -> None:
        """Ask for the counts of the queues."""
        read_topic_info(self._calls, self._keys, self._clock())

    def _new_message(
        self,
        msg: str,
        delay_ms: int,
        msg_id: str | None,
        ttl_ms: int,
        max_retry: int,
        now_ms: int,
    ) -> DelayMessage:
        trigger_ms = now_ms + max(0, delay_ms)
        # What the next scan would find due goes straight to ready.
        waits = delay_ms > self.settings.early_ms
        return DelayMessage(
            topic=self.topic,
            msg_id=msg_id or uuid.uuid4().hex,
            msg=msg,
            produce_time=now_ms,
            trigger_time=trigger_ms,
            expire_time=trigger_ms + (ttl_ms if ttl_ms > 0 else self.settings.ttl_ms),
            max_retry=max_retry if max_retry >= 0 else self.settings.max_retry,
            retry=0,
            status=int(Status.WAITING if waits else Status.READY),
        )

    def _put(self, message: DelayMessage, now_ms: int) -> DelayMessage | None:
        """Store it, unless a message of its id lives: then that one is answered."""
        old: DelayMessage | None = None
        for _ in range(2):
            if self._store.create(message, now_ms):
                return None
            old = self._store.read(message.msg_id)
            if old is not None:
                break
            # It went in between, and the next try stores; a text that is no message is replaced.
        if old is not None and not old.ended:
            return old
        self._drop_entries(message.msg_id)
        self._store.save([message], now_ms)
        return None

    def _take(self, batch: int, deadline_ms: int) -> list[str]:
        """Move ids from ready to ack, the oldest first, each by its own script."""
        keys = (2, self._keys.ready, self._keys.ack)
        ids: list[str] = []
        while len(ids) < batch:
            # The text goes along: a trip with digests would fail half-way on a fresh endpoint.
            size = min(PULL_PAGE, batch - len(ids))
            commands = [("EVAL", scripts.PULL.lua, *keys, deadline_ms)] * size
            page = [text_or_none(taken) for taken in self._calls.many(commands)]
            found = [msg_id for msg_id in page if msg_id is not None]
            ids += found
            if len(found) < size:
                break
        return ids

    def _drop_entries(self, msg_id: str) -> None:
        """Forget where an ended message still stands, or its successor would be in two queues."""
        self._calls.many(
            [
                ("ZREM", self._keys.waiting, msg_id),
                ("LREM", self._keys.ready, 0, msg_id),
                ("ZREM", self._keys.ack, msg_id),
            ],
        )

    def _register(self, now_ms: int) -> None:
        """Make the topic known before it holds anything, so that no scan passes it over."""
        topics = self._namespace_keys.topics
        if self._calls.one("ZSCORE", topics, self.topic) is None:
            self._calls.one("ZADD", topics, now_ms, self.topic)
            self._calls.one("ZREM", self._namespace_keys.topics_parked, self.topic)

    def _note_use(self, now_ms: int) -> None:
        """Leave word that the topic is in use."""
        tagged_at_ms = self._tagged_at_ms
        if tagged_at_ms is not None and now_ms - tagged_at_ms < self.settings.tag_cache_ms:
            return
        self._calls.one("PSETEX", self._keys.active_tag, self.settings.tag_ms, now_ms)
        self._tagged_at_ms = now_ms
