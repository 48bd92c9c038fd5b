"""A queue in plain Python, as the description of queues has it: what the engine must agree with.

A message is one object; each group that saw it has a `View` of it: its state there. `Model` holds
the groups and does what a call does, at once and without any storage. It says what may be handed
out now; where the description leaves a choice (order after retries, among keys), so does it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.storage.layout import MessageState as S

NEVER = 1 << 62
BUCKET = 50
"""Leases end at multiples of this."""
LIVING = (S.WAITING, S.READY, S.LEASED)
FREE = (S.WAITING, S.READY)


@dataclass(eq=False)
class Message:
    """What was sent, once for all groups."""

    number: int
    server_id: str
    id: str
    key: str
    tags: frozenset[bytes]
    ttl: int
    max_retry: int
    ref: int
    """Where it was stored first: jobs meet messages in this order."""

    @property
    def body(self) -> bytes:
        return b"%d" % self.number


@dataclass(eq=False)
class View:
    """A message as one group sees it."""

    message: Message
    due: int
    priority: int
    expires: int
    state: S
    placed: int
    """When it got its due time: of those due in one millisecond the earlier goes first."""
    attempts: int = 0
    until: int = 0
    receipt: object = field(default=None, repr=False)
    loose: bool = False
    """Its place among the ready ones is not told by its due time alone."""
    first_due: int = field(init=False)
    """When it was due at first: its row in that hour leads to where it is now."""
    ended_ms: int = NEVER
    """Lower bound of the time at which it took its ended state."""
    seen: S = S.WAITING
    """Its state after the last step."""

    def __post_init__(self) -> None:
        self.first_due = self.due


@dataclass(eq=False)
class Group:
    """Views of one group, and who keeps whom from being handed out."""

    name: str
    views: dict[Message, View] = field(default_factory=dict)
    holders: dict[str, View] = field(default_factory=dict)
    waits: dict[Message, View] = field(default_factory=dict)
    """Successors, and whose end they wait for."""
    heirs: dict[str, View] = field(default_factory=dict)
    """By id: whose end the next message with it waits for."""
    ended: dict[S, int] = field(default_factory=dict)
    asleep: set[TagFilter | None] = field(default_factory=set)
    """Filters of consumers that found nothing and wait to be woken."""

    def free_key(self, view: View) -> None:
        """Somebody gave a message another time: others with its key do not wait for that."""
        self.holders = {k: v for k, v in self.holders.items() if v is not view}

    def release(self, view: View) -> None:
        """A message ended: it holds nobody up any more, nor those that follow it by their id."""
        self.free_key(view)
        self.waits = {m: v for m, v in self.waits.items() if v is not view}
        self.heirs = {i: v for i, v in self.heirs.items() if v is not view}

    def end(self, view: View, state: S) -> None:
        """A message reaches an ended state, or another one."""
        if view.state not in LIVING:
            self.ended[view.state] -= 1
        view.state = state
        self.ended[state] = self.ended.get(state, 0) + 1
        self.release(view)

    def alive(self) -> list[View]:
        return [view for view in self.views.values() if view.state in LIVING]

    def allowed(self, only: TagFilter | None) -> list[View]:
        """All that could be handed out first, were it alone."""
        return [
            view
            for view in self.views.values()
            if view.state is S.READY
            and matches(view.message, only)
            and view.message not in self.waits
            and self.holders.get(view.message.key, view) is view
        ]


def matches(message: Message, only: TagFilter | None) -> bool:
    """Whether a filter wants a message."""
    if only is None:
        return True
    return only.tags <= message.tags if only.mode == "all" else bool(only.tags & message.tags)


def rank(view: View, settings: dict[str, Any], *, prioritised: bool) -> tuple[int, ...]:
    """Where a view stands among ready ones: the lowest goes first."""
    if settings["order"] == "time":
        return (view.due, -view.priority) if prioritised else (view.due,)
    if aging := settings.get("aging_ms", 0):
        return view.due - view.priority * aging, -view.priority
    return -view.priority, view.due


class Model:
    """All groups of one topic."""

    prioritised = False
    """Whether any message had a priority yet: the order of all looks at it from then on."""

    def __init__(self, *, max_retry: int, backoff_ms: int) -> None:
        self.groups = {"default": Group("default")}
        self.messages: list[Message] = []
        self.by_id: dict[str, Message] = {}
        self.max_retry = max_retry
        self.backoff_ms = backoff_ms
        self.places = 0

    def next_place(self) -> int:
        """Counts what gets a due time."""
        self.places += 1
        return self.places

    # ------------------------------------------------------------------ sending

    def holders_of(self, id_: str) -> list[tuple[Group, View]] | None:
        """The living message with an id, in each group where it lives.

        It is the newest one, or, when that has ended, who that one waited for. None = there are
        two, since somebody gave such a one another time: which one counts is not said.
        """
        living = [
            (group, view)
            for group in self.groups.values()
            for view in group.alive()
            if view.message.id == id_
        ]
        newest = [pair for pair in living if pair[1].message is self.by_id.get(id_)]
        others = [pair for pair in living if pair not in newest]
        if any(group.heirs.get(id_) is not view for group, view in others):
            return None
        return newest or others

    def add(self, message: Message, due: int, priority: int, now: int) -> None:
        """A new message, seen by every group there is."""
        expires = NEVER if message.ttl < 0 else due + message.ttl
        state = S.READY if due <= now else S.WAITING
        place = self.next_place()
        for group in self.groups.values():
            group.views[message] = View(message, due, priority, expires, state, place)
        self.messages.append(message)
        if message.id:
            self.by_id[message.id] = message

    def succeed(self, message: Message) -> None:
        """Where a message with its id is in work, it waits for that one's end."""
        for group in self.groups.values():
            leader = group.heirs.get(message.id)
            for view in group.alive():
                other = view.message
                if other is not message and other.id == message.id and view.state is S.LEASED:
                    leader = view
            if leader is not None:
                group.waits[message] = group.heirs[message.id] = leader

    # ------------------------------------------------------------------ time and retries

    def pass_time(self, now: int, *, at_bucket: bool = True) -> None:
        """Leases end, and messages become due and expire."""
        for group in self.groups.values():
            for view in group.alive():
                while True:
                    if view.state is S.WAITING and view.due <= now:
                        view.state = S.READY
                    if view.state is S.READY and view.expires <= now:
                        group.end(view, S.DEAD if view.attempts else S.EXPIRED)
                    end = -(-view.until // BUCKET) * BUCKET
                    if view.state is not S.LEASED or end > now:
                        break
                    self.give_back(group, view, None, end if at_bucket else now)

    def give_back(self, group: Group, view: View, delay: int | None, now: int) -> None:
        """A nack, or a lease that ended."""
        if view.attempts > view.message.max_retry or view.expires <= now:
            group.end(view, S.DEAD)
            return
        if delay is None:
            delay = self.backoff_ms * 2 ** (view.attempts - 1)
        delay = min(max(delay, view.due - now), view.expires - now)
        if delay:
            view.due, view.placed = now + delay, self.next_place()
        view.loose = not delay
        view.state = S.WAITING if delay else S.READY

    def set_back(self, ms: int, now: int) -> None:
        """The clock went back: what is due later by the new one waits again."""
        for group in self.groups.values():
            for view in group.alive():
                if view.state is S.LEASED:
                    view.until -= ms
                elif view.due > now:
                    view.state = S.WAITING

    def jump_ahead(self, ms: int) -> None:
        """What is left of a lease stays."""
        for group in self.groups.values():
            for view in group.alive():
                if view.state is S.LEASED:
                    view.until += ms

    # ------------------------------------------------------------------ control

    def move(self, group: Group, view: View, due: int, now: int) -> None:
        """Another time, with a full ttl from then on."""
        if view.expires != NEVER and due != view.due:
            view.expires = due + view.message.ttl
        view.due, view.placed, view.loose = due, self.next_place(), False
        view.state = S.READY if due <= now else S.WAITING
        group.free_key(view)

    def replay(self, view: View, due: int, now: int) -> None:
        """A dead message begins a new life."""
        view.due, view.attempts, view.receipt, view.loose = due, 0, None, False
        view.placed = self.next_place()
        view.expires = NEVER if view.message.ttl < 0 else due + view.message.ttl
        view.state = S.READY if due <= now else S.WAITING
        if view.message.id:
            self.by_id[view.message.id] = view.message

    def purge(self, names: Iterable[str], *, force: bool) -> int:
        """What waits or is ready ends, by force also what is leased."""
        count = 0
        for name in names:
            group = self.groups[name]
            gone = [view for view in group.alive() if force or view.state is not S.LEASED]
            for view in gone:
                group.end(view, S.CANCELLED)
            count += len(gone)
        return count

    def job(self, action: str, first: int, last: int, due: int, now: int) -> tuple[int, int]:
        """A job about all that is due in [first, last): (messages that match, messages done)."""
        matched = done = 0
        for message in sorted(self.messages, key=lambda message: message.ref):
            found = [
                (group, view)
                for group in self.groups.values()
                if (view := group.views.get(message)) is not None
                and view.state in LIVING
                and first <= view.due < last
            ]
            free = [(group, view) for group, view in found if view.state in FREE]
            matched, done = matched + bool(found), done + bool(free)
            for group, view in free:
                if action == "cancel":
                    group.end(view, S.CANCELLED)
                else:
                    self.move(group, view, due, now)
        return matched, done

    # ------------------------------------------------------------------ what is forgotten

    def note_ended(self, since_ms: int) -> None:
        """What ended in the last step did so at `since_ms` or later."""
        for group in self.groups.values():
            for view in group.views.values():
                if view.state is not view.seen and view.state not in LIVING:
                    view.ended_ms = since_ms
                view.seen = view.state

    def forget(self, group: Group, message: Message) -> None:
        """A group knows a message no more."""
        del group.views[message]
        known = any(message in each.views for each in self.groups.values())
        if not known and self.by_id.get(message.id) is message:
            del self.by_id[message.id]

    def loosen(self) -> None:
        """What is ready keeps its place when the order changes."""
        for group in self.groups.values():
            for view in group.views.values():
                view.loose = view.loose or view.state is S.READY

    def line_up(self) -> None:
        """All that is ready is put in order anew, after a restart or a step back of the clock."""
        for group in self.groups.values():
            for view in group.views.values():
                view.loose = False
