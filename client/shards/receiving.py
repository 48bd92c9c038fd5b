"""Receiving from several shards: what was asked for, and what came too late for whoever asked.

The one rule: a message that was leased is handed to somebody or given back. Shards are asked all
at once, so more may come than one receive takes; the rest is held, and goes first to the next
receive of the same kind, unless less than half of its lease is left: then it is given back, also
when there is no next receive.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypedDict, TypeVar

from delaylog.client.errors import AnswerLost, ClientError, NotReached, NotReady
from delaylog.client.keywords import PeekKeywords, ReceiveKeywords
from delaylog.client.message import Message
from delaylog.client.wire.checks import (
    INT64_MAX,
    check_keywords,
    check_text,
    check_texts,
    check_topic,
)

log = logging.getLogger("delaylog.client")
REPOLL_S: Final = 1.0
"""A shard that failed during a receive is asked again after so long."""
PAUSE_S_MAX: Final = 3_600.0
"""A wait is looked at again after so long; locks cannot wait for any number of seconds."""
ANSWER_S: Final = 0.25
"""A client that is closed waits so long for its polls: where messages were leased to one the answer
is on its way, and what is not heard of is nobody's until the lease is over."""
SWEEP_S: Final = 0.2
"""How often what nobody took is looked at while nobody receives."""


_KEYWORDS: Final = {"receive": ReceiveKeywords, "peek": PeekKeywords}


class HowMuch(TypedDict):
    """How many messages a receive takes at most, how long it waits, and for how long they are
    leased.
    """

    max: int
    wait_ms: int
    lease_ms: int | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a receive asks for, apart from how much and how long."""

    topic: str
    group: str | None = None
    tags: tuple[str, ...] = ()
    tags_mode: str = "any"
    exact_tags: bool = False
    ids: tuple[str, ...] = ()

    @classmethod
    def split(
        cls, topic: str, keywords: ReceiveKeywords | PeekKeywords, call: str = "receive"
    ) -> tuple[Wanted, HowMuch]:
        """The keywords of a receive, or of a `peek`, in two.

        TypeError and ValueError say which is wrong.
        """
        members: dict[str, Any] = {"max": 1, "wait_ms": 0, "lease_ms": None, **keywords}
        check_keywords(call, keywords, _KEYWORDS[call])
        how_much: Any = {name: members.pop(name) for name in HowMuch.__annotations__}
        group, tags, ids = (
            members.pop("group", None),
            members.pop("tags", ()),
            members.pop("ids", ()),
        )
        check_topic(topic)
        check_text("group", group)
        tags, ids = check_texts("tags", tags), check_texts("ids", ids)
        return cls(topic, group, tags, ids=ids, **members), how_much

    def members(self) -> dict[str, Any]:
        """As members of a request in JSON; what is absent stays out."""
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
    """A receive of one shard that is under way: a task or a future of the messages and when they
    came.
    """

    def done(self) -> bool:
        """Whether it has ended."""

    def cancelled(self) -> bool:
        """Whether it has ended without anything."""

    def exception(self) -> BaseException | None:
        """What it raised."""

    def result(self) -> tuple[list[Message], float]:
        """What it brought, and when."""


P = TypeVar("P", bound=Poll)


@dataclass(slots=True)
class HeldMessages:
    """Messages of one lease that nobody took yet, and until when they may be handed out."""

    messages: list[Message]
    fresh_until_s: float


class Gathering(Generic[P]):
    """What is under way for one receive at a time: a poll for each shard, and what is held."""

    def __init__(self) -> None:
        self.polls: dict[int, P] = {}
        """By the index of the shard."""
        self.held: list[HeldMessages] = []

    def keep(self, messages: list[Message], came_s: float) -> None:
        """Hold what came then, until half of its lease is over."""
        if not messages:
            return
        batch = messages[0].batch
        until_ms, leased_at_ms = batch.lease_until_ms, batch.columns.now_ms
        lease_s = 0.0 if leased_at_ms is None else (until_ms - leased_at_ms) / 1000
        self.held.append(HeldMessages(messages, came_s + lease_s / 2))

    def harvest(self, errors: dict[int, ClientError]) -> None:
        """Take in the polls that are done."""
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
        """The same where nobody is there to be told."""
        try:
            self.harvest({})
        except Exception:
            log.exception("a poll of %s failed", wanted.topic)

    def take(self, max: int, now_s: float) -> tuple[list[Message], list[Message]]:
        """(up to `max` of what is held, those that have to be given back)."""
        taken: list[Message] = []
        stale: list[Message] = []
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

    def all_held(self) -> list[Message]:
        """All that is held, which is let go by this."""
        found = [message for held in self.held for message in held.messages]
        self.held = []
        return found


class FreeGatherings(dict[Wanted, list[Gathering[P]]]):
    """Gatherings that no receive uses at the moment, by what they ask for."""

    def take(self, wanted: Wanted) -> Gathering[P]:
        """One for a receive."""
        free = self.get(wanted)
        return free.pop() if free else Gathering[P]()

    def give(self, wanted: Wanted, gathering: Gathering[P]) -> None:
        """A receive is over."""
        if gathering.polls or gathering.held:
            self.setdefault(wanted, []).append(gathering)
        elif not self.get(wanted):
            self.pop(wanted, None)

    def stale(self, now_s: float) -> list[Message]:
        """What no receive came for in time; gatherings with nothing more to come are dropped."""
        stale: list[Message] = []
        for wanted, free in list(self.items()):
            for gathering in free:
                gathering.harvest_or_log(wanted)
                stale += gathering.take(0, now_s)[1]
            self[wanted] = [each for each in free if each.polls or each.held]
            if not self[wanted]:
                del self[wanted]
        return stale


def cannot_be(max: object, wait_ms: object) -> bool:
    """Whether no broker takes such a receive, so that there is nothing to share among shards."""
    if not isinstance(max, int) or not isinstance(wait_ms, int):
        return True
    return max < 1 or wait_ms < 0 or max > INT64_MAX or wait_ms > INT64_MAX


def bearable(error: BaseException) -> bool:
    """Whether other shards may still be received from: the shard is away, the call is right."""
    return isinstance(error, NotReached | AnswerLost | NotReady)


def verdict(errors: Sequence[ClientError], shards: int) -> ClientError | None:
    """What a receive raises that got nothing: what is wrong with the call, or all shards away."""
    for error in errors:
        if not bearable(error):
            return error
    return errors[0] if errors and len(errors) >= shards else None
