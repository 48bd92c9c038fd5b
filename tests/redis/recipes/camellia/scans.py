"""The three scans of one topic.

The one rule: a scan goes on until nothing is left for it, page by page, as long as it holds its
lock. Each page leaves the queue whole, to ready if it lives and for good if it has ended, so a scan
always comes to an end.
"""

from __future__ import annotations

from tests.redis.recipes.calls import Calls
from tests.redis.recipes.camellia import scripts
from tests.redis.recipes.camellia.keys import CamelliaSettings, TopicKeys
from tests.redis.recipes.camellia.lock import Lock
from tests.redis.recipes.camellia.message import DelayMessage
from tests.redis.recipes.camellia.store import MessageStore
from tests.redis.recipes.replies import texts


class TopicScans:
    """The chores of a topic; the caller holds the lock of each."""

    def __init__(self, calls: Calls, keys: TopicKeys, settings: CamelliaSettings) -> None:
        self._calls = calls
        self._keys = keys
        self._settings = settings
        self._store = MessageStore(calls, keys, settings)

    def waiting(self, now_ms: int, lock: Lock) -> bool:
        """What is due becomes ready, up to `early_ms` before its time. Return whether any did."""
        return self._move(self._keys.waiting, now_ms + self._settings.early_ms, now_ms, lock)

    def in_work(self, now_ms: int, lock: Lock) -> bool:
        """What was not acknowledged in time becomes ready again. Return whether any did."""
        return self._move(self._keys.ack, now_ms, now_ms, lock)

    def ready(self, now_ms: int, lock: Lock) -> None:
        """What ended while it was ready leaves it."""
        at = 0
        page_size = self._settings.page
        while lock.keep():
            # From the end that is delivered from: new ids come in at the other.
            ids = texts(self._calls.one("LRANGE", self._keys.ready, -at - page_size, -at - 1))
            _, ended = self._store.split_by_life(ids, now_ms)
            self._calls.many(
                [("LREM", self._keys.ready, 0, msg_id) for msg_id in dict.fromkeys(ended)],
            )
            at += len(ids) - len(ended)
            if len(ids) < page_size:
                break

    def _move(self, source: str, due_max: int, now_ms: int, lock: Lock) -> bool:
        moved = False
        while lock.keep():
            ids = texts(
                self._calls.one(
                    "ZRANGEBYSCORE", source, 0, due_max, "LIMIT", 0, self._settings.page
                )
            )
            if not ids:
                break
            living, ended = self._store.split_by_life(ids, now_ms)
            if ended:
                self._calls.one("ZREM", source, *ended)
            if living:
                self._to_ready(source, living)
                moved = True
        return moved

    def _to_ready(self, source: str, messages: list[DelayMessage]) -> None:
        ids = [message.msg_id for message in messages]
        self._calls.script(scripts.MOVE, [source, self._keys.ready], len(ids), *ids)
