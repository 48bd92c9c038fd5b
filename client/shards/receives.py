"""Receiving from several shards: the request, and the messages that no receive has taken yet.

Every leased message is either delivered to a caller or returned to its broker. All shards are
polled concurrently, so more messages may arrive than one receive takes. The others are held for the
next receive with the same arguments. They are returned to the broker once less than half of their
lease is left. The broker's check of tags is approximate: with `exact_tags` the client checks again,
and returns a message that does not match immediately.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Generic, Protocol, TypeAlias, TypedDict, TypeVar

from delaylog.client.errors import AWAY, ClientError
from delaylog.client.keywords import PeekKeywords, ReceiveKeywords, TagsMode
from delaylog.client.message import LeasedMessage
from delaylog.client.wire.checks import (
    INT64_MAX,
    check_keywords,
    check_text,
    check_texts,
    check_topic,
)
from delaylog.client.wire.times import duration_ms, split_limit

log = logging.getLogger("delaylog.client")
REPOLL_S: Final = 1.0
"""When to poll a shard again that failed during a receive."""
PAUSE_S_MAX: Final = 3_600.0
"""Longest single wait: locks do not accept arbitrarily long timeouts."""
ANSWER_S: Final = 0.25
"""How long `close` waits for polls. The answer of a poll that has leased messages is on its way;
without it nobody could handle the messages until the lease ends."""
SWEEP_S: Final = 0.2
"""Interval of checks for stale messages while there are no receives."""


_KEYWORDS: Final = {"receive": ReceiveKeywords, "peek": PeekKeywords}


Messages: TypeAlias = list[Any]
"""Received messages, of the client's own kind: `Message` or `AsyncMessage`."""


