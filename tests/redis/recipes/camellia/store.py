"""The messages of a topic as they are stored, and what else calls and scans share.

The one rule: a message is a string with a time to live, so what nobody looks at again goes by
itself: ended ones after `end_life_keep_ms`, living ones three times that after they expire.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence

from tests.redis.recipes.calls import Calls
from tests.redis.recipes.camellia.keys import CamelliaSettings, NamespaceKeys, TopicKeys
from tests.redis.recipes.camellia.message import DelayMessage, check_life, decode, encode
from tests.redis.recipes.connection import Reply
from tests.redis.recipes.replies import text_or_none

logger = logging.getLogger(__name__)


class MessageStore:
    """Reading and writing the messages of one topic."""

    def __init__(self, calls: Calls, keys: TopicKeys, settings: CamelliaSettings) -> None:
        self._calls = calls
        self._keys = keys
        self._settings = settings

    def create(self, message: DelayMessage, now_ms: int) -> bool:
        """Store it if there is none of its id."""
        key = self._keys.message(message.msg_id)
        kept_ms = self._kept_ms(message, now_ms)
        created = self._calls.one("SET", key, encode(message), "NX", "PX", kept_ms)
        return created is not None

    def save(self, messages: Sequence[DelayMessage], now_ms: int) -> None:
        """Store them, whatever was there."""
        commands = [
            (
                *("PSETEX", self._keys.message(message.msg_id)),
                *(self._kept_ms(message, now_ms), encode(message)),
            )
            for message in messages
        ]
        self._calls.many(commands)

    def read(self, msg_id: str) -> DelayMessage | None:
        """One message, as stored."""
        return self._message(self._calls.one("GET", self._keys.message(msg_id)))

    def read_all(self, ids: Sequence[str]) -> list[DelayMessage | None]:
        """Messages in this order."""
        if not ids:
            return []
        found = self._calls.one("MGET", *(self._keys.message(msg_id) for msg_id in ids))
        return [self._message(stored) for stored in found]

    def split_by_life(
        self, ids: Sequence[str], now_ms: int, *, pulled: bool = False
    ) -> tuple[list[DelayMessage], list[str]]:
        """Check the life of messages and save what that changed: those that live, in the order of
        the ids, and the ids of those that have ended or are gone.
        """
        living: list[DelayMessage] = []
        ended: list[str] = []
        changed: list[DelayMessage] = []
        for msg_id, stored in zip(ids, self.read_all(ids), strict=True):
            checked = None if stored is None else check_life(stored, now_ms, pulled=pulled)
            if checked is not None and checked is not stored:
                changed.append(checked)
            if checked is None or checked.ended:
                ended.append(msg_id)
            else:
                living.append(checked)
        self.save(changed, now_ms)
        return living, ended

    def _kept_ms(self, message: DelayMessage, now_ms: int) -> int:
        keep_ms = self._settings.end_life_keep_ms
        if message.ended:
            return keep_ms
        # A message may be met long after it expired; a time to live of 0 is refused.
        return max(1, message.expire_time - now_ms + 3 * keep_ms)

    def _message(self, stored: Reply) -> DelayMessage | None:
        """A text that is no message counts as gone, so the scans drop its id."""
        found = text_or_none(stored)
        if found is None:
            return None
        try:
            return decode(found)
        except ValueError:
            logger.warning("topic %s holds what is no message: %.200r", self._keys.topic, found)
            return None


class ReadyEvents:
    """Tells a namespace that topics have something ready, each at most once a period."""

    def __init__(self, calls: Calls, keys: NamespaceKeys, settings: CamelliaSettings) -> None:
        self._calls = calls
        self._keys = keys
        self._gather_ms = settings.gather_ms
        self._noted: set[str] = set()
        self._published_at_ms: dict[str, int] = {}

    def note(self, topic: str, now_ms: int) -> None:
        """A topic has something ready; it is told now or with the next flush that may."""
        self._noted.add(topic)
        self.flush(now_ms)

    def flush(self, now_ms: int) -> None:
        """Publish what was noted and has waited its turn."""
        for topic in sorted(self._noted.copy()):
            last_ms = self._published_at_ms.get(topic)
            if last_ms is not None and now_ms - last_ms < self._gather_ms:
                continue
            self._noted.discard(topic)
            self._published_at_ms[topic] = now_ms
            event = json.dumps({"topic": topic}, ensure_ascii=False, separators=(",", ":"))
            self._calls.one("PUBLISH", self._keys.channel, event)
