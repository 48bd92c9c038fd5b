"""Restores an engine's state from a checkpoint: counts and tables, the keyspace, the id index.

The result is as of the checkpoint's position; the log behind it is replayed afterwards. The id
index is rebuilt from the rows if it was lost or is older than the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from delaylog.broker.engine.keyspace.keyspace_files import LoadedKeyspace, base_of, load_keyspace
from delaylog.broker.engine.lookup.find_messages import put_newest_ids
from delaylog.broker.engine.state import EngineState
from delaylog.broker.engine.upkeep.saved_state import restore
from delaylog.storage.errors import CorruptionError, DiskFullError
from delaylog.storage.folder.checkpoint import Checkpoint
from delaylog.storage.layout import HOUR_MS


def restore_checkpoint(
    state: EngineState,
    checkpoint: Checkpoint | None,
    loaded: LoadedKeyspace | None,
    *,
    progress: Callable[[str], None],
    working: Callable[[str, int, int], None],
) -> tuple[int, int]:
    """Restore a checkpoint, if there is one; returns its position and the time it was taken.

    `loaded` = a keyspace that was loaded for some checkpoint, perhaps this one.
    """
    start = told_ms = 0
    if checkpoint is not None:
        # The tick file has a time too, but it is never synced.
        start, told_ms = checkpoint.position, checkpoint.told_ms
        restore(state, checkpoint)
        _check_staged(state, start)
        _restore_keyspace(state, checkpoint, loaded, working)
    else:
        state.hours.recover({}, 0)
    # Rows of the replay must go to the same hours, or the far tier, as before.
    state.hours.border.look_ahead(state.wheel.now_ms // HOUR_MS)
    if state.ids.set_aside:
        progress(f"the id index was removed: {state.ids.set_aside}")
    if state.ids.position < start:
        progress("rebuilding the id index")
        rebuild_ids(state, working)
    return start, told_ms


def _check_staged(state: EngineState, start: int) -> None:
    """Check that the log has staged parts and schedules, which may be before the checkpoint."""
    log, needed = state.log, state.transactions.log_from(start)
    needed = min(needed, state.schedules.log_from(start))
    if needed < log.first_position:
        raise CorruptionError(
            "the log begins behind staged parts or schedules that are still needed",
            path=f"{state.folder}/log",
            position=needed,
        )


def _restore_keyspace(
    state: EngineState,
    checkpoint: Checkpoint,
    loaded: LoadedKeyspace | None,
    working: Callable[[str, int, int], None],
) -> None:
    """Take `loaded` if it is the keyspace of this checkpoint, or load that now."""
    mine = (checkpoint.position, base_of(checkpoint))
    if loaded is None or (loaded.position, loaded.base) != mine:
        loaded = load_keyspace(
            state.fs,
            state.folder,
            checkpoint,
            state.keyspace,
            working=lambda done, total: working("replaying the keyspace", done, total),
        )
    state.keyspace, state.keyspace_base = loaded.keyspace, loaded.base
    state.keyspace_pieces = loaded.pieces
    state.keyspace_pieces.begin_epoch(state.epoch)


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
