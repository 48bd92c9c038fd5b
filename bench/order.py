"""What keys, priorities and tags cost: the drain of each beside that of plain messages.

The same messages, due when they are sent, with a column more; received and acked in the same
batches. Of those with tags one in two is wanted, and the others stay.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from broker_process import Brokers
from clients import ask
from drain import drain
from sending import Timed, fill
from settings import BODY_BYTES, DRAIN_BATCH, FILL_BATCH, Settings
from tables import Column, Table, at_most, median, microseconds, rate, times
from wire import even_template
from workers import run_apart

RATIO_MAX = 2.0
KEYS = 100_000
PRIORITIES = 10


@dataclass(frozen=True, slots=True)
class Case:
    """A kind of message: its columns, its topic's settings, and what a receive asks for."""

    title: str
    columns: Mapping[str, int | bytes] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    asked: Mapping[str, Any] = field(default_factory=dict)
    share: float = 1.0
    """Which part of the messages the receive asks for."""


def _cases() -> list[Case]:
    random = np.random.default_rng(1)
    n = FILL_BATCH
    keys = b"".join(b"%08d" % key for key in random.integers(0, KEYS, n))
    priorities = random.integers(0, PRIORITIES, n).astype("<i4").tobytes()
    return [
        Case("plain"),
        Case(f"keys, {n:,} of {KEYS:,}", {"key_size": 8, "key": keys}),
        Case(f"priority, {PRIORITIES}", {"priority": priorities}, {"order": "priority"}),
        Case(
            "tags, one in two",
            {"tags_size": 4, "tags": b"red1red2" * (n // 2)},
            asked={"tags": ["red1"]},
            share=0.5,
        ),
    ]


def measure(brokers: Brokers, settings: Settings) -> Table:
    """Each case with its fill and its drained topics, all in one broker."""
    table = Table(
        f"order: receive + ack, up to {DRAIN_BATCH:,} a call, {settings.drain_messages:,} "
        f"messages, median of {settings.drain_runs}",
        [
            Column("messages/s", "rate", rate),
            Column("server CPU us", "server_us", microseconds),
            Column("x plain", "ratio", times),
        ],
    )
    plain_us = 0.0
    with brokers.fresh() as broker:
        for case in _cases():
            runs: list[Timed] = []
            for number in range(settings.drain_runs):
                topic = f"order-{len(table.rows)}-{number}"
                ask(broker.port, "PUT", f"/v1/topics/{topic}", dict(case.settings))
                template = even_template(topic, FILL_BATCH, BODY_BYTES, case.columns)
                now_ms = int(time.time() * 1000)
                dues = np.full(settings.drain_messages, now_ms, np.int64)
                run_apart(fill, broker.port, topic, dues, template=template)
                broker.settle(limit_s=2.0)
                wanted = int(settings.drain_messages * case.share)
                runs.append(
                    run_apart(
                        drain, broker.port, broker.process_id, topic, wanted, **case.asked
                    ).value
                )
            server_us = median([run.server_us for run in runs])
            plain_us = plain_us or server_us
            over = server_us / plain_us
            table.add(
                case.title,
                {"rate": median([run.rate for run in runs]), "server_us": server_us, "ratio": over},
                [at_most(over, RATIO_MAX, "2 x plain")] if over != 1 else [],
            )
    return table
