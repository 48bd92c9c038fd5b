"""How much is measured: the sizes of `--small` and `--full`, each with its reason.

`--small` answers in minutes and is for comparing before and after a change; only `--full` is big
enough to judge memory, restart and cost a message. The shape of the load (bodies, connections,
batches) is the same in both, since the targets speak about it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BODY_BYTES: Final = 100
BATCH_SIZES: Final = (100, 1_000, 10_000)
SPREADS_HOURS: Final = (1, 24, 720)
INGEST_LANES: Final = 6
SINGLES_LANES: Final = 50
DRAIN_LANES: Final = 4
LATENESS_LANES: Final = 8
LATENESS_RATES: Final = (1_000, 10_000)
DRAIN_BATCH: Final = 1_000
# Filling is not timed: the largest batches, and few connections so that memory stays the load's.
FILL_BATCH: Final = 10_000
FILL_LANES: Final = 4
CONTROL_BATCH: Final = 10_000
CONTROL_LANES: Final = 4
# Tasks that await their sends one by one.
SDK_TASKS: Final = (500, 4_000)


@dataclass(frozen=True, slots=True)
class Settings:
    """Sizes of one run of the bench."""

    name: str
    # Seconds of each floor: enough ticks of 10 ms to make processor time mean something.
    floor_s: float
    # Messages of one timed run by batch size, and how many runs stand behind a median.
    ingest_messages: dict[int, int]
    ingest_runs: int
    singles_round_s: float
    singles_rounds: int
    drain_messages: int
    drain_runs: int
    # Due times of the drain's second case lie in random order over this many seconds.
    drain_window_s: float
    # Messages that are moved and cancelled by refs; the same for ids of their senders' own.
    control_messages: int
    id_messages: int
    lateness_s: float
    burst_messages: int
    burst_ahead_s: float
    # Pending (and ready) messages at which memory is read; the first is what the others are
    # compared with.
    pending: tuple[int, ...]
    # Messages that are sent, handed out and acked beside each backlog.
    probe: int
    topics: int
    polls: int
    settle_s: float
    restarts: int
    # Messages sent just before a kill, so that there is a log to replay.
    restart_burst: int
    # Of each command on each of three servers in turns; CPU ticks of 10 ms bound it from below.
    resp_round_s: float
    resp_rounds: int
    # Of one transaction.
    transaction_rows: int
    # Of the parquet that Spark reads, and how often each case runs: the first run is a slow one.
    spark_rows: int
    spark_runs: int
    # Single sends of one run, sends that go at once beside bare round trips, and rounds of both.
    sdk_messages: int
    sdk_direct_calls: int
    sdk_rounds: int
    # Batches that one run of the embedded broker sends, takes and acks.
    sdk_batches: int
    # Of messages taken one by one under long leases.
    lease_minutes: int
    # Of one run over ten years.
    years_messages: int
    # Of the day that comes after it, and of a year with groups.
    years_day_messages: int
    years_group_messages: int
    # Ids of an hour that is dropped; the backlog of the checkpoints, and the sends beside them.
    upkeep_ids: int
    upkeep_pending: int
    upkeep_sends: int
    # Of one case of the everyday requests, and of its open loops.
    everyday_round_s: float
    everyday_rounds: int
    everyday_window_s: float
    # Other ids that are stored before sends with ids are measured once more.
    everyday_ids: tuple[int, ...]
    # Of one window of `cost`; 50 consumers must not run out of messages in it.
    cost_round_s: float
    cost_rounds: int


SMALL: Final = Settings(
    name="small",
    floor_s=0.8,
    ingest_messages={100: 60_000, 1_000: 300_000, 10_000: 600_000},
    ingest_runs=3,
    singles_round_s=1.5,
    singles_rounds=3,
    drain_messages=200_000,
    drain_runs=3,
    drain_window_s=5.0,
    control_messages=200_000,
    id_messages=200_000,
    lateness_s=8.0,
    burst_messages=1_000_000,
    burst_ahead_s=18.0,
    pending=(100_000, 300_000),
    probe=100_000,
    topics=2_000,
    polls=2_000,
    settle_s=30.0,
    restarts=1,
    restart_burst=100_000,
    resp_round_s=0.4,
    resp_rounds=3,
    transaction_rows=1_000_000,
    spark_rows=1_000_000,
    spark_runs=2,
    sdk_messages=300_000,
    sdk_direct_calls=1_000,
    sdk_rounds=3,
    sdk_batches=500,
    lease_minutes=3,
    years_messages=1_000_000,
    years_day_messages=1_000_000,
    years_group_messages=200_000,
    upkeep_ids=200_000,
    upkeep_pending=1_000_000,
    upkeep_sends=500_000,
    everyday_round_s=0.4,
    everyday_rounds=3,
    everyday_window_s=3.0,
    everyday_ids=(),
    cost_round_s=2.5,
    cost_rounds=3,
)

FULL: Final = Settings(
    name="full",
    floor_s=3.0,
    ingest_messages={100: 500_000, 1_000: 2_000_000, 10_000: 4_000_000},
    ingest_runs=5,
    singles_round_s=4.0,
    singles_rounds=5,
    drain_messages=2_000_000,
    drain_runs=5,
    drain_window_s=60.0,
    control_messages=2_000_000,
    id_messages=10_000_000,
    lateness_s=60.0,
    burst_messages=1_000_000,
    burst_ahead_s=25.0,
    pending=(1_000_000, 10_000_000, 50_000_000),
    probe=1_000_000,
    topics=100_000,
    # Under 20,000 descriptors a broker takes 10,000 connections in all.
    polls=9_000,
    settle_s=90.0,
    restarts=3,
    restart_burst=2_000_000,
    resp_round_s=2.0,
    resp_rounds=5,
    transaction_rows=10_000_000,
    spark_rows=2_000_000,
    spark_runs=5,
    sdk_messages=2_000_000,
    sdk_direct_calls=5_000,
    sdk_rounds=5,
    sdk_batches=3_000,
    lease_minutes=10,
    years_messages=10_000_000,
    years_day_messages=1_000_000,
    years_group_messages=1_000_000,
    upkeep_ids=5_000_000,
    upkeep_pending=50_000_000,
    upkeep_sends=2_000_000,
    everyday_round_s=3.0,
    everyday_rounds=3,
    everyday_window_s=30.0,
    # The targets also speak of 100 M, which takes as long to load as all else: --ids 10M,100M.
    everyday_ids=(10_000_000,),
    cost_round_s=5.0,
    cost_rounds=5,
)
