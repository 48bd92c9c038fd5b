"""What a script may use, and what happens when it uses more.

Writes of a script are applied to memory as they are made and logged with its end. One that has
written nothing is stopped after `seconds`, one that has written after `seconds_after_write`: where
there is a log, nothing of what that one wrote is logged and the keyspace is made anew from the log,
so a script that is stopped has done nothing. Without one (in tests) what it wrote stays, as after
any other error of a script.
"""

from __future__ import annotations

from dataclasses import dataclass

# Beside the limit, so that a reply or a table of results finds room when a script is just below it.
ROOM_BYTES = 32 << 20
# A single reply or list of arguments that is given to Lua without asking for the room left.
SMALL_BYTES = 1 << 20
# Steps at worst that a pattern may cost in one native call, which nothing interrupts: some 0.2 s.
NATIVE_STEPS = 20_000_000
# Results nested deeper than this are answered with an error in their place: a reply is encoded by
# recursion, and so is it by most clients.
REPLY_DEPTH = 200


@dataclass(frozen=True, slots=True)
class ScriptLimits:
    """Time and memory of one script, and how many are kept."""

    seconds: float = 5.0
    seconds_after_write: float = 5.0
    memory_bytes: int = 64 << 20
    # The oldest is forgotten beyond it; its users load it again on NOSCRIPT.
    scripts_max: int = 10_000