class HowMuch(TypedDict):
    """The limits of a receive: number of messages, wait, lease, and the time of each call."""

    max: int
    wait_ms: int
    lease_ms: int | None
    limit_s: float | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which messages a receive wants."""

    topic: str
    group: str | None = None
    tags: tuple[str, ...] = ()
    tags_mode: TagsMode = "any"
    exact_tags: bool = False
    ids: tuple[str, ...] = ()
    begin: int | None = None
    """At how many messages of a receive an attempt begins at once if it is their first; None: at
    all.
    """
    consumer: str | None = None
    """The name that is stored with the attempts; None: that of this process."""

    @classmethod
    def split(
        cls, topic: str, keywords: ReceiveKeywords | PeekKeywords, call: str = "receive"
    ) -> tuple[Wanted, HowMuch]:
        """Split the keywords of a receive or `peek` into selection and limits.

        TypeError or ValueError names an invalid keyword.
        """
        check_keywords(call, keywords, _KEYWORDS[call])
        members: dict[str, Any] = {"max": 1, **keywords}
        members["wait_ms"] = duration_ms("wait", members.pop("wait", None)) or 0
        members["lease_ms"] = duration_ms("lease", members.pop("lease", None))
        limit_s, members = split_limit(members)
        members["limit_s"] = limit_s
        how_much: Any = {name: members.pop(name) for name in HowMuch.__annotations__}
        group, tags, ids = (
            members.pop("group", None),
            members.pop("tags", ()),
            members.pop("ids", ()),
        )
        check_topic(topic)
        check_text("group", group)
        check_text("consumer", members.get("consumer"))
        tags, ids = check_texts("tags", tags), check_texts("ids", ids)
        if not ids and "ids" in keywords:
            raise ValueError("ids is empty, which would be any message: leave it out for that")
        return cls(topic, group, tags, ids=ids, **members), how_much

    def members(self) -> dict[str, Any]:
        """The members of a JSON request; absent ones are left out."""
        members: dict[str, Any] = {} if self.group is None else {"group": self.group}
        if self.tags:
            members |= {"tags": list(self.tags), "tags_mode": self.tags_mode}
        return members | ({"ids": list(self.ids)} if self.ids else {})

    def __post_init__(self) -> None:
        if self.tags_mode not in ("any", "all"):
            raise ValueError(f"tags_mode is 'any' or 'all', not {self.tags_mode!r}")
        if self.exact_tags and not self.tags:
            raise ValueError("exact_tags goes with tags")


class Poll(Protocol):
    """A receive in progress on one shard: a task or future of (messages, arrival time)."""

    def done(self) -> bool:
        """Whether it has ended."""

    def cancelled(self) -> bool:
        """Whether it was cancelled."""

    def exception(self) -> BaseException | None:
        """The exception, or None."""

    def result(self) -> tuple[Messages, float]:
        """The messages, and when they arrived."""


P = TypeVar("P", bound=Poll)


@dataclass(slots=True)
class HeldMessages:
    """Messages of one lease that no receive took yet, and until when one may take them."""

    messages: Messages
    fresh_until_s: float


class Gathering(Generic[P]):
    """The polls in progress and the held messages, used by one receive at a time."""

    def __init__(self) -> None:
        self.polls: dict[int, P] = {}
        """Poll by index of the shard."""
        self.held: list[HeldMessages] = []

    def keep(self, messages: Messages, came_s: float) -> None:
        """Hold messages that arrived at `came_s`, until half of their lease is over."""
        if not messages:
            return
        batch = messages[0].batch
        until_ms, leased_at_ms = batch.lease_until_ms, batch.columns.now_ms
        lease_s = 0.0 if leased_at_ms is None else (until_ms - leased_at_ms) / 1000
        self.held.append(HeldMessages(messages, came_s + lease_s / 2))

    def harvest(self, errors: dict[int, ClientError]) -> None:
        """Collect the results of the polls that are done."""
        for at, poll in list(self.polls.items()):
            if not poll.done():
                continue
            del self.polls[at]
            if poll.cancelled():
                continue
            error = poll.exception()
            if error is None:
                self.keep(*poll.result())
            elif isinstance(error, ClientError):
                errors[at] = error
            else:
                raise error

    def harvest_or_log(self, wanted: Wanted) -> None:
        """The same, but log errors: no caller is waiting."""
        try:
            self.harvest({})
        except Exception:
            log.exception("a poll of %s failed", wanted.topic)

    def take(self, max: int, now_s: float) -> tuple[Messages, Messages]:
        """(up to `max` held messages, messages to return to the broker)."""
        taken: Messages = []
        stale: Messages = []
        left: list[HeldMessages] = []
        for held in self.held:
            if now_s >= held.fresh_until_s:
                stale += held.messages
                continue
            room = max - len(taken)
            taken += held.messages[:room]
            held.messages = held.messages[room:]
            if held.messages:
                left.append(held)
        self.held = left
        return taken, stale

    def all_held(self) -> Messages:
        """Remove and return all held messages."""
        found = [message for held in self.held for message in held.messages]
        self.held = []
        return found


class FreeGatherings(dict[Wanted, list[Gathering[P]]]):
    """The gatherings that no receive is using, by what they want."""

    def take(self, wanted: Wanted) -> Gathering[P]:
        """Take a gathering for a receive."""
        free = self.get(wanted)
        return free.pop() if free else Gathering[P]()

    def give(self, wanted: Wanted, gathering: Gathering[P]) -> None:
        """Put a gathering back after a receive."""
        if gathering.polls or gathering.held:
            self.setdefault(wanted, []).append(gathering)
        elif not self.get(wanted):
            self.pop(wanted, None)

    def stale(self, now_s: float) -> Messages:
        """Messages that no receive took in time. Gatherings without polls are dropped."""
        stale: Messages = []
        for wanted, free in list(self.items()):
            for gathering in free:
                gathering.harvest_or_log(wanted)
                stale += gathering.take(0, now_s)[1]
            self[wanted] = [each for each in free if each.polls or each.held]
            if not self[wanted]:
                del self[wanted]
        return stale


def is_never_valid(max: object) -> bool:
    """Whether every broker refuses so many messages."""
    return not isinstance(max, int) or not 1 <= max <= INT64_MAX


def is_shard_failure(error: BaseException) -> bool:
    """Whether the error concerns only the shard, not the call itself."""
    return isinstance(error, AWAY)


def verdict(errors: Sequence[ClientError], shards: int) -> ClientError | None:
    """The error of a receive without messages: an invalid call, or no shard reachable."""
    for error in errors:
        if not is_shard_failure(error):
            return error
    return errors[0] if errors and len(errors) >= shards else None


# ---------------------------------------------------------------------- the exact check of tags

M = TypeVar("M", bound=LeasedMessage)


def split_by_tags(
    messages: Iterable[M], tags: Sequence[str], tags_mode: TagsMode
) -> tuple[list[M], list[M]]:
    """(messages that have any or all of the tags, depending on `tags_mode`; the others)."""
    wanted = frozenset(tags)
    kept: list[M] = []
    others: list[M] = []
    for message in messages:
        found = wanted.intersection(message.tags)
        matches = found == wanted if tags_mode == "all" else bool(found)
        (kept if matches else others).append(message)
    return kept, others


# --------------------------------------------------------- the name of a consumer that has none


def process_name() -> str:
    """Host name and process id, such as `web-3:4711`."""
    return f"{_host_name()}:{os.getpid()}"


@lru_cache(maxsize=1)
def _host_name() -> str:
    return socket.gethostname()[:200] or "unknown"
