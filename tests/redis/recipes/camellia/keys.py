"""The names of camellia's keys, and the settings that all who use them must share.

The one rule: names are exactly the original's, so both may work on one namespace at a time. The
three queues of a topic have one tag in braces and lie together in a cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

_PREFIX = "camellia_delay_queue_"


@dataclass(frozen=True, slots=True)
class NamespaceKeys:
    """What a namespace has once."""

    namespace: str

    @property
    def topics(self) -> str:
        """Topics in use, with the time of their first send."""
        return f"{_PREFIX}topics|{self.namespace}"

    @property
    def topics_parked(self) -> str:
        """Topics that nobody used for long; they are dropped a period later."""
        return f"{_PREFIX}topics_tmp|{self.namespace}"

    @property
    def channel(self) -> str:
        """Where is told that a topic has something ready."""
        return f"{_PREFIX}publish|{self.namespace}"

    def topic(self, topic: str) -> TopicKeys:
        """The keys of one topic."""
        return TopicKeys(self.namespace, topic)


@dataclass(frozen=True, slots=True)
class TopicKeys:
    """What each topic has."""

    namespace: str
    topic: str

    def message(self, msg_id: str) -> str:
        """One message."""
        return f"{_PREFIX}msg|{self.namespace}|{self.topic}|{msg_id}"

    @property
    def waiting(self) -> str:
        """Ids by the time they are due."""
        return self._queue("waiting")

    @property
    def ready(self) -> str:
        """Ids to be delivered, the oldest at the right end."""
        return self._queue("ready")

    @property
    def ack(self) -> str:
        """Ids in work by their deadline."""
        return self._queue("ack")

    @property
    def active_tag(self) -> str:
        """When the topic was used last."""
        return f"{_PREFIX}active_tag|{self.namespace}|{self.topic}"

    @property
    def inactive_tag(self) -> str:
        """When the topic was parked."""
        return f"{_PREFIX}inactive_tag|{self.namespace}|{self.topic}"

    def lock(self, purpose: str) -> str:
        """Held by the scheduler that does this chore: expire, trigger, timeout or active."""
        return f"{_PREFIX}check_{purpose}|{self.namespace}|{self.topic}|~lock"

    def _queue(self, name: str) -> str:
        return f"{_PREFIX}{name}|{{|{self.namespace}|{self.topic}|}}"


@dataclass(frozen=True, slots=True)
class CamelliaSettings:
    """The original's defaults."""

    ttl_ms: int = 3_600_000
    """How long after its time a message may be delivered."""
    max_retry: int = 10
    """Deliveries beyond the first."""
    ack_timeout_ms: int = 30_000
    end_life_keep_ms: int = 300_000
    """How long ended messages can be read."""
    early_ms: int = 100
    """How much before its time a message may become ready: the scans look ahead by their period,
    so as to be late by nothing. 0 = never early, late by up to a period."""
    gather_ms: int = 100
    """Ready events of a topic are published at most so often."""
    page: int = 100
    lock_ms: int = 5_000
    lock_renew_ms: int = 1_000
    topic_period_ms: int = 600_000
    """How often unused topics are looked for."""
    topic_unused_ms: int = 1_800_000
    """How long a topic must be unused and empty to be parked."""
    tag_cache_ms: int = 30_000
    """A client notes the use of a topic at most so often."""

    @property
    def tag_ms(self) -> int:
        """How long a tag is kept."""
        return 3 * self.topic_unused_ms
