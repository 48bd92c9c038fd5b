"""Known histories of a queue, each judged by the queue model after every step.

Purpose: what random histories seldom meet, and what once went wrong. Method: the machine of
test_whole_queue.py plays the steps of a scene. A step is the name of a method of `Scene` with its
arguments; messages are numbered by the order in which they were sent. Each scene is played with all
parked messages in memory, with all of them on disk, and with answers that hold a few bytes.
"""

from __future__ import annotations

from typing import Any

import pytest

from delaylog.broker.engine.ready.tag_filter import TagFilter
from delaylog.broker.engine.topics.settings import Backoff
from delaylog.storage.layout import MessageState as S
from tests.broker.engine.test_whole_queue import QueueMachine, small_answers
from tests.models.queue_model import Message, Model
from tests.models.queue_rules import HOUR, World

Step = tuple[Any, ...]
Row = tuple[int, str, str, frozenset[bytes], int]


def row(key: str = "", tags: str = "", *, id: str = "", delay: int = 0, priority: int = 0) -> Row:
    """One message to send; tags are separated by spaces."""
    return delay, key, id, frozenset(tags.encode().split()), priority


def only(tags: str | None) -> TagFilter | None:
    """A filter for messages with any of these tags; None takes all."""
    return None if tags is None else TagFilter(frozenset(tags.encode().split()))


class Values:
    """What a rule draws: these values, one after the other."""

    def __init__(self, *values: Any) -> None:
        self._values = iter(values)

    def draw(self, _: object) -> Any:
        return next(self._values)


class Scene(QueueMachine):
    """The machine of the random histories, with rules that are called by name."""

    world = World(fake_disk=True)
    picked: tuple[Message, str]

    def open(
        self,
        *,
        backoff: int = 0,
        retries: int = 3,
        order: str = "time",
        parked: int = 1_000,
    ) -> None:
        self.settings = {
            "order": order,
            "max_retry": retries,
            "backoff": Backoff(first_ms=backoff, max_ms=1 << 30, factor=2.0, jitter=0.0),
        }
        self.parked_max, self.seen_ms, self.number = parked, self.now, 0
        self.model = Model(max_retry=retries, backoff_ms=backoff)
        self.configure()

    def play(self, steps: list[Step]) -> None:
        """Run the steps; the model agrees after each."""
        for name, *how in steps:
            getattr(self, f"do_{name}")(*how)
            self.agree()

    def draw(self, data: Any, *states: S) -> tuple[Message, str]:
        return self.picked

    def pick(self, number: int) -> None:
        message = self.model.messages[number]
        self.picked = message, message.server_id

    def views(self, numbers: tuple[int, ...], group: str) -> list[Any]:
        chosen = self.model.groups[group]
        wanted = [m for m in self.model.messages if m.number in numbers]
        return [(chosen, chosen.views[message]) for message in wanted]

    def teardown(self) -> None:
        try:
            self.host.recount()
        finally:
            self.host.close()
            self.folder.cleanup()

    # -------------------------------------------------------------- steps

    def do_send(self, *rows: Row) -> None:
        self.send_rows(list(rows), "keep", -1)

    def do_replace(self, *rows: Row) -> None:
        self.send_rows(list(rows), "replace", -1)

    def do_send_ttl(self, ttl: int, *rows: Row) -> None:
        self.send_rows(list(rows), "keep", ttl)

    def do_receive(self, count: int = 100, tags: str | None = None, group: str = "default") -> None:
        self.receive_some(group, count, only(tags), 3_600_000)

    def do_take(self, number: int) -> None:
        """Receive a message by its id."""
        (group, view), *_ = self.views((number,), "default")
        (got,) = self.host.receive(1, lease=HOUR, chosen=[view.message.server_id])
        self.lend(group, view, got, self.now + HOUR)

    def do_ack(self, *numbers: int) -> None:
        self.do_ack_of("default", *numbers)

    def do_ack_of(self, group: str, *numbers: int) -> None:
        self.settle(Values(self.views(numbers, group)), "ack")

    def do_nack(self, delay: int, *numbers: int) -> None:
        self.do_nack_of("default", delay, *numbers)

    def do_nack_of(self, group: str, delay: int, *numbers: int) -> None:
        self.settle(Values(self.views(numbers, group), delay), "later")

    def do_cancel(self, number: int, force: bool = False) -> None:
        self.pick(number)
        self.cancel(None, force)

    def do_reschedule(self, number: int, delay: int) -> None:
        self.pick(number)
        self.reschedule(None, delay, None)

    def do_replay(self, number: int, delay: int = 0) -> None:
        self.pick(number)
        self.replay(None, delay)

    def do_purge(self, *groups: str) -> None:
        self.purge(list(groups), force=False)

    def do_priorities(self, first: bool) -> None:
        """Set the order to that of priorities, or of time."""
        self.configure(order="priority" if first else "time")
        self.model.loosen()

    def do_set_retries(self, retries: int) -> None:
        self.configure(max_retry=retries)

    def do_merge_leased(self, how: str) -> None:
        self.configure(merge_leased=how)

    def do_group(self, name: str) -> None:
        """Make a group, or drop it."""
        self.change(name, force=False, leased=None)

    def do_pause(self) -> None:
        self.change("pause", force=False, leased=None)

    def do_advance(self, ms: int) -> None:
        self.host.advance(ms)

    def do_clock(self, ms: int) -> None:
        self.set_clock(ms < 0, abs(ms))

    def do_peek(self, tags: str | None = None) -> None:
        self.peek(0, 1, only(tags))

    def do_idle(self) -> None:
        """Close the filters of which no receive has come for long."""
        self.host.advance(60_001)
        self.look_after()

    def do_house(self, what: str) -> None:
        self.keep_house(what, 0)


