"""One case of the matrix: a broker under tight limits is loaded, ended in the middle, and judged.

Half of the load, the end, a start, the other half, all that came due, then look-ups of what is far
ahead: by id, by list and by counts, which must agree with what the calls answered.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.broker.history import CheckSettings, HistoryRecorder, check_files, report_text
from delaylog.client import AsyncPlainClient
from tests.broker.shapes.limited import FILES_MAX, Watch, disk_use, limited_broker
from tests.broker.shapes.shape import FAR_MS_MIN, Planned, Shape, Size, plan
from tests.drills.recorded_calls import Known, RecordedCalls, now_ms

GROUPS = ("g1", "g2")
LEASE_MS = 600_000
RULES = frozenset("ABCDEHJ")
CALLS_AT_ONCE = 8
CANCEL_EVERY, MOVE_EVERY = 4, 10
MOVED_MS = 400
DRAIN_S = 60.0
LISTED_TOPICS = 5
DISK_BYTES_FIXED = 48 << 20
DISK_BYTES_EACH = 1_000
"""Allocated bytes of a message of 100 bytes: log that is held for two checkpoints, far or near
rows, the id index; a near hour costs some pages more."""
FILES_EXTRA_MAX = 2_000
"""Files that do not grow with hours or topics."""

T = TypeVar("T")


@dataclass(slots=True)
class Entry:
    """What the calls' answers say of a message."""

    topic: str
    body: bytes
    due_ms: int
    cancelled_ms: int = 0
    """When it was cancelled; 0 = it was not."""

    @property
    def cancelled(self) -> bool:
        return self.cancelled_ms > 0

    @property
    def forgotten(self) -> bool:
        """Whether the topic may not tell any more that it was cancelled."""
        return self.cancelled and now_ms() - self.cancelled_ms > TopicSettings().ended_keep_ms // 2


