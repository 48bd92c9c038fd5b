"""What one seed draws before anything runs: who takes part, which faults come, and all limits.

A plan is plain data. It is stored when a run fails, so that the run can be repeated after the
draws have changed, and the shrinking removes actors, faults and calls from it. Each part of a run
has random numbers of its own, so that a part that is removed does not change the others.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from types import ModuleType
from typing import Any, Final, NamedTuple

from delaylog.broker.calls.access import access
from delaylog.broker.calls.turn import sends
from delaylog.broker.engine.deliver import claims, dispatcher, expiry, loader, receives, settlements
from delaylog.broker.engine.ready import fifo_queue, ordered_queue, parking_lot, ready_queues
from delaylog.broker.engine.send import producers
from delaylog.broker.engine.upkeep import checkpoints, compaction, saved_state
from delaylog.broker.host import chores, log_commits
from delaylog.storage.hours import hour_flusher, hour_store, open_hours, tails
from delaylog.storage.hours.far import far_border, far_tier, run_stack
from delaylog.storage.log import physical_log
from delaylog.storage.messages import rows
from delaylog.storage.runs import run_store, text_index
from delaylog.wheel import second_slot

MINUTE: Final = 60_000
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
YEAR: Final = 365 * DAY
NEAR: Final = (3, 1_000)
SPREADS: Final = (*NEAR, MINUTE, 2 * HOUR, 3 * DAY, YEAR, 10 * YEAR)
"""How far ahead messages are due, at most. Each seed has a near one, or nobody receives much."""


class Knob(NamedTuple):
    """A constant of the product, and the values that a seed may draw beside its own."""

    module: ModuleType
    name: str
    values: tuple[Any, ...]


KNOBS: Final = (
    Knob(access, "LOOK_SECONDS", (2.0, 20.0)),
    Knob(chores, "CHECK_MS", (500, 2_000)),
    Knob(chores, "RETIRE_EVERY_MS", (100, 60_000)),
    Knob(checkpoints, "CHECKPOINT_BYTES", (1, 4 << 10, 64 << 10)),
    Knob(checkpoints, "CHECKPOINT_MS", (100, 1_000, 5_000)),
    Knob(checkpoints, "IDLE_BYTES", (1, 4 << 10)),
    Knob(checkpoints, "IDLE_MS", (50, 500)),
    Knob(claims, "SLICE_ROWS", (1, 3)),
    Knob(claims, "CLAIMS_MAX", (1, 3)),
    Knob(compaction, "LOOK_MS", (100, 2_000)),
    Knob(compaction, "AGAIN_MS", (0, 1_000)),
    Knob(compaction, "ROWS_MIN", (1, 4, 32)),
    Knob(dispatcher, "RELEASE_MAX", (1, 2, 16)),
    Knob(expiry, "SLICE_ROWS", (1, 8)),
    Knob(far_border, "SPLIT_ROWS_MAX", (1, 8)),
    Knob(far_tier, "_DEAD_ROWS_MIN", (1, 8)),
    Knob(far_tier, "_KEPT_ROWS", (1, 8)),
    Knob(tails, "_MERGED_ROWS_MAX", (1, 8)),
    Knob(far_tier, "OPEN_RUNS_MAX", (1, 2)),
    Knob(far_tier, "FLUSHED_RUN_BYTES", (512, 4 << 10)),
    Knob(receives, "FEW_LEASED_MAX", (0, 1)),
    Knob(rows, "FEW_ROWS_MAX", (1, 2)),
    Knob(fifo_queue, "HEAD_REFS_MAX", (2, 8)),
    Knob(fifo_queue, "REFILL_REFS", (1, 2)),
    Knob(hour_flusher, "FLUSH_ROWS_MAX", (1, 8)),
    Knob(hour_flusher, "STATE_BYTES_MAX", (1, 64 << 10)),
    Knob(hour_store, "NEAR_HOURS", (2, 3)),
    Knob(loader, "PAST_ROWS_MAX", (1, 8)),
    Knob(loader, "SORT_INLINE_MAX", (0, 2)),
    Knob(log_commits, "WRITE_AHEAD_BYTES", (0, 512)),
    Knob(log_commits, "WRITE_INLINE_BYTES", (0, 512)),
    Knob(open_hours, "COLUMNS_KEPT_MAX", (1, 4)),
    Knob(open_hours, "HEADS_KEPT_MAX", (1, 4)),
    Knob(ordered_queue, "HEAD_REFS_MAX", (2, 8)),
    Knob(parking_lot, "PARKED_MAX", (1, 4)),
    Knob(physical_log, "SEGMENT_BYTES_MAX", (1, 4 << 10, 64 << 10)),
    Knob(producers, "ANSWER_BYTES_MAX", (0, 1_000)),
    Knob(producers, "PRODUCERS_MAX", (1, 3)),
    Knob(ready_queues, "FILTERS_MAX", (1, 2)),
    Knob(ready_queues, "SORT_OUT_REFS", (1, 4)),
    Knob(saved_state, "RECENT_IDS_MAX", (0, 4)),
    Knob(run_stack, "RUN_ROWS_MAX", (1, 8, 64)),
    Knob(run_stack, "SLICE_ROWS", (1, 8)),
    Knob(run_stack, "FAN_IN", (2, 3)),
    Knob(run_store, "MERGED_RUNS", (2,)),
    Knob(run_store, "SIZE_MIN", (1, 8)),
    Knob(second_slot, "RUNS_MAX", (1, 2)),
    Knob(second_slot, "SEAL_ENTRIES", (1, 8)),
    Knob(sends, "PART_BYTES_MAX", (0, 64)),
    Knob(settlements, "EXPIRE_ROWS_MAX", (1, 4)),
    Knob(settlements, "FEW_ACKED_MAX", (0, 1)),
    Knob(tails, "TAIL_BYTES_MAX", (1, 1_000, 16 << 10)),
    Knob(text_index, "RECENT_MAX", (1, 8)),
    Knob(text_index, "UNJOINED_MAX", (1, 8)),
)

LIMITS: Final[dict[str, tuple[int, ...]]] = {
    "body_bytes_max": (0, 40, 1 << 10),
    "request_bytes_max": (400, 4 << 10),
    "bodies_bytes_max": (0, 4 << 10),
    "bulk_rows_max": (1, 8),
    "horizon_ms": (0, MINUTE, DAY),
    "receive_max": (1, 3),
    "leased_max": (1, 4),
    "reserve_file_bytes": (0, 1 << 10, 1 << 20),
    "staged_bytes_max": (0, 200),
    "topics_max": (1, 3),
    "schedules_max": (0, 1),
    "groups_max": (1, 2),
    "metrics_topics_max": (0, 1),
    "connections_max": (3, 4),
}
"""Values of the limits of an operator, beside their own. The smallest ones refuse nearly all."""

ACTORS: Final = (
    "send",
    "batch",
    "bulk",
    "once",
    "consume",
    "consume",
    "select",
    "control",
    "single",
    "read",
    "list",
    "schedule",
    "transact",
    "claim",
    "operate",
)

FAULTS: Final = (
    "kill",
    "kill",
    "power cut",
    "power cut",
    "cut at operation",
    "cut at operation",
    "kill at step",
    "cut at answer",
    "cut at answer",
    "cut in recovery",
    "stop",
    "full",
    "failed operation",
    "clock ahead",
    "clock back",
    "freeze",
    "leap",
    "cut connections",
    "silent connections",
)


@dataclass
class Plan:
    """One run."""

    seed: str
    actors: dict[str, list[Any]] = field(default_factory=dict)
    """By a name of its own: kind and number of calls."""
    faults: list[list[Any]] = field(default_factory=list)
    """Number of the client's call at which it comes, kind, and its own seed."""
    limits: dict[str, int] = field(default_factory=dict)
    knobs: dict[str, Any] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)


