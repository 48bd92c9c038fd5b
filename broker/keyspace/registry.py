"""The table of commands: what each is called, how many arguments it takes, what it may do.

A module in `commands/` registers its functions with `@command`. A function gets the `Run` and the
whole argv (name first, arguments are bytes), and returns a reply or raises CommandError.

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
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from delaylog.broker.keyspace.replies import ErrorReply, Reply

if TYPE_CHECKING:
    from delaylog.broker.keyspace.running.run import Run

Args: TypeAlias = list[bytes]
Function: TypeAlias = "Callable[[Run, Args], Reply]"
Many: TypeAlias = "Callable[[Run, list[Args]], bool]"
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
_FIRST: Final = itemgetter(0)
_SHOWN_BYTES: Final = 128
"""So much of an unknown command is shown."""


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


def _only_subcommands(run: Run, argv: Args) -> Reply:  # noqa: ARG001
    raise AssertionError("a container is never called itself")


COMMANDS: Final[dict[bytes, Command]] = {}
"""By lower-case name."""
WORDS: Final[dict[bytes, Command]] = {}
"""The same by first words as clients write them, without the containers of subcommands."""


def command(
    name: str,
    arity: int,
    group: str,
    flags: str = "",
    keys: Keys = NO_KEYS,
    places: Places | None = None,
) -> Callable[[Function], Function]:
    """Register a function as `name`, or as `name|subcommand`.

    `places` is what COMMAND says where `keys` is a function.
    """

    def register(function: Function) -> Function:
        words = frozenset(flags.split())
        entry = Command(name.encode(), arity, group, words, keys, function)
        entry.places = places or entry.places
        add(entry)
        return function

    return register


def many(name: str) -> Callable[[Many], Many]:
    """Register what runs a pipeline of one command at once, all calls with as many words.

    It does what the calls would do one after the other: puts their replies into `session.out`, logs
    and counts what they change, and returns True. Where not every call is a plain one it changes
    nothing and returns False: they are run one by one then.
    """

    def register(function: Many) -> Many:
        COMMANDS[name.encode()].many = function
        return function

    return register


def are_alike(commands: list[Args]) -> bool:
    """Whether all are of one word, and of as many words."""
    first = commands[0]
    return list(map(_FIRST, commands)).count(first[0]) == len(commands) and list(
        map(len, commands)
    ).count(len(first)) == len(commands)


def add(entry: Command) -> None:
    """Put an entry into the table."""
    name, _, sub = entry.name.partition(b"|")
    if not sub:
        assert name not in COMMANDS, f"{name!r} is there twice"
        COMMANDS[name] = WORDS[name] = WORDS[name.upper()] = entry
        return
    container = COMMANDS.get(name)
    if container is None:
        container = COMMANDS[name] = Command(name, -2, entry.group, frozenset(), NO_KEYS, None)
    # The bare word may be a command too (COMMAND): it then takes the long way to be found.
    WORDS.pop(name, None)
    WORDS.pop(name.upper(), None)
    assert sub not in container.subcommands, f"{entry.name!r} is there twice"
    container.subcommands[sub] = entry


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


def find_command(argv: Args) -> Command | ErrorReply:
    """The entry for an argv, or what to answer when there is none."""
    word = argv[0].lower()
    command = COMMANDS.get(word)
    if command is None:
        return ErrorReply(_unknown(argv))
    if not command.subcommands:
        return command
    if len(argv) < 2 and command.arity == -1:
        return command
    if len(argv) < 2:
        return ErrorReply(b"ERR wrong number of arguments for '%b' command" % word)
    sub = command.subcommands.get(argv[1].lower())
    if sub is None:
        shown = _told(argv[1], _SHOWN_BYTES)
        text = b"ERR unknown subcommand '%b'. Try %b HELP." % (shown, word.upper())
        return ErrorReply(text)
    return sub


def only_reads(argv: Args) -> bool:
    """Whether a command changes nothing, so that it may run again."""
    found = WORDS.get(argv[0]) or find_command(argv)
    return not isinstance(found, ErrorReply) and "readonly" in found.flags


def _unknown(argv: Args) -> bytes:
    shown = b""
    for word in argv[1:]:
        if len(shown) >= _SHOWN_BYTES:
            break
        shown += b"'%b' " % _told(word, _SHOWN_BYTES - len(shown))
    name = _told(argv[0], _SHOWN_BYTES)
    return b"ERR unknown command '%b', with args beginning with: %b" % (name, shown)


def _told(word: bytes, most: int) -> bytes:
    """A client's word in an error: so much of it, and nothing from a zero byte on."""
    return word[:most].partition(b"\0")[0]
