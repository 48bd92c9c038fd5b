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
    blocking        may block
    quick           takes the fast path although its other flags would not allow it
    @category       ACL category, besides those that follow from group and flags; a family such as
                    @connection replaces that of the group
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
Keys: TypeAlias = "KeyPositions | Callable[[Args], list[bytes]]"
"""The positions of keys, or a function that returns the keys of an argv."""

NO_KEYS: Final = (0, 0, 0)
CATEGORIES: Final = (
    *("keyspace", "read", "write", "set", "sortedset", "list", "hash", "string"),
    *("bitmap", "hyperloglog", "geo", "stream", "pubsub", "admin", "fast", "slow"),
    *("blocking", "dangerous", "connection", "transaction", "scripting"),
    *("dlsend", "dlreceive", "dlread", "dlchange"),
)
"""ACL categories, in the order of ACL CAT."""
DL_CATEGORIES: Final = CATEGORIES[-4:]
"""Categories of the verbs of the delay log, which have no other category."""
_CATEGORY_OF: Final = {
    **{group: group for group in ("string", "list", "hash", "set", "stream", "connection")},
    "sorted-set": "sortedset",
    "generic": "keyspace",
    "transactions": "transaction",
    "scripting": "scripting",
}
"""Category by group; commands of other groups declare theirs."""


class Command:
    """One entry of the table."""

    def __init__(
        self,
        name: bytes,
        arity: int,
        group: str,
        flags: frozenset[str],
        keys: Keys,
        function: Function | None,
    ) -> None:
        self.name = name
        self.arity = arity
        """Number of words, with the name; negative = a minimum."""
        self.group = group
        """The group in COMMAND DOCS."""
        self.categories = _categories(group, flags, is_container=function is None)
        flags = frozenset(flag for flag in flags if flag[0] != "@")
        self.flags = flags
        self.keys = keys
        self.positions = keys if isinstance(keys, tuple) else NO_KEYS
        """The key positions in COMMAND INFO."""
        self.function: Function = function if function is not None else _only_subcommands
        self.many: Many | None = None
        """Runs a pipeline of this command at once; see `registry.many`."""
        self.subcommands: dict[bytes, Command] = {}
        """By lower-case second word, such as `get` of CONFIG GET."""
        self.write = "write" in flags
        self.held_back = self.write and self.categories.isdisjoint(DL_CATEGORIES)
        """It changes keys, perhaps by taking work from them: refused while the broker is held."""
        self.grows = self.write and "denyoom" in flags
        """It needs memory and disk space: refused while there is none."""
        self.noscript = "noscript" in flags
        self.no_auth = "no_auth" in flags
        self.harmless = self.no_auth or (
            "connection" in self.categories and "dangerous" not in self.categories
        )
        """It concerns only the client's own connection, so every user may run it."""
        self.no_multi = "no_multi" in flags
        self.now = "now" in flags
        self.pubsub = "pubsub" in flags
        self.blocking = "blocking" in flags
        self.administrative = (
            "admin" in self.categories
            or {
                "dangerous",
                "write",
            }
            <= self.categories
        )
        """It concerns the server or all its data, and is audited."""
        self.audited = self.administrative or "dlchange" in self.categories
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


def _categories(group: str, flags: frozenset[str], *, is_container: bool) -> frozenset[str]:
    """Return the ACL categories, as Redis derives them."""
    declared = {flag[1:] for flag in flags if flag[0] == "@"}
    if not declared.isdisjoint(DL_CATEGORIES):
        return frozenset(declared)
    has = declared | ({"write", "blocking", "admin"} & flags)
    if not declared - {"admin", "dangerous"} and group in _CATEGORY_OF and not is_container:
        has.add(_CATEGORY_OF[group])
    if "readonly" in flags and group != "scripting":
        has.add("read")
    if "admin" in flags:
        has.add("dangerous")
    has.add("fast" if "fast" in flags else "slow")
    assert has.issubset(CATEGORIES), has
    return frozenset(has)


def keys_of(entry: Command, argv: Args) -> list[bytes]:
    """Return the keys of an argv."""
    if not isinstance(entry.keys, tuple):
        return entry.keys(argv)
    first, last, step = entry.keys
    if first == 0:
        return []
    stop = len(argv) + last + 1 if last < 0 else last + 1
    return argv[first:stop:step]