def draw(seed: int) -> Plan:
    """The plan of a seed."""
    random = Random(f"{seed}/plan")
    plan = Plan(str(seed))
    kinds = [kind for kind in ACTORS if random.random() < 0.5]
    kinds += [kind for kind in ("send", "consume") if kind not in kinds]
    for number, kind in enumerate(kinds):
        sizes = (10, 40) if kind == "consume" else (4, 12, 30)
        plan.actors[f"{kind} {number}"] = [kind, _some(random, sizes)]
    calls = sum(count for _, count in plan.actors.values())
    allowed = [kind for kind in dict.fromkeys(FAULTS) if random.random() < 0.5]
    if allowed and random.random() < 0.9:
        for _ in range(_some(random, (3, 6, 12))):
            kind = random.choice([kind for kind in FAULTS if kind in allowed])
            plan.faults.append([random.randrange(calls), kind, random.randrange(1 << 30)])
        plan.faults.sort()
    if random.random() < 0.3:
        for name in random.sample(sorted(LIMITS), random.choice((1, 1, 2, 4))):
            plan.limits[name] = random.choice(LIMITS[name])
    share = random.choice((0.0, 0.1, 0.3, 0.7))
    for knob in KNOBS:
        if random.random() < share:
            plan.knobs[name_of(knob)] = random.choice(knob.values)
    plan.options = {
        "topics": random.choice((1, 1, 2, 5)),
        "groups": random.choice((1, 1, 1, 2, 3)),
        "keys": random.choice((0, 0, 1, 3)),
        "ids": random.choice((0, 1, 2, 5)),
        "spreads": [random.choice(NEAR), *random.sample(SPREADS, random.choice((0, 1, 2)))],
        "think_s": random.choice((0.0005, 0.005, 0.05, 0.5)),
        "beat_s": random.choice((0.0, 0.0, 0.001, 0.02)),
        "delay_s": random.choice((0.0, 0.0005, 0.02)),
        "order": random.choice(("time", "time", "time", "priority")),
        "merge": random.choice(("keep", "replace", "reject")),
        "merge_leased": random.choice((None, "keep", "keep", "successor")),
        "priority_share": random.choice((0.0, 0.0, 0.3)),
        "ttl_share": random.choice((0.0, 0.0, 0.2, 0.6)),
        "id_share": random.choice((0.2, 0.8)),
        "retries": random.choice((10, 10, 0, 1)),
        "ended_keep_ms": random.choice((0, 1_000, 300_000)),
        "lease_ms": random.choice((50, 1_000, 20_000)),
        "backoff_ms": random.choice((0, 10, 1_000)),
        "open_hours": random.choice((1, 2, 8, 96)),
        "fsync": random.choice(("always", "always", "always", "interval")),
        "audit": random.choice(("changes", "all", "off")),
        "archive_hold": random.random() < 0.1,
        "step_s": random.choice((5e-5, 1e-4, 5e-4)),
        "reading_s": random.choice((0.0, 1e-6, 2e-5, 3e-4)),
        "job_s": random.choice((0.0, 1e-4, 2e-3, 0.02)),
        "slow_s": random.choice((0.0, 0.2, 1.0)),
        "slow_share": random.choice((0.0, 0.02, 0.1)),
        "drift": random.choice((0.0, 0.0, 1e-5, -1e-5)),
    }
    return plan


def _some(random: Random, sizes: Sequence[int]) -> int:
    return random.randint(1, random.choice(sizes))


def name_of(knob: Knob) -> str:
    """As a plan names it."""
    return f"{knob.module.__name__.rpartition('.')[2]}.{knob.name}"
