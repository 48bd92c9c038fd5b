"""One command as the table describes it: name, arity, flags, and the positions of its keys.

Flags are those of COMMAND INFO. What they do here:
    write           changes values: refused on a follower, and but for verbs of the delay log while
                    the broker is held; its effects are logged
    noscript        not allowed from scripts
    loading, stale  allowed while the keyspace is not available (connection commands)
    no_auth         allowed before AUTH
    no_multi        not allowed inside MULTI
    now             runs at once inside MULTI (EXEC and the like)
    pubsub          allowed to RESP2 clients that are subscribed
    channels        is about channels: `pubsub` in COMMAND INFO
    blocking        may block
    quick           takes the fast path although its other flags would not allow it
    own             concerns only the client's own connection, so every user may run it
    audited         is recorded in the audit log, as those with `admin` are
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from delaylog.broker.keyspace.replies import Reply

Args: TypeAlias = list[bytes]
Function: TypeAlias = "Callable[[Any, Args], Reply]"
"""The first argument is a `Run`; `registry.command` checks that."""
Many: TypeAlias = "Callable[[Any, list[Args]], bool]"
KeyPositions: TypeAlias = tuple[int, int, int]
"""(first, last, step) as in COMMAND INFO."""

NO_KEYS: Final = (0, 0, 0)
VERBS: Final = "module"
"""The group of the verbs of the delay log."""


class Command:
    """One entry of the table."""

    def __init__(
        self,
        name: bytes,
        arity: int,
        group: str,
        flags: frozenset[str],
        keys: KeyPositions,
        function: Function | None,
    ) -> None:
        self.name = name
        self.arity = arity
        """Number of words, with the name; negative = a minimum."""
        self.group = group
        """The group in COMMAND DOCS."""
        self.flags = flags
        self.keys = keys
        self.function: Function = function if function is not None else _only_subcommands
        self.many: Many | None = None
        """Runs a pipeline of this command at once; see `registry.many`."""
        self.subcommands: dict[bytes, Command] = {}
        """By lower-case second word, such as `get` of CONFIG GET."""
        self.write = "write" in flags
        self.held_back = self.write and group != VERBS
        """It changes keys, perhaps by taking work from them: refused while the broker is held."""
        self.grows = self.write and "denyoom" in flags
        """It needs memory and disk space: refused while there is none."""
        self.noscript = "noscript" in flags
        self.no_auth = "no_auth" in flags
        self.harmless = (
            self.no_auth or "own" in flags or (group == "connection" and "admin" not in flags)
        )
        """It concerns only the client's own connection, so every user may run it."""
        self.guarded = not (self.harmless or "only_sentinel" in flags or group == VERBS)
        """Only users with the right `redis` may run it; verbs of the delay log ask for others."""
        self.no_multi = "no_multi" in flags
        self.now = "now" in flags
        self.pubsub = "pubsub" in flags
        self.audited = not flags.isdisjoint(("admin", "audited"))
        self.administrative = self.audited and group != VERBS
        """It concerns the server or all its data."""
        self.quick = not self.audited and (
            "quick" in flags
            or (bool({"write", "readonly"} & flags) and not {"blocking", "noscript"} & flags)
        )
        """It uses nothing but values, so it may take the fast path."""

    def takes(self, count: int) -> bool:
        """Whether an argv may have this number of words."""
        return count == self.arity if self.arity > 0 else count >= -self.arity


def _only_subcommands(run: object, argv: Args) -> Reply:  # noqa: ARG001
    raise AssertionError("a command with subcommands is not called without one")
