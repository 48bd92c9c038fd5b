"""The clients of a run. Each makes a number of calls, and writes down what it can know of each.

An actor is a function of the world, its own random numbers and the number of its calls. A refusal
is certain; a lost answer is written down as unknown. What a call may answer is asserted here; what
answers mean together is judged at the end.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final

import msgpack

from delaylog.broker.history import Call, body_hash
from delaylog.broker.history.model import ScheduleCall
from delaylog.client.wire.bulk import BULK_TYPE, encode_send, ref_to_id
from tests.simulation.network import Client, Lost, Refused, Response
from tests.simulation.records import Begin, Try, Waiting

if TYPE_CHECKING:
    from tests.simulation.world import World

REFUSALS: Final = frozenset((400, 404, 408, 409, 410, 413, 429, 503, 507))
"""Statuses that a client may get under limits and faults. A call that gets one had no effect."""
BULK: Final = {"Content-Type": BULK_TYPE}


class Actor:
    """One client, its random numbers, and forms of calls that several kinds make."""

    def __init__(self, world: World, name: str, random: Random) -> None:
        self.world, self.name, self.random = world, name, random
        self.records = world.records
        self.client = Client(world.net, random, patience_s=random.choice((2.0, 15.0)))
        self.made = 0

    def now_ms(self) -> int:
        """The clients' clock."""
        return self.records.now_ms()

    def topic(self) -> str:
        """One of them."""
        return self.random.choice(self.world.topics)

    def group(self, topic: str) -> str:
        """One of a topic's."""
        return self.random.choice(self.world.groups[topic])

    async def call(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[bool | None, Response | None]:
        """(True, answer), (False, refusal or None), or (None, None) if nobody knows."""
        world = self.world
        world.call_begins()
        what = f"{self.name}: {method} {path} {body if isinstance(body, (dict, list)) else ''}"
        try:
            answer = await self.client.call(method, path, body, headers)
        except Refused:
            world.note(f"{what} -> not begun")
            return False, None
        except Lost as error:
            world.note(f"{what} -> lost: {error}")
            self.records.lost += 1
            return None, None
        text = answer.body[:300].decode("latin-1")
        world.note(f"{what} -> {answer.status} {text}")
        if answer.status < 300:
            world.answered()
            return True, answer
        self.records.refused += 1
        world.marks.reached(f"refused with {answer.status}")
        if answer.status not in REFUSALS:
            world.violated("answer", f"{what} -> {answer.status} {text}")
        if answer.status == 503 and answer.json.get("begun") is not False:
            return None, None
        return False, answer

    # Messages

    def message(self, topic: str) -> dict[str, Any]:
        """A message as a client sends it, with a body that no other has."""
        random, options = self.random, self.world.plan.options
        self.made += 1
        body = f"{self.name}/{self.made}"
        message: dict[str, Any] = {"body": body}
        if random.random() < 0.1:
            message["body"] = body + "x" * random.choice((100, 1_000, 20_000))
        spreads = options["spreads"]
        spread = spreads[0] if random.random() < 0.5 else random.choice(spreads)
        delay = int(spread * random.random() ** random.choice((1, 3)))
        if random.random() < 0.1:
            # About now.
            delay = random.choice((0, 1, 2, 5))
        if random.random() < 0.004:
            delay = self.world.horizon_ms + random.randint(60_000, 2 * 86_400_000)
        if random.random() < 0.25:
            # Many in one second, or at an hour's edge.
            edge = random.choice((1_000, 60_000, 3_600_000))
            at = (self.world.broker_ms() + delay) // edge * edge
            message["deliver_at_ms"] = at + random.choice((0, 0, 1, edge - 1))
        elif random.random() < 0.5:
            message["deliver_at_ms"] = self.world.broker_ms() + delay
        else:
            message["delay_ms"] = delay
        if random.random() < options["ttl_share"]:
            # Its id is its own, so that a change of its time also says when it expires.
            message["ttl_ms"] = random.choice((0, 1, 100, 5_000, 3_600_000))
        elif options["ids"] and random.random() < options["id_share"]:
            message["id"] = f"s{random.randrange(options['ids'])}"
            if random.random() < 0.2:
                message["merge"] = random.choice(("keep", "replace", "reject"))
        elif random.random() < 0.4:
            message["id"] = f"u{self.name.replace(' ', '-')}-{self.made}"
        if options["keys"] and random.random() < 0.6:
            message["key"] = f"k{random.randrange(options['keys'])}"
        if random.random() < 0.3:
            message["tags"] = [random.choice(("red", "green"))]
        if random.random() < options["priority_share"]:
            message["priority"] = random.randint(-2, 2)
        if random.random() < 0.1:
            message["headers"] = {"h": body}
        return message

    async def send(self, topic: str, messages: list[dict[str, Any]]) -> None:
        """One send of one or several messages as JSON."""
        t0 = self.now_ms()
        # A repeated id may replace a message that waits.
        begun = [self.records.begin(topic, m["id"]) if "id" in m else None for m in messages]
        body: Any = messages[0] if len(messages) == 1 else messages
        ok, answer = await self.call("POST", f"/v1/topics/{topic}/messages", body)
        if answer is not None and answer.status == 400 and not self.world.plan.limits:
            if all(map(self._is_legal, messages)):
                self.world.violated("answer", f"{messages} was refused: {answer.json}")
        answers: list[Any] = [None] * len(messages)
        if ok and answer is not None:
            answers = answer.json["messages"] if len(messages) > 1 else [answer.json]
        for message, each, begin in zip(messages, answers, begun, strict=True):
            alone = begin is None or self.records.end(begin, known=ok is not None)
            if alone and begin is not None and begin.found is not None:
                self._merged(topic, message, ok, each, begin.found)
            self.records.sent(t0, message, topic, ok, each, alone=alone)

    def _is_legal(self, message: dict[str, Any]) -> bool:
        now_ms = self.world.broker_ms()
        due = message.get("deliver_at_ms", now_ms + message.get("delay_ms", 0))
        return bool(due < now_ms + self.world.horizon_ms - 2 * 86_400_000)

    def _merged(
        self, topic: str, message: dict[str, Any], ok: bool | None, answer: Any, old: Waiting
    ) -> None:
        """The id of a send was that of a message that certainly waited."""
        if ok is None or (ok and answer["result"] == "replaced"):
            self.records.gone(topic, old.id)
        else:
            self.records.moved(topic, old.id, None)
        if not ok or old.due <= self.world.high_ms():
            return
        mode = message.get("merge", self.world.merge_of[topic])
        expected = {"keep": "kept", "replace": "replaced", "reject": "rejected"}[mode]
        self.world.marks.reached(f"a waiting message was {expected}")
        if answer["result"] != expected:
            self.world.violated("merge", f"{old} was {answer['result']}, not {expected}")

    async def receive(
        self, topic: str, group: str, asked: dict[str, Any], path: str = "receive"
    ) -> list[dict[str, Any]]:
        """A receive."""
        t0, seen_ms = self.now_ms(), self.world.seen_ms
        # Named, since a topic that a send has made has other settings.
        body = {"group": group, "lease_ms": self.world.lease_ms, **asked}
        ok, answer = await self.call("POST", f"/v1/topics/{topic}/{path}", body)
        lease_ms = asked.get("lease_ms", self.world.lease_ms)
        if ok is None:
            self.records.of(topic).append(
                Call(t0, self.now_ms(), "deliver", None, None, lease_ms=lease_ms, group=group)
            )
        if not ok or answer is None:
            return []
        found: list[dict[str, Any]] = answer.json["messages"]
        now_ms = answer.json["now_ms"]
        if t0 > self.world.seen_since_ms:
            if now_ms < seen_ms:
                self.world.violated("clock", f"{now_ms} was answered after {seen_ms}")
            self.world.seen_ms = max(self.world.seen_ms, now_ms)
        if "ids" not in asked and self.world.plan.options["order"] == "time":
            self.world.check_order(topic, found)
        self.delivered(t0, topic, group, found, lease_ms, now_ms)
        return found

    def delivered(
        self,
        t0: int,
        topic: str,
        group: str,
        messages: Sequence[dict[str, Any]],
        lease_ms: int,
        now_ms: int | None,
    ) -> None:
        """Messages came."""
        for each in messages:
            granted_ms = each["lease_until_ms"] - lease_ms
            self.records.of(topic).append(
                Call(
                    t0,
                    self.now_ms(),
                    "deliver",
                    True,
                    each["id"],
                    due=each["deliver_at_ms"],
                    now=granted_ms if now_ms is None else min(granted_ms, now_ms),
                    attempt=each["attempts"],
                    lease=each["receipt"],
                    lease_until=each["lease_until_ms"],
                    lease_ms=lease_ms,
                    key=each["key"],
                    group=group,
                    body=body_hash(each["body"].encode()),
                )
            )
            ends_ms = self.records.ends.get((topic, each["id"]))
            if ends_ms is not None and now_ms is not None and granted_ms >= ends_ms:
                self.world.violated("expired", f"{each['id']} expired at {ends_ms}: {each}")
            most = self.world.attempts_max[topic]
            if each["attempts"] > most:
                self.world.violated("attempts", f"attempt {most} is the last one: {each}")
            tried = Try(each["attempts"], granted_ms, self.world.broker.starts)
            if (before := self.records.try_again(topic, group, each["id"], tried)) is not None:
                self.world.violated("attempts", f"{each} came after {before}")
            self.records.gone(topic, each["id"])
            self.world.delivered += 1
            if "@" in each["id"]:
                self.world.marks.reached("a schedule fired")

    async def settle(
        self, verb: str, topic: str, group: str, messages: Sequence[dict[str, Any]], **more: Any
    ) -> None:
        """ack, nack, extend or reject what was received."""
        if not messages:
            return
        t0 = self.now_ms()
        body = {"receipts": [each["receipt"] for each in messages], **more}
        if more.get("lease_ms") == 0:
            self.records.untried(topic, group, messages)
        ok, answer = await self.call("POST", f"/v1/topics/{topic}/{verb}", body)
        results = answer.json["results"] if ok and answer is not None else None
        self.settled(verb, topic, group, messages, t0, ok, results, **more)
        if ok and verb != "extend" and self.random.random() < 0.1:
            await self.settle_nothing(topic, messages)

    async def settle_nothing(self, topic: str, messages: Sequence[dict[str, Any]]) -> None:
        """Receipts of ended leases, or of leases of another topic."""
        verb = self.random.choice(("ack", "nack", "reject"))
        body = {"receipts": [each["receipt"] for each in messages]}
        ok, answer = await self.call("POST", f"/v1/topics/{topic}/{verb}", body)
        if ok and answer is not None and "done" in answer.json["results"]:
            self.world.violated("receipt", f"{verb} in {topic} of {messages}: {answer.json}")

    def settled(
        self,
        verb: str,
        topic: str,
        group: str,
        messages: Sequence[dict[str, Any]],
        t0: int,
        ok: bool | None,
        results: list[str] | None,
        **more: Any,
    ) -> None:
        """What came of it."""
        t1 = self.now_ms()
        delay, lease = more.get("delay_ms"), more.get("lease_ms")
        for at, each in enumerate(messages):
            done = ok if results is None else results[at] == "done"
            op = {"reject": "nack"}.get(verb, verb)
            if verb == "reject" and done:
                # It ends the lease, as a nack does, and the message as well.
                dead = Call(t0, t1, "dead", True, each["id"], group=group)
                self.records.of(topic).append(dead)
            self.records.of(topic).append(
                Call(
                    t0,
                    t1,
                    op,
                    done,
                    each["id"],
                    lease=each["receipt"],
                    group=group,
                    due=t0 + delay if delay and op == "nack" and self.world.is_steady else None,
                    lease_ms=lease,
                )
            )


Kind = Callable[[Actor], Awaitable[None]]
"""One step of an actor."""


async def send(actor: Actor) -> None:
    """A single message, mostly on the short way."""
    topic = actor.topic()
    await actor.send(topic, [actor.message(topic)])


async def batch(actor: Actor) -> None:
    """Several messages as JSON."""
    topic = actor.topic()
    count = actor.random.choice((2, 3, 10))
    messages = [actor.message(topic) for _ in range(count)]
    merge = messages[0].get("merge")
    for message in messages:
        message.pop("merge", None)
        if merge is not None:
            message["merge"] = merge
    await actor.send(topic, messages)


def _columns(messages: Sequence[dict[str, Any]], **columns: Any) -> bytes:
    return encode_send(
        [m["body"] for m in messages],
        deliver_at_ms=[m["deliver_at_ms"] for m in messages],
        ids=[m.get("id", "") for m in messages],
        keys=[m.get("key", "") for m in messages],
        tags=[m.get("tags", []) for m in messages],
        priority=[m.get("priority", 0) for m in messages],
        **columns,
    )


async def bulk(actor: Actor) -> None:
    """Messages as columns; some calls are repeated as long as they have no answer."""
    random, topic = actor.random, actor.topic()
    messages = [actor.message(topic) for _ in range(random.choice((1, 2, 8, 30)))]
    for message in messages:
        message.pop("merge", None)
        message.pop("ttl_ms", None)
        message.pop("headers", None)
        if "delay_ms" in message:
            message["deliver_at_ms"] = actor.world.broker_ms() + message.pop("delay_ms")
        if message.get("id", "u")[0] == "s":
            del message["id"]
    repeats = random.random() < 0.5
    columns: dict[str, Any] = {}
    if repeats:
        columns = {"producer": actor.name.replace(" ", "-"), "sequence": actor.made}
    raw = _columns(messages, **columns)
    t0, lost = actor.now_ms(), 0
    for _ in range(4):
        ok, answer = await actor.call("POST", f"/v1/topics/{topic}/messages", raw, BULK)
        if ok is not None:
            break
        lost += 1
        if not repeats:
            break
        await actor.world.pause(actor.random.random() * 2)
    if ok and answer is not None:
        for message, each in zip(messages, bulk_answer(answer.body, messages), strict=True):
            _forgotten(actor, t0, message, topic, lost)
            actor.records.sent(t0, message, topic, True, each)
        if repeats and "producers.PRODUCERS_MAX" not in actor.world.plan.knobs:
            others = [each | {"body": "another"} for each in messages]
            again = _columns(others, **columns)
            ok, _ = await actor.call("POST", f"/v1/topics/{topic}/messages", again, BULK)
            if ok and actor.now_ms() - t0 < 300_000:
                actor.world.violated("sequence", f"{columns} was used for other messages")
            for message in others if ok is not False else ():
                actor.records.sent(t0, message, topic, None)
        return
    for message in messages:
        # A refused repeat does not say what came of the first.
        actor.records.sent(t0, message, topic, None if lost else ok)


def bulk_answer(raw: bytes, messages: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The answer to a bulk send, as that to a JSON send."""
    fields = msgpack.unpackb(raw)
    words = ("created", "kept", "replaced", "rejected")

    def column(name: str, form: str) -> list[int]:
        value = fields[name]
        if isinstance(value, int):
            return [value] * len(messages)
        return memoryview(value).cast(form).tolist()

    rows = zip(
        messages,
        column("refs", "q"),
        column("deliver_at_ms", "q"),
        column("result", "B"),
        strict=True,
    )
    return [
        {
            "id": message.get("id") or ref_to_id(ref),
            "deliver_at_ms": due,
            "result": words[result],
        }
        for message, ref, due, result in rows
    ]


async def once(actor: Actor) -> None:
    """A single message with a key of idempotency, repeated as long as it has no answer."""
    topic = actor.topic()
    message = actor.message(topic)
    message.pop("id", None)
    if "delay_ms" in message:
        message["deliver_at_ms"] = actor.world.broker_ms() + message.pop("delay_ms")
    t0, ok, answer = actor.now_ms(), None, None
    lost = 0
    for _ in range(4):
        key = f"{actor.name}/{actor.made}".replace(" ", "-")
        ok, answer = await actor.call(
            "POST", f"/v1/topics/{topic}/messages", message, {"Idempotency-Key": key}
        )
        if ok is not None:
            break
        lost += 1
        await actor.world.pause(actor.random.random() * 2)
    if ok and answer is not None:
        _forgotten(actor, t0, message, topic, lost)
        actor.records.sent(t0, message, topic, True, answer.json)
    else:
        actor.records.sent(t0, message, topic, None if lost else ok)


def _forgotten(actor: Actor, t0: int, message: dict[str, Any], topic: str, lost: int) -> None:
    """Each lost try of a send may have added its messages, if the broker may have forgotten it."""
    late = actor.now_ms() - t0 > 300_000
    if late or "producers.PRODUCERS_MAX" in actor.world.plan.knobs:
        for _ in range(lost):
            actor.records.sent(t0, message, topic, None)


async def consume(actor: Actor) -> None:
    """A receive, and what a consumer does with what it got."""
    random, topic = actor.random, actor.topic()
    group = actor.group(topic)
    asked: dict[str, Any] = {"max": random.choice((1, 1, 5, 100))}
    if random.random() < 0.7:
        asked["wait_ms"] = random.choice((1, 100, 1_500))
    if random.random() < 0.3:
        asked["lease_ms"] = random.choice((1, 200, 5_000))
    await _work_on(actor, topic, group, await actor.receive(topic, group, asked))


async def _work_on(actor: Actor, topic: str, group: str, messages: list[dict[str, Any]]) -> None:
    random = actor.random
    others = [each for each in actor.world.topics if each != topic]
    if others and messages and random.random() < 0.2:
        await actor.settle_nothing(random.choice(others), messages)
    while messages:
        await actor.world.think(random, random.random())
        count = random.randint(1, len(messages))
        part, messages = messages[:count], messages[count:]
        way = random.choices(
            ("ack", "nack", "extend", "reject", "leave", "ack and receive"), (8, 2, 1, 0.3, 1, 1)
        )[0]
        if way == "extend":
            await actor.settle(
                "extend", topic, group, part, lease_ms=random.choice((0, 100, 2_000))
            )
            way = "ack"
        if way == "ack and receive":
            t0, lease_ms = actor.now_ms(), actor.world.lease_ms
            receipts = [each["receipt"] for each in part]
            body = {"receipts": receipts, "max": 3, "group": group, "lease_ms": lease_ms}
            ok, answer = await actor.call("POST", f"/v1/topics/{topic}/ack_and_receive", body)
            results = answer.json["results"] if ok and answer is not None else None
            actor.settled("ack", topic, group, part, t0, ok, results)
            if ok is None:
                actor.records.of(topic).append(
                    Call(t0, actor.now_ms(), "deliver", None, None, lease_ms=lease_ms, group=group)
                )
            elif ok and answer is not None:
                found = answer.json["messages"]
                actor.delivered(t0, topic, group, found, lease_ms, answer.json["now_ms"])
                messages += found
        elif way == "nack":
            delay = random.choice((None, 0, 50, 3_000))
            more = {} if delay is None else {"delay_ms": delay}
            if random.random() < 0.3:
                more["reason"] = f"because {random.randrange(3)}"
            await actor.settle("nack", topic, group, part, **more)
        elif way != "leave":
            await actor.settle(way, topic, group, part)


async def select(actor: Actor) -> None:
    """Receives that choose, which leave others waiting."""
    random, topic = actor.random, actor.topic()
    group = actor.group(topic)
    asked: dict[str, Any] = {"max": random.choice((1, 5))}
    known = actor.records.known.get(topic)
    if known and random.random() < 0.5:
        asked["ids"] = sorted({random.choice(known) for _ in range(3)})
    else:
        asked["tags"] = random.choice((["red"], ["red", "green"]))
        asked["tags_mode"] = random.choice(("any", "all"))
        if random.random() < 0.5:
            asked["wait_ms"] = 200
    await _work_on(actor, topic, group, await actor.receive(topic, group, asked))


async def control(actor: Actor) -> None:
    """Cancels and reschedules of some messages by id."""
    random, records, topic = actor.random, actor.records, actor.topic()
    known = records.known.get(topic)
    if not known:
        return
    ids = sorted({random.choice(known) for _ in range(random.choice((1, 2, 6)))})
    cancels = random.random() < 0.5
    verb = "cancel" if cancels else "reschedule"
    body: dict[str, Any] = {"ids": ids}
    due: int | None = None
    if cancels and random.random() < 0.2:
        body["force"] = True
    if not cancels:
        spread = random.choice(actor.world.plan.options["spreads"])
        due = actor.world.broker_ms() + int(spread * random.random())
        body["deliver_at_ms"] = due
    begun = [records.begin(topic, name) for name in ids]
    t0 = actor.now_ms()
    ok, answer = await actor.call("POST", f"/v1/topics/{topic}/messages:{verb}", body)
    results = answer.json["results"] if ok and answer is not None else [None] * len(ids)
    for begin, each in zip(begun, results, strict=True):
        done = ok if each is None else each["result"] == "done"
        _changed(actor, verb, begin, t0, done, due, each, force=body.get("force"))


def _changed(
    actor: Actor,
    verb: str,
    begin: Begin,
    t0: int,
    done: bool | None,
    due: int | None,
    answer: dict[str, Any] | None,
    *,
    force: bool | None = None,
) -> None:
    """What came of a cancel or reschedule of one message."""
    records, world = actor.records, actor.world
    topic, name, t1 = begin.topic, begin.id, actor.now_ms()
    alone = records.end(begin, known=done is not None)
    # A time that had passed became the broker's now, which its answer about one message says.
    due = (answer or {}).get("deliver_at_ms", due)
    certain = (
        due if due is None or due > world.high_ms() or "deliver_at_ms" in (answer or {}) else None
    )
    if due is not None:
        records.latest_due_ms = max(records.latest_due_ms, due)
    late = (answer or {}).get("groups", [])
    groups = [group for group in world.groups[topic] if group not in late] if late else [None]
    for group in groups if done else [None]:
        records.of(topic).append(
            Call(
                t0,
                t1,
                verb,
                done,
                name,
                due=certain,
                expires=records.expires(topic, name, certain),
                group=group,
                force=force,
            )
        )
    waits = verb == "reschedule" and due is not None and due > world.high_ms()
    if done is None or late or (done and not (alone and waits)):
        records.gone(topic, name)
    elif alone:
        records.moved(topic, name, due if done else None)


async def single(actor: Actor) -> None:
    """A change of one message by its own path."""
    random, records, topic = actor.random, actor.records, actor.topic()
    known = records.known.get(topic)
    if not known:
        return
    name = random.choice(known)
    path = f"/v1/topics/{topic}/messages/{name}"
    begin = records.begin(topic, name)
    t0 = actor.now_ms()
    if random.random() < 0.5:
        force = random.random() < 0.3
        ok, answer = await actor.call("DELETE", path + ("?force=true" if force else ""))
        _changed(actor, "cancel", begin, t0, ok, None, _json(answer, ok), force=force or None)
    else:
        due = actor.world.broker_ms() + int(random.choice(actor.world.plan.options["spreads"]))
        ok, answer = await actor.call("PATCH", path, {"deliver_at_ms": due})
        _changed(actor, "reschedule", begin, t0, ok, due, _json(answer, ok))


def _json(answer: Response | None, ok: bool | None) -> dict[str, Any] | None:
    return answer.json if ok and answer is not None else None


async def read(actor: Actor) -> None:
    """A message that certainly waits is read by its id."""
    random, records, world = actor.random, actor.records, actor.world
    sure = [one for one in records.waiting.values() if one.certain]
    if not sure:
        return
    one = random.choice(sure)
    version = one.version
    ok, answer = await actor.call("GET", f"/v1/topics/{one.topic}/messages/{one.id}")
    if ok is None or (ok is False and (answer is None or answer.status != 404)):
        return
    if not one.certain or one.version != version or one.due <= world.high_ms():
        return
    if records.waiting.get((one.topic, one.id)) is not one:
        return
    world.marks.reached("a waiting message was read")
    found = answer.json if answer is not None else {}
    if ok is False or (found["state"], found["deliver_at_ms"], found["body"]) != (
        "waiting",
        one.due,
        one.body,
    ):
        world.violated("read", f"{one} was read as {found}")


async def list_(actor: Actor) -> None:
    """Lists by key, by tag or of all, which must have what certainly waits; and other reads."""
    random, records, world, topic = actor.random, actor.records, actor.world, actor.topic()
    way = random.choice(("all", "key", "tag", "stats", "forecast", "dead", "count", "topics"))
    path = f"/v1/topics/{topic}"
    if way in ("stats", "forecast", "dead", "topics"):
        await actor.call("GET", "/v1/topics" if way == "topics" else f"{path}/{way}")
        return
    if way == "count":
        await actor.call("GET", f"{path}/messages:count?tag=red")
        return
    chosen = {"all": "", "key": "&key=k0", "tag": "&tag=red"}[way]
    sure = {
        one.id: (one.due, one.version)
        for one in records.waiting.values()
        if one.certain
        and one.topic == topic
        and (way == "all" or (one.key == "k0" if way == "key" else one.tag == "red"))
    }
    found: dict[str, int] = {}
    cursor, limit = "", random.choice((2, 1_000))
    for _ in range(100):
        ok, answer = await actor.call(
            "GET", f"{path}/messages?state=waiting&limit={limit}{chosen}{cursor}"
        )
        if not ok or answer is None:
            return
        found |= {each["id"]: each["deliver_at_ms"] for each in answer.json["messages"]}
        if answer.json["cursor"] is None:
            break
        cursor = f"&cursor={answer.json['cursor']}"
    else:
        return
    for name, (due, version) in sure.items():
        one = records.waiting.get((topic, name))
        if one is None or not one.certain or one.version != version or due <= world.high_ms():
            continue
        world.marks.reached(f"a waiting message was listed by {way}")
        if found.get(name) != due:
            world.violated("list", f"{one} is not in the list by {way}: {found.get(name)}")


async def schedule(actor: Actor) -> None:
    """A schedule is made, changed, run, and removed in the end. Calls about one do not overlap."""
    random, topic = actor.random, actor.topic()
    name = f"{actor.name.replace(' ', '-')}"
    path = f"/v1/topics/{topic}/schedules/{name}"
    way = random.choice(("put", "put", "pause", "resume", "run", "delete"))
    t0 = actor.now_ms()
    items = actor.records.of(topic)
    if way == "put":
        every = random.choice((1_000, 60_000, 3_600_000, 86_400_000))
        body = {
            "interval_ms": every,
            "body": f"{name}",
            "overlap": random.choice(("allow", "skip")),
            "catch_up": random.choice(("latest", "none")),
            "end_ms": actor.world.broker_ms() + every * random.randint(1, 30),
        }
        if random.random() < 0.5:
            body["count"] = random.randint(1, 5)
        ok, answer = await actor.call("PUT", path, body)
        if ok is not False:
            actor.world.schedules[topic, name] = None
    elif way == "delete":
        ok, answer = await actor.call("DELETE", path)
    else:
        ok, answer = await actor.call("POST", f"{path}/{way}", {})
    t1 = actor.now_ms()
    if way == "run":
        at = int(answer.json["id"].rpartition("@")[2]) if ok and answer is not None else None
        items.append(ScheduleCall(t0, t1, "run", ok, name, at=at))
    elif ok is not False:
        told = answer.json if ok and answer is not None and way != "delete" else None
        items.append(ScheduleCall(t0, t1, "schedule", ok, name, answer=told))


async def transact(actor: Actor) -> None:
    """A transaction of one or two parts, committed, aborted or left."""
    random, topic = actor.random, actor.topic()
    actor.made += 1
    name = f"{actor.name}-{actor.made}".replace(" ", "-")
    ok, _ = await actor.call("POST", "/v1/transactions", {"transaction": name})
    if not ok:
        return
    parts: list[tuple[int, list[dict[str, Any]]]] = []
    for part in range(random.choice((1, 2))):
        messages = []
        for _ in range(random.choice((1, 4))):
            message = actor.message(topic)
            for member in ("merge", "headers", "ttl_ms"):
                message.pop(member, None)
            if "delay_ms" in message:
                message["deliver_at_ms"] = actor.world.broker_ms() + message.pop("delay_ms")
            # Each has an id of its own, since a commit does not say the ids.
            message["id"] = f"u{name}-{actor.made}"
            messages.append(message)
        raw = _columns(messages)
        path = f"/v1/transactions/{name}/parts?topic={topic}&part={part}&attempt=1&number=0"
        ok, _ = await actor.call("POST", path, raw, BULK)
        if ok:
            parts.append((part, messages))
    t0 = actor.now_ms()
    way = random.choice(("commit", "commit", "abort", "leave"))
    if way == "leave" or not parts:
        return
    if way == "abort":
        await actor.call("POST", f"/v1/transactions/{name}/abort", {})
        return
    winners = [{"part": part, "attempt": 1, "rows": len(rows)} for part, rows in parts]
    lost = False
    for _ in range(3):
        ok, _ = await actor.call("POST", f"/v1/transactions/{name}/commit", {"winners": winners})
        if ok is not None:
            break
        lost = True
        await actor.world.pause(0.5)
    if ok:
        actor.world.marks.reached("a transaction was committed")
    for _, messages in parts:
        for message in messages:
            # Rows are published in slices, for their own time or a later one.
            due = message["deliver_at_ms"]
            answered = {"id": message["id"], "deliver_at_ms": due, "result": "created"}
            done = None if lost and not ok else ok
            actor.records.sent(t0, message, topic, done, answered)
            actor.records.gone(topic, message["id"])


async def claim(actor: Actor) -> None:
    """A claim, read and settled as a whole."""
    random, topic = actor.random, actor.topic()
    group = actor.group(topic)
    actor.made += 1
    name = f"{actor.name}-{actor.made}".replace(" ", "-")
    path = f"/v1/topics/{topic}/claims/{name}"
    lease_ms = random.choice((500, 5_000))
    t0 = actor.now_ms()
    body = {"group": group, "max": random.choice((1, 5, 50)), "lease_ms": lease_ms}
    ok, answer = await actor.call("POST", path, body)
    found: list[dict[str, Any]] = []
    if ok and answer is not None and answer.json["n"]:
        ok, answer = await actor.call("GET", f"{path}/rows?group={group}")
        if ok and answer is not None:
            found = answer.json["messages"]
            actor.delivered(t0, topic, group, found, lease_ms, None)
    if not found:
        # It may have leased anything.
        actor.records.of(topic).append(
            Call(t0, actor.now_ms(), "deliver", None, None, lease_ms=60_000, group=group)
        )
        return
    actor.world.marks.reached("a claim was made")
    way = random.choice(("ack", "ack", "release", "leave"))
    if way == "leave":
        return
    t0 = actor.now_ms()
    actor.records.untried(topic, group, found)
    ok, answer = await actor.call("POST", f"{path}/{way}", {"group": group})
    verb = "ack" if way == "ack" else "nack"
    if ok is False and answer is not None and answer.status == 410:
        actor.settled(verb, topic, group, found, t0, False, None)
    else:
        actor.settled(verb, topic, group, found, t0, ok or None if ok is False else ok, None)


async def operate(actor: Actor) -> None:
    """What operators do: pause and resume, hold, settings, the clock, reads of the whole."""
    random, topic = actor.random, actor.topic()
    way = random.choice(("pause", "resume", "hold", "release", "settings", "clock", "overview"))
    if way in ("pause", "resume"):
        await actor.call("POST", f"/v1/topics/{topic}/{way}", {})
    elif way == "hold":
        await actor.call("PUT", "/v1/hold", {"note": "for a while"})
    elif way == "release":
        await actor.call("DELETE", "/v1/hold")
    elif way == "settings":
        keep = random.choice((0, 500, 300_000))
        await actor.call("PATCH", f"/v1/topics/{topic}", {"ended_keep_ms": keep})
    elif way == "clock":
        await actor.world.accept_clock(actor)
    else:
        await actor.call("GET", random.choice(("/v1/overview", "/v1/clock", "/v1/transactions")))


KINDS: Final[dict[str, Kind]] = {
    "send": send,
    "batch": batch,
    "bulk": bulk,
    "once": once,
    "consume": consume,
    "select": select,
    "control": control,
    "single": single,
    "read": read,
    "list": list_,
    "schedule": schedule,
    "transact": transact,
    "claim": claim,
    "operate": operate,
}
