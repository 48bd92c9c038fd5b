"""One command as the table describes it: name, arity, flags, and where its keys are.

Flags are those of COMMAND INFO. What they do here:
    write           changes values: refused on a follower; what it leaves behind is logged
    noscript        not allowed from scripts
    loading, stale  allowed while there is no keyspace to look at (connection commands)
    no_auth         allowed before AUTH
    no_multi        not allowed inside MULTI
    now             runs at once inside MULTI (EXEC and the like)
    pubsub          allowed to RESP2 clients that are subscribed
    blocking        may wait
    quick           goes the short way though it is none of the usual kinds
    @category       of ACL, beside those that follow from group and flags; a family such as
                    @connection stands instead of the group's
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from delaylog.broker.keyspace.replies import Reply

Args: TypeAlias = list[bytes]
Function: TypeAlias = "Callable[[Any, Args], Reply]"
"""The first argument is a `Run`; `registry.command` checks that."""
Many: TypeAlias = "Callable[[Any, list[Args]], bool]"
Places: TypeAlias = tuple[int, int, int]
"""(first, last, step) as in COMMAND INFO."""
Keys: TypeAlias = "Places | Callable[[Args], list[bytes]]"
"""Where keys stand, or a function that finds the keys of an argv."""

NO_KEYS: Final = (0, 0, 0)
CATEGORIES: Final = (
    *("keyspace", "read", "write", "set", "sortedset", "list", "hash", "string"),
    *("bitmap", "hyperloglog", "geo", "stream", "pubsub", "admin", "fast", "slow"),
    *("blocking", "dangerous", "connection", "transaction", "scripting"),
)
"""Of ACL, in the order in which they are listed."""
_CATEGORY_OF: Final = {
    **{group: group for group in ("string", "list", "hash", "set", "stream", "connection")},
    "sorted-set": "sortedset",
    "generic": "keyspace",
    "transactions": "transaction",
    "scripting": "scripting",
}
"""By group; commands of the others say theirs."""


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
        """Arguments with the name; negative: at least so many."""
        self.group = group
        """The family, by the names of COMMAND DOCS."""
        self.categories = _categories(group, flags, is_container=function is None)
        flags = frozenset(flag for flag in flags if flag[0] != "@")
        self.flags = flags
        self.keys = keys
        self.places = keys if isinstance(keys, tuple) else NO_KEYS
        """Where COMMAND says that keys stand."""
        self.function: Function = function if function is not None else _only_subcommands
        self.many: Many | None = None
        """Runs calls with as many words each at once, and writes their replies; see `many`."""
        self.subcommands: dict[bytes, Command] = {}
        """By lower-case second word, where the name alone says little (CONFIG GET)."""
        self.write = "write" in flags
        self.grows = self.write and "denyoom" in flags
        """It takes room: refused while there is none."""
        self.noscript = "noscript" in flags
        self.no_auth = "no_auth" in flags
        self.no_multi = "no_multi" in flags
        self.now = "now" in flags
        self.pubsub = "pubsub" in flags
        self.blocking = "blocking" in flags
        self.quick = "quick" in flags or (
            bool({"write", "readonly"} & flags) and not {"blocking", "noscript"} & flags
        )
        """It touches nothing but values, so it may go the short way."""

    def takes(self, count: int) -> bool:
        """Whether an argv may have so many words."""
        return count == self.arity if self.arity > 0 else count >= -self.arity


def _only_subcommands(run: object, argv: Args) -> Reply:  # noqa: ARG001
    raise AssertionError("a container is never called itself")


def _categories(group: str, flags: frozenset[str], *, is_container: bool) -> frozenset[str]:
    """The categories of ACL, as Redis derives them."""
    declared = {flag[1:] for flag in flags if flag[0] == "@"}
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
    """The keys that a call names."""
    if not isinstance(entry.keys, tuple):
        return entry.keys(argv)
    first, last, step = entry.keys
    if first == 0:
        return []
    stop = len(argv) + last + 1 if last < 0 else last + 1
    return argv[first:stop:step]
