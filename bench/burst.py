"""A million messages due in one second: how much later does the next second's come?

All are sent well ahead. The thousand messages of the next second are there twice: in the same
topic, where they queue behind the million and the consumers' own pace counts, and in a topic of
their own, which shows the dispatcher alone.
"""

from __future__ import annotations

import math
import time
from typing import Final

import numpy as np
from broker_process import Brokers
from lateness import COLUMNS, Received, consume, lateness_figures
from sending import fill
from settings import Settings
from tables import Table, at_most, whole
from workers import Worker, run_apart

NEXT_SECOND: Final = 1_000
BURST_LANES: Final = 6
BURST_ROWS_MAX: Final = 10_000
AHEAD_S_MIN: Final = 15.0
GIVE_UP_S: Final = 60.0


def measure(brokers: Brokers, settings: Settings) -> Table:
    """One burst on a fresh broker."""
    many = settings.burst_messages
    table = Table(
        f"burst: {many:,} messages due in one second S, {NEXT_SECOND:,} in S+1 (twice), receive "
        f"up to {BURST_ROWS_MAX:,}, {BURST_LANES} connections",
        [column for column in COLUMNS if column.key not in ("core", "server_us")],
    )
    random = np.random.default_rng(1)
    with brokers.fresh() as broker:
        second_ms = math.ceil(time.time() + settings.burst_ahead_s) * 1000
        run_apart(fill, broker.port, "burst", random.integers(second_ms, second_ms + 1000, many))
        after = random.integers(second_ms + 1000, second_ms + 2000, NEXT_SECOND)
        for topic in ("burst", "other"):
            run_apart(fill, broker.port, topic, after)
        ahead_s = second_ms / 1000 - time.time()
        until = second_ms / 1000 + GIVE_UP_S
        before_s = broker.cpu_seconds()
        others = Worker(consume, broker.port, "other", expected=NEXT_SECOND, until=until, lanes=2)
        try:
            same = run_apart(
                consume,
                broker.port,
                "burst",
                expected=many + NEXT_SECOND,
                until=until,
                lanes=BURST_LANES,
                rows_max=BURST_ROWS_MAX,
            ).value
            other = others.result().value
            cpu_s = broker.cpu_seconds() - before_s
        finally:
            others.kill()
    of_next = same.dues >= second_ms + 1000
    for case, received, sent in (
        ("S", _chosen(same, ~of_next), many),
        ("S+1, same topic", _chosen(same, of_next), NEXT_SECOND),
        ("S+1, topic of its own", other, NEXT_SECOND),
    ):
        figures = lateness_figures(received, sent)
        targets = [at_most(figures["early"], 0, "0 early")]
        if case != "S":
            targets.insert(0, at_most(figures.get("max_ms"), 1000.0, "1 s max"))
        table.add(case, figures, targets)
    pace = len(same.at_ms) / max(1e-3, (float(same.at_ms.max()) - second_ms) / 1000)
    table.notes.append(
        f"The last send was answered {ahead_s:.1f} s before S; the consumers took "
        f"{whole(pace)} messages/s from the start of S to the last receipt; the server spent "
        f"{cpu_s / len(same.at_ms) * 1e6:.2f} us of CPU a message after the last send."
    )
    if ahead_s < AHEAD_S_MIN:
        table.notes.append(f"WARNING: less than {AHEAD_S_MIN:.0f} s ahead, sending was slow.")
    return table


def _chosen(received: Received, mask: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> Received:
    return Received(received.refs[mask], received.dues[mask], received.at_ms[mask])
