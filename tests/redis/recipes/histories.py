"""Random histories of the recipes: what they send and what is answered, to be replayed elsewhere.

The one rule: a history depends on its seed and on the answers alone. What a server may order as it
likes, hashes, is never asked for in a way that lets the order decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import redis

from delaylog.client.queues import DynoMessage, FixedTimeMessage, PriorityMessage, RangeMergeMessage
from tests.redis.recipes.calls import Script
from tests.redis.recipes.camellia import scripts as camellia_scripts
from tests.redis.recipes.camellia.delay_queue import CamelliaQueue
from tests.redis.recipes.camellia.scheduler import CamelliaScheduler
from tests.redis.recipes.connection import Argument, Command, CommandRefused, RedisPyConnection
from tests.redis.recipes.dyno import scripts as dyno_scripts
from tests.redis.recipes.dyno.dyno_queue import DynoQueue
from tests.redis.recipes.rmq import scripts as rmq_scripts
from tests.redis.recipes.rmq.topic import RmqTopic, TopicKind
from tests.redis.recipes.support import HandClock

Answer = Any
Step = tuple[list[Command], list[Answer] | str]
"""Commands of one trip, and their replies or what refused them."""


class Recorder:
    """A connection that keeps what went over it, replies as the protocol has them."""

    def __init__(self, client: redis.Redis) -> None:
        client.response_callbacks.clear()
        self._inner = RedisPyConnection(client)
        self.steps: list[Step] = []

    def execute(self, *args: Argument) -> Answer:
        return self._kept([args], lambda: [self._inner.execute(*args)])[0]

    def pipeline(self, commands: Sequence[Command]) -> list[Answer]:
        return self._kept(list(commands), lambda: self._inner.pipeline(commands))

    def _kept(self, commands: list[Command], call: Callable[[], list[Answer]]) -> list[Answer]:
        try:
            replies = call()
        except CommandRefused as refused:
            self.steps.append((commands, str(refused)))
            raise
        kept = [_unordered(command, r) for command, r in zip(commands, replies, strict=True)]
        self.steps.append((commands, kept))
        return replies


def replay(client: redis.Redis, steps: Sequence[Step]) -> list[Step]:
    """The same commands in the same trips; what is answered here."""
    recorder = Recorder(client)
    for commands, _ in steps:
        try:
            recorder.pipeline(commands)
        except CommandRefused:
            continue
    return recorder.steps


def _unordered(command: Command, reply: Answer) -> Answer:
    """A hash has no order."""
    if command[0] == "HGETALL" and isinstance(reply, list):
        return dict(zip(reply[::2], reply[1::2], strict=True))
    return reply


def run_dyno(recorder: Recorder, random: Random, steps: int) -> None:
    """Two consumers of three shards, every call of the queue."""
    clock = HandClock()
    queues = [
        DynoQueue(
            recorder,
            "q",
            shards=["a", "b", "c"],
            own_shard=own,
            unack_ms=300,
            clock=clock,
            sleep=clock.sleep,
        )
        for own in "ab"
    ]

    def some_id() -> str:
        return f"m{random.randrange(20)}"

    def some_message() -> DynoMessage:
        delay_ms = random.choice([0, 0, 5, 50, 500])
        return DynoMessage(
            some_id(),
            f"p{random.random()}",
            delay_ms,
            random.randrange(100),
            random.choice([None, "a"]),
        )

    def pattern() -> str:
        return f'"id":"{some_id()}"'

    calls: list[Callable[[DynoQueue], object]] = [
        *[lambda queue: queue.push([some_message() for _ in range(random.randrange(9))])] * 6,
        lambda queue: queue.pop(random.randrange(6), random.choice([0, 0, 300])),
        lambda queue: queue.unsafe_pop_all_shards(random.randrange(6)),
        lambda queue: queue.bulk_pop(random.randrange(6)),
        lambda queue: queue.unsafe_bulk_pop(random.randrange(6)),
        lambda queue: queue.pop_with_msg_id(some_id()),
        lambda queue: queue.unsafe_pop_with_msg_id_all_shards(some_id()),
        lambda queue: queue.atomic_pop_with_msg_id_all_shards(some_id()),
        lambda queue: queue.peek(5),
        lambda queue: queue.unsafe_peek_all_shards(5),
        lambda queue: queue.ack(some_id()),
        lambda queue: queue.ack_all([DynoMessage(some_id()) for _ in range(3)]),
        lambda queue: queue.set_unack_timeout(some_id(), random.randrange(500)),
        lambda queue: queue.set_timeout(some_id(), random.randrange(500)),
        lambda queue: queue.remove(some_id()),
        lambda queue: queue.atomic_remove(some_id()),
        lambda queue: queue.ensure(some_message()),
        lambda queue: queue.contains_predicate(pattern(), local=random.random() < 0.5),
        lambda queue: queue.get_msg_with_predicate(pattern(), local=random.random() < 0.5),
        lambda queue: queue.pop_msg_with_predicate(pattern(), local=random.random() < 0.5),
        lambda queue: (queue.get(some_id()), queue.local_get(some_id())),
        lambda queue: queue.get_all_messages(),
        lambda queue: (queue.size(), queue.shard_sizes()),
        lambda queue: queue.process_unacks(),
        lambda queue: queue.atomic_process_unacks(),
        lambda queue: queue.find_stale_messages(),
        lambda queue: random.random() < 0.02 and queue.clear(),
    ]
    for _ in range(steps):
        clock.now_ms += random.choice([0, 1, 20, 200])
        random.choice(calls)(random.choice(queues))


def run_rmq(recorder: Recorder, random: Random, steps: int) -> None:
    """A topic of each kind; deliveries are settled, forgotten, or settled too late."""
    clock = HandClock()
    topics = {
        kind: RmqTopic(recorder, kind.name.lower(), kind, slots=2, timeout_s=2, clock=clock)
        for kind in TopicKind
    }
    held: list[tuple[RmqTopic, Any]] = []
    for _ in range(steps):
        clock.now_ms += random.choice([0, 1, 20, 400, 2_000])
        kind = random.choice(list(topics))
        topic = topics[kind]
        body = f"b{random.randrange(12)}"
        match random.randrange(8):
            case 0 | 1 | 2:
                if kind is TopicKind.RANGE_MERGE:
                    topic.send(RangeMergeMessage(body, random.randrange(1, 900)))
                elif kind is TopicKind.PRIORITY:
                    topic.send(PriorityMessage(body, random.randrange(17, 30)))
                else:
                    topic.send(FixedTimeMessage(body, clock() + random.randrange(1, 900)))
            case 3 | 4:
                delivery = topic.pop_any()
                if delivery is not None:
                    held.append((topic, delivery))
            case 5 | 6 if held:
                owner, delivery = held.pop(random.randrange(len(held)))
                (owner.commit if random.random() < 0.2 else owner.roll_back)(delivery)
            case _:
                slot = random.randrange(2)
                topic.scan_timeouts(slot)
                letters = topic.dead_letters(slot)
                if letters:
                    topic.revive(random.choice(letters))
                topic.depth()


def run_camellia(recorder: Recorder, random: Random, steps: int) -> None:
    """Two topics, their scheduler, consumers that forget."""
    clock = HandClock()
    queues = [CamelliaQueue(recorder, topic, namespace="ns", clock=clock) for topic in "tu"]
    scheduler = CamelliaScheduler(recorder, namespace="ns", clock=clock)
    # More than two pages of a scan and of a pull.
    for _ in range(220):
        queues[0].send("body", delay_ms=random.choice([0, 1_000]))

    def some_id() -> str:
        return f"m{random.randrange(15)}"

    def send(queue: CamelliaQueue) -> None:
        queue.send(
            f"body {random.random()}",
            delay_ms=random.choice([0, 50, 300, 3_000]),
            msg_id=some_id(),
            ttl_ms=random.choice([-1, 400, 4_000]),
            max_retry=random.choice([-1, 0, 1]),
        )

    calls: list[Callable[[CamelliaQueue], object]] = [
        *[send] * 3,
        lambda queue: queue.pull(random.randrange(5), ack_timeout_ms=random.choice([-1, 200])),
        lambda queue: queue.pull(random.choice([3, 3, 3, 250])),
        lambda queue: queue.ack(some_id()),
        *[lambda queue: queue.nack(some_id())] * 3,
        lambda queue: queue.get(some_id()),
        lambda queue: queue.delete(some_id(), release=random.random() < 0.5),
        lambda queue: queue.topic_info(),
        lambda _queue: scheduler.run_round(clock()),
    ]
    for _ in range(steps):
        clock.now_ms += random.choice(
            [0, 1, 60, 500, 60_000, 700_000] if random.random() < 0.1 else [1, 90]
        )
        random.choice(calls)(random.choice(queues))


def run_scripts(recorder: Recorder, random: Random, steps: int) -> None:
    """The scripts on a few keys, two times in three with arguments as they ought to be.

    No argument is so large that a loop up to it would not end soon.
    """
    sets = ["z0", "z1", "z2", "z3"]
    keys = [*sets, "l0", "h0"]
    scores = [0, 0.1, 3, 9.5, 16, 17, 1658492212132.07, 1e17, -2, "inf"]

    def some_id() -> str:
        return f"m{random.randrange(6)}"

    def word() -> Argument:
        sort = random.randrange(4)
        if sort == 0:
            return random.choice(keys)
        if sort == 1:
            return some_id()
        return random.choice([*scores[:6], 1, 2, 2, 5, 1658492212132.07])

    def wrong() -> tuple[list[str], list[Argument]]:
        args = [word() for _ in range(random.randrange(9))]
        if args and random.random() < 0.6:
            args[0] = random.choice([1, 2, "m1", "body m2"])
        return random.sample(keys, 3), args

    for _ in range(steps):
        for key in sets:
            recorder.execute("ZADD", key, random.choice(scores), some_id())
        member = some_id()
        recorder.pipeline([("LPUSH", "l0", member), ("HSET", "h0", member, f"body {member}")])
        if random.random() < 0.1:
            recorder.execute("DEL", random.choice(keys))
        script, shaped = random.choice(_shapes(random, sets))
        names, args = shaped if random.random() < 0.67 else wrong()
        try:
            recorder.execute("EVAL", script.lua, len(names), *names, *args)
        except CommandRefused:
            continue


Shaped = tuple[list[str], list[Argument]]
"""Keys and arguments of a script."""


def _shapes(random: Random, sets: Sequence[str]) -> list[tuple[Script, Shaped]]:
    """Each script with keys and arguments that make sense."""
    member = f"m{random.randrange(6)}"
    ids = [f"m{n}" for n in random.sample(range(6), 3)]
    due: list[Argument] = [random.choice([9, 17, 1658492212133]), 1658492272132]
    shards: list[Argument] = list(random.sample(sets, 4))
    pattern = f"y {member}$"
    store, prepare, dead = random.sample(sets, 3)
    held = random.choice([16, 17, 9.5, 0.1, 3])
    dyno: dict[Script, list[Argument]] = {
        dyno_scripts.REMOVE: [member, 2, *shards],
        dyno_scripts.FIND: [pattern],
        dyno_scripts.FIND_LOCAL: [pattern, store],
        dyno_scripts.POP_MATCHING: [pattern, 2, *due, *shards],
        dyno_scripts.BULK_POP: [2, *due, *shards[:2], *ids[:2]],
        dyno_scripts.BULK_POP_ALL: [3, 2, *due, *shards, *ids],
        dyno_scripts.POP_ID: [member, 2, *due, *shards],
        dyno_scripts.STALE: [*shards[:2], 3, *ids],
        dyno_scripts.PROCESS_UNACKS: [*shards[:2], 2, ids[0], due[0], ids[1], held],
    }
    others: list[tuple[Script, Shaped]] = [
        (rmq_scripts.SEND_MERGED, ([store], [member, due[0]])),
        (rmq_scripts.POP_DUE, ([store, prepare], [16, 1658492212, due[0]])),
        (rmq_scripts.POP_HIGHEST, ([store, prepare], [16, 1658492212])),
        (rmq_scripts.ROLL_BACK, ([store, prepare, dead], [member, held, due[0]])),
        (rmq_scripts.REVIVE, ([store, dead], [member, 17])),
        (camellia_scripts.PULL, (["l0", store], [due[1]])),
        (camellia_scripts.MOVE, ([store, "l0"], [2, *ids[:2]])),
        (camellia_scripts.GIVE_BACK, ([store, "l0"], [member])),
        (camellia_scripts.RENEW, (["lock"], ["me", 5_000])),
        (camellia_scripts.RELEASE, (["lock"], ["me"])),
    ]
    return [(script, (["h0"], args)) for script, args in dyno.items()] + others


HISTORIES: dict[str, Callable[[Recorder, Random, int], None]] = {
    "camellia": run_camellia,
    "dyno": run_dyno,
    "rmq": run_rmq,
    "scripts": run_scripts,
}
