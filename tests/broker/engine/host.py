"""A broker without network or threads: the Engine on a file system of the test's choice.

`Host` does what the node does around the engine, at once and in order: it makes the log durable,
commits, turns the dispatcher and runs the background work. `advance` stops at every wake on the
way, so what becomes ready has its own millisecond. Nothing here sleeps or reads a real clock.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from delaylog.broker.engine import changes
from delaylog.broker.engine.deliver import receives, settlements
from delaylog.broker.engine.deliver.receives import ReceiveRequest
from delaylog.broker.engine.engine import Engine, Setup
from delaylog.broker.engine.jobs.job_table import Job, JobSpec
from delaylog.broker.engine.jobs.jobs import begin_job
from delaylog.broker.engine.limits import Limits
from delaylog.broker.engine.lookup.find_messages import find_ids
from delaylog.broker.engine.lookup.found_messages import FoundMessages, just
from delaylog.broker.engine.lookup.message_filter import MessageFilter
from delaylog.broker.engine.model import FoundMessage, SendResult, Settlement, Topic
from delaylog.broker.engine.send.sends import send
from delaylog.broker.engine.topics import commands as topics
from delaylog.broker.engine.topics.settings import TopicSettings
from delaylog.storage.files.os_file_system import UnsyncedFileSystem
from delaylog.storage.hours.hot_seconds import HOT_ROWS_MIN
from delaylog.storage.layout import HOUR_MS, STATE_ENTRY, Cause, MessageState, RowArray, ref_to_id
from delaylog.storage.messages.batch import MessageBatch, decode_send, encode_send
from tests.storage.fake_disk import DiskCrashed, FakeDisk, Survival

HOUR = HOUR_MS
START_MS = 450_000 * HOUR + 20 * 60_000
"""Twenty minutes past an hour in 2021."""
TEXTS = {"ids": "id", "keys": "key", "tags": "tags", "headers": "headers"}
"""Arguments that are a text a message, and their column in a batch."""


def batch_of(bodies: Sequence[bytes], **members: Any) -> MessageBatch:
    """A batch as it arrives; due at once by default.

    `ids`, `keys`, `tags` and `headers` are a text a message; the tags of a message are separated
    by commas. Everything else is a column or a member of the batch.
    """
    columns: dict[str, Any] = {"n": len(bodies), "bodies": b"".join(bodies)}
    columns["body_size"] = np.array([len(body) for body in bodies])
    for name, value in members.items():
        if name not in TEXTS:
            columns[name] = np.array(value) if isinstance(value, list) else value
        elif value is not None:
            raw = [text if isinstance(text, bytes) else text.encode() for text in value]
            if name == "tags":
                raw = [text.replace(b",", b"\n") for text in raw]
            columns[TEXTS[name]] = b"".join(raw)
            columns[f"{TEXTS[name]}_size"] = np.array([len(text) for text in raw])
    if "deliver_at_ms" not in columns:
        columns.setdefault("delay_ms", 0)
    return decode_send(encode_send(columns), rows_max=1 << 20)


@dataclass(frozen=True)
class Message:
    """One delivered message."""

    origin: int
    lease: int
    id: str
    body: bytes
    attempts: int
    deliver_at_ms: int
    received_ms: int

    @property
    def any_id(self) -> str:
        return self.id or ref_to_id(self.origin)


@dataclass
class Host:
    """A synchronous host of one engine."""

    folder: Path
    now_ms: int = START_MS
    limits: Limits = field(default_factory=Limits)
    topic_name: str = "t"
    hot_rows_min: int = HOT_ROWS_MIN
    fs: Any = field(default_factory=UnsyncedFileSystem)
    """A `FakeDisk` can also lose its power."""
    make_snapshot: Any = None
    archive_hold: bool = False
    hold: bool | None = None
    """Of each start; see `Setup`."""
    seed: int = 7
    engine: Engine = field(init=False)

    def __post_init__(self) -> None:
        self.open()

    def open(self) -> None:
        """Start an engine on the folder as it is, and do all that is due."""
        self.engine = Engine(
            self.fs,
            str(self.folder),
            Setup(
                random=Random(self.seed),
                limits=self.limits,
                make_snapshot=self.make_snapshot,
                hold=self.hold,
                archive_hold=self.archive_hold,
            ),
            now_ms=self.now_ms,
        )
        # As the node's clock does: a restart is no way to run backwards.
        self.now_ms = self.engine.started_ms
        self.engine.state.hot.rows_min = self.hot_rows_min
        self.turn()

    # ------------------------------------------------------------------ time and durability

    def sync(self) -> None:
        """Make the log durable and show its rows to the wheel."""
        log = self.engine.state.log
        log.write_pending()
        self.engine.commit(log.sync(), self.now_ms)

    def turn(self) -> None:
        """Do everything that can be done now."""
        while True:
            self.sync()
            more = self.engine.run_due(self.now_ms)
            if self.engine.dispatcher.loader.loading:
                self.engine.run_inline(self.engine.dispatcher.loader.load_work())
            elif self.engine.dispatcher.loader.laying_out:
                self.engine.run_inline(self.engine.dispatcher.loader.lay_out_work())
            elif not more and not self.engine.state.log.pending_size:
                return

    def advance(self, ms: int) -> None:
        """Let time pass, stopping wherever the engine asks to be woken."""
        self.turn()
        target = self.now_ms + ms
        while (wake := self.engine.next_wake_ms()) is not None and wake <= target:
            assert wake > self.now_ms, "a turn leaves nothing that is due"
            self.now_ms = wake
            self.turn()
        self.now_ms = target
        self.turn()

    def set_back(self, ms: int, *, turn: bool = True) -> None:
        """The clock was wrong by so much, and somebody says so."""
        self.now_ms -= ms
        self.engine.set_back(-ms, self.now_ms)
        if turn:
            self.turn()

    def jump_ahead(self, ms: int) -> None:
        """The clock is set ahead."""
        self.now_ms += ms
        self.engine.jump_ahead(ms, self.now_ms)
        self.turn()

    def flush(self) -> None:
        """The splitter, and changed state pages."""
        self.sync()
        self.engine.run_inline(self.engine.housekeeping.flush_work())
        self.engine.run_inline(self.engine.housekeeping.states_work())

    def far_work(self) -> None:
        """What is to be done about far hours now."""
        if self.engine.housekeeping.split_due(self.now_ms):
            self.engine.run_inline(self.engine.housekeeping.split_work())
        self.engine.run_inline(self.engine.housekeeping.merge_work(lambda: self.now_ms))

    def checkpoint(self, times: int = 1) -> None:
        """A whole checkpoint with its retention."""
        for _ in range(times):
            self.engine.run_inline(self.engine.upkeep.checkpoint(lambda: self.now_ms))
            self.engine.run_inline(self.engine.housekeeping.ids_work())
            self.engine.run_inline(self.engine.housekeeping.texts_work())
            self.turn()

    def restart(self, pause_ms: int = 0) -> None:
        """Everything appended is durable; the process ends and comes back."""
        self.sync()
        self.crash(pause_ms)

    def crash(self, pause_ms: int = 0) -> None:
        """The process is gone at once: frames that were only appended are lost."""
        self.engine.close()
        self.now_ms += pause_ms
        self.open()

    def lose_power(
        self, survival: Survival, seed: int, *, again_at: int = 0, loses_ids: bool = False
    ) -> int:
        """Cut the power, keep unsynced writes as `survival` says, and start again.

        With `again_at` the power fails again, at that disk operation of the start. Returns the end
        of the log that the last start found.
        """
        disk: FakeDisk = self.fs
        self.fs = disk = disk.restart(survival, seed)
        if loses_ids and disk.exists(f"{self.folder}/ids"):
            disk.remove_tree(f"{self.folder}/ids")
        disk.crash_at = disk.count + again_at if again_at else 0
        try:
            self.open()
        except DiskCrashed:
            return self.lose_power(survival, seed + 1)
        disk.crash_at = 0
        return self.engine.state.log.found_end

    def close(self) -> None:
        self.engine.close()

    # ------------------------------------------------------------------ topics and groups

    @property
    def topic(self) -> Topic:
        return self.engine.make_topic(self.topic_name, self.now_ms)

    @property
    def place(self) -> tuple[int, int]:
        """The default group, as `woken` and the like name it."""
        return self.topic.number, self.topic.default.number

    def configure(self, **settings: Any) -> Topic:
        """Change the topic's settings."""
        made = TopicSettings.from_dict(
            {
                name: asdict(value) if is_dataclass(value) else value
                for name, value in settings.items()
            }
        )
        return self.engine.put_topic(self.topic_name, made, self.now_ms)

    def put_group(self, name: str, **how: Any) -> Any:
        group = topics.put_group(self.engine.state, self.topic, name, self.now_ms, **how)
        self.turn()
        return group

    def drop_group(self, name: str) -> None:
        topic = self.topic
        topics.drop_group(self.engine.state, topic, topic.group(name), self.now_ms)
        self.turn()

    def drop_topic(self) -> None:
        topics.drop_topic(self.engine.state, self.topic, self.now_ms)
        self.turn()

    def pause(self, *, paused: bool = True) -> None:
        topics.pause(self.engine.state, self.topic, self.now_ms, paused=paused)
        self.turn()

    def purge(self, *names: str, force: bool = False, erase: bool = False) -> int:
        """Purge groups, all of them by default."""
        topic = self.topic
        groups = [topic.group(name) for name in names] or list(topic.groups.values())
        how = {"force": force, "erase": erase}
        done = topics.purge(self.engine.state, topic, groups, self.now_ms, **how)
        self.turn()
        return done

    # ------------------------------------------------------------------ messages

    def send(
        self,
        bodies: Sequence[bytes] | int,
        *,
        delay: int | Sequence[int] | None = None,
        at: int | Sequence[int] | None = None,
        turn: bool = True,
        topic: str | None = None,
        **members: Any,
    ) -> SendResult:
        """Send bodies (or so many numbered ones) as one batch; `members` as of `batch_of`."""
        if isinstance(bodies, int):
            bodies = [b"%d" % k for k in range(bodies)]
        name, when = ("deliver_at_ms", at) if at is not None else ("delay_ms", delay or 0)
        members[name] = when if isinstance(when, int) else np.array(when, np.int64)
        batch = batch_of(bodies, **members)
        state = self.engine.state
        target = self.topic if topic is None else self.engine.make_topic(topic, self.now_ms)
        result = send(state, target, batch, self.now_ms, free_bytes=1 << 60)
        if turn:
            self.turn()
        return result

    def receive(
        self,
        count: int = 1_000,
        *,
        lease: int = 30_000,
        group: str = "default",
        only: Any = None,
        chosen: Sequence[str] | None = None,
        begin: int | None = None,
        consumer: str = "",
        turn: bool = True,
    ) -> list[Message]:
        """Messages under a new lease. The LEASE frame is durable when this returns, with `turn`."""
        whose = self.topic.group(group)
        assert whose is not None
        delivery = receives.receive(
            self.engine.state,
            self.topic,
            whose,
            ReceiveRequest(
                count_max=count,
                now_ms=self.now_ms,
                only=only,
                chosen=chosen,
                begin=[begin],
                consumers=[consumer],
            ),
            lease_ms=lease,
        )
        if turn:
            self.turn()
        if delivery is None:
            return []
        out, at = [], 0
        for k, row in enumerate(delivery.rows):
            record = delivery.records[at : at + int(row["size"])]
            at += len(record)
            head = sum(int(row[name]) for name in ("key_size", "tags_size", "headers_size"))
            id_size = int(row["id_size"])
            out.append(
                Message(
                    int(delivery.origins[k]),
                    delivery.lease,
                    record[:id_size].decode(),
                    record[id_size + head :],
                    int(delivery.attempts[k]),
                    int(row["deliver_at"]),
                    self.now_ms,
                )
            )
        assert at == len(delivery.records)
        return out

    def bodies(self, count: int = 1_000, **how: Any) -> list[bytes]:
        """Receive, and look at the bodies only."""
        return [message.body for message in self.receive(count, **how)]

    def peek(self, count: int, group: Any = None, only: Any = None) -> RowArray:
        """Rows of ready messages, which stay ready."""
        asked = ReceiveRequest(count_max=count, now_ms=self.now_ms, only=only)
        topic = self.topic
        return receives.peek(self.engine.state, topic, group or topic.default, asked)[1]

    def _settle(self, messages: Sequence[Message], call: Callable[..., Settlement], **how: Any):
        done = 0
        key = lambda message: message.lease  # noqa: E731
        for lease, group in itertools.groupby(sorted(messages, key=key), key):
            origins = np.array([message.origin for message in group], np.int64)
            topic = self.topic
            done += call(
                self.engine.state, topic, settlements.Receipts(lease, origins), self.now_ms, **how
            ).done
        self.turn()
        return done

    def ack(self, messages: Sequence[Message]) -> int:
        return self._settle(messages, settlements.ack)

    def nack(self, messages: Sequence[Message], delay: int | None = None) -> int:
        return self._settle(messages, settlements.nack, delay_ms=delay)

    def extend(self, messages: Sequence[Message], lease: int) -> int:
        return self._settle(messages, settlements.extend, lease_ms=lease)

    def begin(self, messages: Sequence[Message], lease: int) -> int:
        return self._settle(messages, settlements.begin, lease_ms=lease)

    # ------------------------------------------------------------------ control

    def find(self, ids: Sequence[str]) -> list[FoundMessage | None]:
        return list(self._columns(ids))

    def _columns(self, ids: Sequence[str]) -> FoundMessages:
        return find_ids(self.engine.state, self.topic, list(ids), self.now_ms)

    def state_of(self, id: str) -> MessageState | None:
        """What a GET shows."""
        found = self.find([id])[0]
        return None if found is None else found.state

    def cancel(self, ids: Sequence[str], *, force: bool = False) -> list[int]:
        found = self._columns(ids)
        state = self.engine.state
        result = changes.cancel(state, self.topic, found, self.now_ms, force=force)
        self.turn()
        return result.codes.tolist()

    def end_by_force(self, id: str, kind: MessageState, *, hide: bool) -> None:
        """End a message whatever it is, or give it another ended state."""
        state, found = self.engine.state, self.find([id])[0]
        assert found is not None
        items = just(found, self.topic.default)
        if found.state < MessageState.ACKED:
            cause = Cause.ACK if kind is MessageState.ACKED else Cause.CANCEL
            cause = Cause.FORGOTTEN if hide else cause
            changes.end_found(state, self.topic, items, kind, cause, self.now_ms)
        else:
            how = {"kind": kind, "cause": Cause.FORGOTTEN if hide else None}
            changes.change_ended(state, self.topic, items, self.now_ms, **how)
        self.turn()

    def reschedule(self, ids: Sequence[str], at: int | None, **how: Any) -> list[int]:
        result = changes.reschedule(
            self.engine.state, self.topic, self._columns(ids), self.now_ms, deliver_at_ms=at, **how
        )
        self.turn()
        return result.codes.tolist()

    def replay(self, ids: Sequence[str], at: int | None = None) -> list[int]:
        result = changes.replay(
            self.engine.state, self.topic, self._columns(ids), self.now_ms, deliver_at_ms=at
        )
        self.turn()
        return result.codes.tolist()

    def begin_job(self, action: str, wanted: MessageFilter | None = None, **how: Any) -> Job:
        order = JobSpec(action, wanted or MessageFilter(), **how)
        return begin_job(self.engine.state, self.topic, order, self.now_ms)

    def work_on_jobs(self) -> None:
        self.engine.run_inline(self.engine.jobs.work(lambda: self.now_ms))
        self.turn()

    def run_job(self, action: str, wanted: MessageFilter | None = None, **how: Any) -> Job:
        """A job from its begin to its end."""
        job = self.begin_job(action, wanted, **how)
        self.work_on_jobs()
        return job

    # ------------------------------------------------------------------ looking in

    def ids_of(self, result: SendResult) -> list[str]:
        return [ref_to_id(ref) for ref in result.refs.tolist()]

    def recount(self) -> Counter[str]:
        """Messages of the topic by stored state, counted row by row."""
        self.flush()
        counts: Counter[str] = Counter()
        hours = self.engine.state.hours
        for hour, known in hours.counts.items():
            if known.rows == 0:
                continue
            folder = hours.view(hour)
            assert hours.flushed(hour) == known.rows
            living = 0
            per_group: Counter[tuple[int, int]] = Counter()
            for scanned in folder.scan_rows():
                # Rows that compaction has removed read as zeros.
                rows = scanned[scanned["global_index"] != 0]
                index = rows["global_index"].astype(np.int64)
                entries = folder.states(1).get(index)
                assert entries.dtype == STATE_ENTRY
                mine = rows["topic"] == self.topic.number
                counts.update(MessageState(int(s)).name for s in entries["state"][mine])
                for topic in self.engine.state.by_number.values():
                    for group in topic.groups.values():
                        entries = folder.states(group.number).get(index)
                        alive = group.has(rows) & ~group.purged(rows, entries)
                        alive &= (entries["state"] < MessageState.ACKED) & (
                            rows["topic"] == topic.number
                        )
                        living += int(np.count_nonzero(alive))
                        per_group[topic.number, group.number] += int(np.count_nonzero(alive))
            assert living == known.living, f"hour {hour} counts its living rows"
            for topic in self.engine.state.by_number.values():
                for group in topic.groups.values():
                    told = group.hours.get(hour, 0)
                    found = per_group[topic.number, group.number]
                    assert found == told, f"group {group.name} of {topic.name} in hour {hour}"
        counts.pop("MOVED", None)
        return counts

    def check_counts(self) -> None:
        """The topic's counts agree with a recount (while every hour is still there)."""
        found, counts = self.recount(), self.topic.default.counts
        assert counts.leased == found["LEASED"]
        assert counts.living == found["LEASED"] + found["NONE"]
        for name in ("acked", "expired", "dead"):
            assert getattr(counts, name) == found[name.upper()], name
        assert counts.cancelled + counts.replaced == found["CANCELLED"]
