"""A lock that is one key with a time to live.

The one rule: only its owner, a word that no other has, renews or releases it; who does not get it
at once goes without. Losing it costs doubled work, never a message.
"""

from __future__ import annotations

import uuid

from tests.redis.recipes.calls import Calls
from tests.redis.recipes.camellia import scripts
from tests.redis.recipes.camellia.keys import CamelliaSettings
from tests.redis.recipes.clock import Clock


class Lock:
    """One holder of one key."""

    def __init__(self, calls: Calls, key: str, settings: CamelliaSettings, clock: Clock) -> None:
        self._calls = calls
        self._key = key
        self._settings = settings
        self._clock = clock
        self._owner = uuid.uuid4().hex
        self._renewed_at_ms = 0

    def take(self) -> bool:
        """Take it if it is free."""
        taken = self._calls.one("SET", self._key, self._owner, "NX", "PX", self._settings.lock_ms)
        self._renewed_at_ms = self._clock()
        return taken is not None

    def keep(self) -> bool:
        """Renew it if that is due. False if it was lost: stop what it covers."""
        now_ms = self._clock()
        if now_ms - self._renewed_at_ms < self._settings.lock_renew_ms:
            return True
        self._renewed_at_ms = now_ms
        kept = self._calls.script(scripts.RENEW, [self._key], self._owner, self._settings.lock_ms)
        return int(kept) == 1

    def release(self) -> None:
        """Give it back, unless it is another's by now."""
        self._calls.script(scripts.RELEASE, [self._key], self._owner)