class ShapeRun:
    """A case in a folder."""

    def __init__(self, folder: Path, shape: Shape, size: Size) -> None:
        self.data = folder / "data"
        self._shape = shape
        self._size = size
        self._random = Random(str(shape))
        self._history = folder / "history.jsonl"
        self._recorder = HistoryRecorder(self._history, client="shapes")
        self._entries: dict[str, Entry] = {}
        self._delivered: dict[str, set[str]] = {group: set() for group in self._groups}
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()
        self._watch = Watch()

    @property
    def _groups(self) -> tuple[str, ...]:
        return ("", *GROUPS) if self._shape.use == "groups" else ("",)

    async def run(self) -> None:
        """All of it, but for the verdict."""
        began_ms = now_ms()
        batches = list(plan(self._shape, self._size, self._random))
        half = len(batches) // 2
        with self._recorder:
            async with self._life() as (client, calls):
                await self._make_groups(client, batches)
                await self._load(calls, batches[:half])
                await self._receive_all(calls, self._expected(now_ms()))
                await asyncio.sleep(self._random.uniform(0.0, 0.3))
            async with self._life() as (client, calls):
                await self._check_far(client)
                await self._load(calls, batches[half:])
                await self._drain(calls)
                self._recorder.mark("end", now_ms())
                await self._check_far(client)
                await self._check_counts(client)
                await self._check_lists(client)
        self._expect(now_ms() - began_ms < FAR_MS_MIN // 2, "too slow: far messages are near now")

    def verdict(self) -> list[str]:
        """What did not hold."""
        settings = CheckSettings(bound_ms=0, lease_ms=LEASE_MS, rules=RULES)
        checked = check_files([self._history], settings)
        if not checked.holds:
            self.faults.append(report_text(checked))
        log = self.data.with_name("data.log").read_text()
        errors = [line for line in log.splitlines() if _is_error(line)]
        self.faults += errors[:3]
        size, files = disk_use(self.data)
        figures = (
            ("descriptors", self._watch.descriptors_max, FILES_MAX - 1),
            ("resident KiB", self._watch.resident_kib_max, self._size.resident_kib_max),
            ("bytes of disk", size, DISK_BYTES_FIXED + DISK_BYTES_EACH * len(self._entries)),
            ("files", files, FILES_EXTRA_MAX),
        )
        for name, value, most in figures:
            print(f"{name}: {value:,} of {most:,}")
            self._expect(value <= most, f"{value:,} {name}, more than {most:,}")
        return self.faults

    def _expect(self, holds: bool, fault: str) -> None:
        if not holds:
            self.faults.append(fault)

    # ------------------------------------------------------------------ a life of the broker

    @asynccontextmanager
    async def _life(self) -> AsyncIterator[tuple[AsyncPlainClient, RecordedCalls]]:
        broker = limited_broker(self.data, self._size.constants)
        async with broker, AsyncPlainClient(broker.url, failover=timedelta(0)) as client:
            assert broker.process_id is not None
            watching = asyncio.create_task(self._watch.run(broker.process_id))
            try:
                yield client, RecordedCalls(client, self._recorder, self.faults, self.counts)
            except Exception as error:
                raise AssertionError(f"{error}\n{broker.log_tail()}") from error
            finally:
                watching.cancel()
            self._expect(broker.running, f"the broker ended by itself\n{broker.log_tail()}")
            began_ms = now_ms()
            if self._shape.end == "kill":
                await broker.kill()
                self._recorder.mark("kill", began_ms, until=now_ms())
            else:
                status = await broker.stop()
                self._expect(status == 0, f"SIGTERM ended it with {status}\n{broker.log_tail()}")

    # ------------------------------------------------------------------ the load

    async def _make_groups(self, client: AsyncPlainClient, batches: list[list[Planned]]) -> None:
        if self._shape.use != "groups":
            return
        topics = {batch[0].topic for batch in batches}

        async def make(topic: str) -> None:
            await client.put_topic(topic, {})
            for group in GROUPS:
                await client.put_group(topic, group)

        await _each(topics, make)
        for group in GROUPS:
            self._recorder.mark("group", now_ms(), group=group)

    async def _load(self, calls: RecordedCalls, batches: list[list[Planned]]) -> None:
        async def one(batch: list[Planned]) -> None:
            await self._send(calls, batch)
            if self._shape.use == "cancels":
                await self._change(calls, batch)

        await _each(batches, one)

    async def _send(self, calls: RecordedCalls, batch: list[Planned]) -> None:
        topic, sent_ms = batch[0].topic, now_ms()
        dues_ms = [sent_ms + each.delay_ms for each in batch]
        bodies = [each.body for each in batch]
        # Own ids for half of the cases; the others' are made by the broker.
        ids = [each.id for each in batch] if self._shape.use == "cancels" else None
        if self._shape.bulk:
            known = await calls.send_bulk(topic, bodies, dues_ms, ids)
        else:
            sent = await calls.send(topic, bodies[0], dues_ms[0], ids[0] if ids else None)
            known = [sent] if sent else []
        self._expect(len(known) == len(batch), f"{len(known)} of {len(batch)} messages taken")
        for each, body, due_ms in zip(known, bodies, dues_ms, strict=False):
            self._entries[each.id] = Entry(topic, body, due_ms)

    async def _change(self, calls: RecordedCalls, batch: list[Planned]) -> None:
        """Cancel some, bring some that are far ahead near."""
        far = [each.id for each in batch if each.delay_ms >= FAR_MS_MIN]
        numbered = [(int(name.rpartition("-")[2]), name) for name in far]
        cancelled = [name for number, name in numbered if number % CANCEL_EVERY == 1]
        moved = [name for number, name in numbered if number % MOVE_EVERY == 2]
        topic, due_ms = batch[0].topic, now_ms() + MOVED_MS
        for names, to_ms in ((cancelled, None), (moved, due_ms)):
            if names and self._shape.bulk:
                oks = await calls.change_bulk(topic, names, to_ms)
            elif to_ms is None:
                oks = [bool(await calls.cancel(Known(topic, name))) for name in names]
            else:
                oks = [bool(await calls.reschedule(Known(topic, name), to_ms)) for name in names]
            self._expect(oks == [True] * len(names), f"changes of far messages: {oks}")
            for name in names:
                if to_ms is None:
                    self._entries[name].cancelled_ms = now_ms()
                else:
                    self._entries[name].due_ms = to_ms

    # ------------------------------------------------------------------ what comes due

    def _expected(self, until_ms: int) -> dict[str, set[str]]:
        """By topic: messages that are due by then and were not cancelled."""
        out: dict[str, set[str]] = {}
        for name, entry in self._entries.items():
            if not entry.cancelled and entry.due_ms <= until_ms:
                out.setdefault(entry.topic, set()).add(name)
        return out

    async def _drain(self, calls: RecordedCalls) -> None:
        """Everything that comes due within the test; then nothing more may come."""
        soon_ms = now_ms() + FAR_MS_MIN // 2
        expected = self._expected(soon_ms)
        last_ms = max((e.due_ms for e in self._entries.values() if e.due_ms < soon_ms), default=0)
        await asyncio.sleep(max(0, last_ms - now_ms()) / 1000)
        await self._receive_all(calls, expected)
        others = sorted({entry.topic for entry in self._entries.values()} - expected.keys())
        more = [*expected, *others[:LISTED_TOPICS]]
        for group in self._groups:
            await _each(more, lambda topic, group=group: self._receive(calls, topic, group))

    async def _receive_all(self, calls: RecordedCalls, expected: dict[str, set[str]]) -> None:
        """Receive until these have come, in each group."""

        async def one(place: tuple[str, str]) -> None:
            topic, group = place
            async with asyncio.timeout(DRAIN_S):
                while missing := expected[topic] - self._delivered[group]:
                    if not await self._receive(calls, topic, group):
                        self.counts["empty receives"] += 1
                        assert missing

        try:
            await _each([(topic, group) for topic in expected for group in self._groups], one)
        except TimeoutError:
            for group in self._groups:
                missing = set().union(*expected.values()) - self._delivered[group]
                example = min(missing, default="")
                fault = f"{len(missing)} messages did not come in group {group!r}: {example}"
                self._expect(not missing, f"{fault} {self._entries.get(example)}")

    async def _receive(self, calls: RecordedCalls, topic: str, group: str) -> int:
        lease, leased = await calls.receive_bulk(topic, 1_000, 50, LEASE_MS, group=group or None)
        self._delivered[group].update(each.id for each in leased)
        await calls.ack_lease(lease, leased)
        return len(leased)

    # ------------------------------------------------------------------ what is far ahead

    async def _check_far(self, client: AsyncPlainClient) -> None:
        """Messages one by one, by their ids."""
        far = [
            name
            for name, entry in self._entries.items()
            if self._is_far(entry) and not entry.forgotten
        ]
        names = self._random.sample(far, min(len(far), self._size.lookups))

        async def look(name: str) -> None:
            entry = self._entries[name]
            for group in self._groups:
                found = await client.get(entry.topic, name, group=group or None)
                wanted = ("cancelled" if entry.cancelled else "waiting", entry.due_ms)
                got = (found["state"], found["deliver_at_ms"])
                self._expect(got == wanted, f"{name} {entry} is {got} in group {group!r}")
                body = found["body"].encode()
                self._expect(body == entry.body, f"{name} has the body {body!r}")

        await _each(names, look)

    def _is_far(self, entry: Entry) -> bool:
        return entry.due_ms > now_ms() + FAR_MS_MIN // 4

    async def _check_counts(self, client: AsyncPlainClient) -> None:
        wanted: dict[str, Counter[str]] = {}
        for entry in self._entries.values():
            counts = wanted.setdefault(entry.topic, Counter())
            ended = "cancelled" if entry.cancelled else "acked"
            counts["waiting" if self._is_far(entry) and not entry.cancelled else ended] += 1
        topics = self._random.sample(sorted(wanted), min(len(wanted), self._size.lookups))

        async def look(topic: str) -> None:
            for group in self._groups:
                stats = await client.stats(topic, group=group or None, delay_buckets=False)
                got = {name: count for name, count in stats["counts"].items() if count}
                self._expect(got == dict(wanted[topic]), f"{topic}: {got}, not {wanted[topic]}")

        await _each(topics, look)

    async def _check_lists(self, client: AsyncPlainClient) -> None:
        topics = sorted({entry.topic for entry in self._entries.values()})
        for topic in topics[:LISTED_TOPICS]:
            listed: list[str] = []
            query: dict[str, Any] = {"state": "waiting", "limit": 1_000}
            while True:
                page = await client.page(topic, **query)
                listed += [each["id"] for each in page["messages"]]
                if page["cursor"] is None:
                    break
                query["cursor"] = page["cursor"]
            wanted = [
                name
                for name, entry in self._entries.items()
                if entry.topic == topic and self._is_far(entry) and not entry.cancelled
            ]
            self._expect(
                sorted(listed) == sorted(wanted),
                f"{topic} lists {len(listed)} messages, not {len(wanted)}",
            )


async def _each(items: Iterable[T], do: Callable[[T], Awaitable[Any]]) -> None:
    """Do it to each, some at once."""
    left = iter(list(items))

    async def work() -> None:
        for item in left:
            await do(item)

    await asyncio.gather(*(work() for _ in range(CALLS_AT_ONCE)))


def _is_error(line: str) -> bool:
    """Whether a line of the log is an error, or no line of the log: a traceback."""
    try:
        return json.loads(line)["level"] not in ("debug", "info", "warning")
    except (ValueError, KeyError):
        return True