class SmallScene(Scene):
    world = World(small=True, fake_disk=True)


EMPTYINGS: dict[str, list[Step]] = {
    "another filter receives": [("receive", 100, "green")],
    "another filter peeks": [("peek", "green")],
    "a message has a priority": [("send", row(delay=2 * HOUR, priority=7))],
    "filters are idle": [("idle",)],
}
"""What empties the lots of parked messages: they are in the queues again."""

KEY_COMES_FREE: dict[str, list[Step]] = {
    "acked": [("ack", 0)],
    "dead": [("nack", 0, 0), ("take", 0), ("nack", 0, 0), ("take", 0), ("nack", 0, 0)],
    "cancelled by force": [("cancel", 0, True)],
    "its retry cancelled": [("nack", HOUR, 0), ("cancel", 0)],
    "its retry moved": [("nack", HOUR, 0), ("reschedule", 0, 2 * HOUR)],
    "purged and sent again": [("nack", 60_000, 0), ("purge", "default"), ("send", row("a", "red"))],
}

PLACES: dict[str, list[Step]] = {
    "in the tail": [("send", row(delay=HOUR))],
    "in a file": [("send", row(delay=HOUR)), ("house", "checkpoint")],
    "loaded": [("send", row(delay=20_000)), ("advance", 15_000)],
    "live in the wheel": [("send", row(delay=5_000))],
    "ready": [("send", row())],
    "given back": [("send", row()), ("receive",), ("nack", 0, 0)],
    "in backoff": [("send", row()), ("receive",), ("nack", 60_000, 0)],
    "moved twice": [
        ("send", row(delay=HOUR)),
        ("reschedule", 0, 3 * HOUR),
        ("house", "checkpoint"),
        ("reschedule", 0, 2 * HOUR),
    ],
    "leased": [("send", row()), ("receive",)],
    "acked": [("send", row()), ("receive",), ("ack", 0)],
    "cancelled": [("send", row(delay=HOUR)), ("cancel", 0)],
}
"""Where a message can be when it is cancelled or rescheduled."""

CHANGES: dict[str, list[Step]] = {
    "cancelled": [("cancel", 0), ("cancel", 0)],
    "rescheduled": [("reschedule", 0, 10 * HOUR), ("advance", 10 * HOUR - 1), ("receive",)],
    "rescheduled to now": [("reschedule", 0, 0), ("receive",), ("ack", 0)],
}
COMES_ONCE: list[Step] = [("advance", 10 * HOUR), ("receive",), ("advance", 1), ("receive",)]

