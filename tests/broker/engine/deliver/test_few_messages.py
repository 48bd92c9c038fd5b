"""Few messages are released, leased and settled one by one, many as columns: nothing else differs.

Two brokers get the same calls, one of which has no other way than columns. Each answer, each byte
of the log, and all state and hints must be the same after every step, and after a restart from the
log.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import msgpack
import numpy as np
import pytest

from delaylog.broker.calls.forms.deliveries import (
    COLUMNS,
    bulk_delivery,
    bulk_fields,
    message_objects,
)
from delaylog.broker.engine.apply import send_frames
from delaylog.broker.engine.deliver import receives, settlements
from delaylog.broker.engine.deliver.receives import ReceiveRequest
from delaylog.broker.engine.deliver.settlements import Receipts
from delaylog.broker.engine.errors import EngineError
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.model import FewDelivery
from delaylog.broker.engine.topics.settings import Backoff, RateLimit
from delaylog.broker.engine.upkeep.saved_state import end_packing, pack, snapshot
from delaylog.contract.own_backoff import encode_own_backoff
from delaylog.storage.layout import (
    HOUR_MS,
    INDEX_ENTRY,
    INDEX_ROW,
    STATE_ENTRY,
    STATE_VALUES,
    StateValues,
)
from delaylog.storage.messages.rows import RowValues
from delaylog.wheel import second_slot, timing_wheel
from tests.broker.engine.host import Host
from tests.effort import tries

HOUR = HOUR_MS
HEADERS = msgpack.packb({"a": "b"})
BACKOFF = encode_own_backoff({"first_ms": 30})
PAUSES = [0, 1, 20, 60, 60, 200, 200, 1_000, 1_000, 30_000, HOUR, 15 * HOUR]
OTHERS = ["flush", "flush", "flush", "checkpoint", "restart", "jump", "back", "span", "span"]
RARE = [
    "priority",
    "tap",
    "key",
    "limit",
    "limit",
    "cancel",
    "purge",
    "pause",
    "pause",
    "drop group",
]
"""Only near the end: after most of them, columns are the only way for a while."""
STEPS_MAX = 160


def drawn(random: Random, number: int) -> tuple[Any, ...]:
    """A step."""
    pick = random.choice
    kind = random.choices(
        ["send", "receive", "settle", "advance", "late", "other"], [5, 8, 8, 3, 1, 1]
    )[0]
    often = ["a", "b"] if number > STEPS_MAX * 3 // 4 else [""]
    if kind == "send":
        messages = [
            {
                "delay": pick([0, 0, 0, 0, 0, -5_000, 20, 1_000, HOUR, 50 * HOUR]),
                "body": pick([b"", b"x", b"\xff\x00", b"body" * 20]),
                "id": pick(["", "", "", f"m{number}", f"\u00e9{number}", *often]),
                "tags": pick(["", "", "red", "red,blue"]),
                "headers": pick([b"", b"", b"", HEADERS, BACKOFF + HEADERS, BACKOFF]),
            }
            for _ in range(random.randint(1, 5))
        ]
        ids = [each["id"] for each in messages]
        for each in messages:
            if ids.count(each["id"]) > 1:
                each["id"] = ""
        return kind, messages, pick([None] * 8 + [150]), pick(["keep", "keep", "replace"])
    if kind == "receive":
        shares = [random.randint(1, 4) for _ in range(pick([1, 1, 2, 3]))]
        return (
            kind,
            pick(["default", "default", "default", "g"]),
            shares,
            pick([None, None, None, None, None, 0, 1, 4]),
            pick([None, None, None, None, None, 100]),
            pick([50, 1_000, 30_000, 30_000]),
        )
    if kind == "settle":
        verb = pick(["ack"] * 8 + ["nack", "nack", "extend", "extend", "reject", "begin"])
        backs = random.sample(range(3), k=pick([1, 1, 2, 3])) + pick([[], [], [0]])
        named = [(back, pick([0, 1, 1, 2, 4, 15, 31])) for back in backs]
        return kind, verb, named, pick([True, False])
    if kind == "other":
        return kind, pick(OTHERS) if number < STEPS_MAX * 3 // 4 else pick(OTHERS + RARE)
    return kind, pick(PAUSES) if kind == "advance" else pick([1, 20, 160, 400])


class Side:
    """One of the brokers."""

    def __init__(self, folder: Path, few: bool, groups: bool) -> None:
        self.few = few
        self.host = Host(folder, limits=Limits(leased_max=9))
        self.host.configure(max_retry=2, backoff=Backoff(first_ms=40, max_ms=1_000, jitter=0.0))
        self.leases: list[tuple[int, list[int]]] = []
        """Leases and their origins, in the order of their receives."""
        self.seen = 0
        """Up to where the log was compared."""
        self.one_by_one = 0
        if groups:
            self.host.put_group("g")

    def run(self, step: tuple[Any, ...]) -> Any:
        """Do a step; returns all there is to see of it."""
        with pytest.MonkeyPatch.context() as patch:
            if not self.few:
                patch.setattr("delaylog.broker.engine.deliver.receives.FEW_LEASED_MAX", 0)
                patch.setattr("delaylog.broker.engine.deliver.receives.FEW_SHARED_MAX", 0)
                patch.setattr(settlements, "FEW_ACKED_MAX", -10_000)
                for module in (send_frames, second_slot, timing_wheel):
                    patch.setattr(module, "FEW_ENTRIES_MAX", 0)
            try:
                answer = getattr(self, step[0])(*step[1:])
            except EngineError as error:
                answer = repr(error)
        return answer, self.log(), self.state()

    def send(self, messages: list[dict[str, Any]], ttl: int | None, merge: str) -> Any:
        columns: dict[str, Any] = {
            "at": [self.host.now_ms + each["delay"] for each in messages],
            "ids": [each["id"] for each in messages],
            "tags": [each["tags"] for each in messages],
            "headers": [each["headers"] for each in messages],
            "merge": merge,
        }
        if ttl is not None:
            columns["ttl_ms"] = ttl
        sent = self.host.send([each["body"] for each in messages], **columns)
        return sent.refs.tolist(), sent.deliver_at_ms.tolist()

    def receive(
        self,
        name: str,
        shares: list[int],
        begin: int | None,
        bytes_max: int | None,
        lease_ms: int,
    ) -> Any:
        host = self.host
        group = host.topic.group(name) or host.topic.default
        asked = ReceiveRequest(
            sum(shares),
            host.now_ms,
            shares=shares,
            begin=[begin] * len(shares),
            consumers=["", "c1", "c2"][: len(shares)],
            addresses=["127.0.0.1"] * len(shares),
            bytes_max=bytes_max,
        )
        got = receives.receive(host.engine.state, host.topic, group, asked, lease_ms=lease_ms)
        if got is None:
            return None
        self.one_by_one += isinstance(got, FewDelivery)
        out = []
        for each in got.apart():
            self.leases.append((each.lease, each.origins.tolist()))
            fields = bulk_fields(each, COLUMNS, host.now_ms)
            plain = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in fields.items()}
            packed = bulk_delivery(each, COLUMNS, host.now_ms)
            objects = message_objects(each, packed=True)
            out.append((plain, packed, objects, each.position, each.count))
        return out

    def settle(self, verb: str, named: list[tuple[int, int]], listed: bool) -> Any:
        """Settle messages of the latest leases; bits say which."""
        host, wanted = self.host, []
        for back, bits in named:
            if back < len(self.leases):
                lease, origins = self.leases[-1 - back]
                mine = [o for at, o in enumerate(origins) if bits >> at & 1]
                mine += [origins[0], 12_345] if bits >> 4 else []
                whole = None if bits == 0 else mine if listed else np.array(mine, np.int64)
                wanted.append(Receipts(lease, whole))
        state, topic, now_ms = host.engine.state, host.topic, host.now_ms
        calls: dict[str, Callable[[Receipts], Any]] = {
            "nack now": lambda each: settlements.nack(state, topic, each, now_ms, delay_ms=0),
            "nack": lambda each: settlements.nack(state, topic, each, now_ms),
            "extend": lambda each: settlements.extend(state, topic, each, now_ms, lease_ms=2_000),
            "reject": lambda each: settlements.reject(state, topic, each, now_ms),
            "begin": lambda each: settlements.begin(state, topic, each, now_ms, lease_ms=900),
        }
        if verb == "ack":
            done = settlements.ack_each(state, topic, wanted, now_ms)
        else:
            done = [calls[verb](each) for each in wanted]
        host.turn()
        return [(each.done, each.gone_column.tolist(), each.position) for each in done]

    def advance(self, ms: int) -> None:
        self.host.advance(ms)

    def late(self, ms: int) -> None:
        """Time passes, and nothing is done of what became due."""
        self.host.now_ms += ms

    def other(self, what: str) -> Any:
        host = self.host
        if what in ("flush", "checkpoint", "restart"):
            getattr(host, what)()
        elif what == "purge":
            return host.purge(force=True)
        elif what == "cancel":
            return host.cancel(["a", "b"])
        elif what == "limit":
            limited = host.topic.settings.rate_limit is None
            host.configure(max_retry=2, rate_limit=RateLimit(3, 3) if limited else None)
        elif what == "priority":
            first = host.topic.settings.order == "priority"
            host.configure(max_retry=2, order="time" if first else "priority")
        elif what == "jump":
            host.jump_ahead(7_000)
        elif what == "back":
            host.set_back(500)
        elif what == "pause":
            host.pause(paused=not host.topic.paused)
        elif what == "drop group":
            if host.topic.group("g") is not None:
                host.drop_group("g")
        elif what == "span":
            key = "default", host.topic_name, "default"
            now_ms = host.now_ms
            host.engine.state.timeline.group(key, "rate_limit", now_ms - 200, now_ms)
        elif what == "key":
            host.send(2, keys=["k", "k"])
        else:
            host.engine.state.taps.of(host.topic.number, host.now_ms)
        return None

    def log(self) -> list[tuple[int, bytes]]:
        """The frames since the last step."""
        log = self.host.engine.state.log
        self.host.sync()
        out = []
        while self.seen < log.end_position:
            if self.seen < log.first_position:
                self.seen = log.first_position
            frame = log.frame_at(self.seen)
            out.append((frame.header, bytes(frame.payload)))
            self.seen = frame.end
        return out

    def state(self) -> dict[str, Any]:
        """All state, and the hints that receives and acks change."""
        state = self.host.engine.state
        out = snapshot(state, self.host.now_ms)
        for _ in pack(state):
            pass
        end_packing(state)
        for name in ("topics", "leases", "producers"):
            out[name] = list(out[name])
        out["consumers"] = dict(state.leases._consumers)
        out["leased"] = dict(state.leases._leased)
        out["buckets"] = {at: list(numbers) for at, numbers in state.leases._buckets.items()}
        for topic in state.topics.values():
            # It is created by the first message that counts.
            state.series.lateness_of(topic)
        out["late"] = [
            (late.handed_out.counts, late.handed_out.sum, late.handed_out.examples)
            for late in (*state.series.lateness.values(), state.series.other_lateness)
        ]
        out["ready late"] = [
            (late.ready.counts, late.ready.sum) for late in state.series.lateness.values()
        ]
        out["time"] = [
            *(state.tick, state.released_upto, state.wheel.unloaded_ms()),
            self.host.engine.next_wake_ms(),
        ]
        out["settled"] = list(state.timeline._settled.items())
        out["noted"] = list(state.timeline.noted.items())
        marks = state.marks
        out["marks"] = [set(marks.lease_full), set(marks.newly_ready), dict(marks.rate_limited)]
        for name, topic in state.topics.items():
            for group in topic.groups.values():
                queues = [refs.tolist() for refs in group.ready.in_memory(1_000)]
                out[f"{name} {group.name}"] = [
                    [ref for refs in queues for ref in refs],
                    group.ready.living,
                    group.used_ms,
                    group.acked_rate.per_second(self.host.now_ms, group.counts.acked),
                    group.delivered_rate.per_second(self.host.now_ms, group.counts.delivered),
                ]
        return out


def test_few_messages_are_leased_and_settled_like_many(tmp_path: Path) -> None:
    """Any sequence of calls has the same answers, frames and state."""
    one_by_one = []
    for seed in range(tries(12)):
        random = Random(seed)
        steps = [drawn(random, number) for number in range(STEPS_MAX)]
        (tmp_path / f"seed-{seed}").mkdir()
        one_by_one.append(compare(tmp_path / f"seed-{seed}", steps, groups=seed % 3 == 0))
    # A sequence that draws a pause early leaves little to do one by one.
    assert sum(one_by_one) > 12 * len(one_by_one), one_by_one


def one(id_: str, **more: Any) -> list[dict[str, Any]]:
    return [{"delay": 0, "body": b"x", "id": id_, "tags": "", "headers": b"", **more}]


RECEIVE = ("receive", "default", [3], None, None, 30_000)
ACK = ("settle", "ack", [(0, 31)], True)
BACK = ("settle", "nack now", [(0, 31)], True)
SCENES: dict[str, list[tuple[Any, ...]]] = {
    "past its ttl": [("send", one("a"), 150, "keep"), ("late", 160), RECEIVE],
    "ended": [("send", [*one("a"), *one("c")], None, "keep"), ("other", "cancel"), RECEIVE, ACK],
    "all ended": [("send", one("a"), None, "keep"), ("other", "cancel"), RECEIVE],
    "tried before": [("send", one("a"), None, "keep"), RECEIVE, BACK, ("late", 70), RECEIVE, ACK],
    "its id is wanted": [
        ("send", one("a"), None, "keep"),
        RECEIVE,
        ("send", one("a"), None, "replace"),
        RECEIVE,
        ("settle", "ack", [(0, 31)], False),
        RECEIVE,
    ],
    "a key is locked": [
        ("send", one("c"), None, "keep"),
        RECEIVE,
        ("other", "key"),
        RECEIVE,
        ("settle", "ack", [(1, 31)], True),
        RECEIVE,
    ],
    "purged": [("send", one("a"), None, "keep"), ("other", "purge"), RECEIVE],
}


@pytest.mark.parametrize("name", SCENES)
@pytest.mark.parametrize("groups", [False, True])
def test_rare_cases(tmp_path: Path, name: str, groups: bool) -> None:
    """What random calls seldom meet."""
    compare(tmp_path, SCENES[name], groups=groups)


def compare(folder: Path, steps: list[tuple[Any, ...]], *, groups: bool) -> int:
    """Run the steps on both sides; returns how many leases were of few messages."""
    few, many = (Side(folder / name, name == "few", groups) for name in ("few", "many"))
    for step in [*steps, ("other", "restart"), ("advance", 60_000)]:
        one, other = few.run(step), many.run(step)
        assert one[0] == other[0], step
        assert one[1] == other[1], step
        for name, value in other[2].items():
            assert one[2][name] == value, (step, name)
    assert many.one_by_one == 0
    assert few.host.recount() == many.host.recount()
    few.host.close()
    many.host.close()
    return few.one_by_one


def test_a_checkpoint_has_a_lease_as_it_was(tmp_path: Path) -> None:
    """Acks and extensions while a checkpoint packs leases change later checkpoints only."""
    side = Side(tmp_path, few=True, groups=False)
    host, table = side.host, side.host.engine.state.leases
    host.send(5)
    for count in (2, 2, 1):
        side.receive("default", [count], None, None, 1_000)
    before = side.state()["leases"]
    packed = table.snapshot()
    (extended, _), *acked = side.leases
    state, topic, now_ms = host.engine.state, host.topic, host.now_ms
    settlements.extend(state, topic, Receipts(extended), now_ms, lease_ms=9_000)
    settlements.ack_each(state, topic, [Receipts(each, some[:1]) for each, some in acked], now_ms)
    assert all(lease.few for lease in (table.get(extended), table.get(acked[0][0])))
    for _ in table.entries.work():
        pass
    assert list(packed) == before
    host.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_group_has_one_row_as_it_has_columns(tmp_path: Path, seed: int) -> None:
    """`has_one` says of each row without a state what `free` says of all of them."""
    random, n = Random(seed), 200
    host = Host(tmp_path)
    group = host.put_group("g")
    host.close()
    rows, entries = np.zeros(n, INDEX_ENTRY), np.zeros(n, STATE_ENTRY)
    for row, entry in zip(rows, entries, strict=True):
        row["group"] = random.choice([0, 0, group.number, group.number + 1])
        row["sent_position"], entry["time"] = random.randrange(9), random.choice([0, 0, 7])
    group.born, group.floor = random.choice([(0, 0), (3, 3), (3, 6)])
    found = [
        group.has_one(
            RowValues._make(INDEX_ROW.unpack(row.tobytes())),
            StateValues._make(STATE_VALUES.unpack(entry.tobytes())),
        )
        for row, entry in zip(rows, entries, strict=True)
    ]
    assert found == group.free(rows, entries).tolist()


def test_plain_messages_are_handled_one_by_one(tmp_path: Path) -> None:
    """The usual receive, extend and ack of few messages create no column."""
    side = Side(tmp_path, few=True, groups=False)
    host = side.host
    host.send(6, ids=[f"m{k}" for k in range(6)], tags=["red"] * 6)
    host.flush()
    host.send(2)
    topic, state = host.topic, host.engine.state
    side.receive("default", [2, 2], None, None, 1_000)
    side.receive("default", [4], None, None, 1_000)
    assert side.one_by_one == 2
    leases = [state.leases.get(number) for number, _ in side.leases]
    for number, origins in side.leases:
        extended = settlements.extend(state, topic, Receipts(number), host.now_ms, lease_ms=2_000)
        assert extended.done == len(origins)
        done = settlements.ack(state, topic, Receipts(number, origins[1:]), host.now_ms)
        assert done.done == len(origins) - 1
        assert all(lease.made_columns is None for lease in leases)
    host.check_counts()
    host.close()
