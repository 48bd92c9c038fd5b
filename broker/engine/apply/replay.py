"""Read the log and apply its frames: all of it at a start, what is committed on a follower.

Both flush tails and states when these take too much memory.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from delaylog.broker.engine.apply.applying import apply_frame
from delaylog.broker.engine.apply.send_frames import parts_needed
from delaylog.broker.engine.state import EngineState
from delaylog.storage.log.log_reader import frames_in
from delaylog.storage.work import Work

_REPLAY_FLUSH_FRAMES: Final = 64
_FOLLOW_BYTES: Final = 1 << 20


def replay(
    state: EngineState,
    start: int,
    durable_end: int,
    *,
    run: Callable[[Work], None],
    working: Callable[[str, int, int], None],
) -> int:
    """Recover the log and apply it from `start` on; returns the number of frames.

    The log must be intact up to `durable_end`. `run` runs work to its end at once.
    """
    pile, flusher = state.hours.pile, state.hours.flusher
    state.replaying = True
    frames = 0
    files_end = state.log.segments.files_end()
    for frame in state.log.recover(start, durable_end):
        apply_frame(state, frame)
        frames += 1
        if frames % _REPLAY_FLUSH_FRAMES == 0:
            working("replaying the log", frame.end - start, files_end - start)
            if pile.size_bytes > pile.bytes_max:
                run(flusher.flush(upto=frame.end))
            if flusher.dirty_state_bytes > flusher.state_bytes_max:
                run(flusher.flush_states())
    state.replaying = False
    state.position = state.log.end_position
    return frames


def follow(
    state: EngineState,
    upto: int,
    *,
    crowded: Callable[[], bool],
    flush: Callable[[], Work],
) -> Work:
    """Apply the log up to `upto`, a committed position at which a frame ends."""
    while state.position < upto:
        start = state.position
        data = state.log.read(start, min(_FOLLOW_BYTES, upto - start))
        for frame in frames_in(data, start):
            wanted = parts_needed(state, frame)
            if wanted:
                yield partial(state.staged.load, wanted)
            apply_frame(state, frame)
            yield None
        if crowded():
            yield from flush()
