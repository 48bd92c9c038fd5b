"""Lists beside a backlog: how long a page takes, and what walking a list adds to resident size.

One broker is loaded in stages, spread over a day, with a thousand messages among them that carry a
rare key and tag. At each stage several lists are walked, each page a call of its own over HTTP:
what a client waits for, JSON included.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlencode

import numpy as np
from broker_process import ServerProcess
from memory import DAY_MS, FIRST_DUE_MS, PENDING, at_rest
from sending import POOL_ROWS, fill
from tables import Column, Table, at_most, mebibytes, median, milliseconds, rate, whole
from workers import run_apart

PAGE_MS_MAX: Final = 100.0
ADDED_BYTES_MAX: Final = 50 << 20
PENDING_MAX: Final = 10_000_000
"""The size that the targets speak of; a larger stage would only load longer."""
RARE: Final = 1_000
PAGES_MAX: Final = 200
LISTS: Final[Sequence[tuple[str, dict[str, Any]]]] = (
    ("all, 100 a page", {"limit": 100}),
    ("all, 1,000 a page", {"limit": 1_000}),
    ("all with bodies, 1,000 a page", {"limit": 1_000, "bodies": "true"}),
    ("waiting, by a rare tag", {"state": "waiting", "tag": "rare", "limit": 100}),
    ("by a rare key", {"key": "rare", "limit": 100}),
    ("by a key that nobody has", {"key": "none", "limit": 100}),
    ("dead (none)", {"state": "dead", "limit": 100}),
)


def measure(broker: ServerProcess, stages: Sequence[int], settle_s: float) -> Table:
    """Load one broker stage by stage and walk lists at each."""
    table = Table(
        "listing: pages of lists beside a backlog over a day",
        [
            Column("pages", "pages", whole),
            Column("messages", "messages", whole),
            Column("page ms", "page_ms", milliseconds),
            Column("p99 ms", "page_p99_ms", milliseconds),
            Column("worst ms", "page_max_ms", milliseconds),
            Column("RSS + MiB", "added", mebibytes),
        ],
        notes=[
            f"At most {PAGES_MAX} pages of each list; a page ends at its limit or when its time is "
            "up. RSS: the most while it was walked, less what it was before."
        ],
    )
    loaded = 0
    for stage in [stage for stage in stages if stage <= PENDING_MAX]:
        count = stage - loaded
        first_ms = int(time.time() * 1000) + FIRST_DUE_MS
        random = np.random.default_rng(stage)
        dues = random.integers(first_ms, first_ms + DAY_MS, min(count, POOL_ROWS))
        run_apart(fill, broker.port, PENDING.topic, dues, messages=count)
        if loaded == 0:
            _send_rare(broker.port, random.integers(first_ms, first_ms + DAY_MS, RARE).tolist())
        loaded = stage
        broker.settle(limit_s=settle_s)
        at_rest(broker, settle_s)
        for name, query in LISTS:
            figures = _walk(broker, query)
            targets = [
                at_most(figures["page_p99_ms"], PAGE_MS_MAX, "100 ms p99"),
                at_most(figures["added"], ADDED_BYTES_MAX, "50 MiB more"),
            ]
            table.add(f"{rate(stage)}: {name}", figures, targets)
    return table


def _send_rare(port: int, dues: Sequence[int]) -> None:
    messages = [
        {"body": "x", "deliver_at_ms": due, "key": "rare", "tags": ["rare"]} for due in dues
    ]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    body = json.dumps(messages)
    connection.request("POST", f"/v1/topics/{PENDING.topic}/messages", body)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    answer.read()
    connection.close()


def _walk(broker: ServerProcess, query: dict[str, Any]) -> dict[str, float]:
    """Page after page on one connection."""
    before = broker.resident().total
    most, messages = before, 0
    took: list[float] = []
    cursor: dict[str, str] = {}
    connection = http.client.HTTPConnection("127.0.0.1", broker.port, timeout=60)
    while len(took) < PAGES_MAX:
        begun = time.perf_counter()
        path = f"/v1/topics/{PENDING.topic}/messages?{urlencode({**query, **cursor})}"
        connection.request("GET", path)
        answer = connection.getresponse()
        raw = answer.read()
        took.append((time.perf_counter() - begun) * 1000)
        assert answer.status == 200, raw
        page = json.loads(raw)
        messages += len(page["messages"])
        most = max(most, broker.resident().total)
        if page["cursor"] is None:
            break
        cursor = {"cursor": page["cursor"]}
    connection.close()
    return {
        "pages": len(took),
        "messages": messages,
        "page_ms": median(took),
        "page_p99_ms": float(np.quantile(took, 0.99)),
        "page_max_ms": max(took),
        "added": most - before,
    }