SCENES: dict[str, list[Step]] = {
    # ------------------------ keys and filters
    "a filter finds every message of a free key": [
        ("send", *(row("a", tag) for tag in ("red", "blue", "red", "blue"))),
        *[("receive", 100, "blue"), ("receive",), ("ack", 1), ("receive", 100, "blue")],
        *[("ack", 3), ("receive",)],
    ],
    "a new filter finds what was parked before it": [
        ("send", row("a", "blue"), row("a", "blue"), row("a", "blue")),
        *[("receive",), ("receive",), ("ack", 0), ("receive", 100, "blue"), ("ack", 1)],
        ("receive", 100, "blue"),
    ],
    "a filter looks behind what it does not want": [
        ("send", *[row("a", "red")] * 9, row("a", "blue"), row("a", "green"), row("a", "blue")),
        *[("receive",), ("ack", 0), ("receive", 100, "blue"), ("receive", 100, "red")],
        *[("ack", 9), ("receive", 100, "green"), ("receive",), ("ack", 10)],
        *[("receive", 100, "red"), ("ack", 1), ("receive", 100, "blue"), ("ack", 11)],
        *[("receive", 100, "blue"), ("send", row("a", "blue")), ("receive", 100, "blue")],
    ],
    "a receive of all comes after filters": [
        ("send", *(row("a", tag) for tag in ("", "blue", "", "blue", "blue", ""))),
        *[("receive", 100, "blue"), ("receive", 100, "blue"), ("ack", 1), ("receive",)],
        *[("ack", 0), ("receive",), ("ack", 2), ("receive", 100, "blue"), ("ack", 3)],
        *[("receive",), ("ack", 4), ("receive",)],
    ],
    "filters take turns with a receive of all": [
        ("send", *(row("ab"[k % 2], "red blue") for k in range(12))),
        *[("receive",), ("receive", 100, "red"), ("ack", 0, 1), ("receive", 100, "red")],
        *[("priorities", True), ("ack", 2, 3), ("receive", 100, "blue"), ("receive",)],
        *[("priorities", False), ("receive", 100, "blue"), ("receive",), ("receive", 100, "red")],
    ],
    "a successor that only a filter met": [
        ("send", row("a", "red", id="x")),
        *[("receive", 100, "red"), ("send", row("a"), row("a"))],
        *[("replace", row("a", "red", id="x")), ("receive", 100, "red"), ("ack", 0)],
        *[("receive",), ("receive", 100, "red"), ("ack", 1), ("receive",), ("ack", 2)],
        ("receive",),
    ],
    "a filter took what is parked": [
        ("send", *[row("a", "red")] * 8, row("a")),
        *[("receive", 1), ("receive",), ("ack", 0)],
        *(step for k in range(1, 8) for step in (("receive", 1, "red"), ("receive",), ("ack", k))),
        ("receive",),
    ],
    "what was given back is shown to a filter": [
        ("receive", 100, "green"),
        ("send", *[row("", "green")] * 10),
        *[("cancel", 0), ("receive", 1), ("receive", 100, "green")],
    ],
    "a key is wanted again while it is read": [
        ("send", row("k"), row(), *[row("k")] * 5),
        *[("receive", 3), ("ack", 0, 1), ("receive", 1), ("send", row("k"))],
        *[("nack", 0, 2), ("receive", 1), ("ack", 2), ("receive", 1), ("ack", 3), ("receive", 1)],
    ],
    "a retry does not fit into an answer": [
        ("send", row("k", "red"), row("k", "red")),
        *[("receive", 1, "red"), ("send", row("", "red")), ("nack", 1, 0), ("advance", 1)],
        *[("receive", 100, "red"), ("ack", 0), ("receive", 100, "red")],
    ],
    "a parked message is cancelled": [
        ("send", row("a"), row("a"), row("a")),
        *[("receive",), ("receive",), ("cancel", 1), ("ack", 0), ("receive",)],
    ],
    "a restart keeps who holds a key": [
        ("send", row("a"), row("a"), row("b"), row("b")),
        *[("receive",), ("nack", 5_000, 2), ("house", "checkpoint"), ("house", "restart")],
        *[("receive",), ("house", "restart"), ("receive",), ("ack", 0), ("receive",)],
        *[("house", "restart"), ("advance", 5_000), ("receive",)],
    ],
    "each group has keys of its own": [
        *[("group", "a"), ("send", row("k"), row("k")), ("receive", 100, None, "a")],
        *[("ack_of", "a", 0), ("receive",), ("receive", 100, None, "a")],
    ],
    "only keys that are held wake a consumer": [
        ("send", row("a"), row("a"), row("b"), row("b")),
        *[("receive",), ("receive",), ("ack", 0), ("receive", 100, "green"), ("ack", 2)],
        ("receive",),
    ],
    # ------------------------ messages past their ttl that hold others up
    "a retry that no filter wants expires": [
        ("send_ttl", 1_000, row("k", "red"), row("l", "red")),
        ("send", row("k", "blue"), row("l", "blue")),
        *[("receive", 100, "red"), ("nack", 0, 0, 1), ("receive", 100, "blue")],
        *[("advance", 999), ("receive", 100, "blue"), ("advance", 1), ("receive", 100, "blue")],
    ],
    "a holder of a key that has a successor expires": [
        *[("send_ttl", 1_000, row("k", id="x")), ("receive",), ("replace", row("k", id="x"))],
        *[("nack", 0, 0), ("advance", 1_000), ("receive",)],
    ],
    "a predecessor that no filter wants expires": [
        ("merge_leased", "successor"),
        ("send_ttl", 1_000, row("", "red", id="x")),
        *[("receive", 100, "red"), ("replace", row("", "blue", id="x")), ("nack", 0, 0)],
        *[("advance", 999), ("receive", 100, "blue"), ("advance", 1), ("receive", 100, "blue")],
    ],
    # ------------------------ order
    "what is given back does not overtake a priority": [
        *[("priorities", True), ("receive", 100, "blue")],
        ("send", *[row("", "blue", priority=1)] * 6),
        *[("cancel", 0), ("receive", 1, "blue"), ("receive", 1)],
        ("send", row("", "blue", priority=5), row("", "blue", priority=1)),
        *[("receive", 2, "blue"), ("send", row("", "blue", priority=3)), ("receive",)],
    ],
    "an answer that was cut short does not overtake a priority": [
        *[("priorities", True), ("send", *[row(priority=1)] * 12), ("receive", 9)],
        *[("send", row(priority=5)), ("receive", 9), ("send", row(priority=5)), ("receive",)],
    ],
    "filters follow a change of the order": [
        *[("priorities", True), ("send", *[row("", "blue")] * 2), ("receive", 1, "blue")],
        *[("priorities", False), ("send", row("", "blue")), ("receive", 100, "blue")],
        *[("priorities", True), ("send", *[row("", "blue", priority=1)] * 2)],
        *[("receive", 1, "blue"), ("send", row("", "blue", priority=9)), ("receive", 9, "blue")],
    ],
    # ------------------------ successors
    "a replacement of a leased message comes after it": [
        *[("send", row(id="x")), ("receive",), ("replace", row(id="x"))],
        *[("replace", row(id="x")), ("receive",), ("house", "restart"), ("receive",)],
        *[("nack", 0, 0), ("receive",), ("house", "checkpoint"), ("house", "restart")],
        *[("receive",), ("ack", 0), ("receive",)],
    ],
    "a successor waits wherever its predecessor goes": [
        *[("send", row(id="x")), ("receive",), ("replace", row(id="x")), ("nack", 60_000, 0)],
        *[("reschedule", 0, HOUR), ("reschedule", 1, 0), ("house", "checkpoint")],
        *[("house", "restart"), ("advance", HOUR // 2), ("receive",), ("advance", HOUR // 2)],
        *[("receive",), ("ack", 0), ("receive",)],
    ],
    "a successor waits for a predecessor that is cancelled": [
        *[("send", row(id="x")), ("receive",), ("replace", row(id="x")), ("nack", 60_000, 0)],
        *[("reschedule", 0, HOUR), ("receive",), ("cancel", 0), ("receive",)],
    ],
    "the first waits, and one more is sent during the work": [
        *[("merge_leased", "successor"), ("send", row(id="x", delay=100)), ("send", row(id="x"))],
        *[("advance", 100), ("receive",), ("send", row(id="x", delay=100)), ("send", row(id="x"))],
        *[("advance", 100), ("receive",), ("ack", 0), ("receive",)],
    ],
    "a replacement over groups": [
        *[("group", "a"), ("send", row(id="x")), ("receive", 100, None, "a")],
        *[("replace", row(id="x")), ("receive",), ("receive", 100, None, "a")],
        *[("ack_of", "a", 0), ("receive", 100, None, "a")],
    ],
    # ------------------------ dead letters
    "a dead message is delivered again": [
        *[("set_retries", 0), ("send", row(id="x")), ("receive",), ("nack", 0, 0)],
        *[("replay", 0), ("house", "restart"), ("replay", 0), ("receive",), ("nack", 0, 0)],
        *[("house", "checkpoint"), ("replay", 0), ("receive",), ("ack", 0), ("replay", 0)],
    ],
    "an id is one message's at a time": [
        ("set_retries", 0),
        *[("send", row(id="x")), ("receive",), ("nack", 0, 0)],
        *[("send", row(id="x")), ("receive",), ("nack", 0, 1), ("send", row(id="x"))],
        *[("replay", 0), ("replay", 1), ("cancel", 2), ("replay", 0), ("replay", 1)],
        *[("house", "restart"), ("send", row(id="x")), ("receive",)],
    ],
    "an id is taken while it is leased behind a cancelled successor": [
        *[("set_retries", 0), ("send", row(id="x")), ("receive",), ("nack", 0, 0)],
        *[("replace", row(id="x")), ("receive",), ("replace", row(id="x")), ("cancel", 2)],
        *[("replay", 0), ("house", "checkpoint"), ("house", "restart"), ("ack", 1), ("replay", 0)],
    ],
    # ------------------------ groups and purges
    "a dropped group holds nothing back": [
        *[("group", "a"), ("send", *[row()] * 5), ("receive",), ("ack", 0, 1, 2, 3, 4)],
        *[("receive", 2, None, "a"), ("group", "a"), ("house", "restart"), ("group", "a")],
        ("receive", 100, None, "a"),
    ],
    "a retry of a dropped group is not delivered": [
        *[("group", "a"), ("send", row()), ("receive", 100, None, "a"), ("nack_of", "a", 500, 0)],
        *[("group", "a"), ("receive",), ("ack", 0), ("house", "restart"), ("advance", 500)],
        ("receive",),
    ],
    "only named groups see what is sent": [
        *[("send", row()), ("group", "default"), ("send", row()), ("group", "a"), ("send", row())],
        *[("house", "restart"), ("receive", 100, None, "a"), ("group", "default")],
        *[("send", row()), ("receive",)],
    ],
    "a purge ends what waits and what is ready": [
        ("send", *[row()] * 3, *[row(delay=5_000)] * 3, *[row(delay=2 * HOUR)] * 3),
        *[("purge", "default"), ("receive",), ("send", row(delay=5_000)), ("advance", 5_000)],
        *[("receive",), ("house", "restart"), ("advance", 3 * HOUR), ("receive",)],
    ],
    "a purge ends a predecessor": [
        *[("send", row(id="x")), ("receive",), ("replace", row(id="x")), ("nack", 60_000, 0)],
        *[("purge", "default"), ("replace", row(id="x")), ("receive",)],
    ],
    "a purge leaves what is leased": [
        *[("send", *[row()] * 6), ("receive", 3), ("purge", "default"), ("nack", 0, 0)],
        *[("nack", 1_000, 1), ("receive",), ("advance", 1_000), ("receive",)],
        *[("house", "restart"), ("nack", 0, 1), ("purge", "default"), ("receive",)],
    ],
    # ------------------------ the clock
    **{
        f"the clock steps by {ms} ms": [
            *[("send", *[row()] * 2), ("receive", 1), ("advance", 10_000)],
            *[("house", "checkpoint"), ("clock", ms), ("send", row(delay=1_000))],
            *[("send", row(delay=3 * HOUR)), ("house", "restart"), ("advance", 999), ("receive",)],
            *[("advance", 1), ("receive",), ("advance", 3 * HOUR - 1_001), ("receive",)],
            *[("advance", 1), ("receive",)],
        ]
        for ms in (-5_000, -2 * HOUR, -24 * HOUR, 2 * HOUR, 24 * HOUR)
    },
}
"""Histories of which each parking matters."""

BUILT: dict[str, list[Step]] = {
    **{
        f"{free}, after {emptied}, for {tags or 'all'}": [
            ("send", row("a", "red blue"), row("a", "red blue"), row("b", "blue")),
            *[("receive",), ("receive", 100, "blue"), ("receive", 100, tags)],
            *[*emptying, ("ack", 2), *frees, ("receive", 100, tags)],
        ]
        for free, frees in KEY_COMES_FREE.items()
        for emptied, emptying in EMPTYINGS.items()
        for tags in (None, "red")
    },
    **{
        f"a predecessor ends, after {emptied}": [
            *[("send", row("", "red", id="x")), ("receive",)],
            *[("replace", row("", "red", id="x")), ("receive", 100, "blue"), ("receive",)],
            *[("receive", 100, "red"), *emptying, ("ack", 0), ("receive", 100, "red")],
        ]
        for emptied, emptying in EMPTYINGS.items()
    },
    **{
        f"{changed} {place}{', restarted' if restarted else ''}": [
            *[*steps, *restarted, *change, *COMES_ONCE],
        ]
        for place, steps in PLACES.items()
        for changed, change in CHANGES.items()
        for restarted in ([], [("house", "restart")])
    },
}


def play(scene: Scene, parked: int, steps: list[Step]) -> None:
    try:
        scene.open(parked=parked)
        scene.play(steps)
    finally:
        scene.teardown()


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("parked", [0, 1_000], ids=["on disk", "in memory"])
def test_known_histories_agree_with_the_model(name: str, parked: int) -> None:
    play(Scene(), parked, SCENES[name])


@pytest.mark.parametrize("name", SCENES)
def test_small_answers_agree_with_the_model(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    small_answers(monkeypatch)
    play(SmallScene(), 0, SCENES[name])


@pytest.mark.parametrize("name", BUILT)
def test_built_histories_agree_with_the_model(name: str) -> None:
    play(Scene(), 0, BUILT[name])
