"""Rebuilds the id index from the rows, if it was lost or is older than the checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from delaylog.broker.engine.lookup.find_messages import put_newest_ids
from delaylog.broker.engine.state import EngineState
from delaylog.storage.errors import DiskFullError

RECENT_IDS_MAX: Final = 250_000
"""Ids in memory at which they are written."""


def rebuild_ids(state: EngineState, working: Callable[[str, int, int], None]) -> None:
    """Put the ids of all rows into the index, in bounded memory."""
    ids, hours = state.ids, state.hours
    ids.clear()
    done, total = 0, hours.counts.row_total
    for hour in hours.counts:
        if hours.counts[hour].rows:
            for rows in hours.view(hour).scan_rows():
                put_newest_ids(state, rows)
                done += len(rows)
                working("rebuilding the id index", done, total)
                if ids.recent_count >= RECENT_IDS_MAX:
                    ids.begin_flush()
                    # Position 0, so that an interrupted rebuild begins again. On a full disk the
                    # ids stay in memory, where look-ups find them too.
                    with suppress(DiskFullError):
                        ids.write_flush(0)
                        ids.end_flush()
