"""Limits of time and memory for a script.

A script's writes are applied to memory at once and logged when the script ends. A script is stopped
after `seconds`, or after `seconds_after_write` if it has written. In the broker, the writes of a
stopped script are not logged, and the keyspace is restored from the log: a stopped script has
changed nothing. Without a log (in tests) its writes stay, as they do after any other script error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# Memory on top of a script's limit, so that a script just below the limit can still take a reply.
ROOM_BYTES = 32 << 20
# A reply or an argument list up to this size is passed to Lua without checking the memory left.
SMALL_BYTES = 1 << 20
# Most steps of one native pattern match, which nothing can interrupt: about 0.2 s.
NATIVE_STEPS = 20_000_000
# A result nested deeper than this is replaced by an error, because the broker encodes replies
# recursively, and most clients decode them recursively.
REPLY_DEPTH = 200


@dataclass(frozen=True, slots=True)
class ScriptLimits:
    """Time and memory of one script, and the number of scripts in the cache."""

    seconds: float = 5.0
    seconds_after_write: float = 5.0
    memory_bytes: int = 64 << 20
    # A full cache drops its oldest script; clients load it again when they get NOSCRIPT.
    scripts_max: int = 10_000


LIMITS: Final = ScriptLimits()
"""Those of every broker: other clients wait while a script runs."""
