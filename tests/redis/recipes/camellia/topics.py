"""Which topics a namespace has, and when one is forgotten.

The one rule: a topic is parked when it is empty and was not used for `topic_unused_ms`, and dropped
when that is still so a period later; parked topics are scanned and listed like the others, so
nothing is lost if one is used in between.
"""

from __future__ import annotations

from tests.redis.recipes.calls import Calls
from tests.redis.recipes.camellia.keys import CamelliaSettings, NamespaceKeys, TopicKeys
from tests.redis.recipes.replies import score, text, texts

PAGE = 100


class TopicKeeper:
    """The topic sets of a namespace."""

    def __init__(self, calls: Calls, keys: NamespaceKeys, settings: CamelliaSettings) -> None:
        self._calls = calls
        self._keys = keys
        self._settings = settings

    def all(self) -> list[str]:
        """Topics in use in the order of their first send, then the parked ones."""
        return list(dict.fromkeys([*self._members(self._keys.topics), *self.parked()]))

    def parked(self) -> list[str]:
        """Topics that are about to be dropped."""
        return self._members(self._keys.topics_parked)

    def park_if_unused(self, topic: str, now_ms: int) -> None:
        """Park a topic in use that is none any more."""
        keys = self._keys.topic(topic)
        if self._in_use(keys, now_ms):
            return
        # In this order it is in one of the sets at least.
        self._calls.many(
            [
                ("PSETEX", keys.inactive_tag, self._settings.tag_ms, now_ms),
                ("ZADD", self._keys.topics_parked, now_ms, topic),
                ("ZREM", self._keys.topics, topic),
            ],
        )

    def drop_if_unused(self, topic: str, now_ms: int) -> None:
        """Drop a parked topic that was left alone for a period; take it back if it is used."""
        keys = self._keys.topic(topic)
        if self._in_use(keys, now_ms):
            self._calls.many(
                [
                    ("ZADD", self._keys.topics, now_ms, topic),
                    ("ZREM", self._keys.topics_parked, topic),
                    ("DEL", keys.inactive_tag),
                ],
            )
            return
        parked_at_ms = score(self._calls.one("ZSCORE", self._keys.topics_parked, topic))
        if parked_at_ms is None or now_ms - parked_at_ms < self._settings.topic_period_ms:
            return
        self._calls.many(
            [
                ("ZREM", self._keys.topics_parked, topic),
                ("DEL", keys.inactive_tag, keys.active_tag),
            ],
        )

    def _in_use(self, keys: TopicKeys, now_ms: int) -> bool:
        tag, waiting, ready, ack = self._calls.many(
            [
                ("GET", keys.active_tag),
                ("ZCARD", keys.waiting),
                ("LLEN", keys.ready),
                ("ZCARD", keys.ack),
            ],
        )
        if int(waiting) + int(ready) + int(ack) > 0:
            return True
        return tag is not None and now_ms - int(text(tag)) < self._settings.topic_unused_ms

    def _members(self, key: str) -> list[str]:
        found: list[str] = []
        while True:
            page = texts(self._calls.one("ZRANGE", key, len(found), len(found) + PAGE - 1))
            found += page
            if len(page) < PAGE:
                return found
