"""Decides whether a user may run a command, by compiled rules.

Every user may run the commands of its own connection and those that find the leader: they show and
change nothing of others. The host decides about DL.* and ACL, by the rights that all faces share.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Final, NamedTuple

from delaylog.broker.keyspace.access.key_access import KeyAccess, key_accesses
from delaylog.broker.keyspace.access.rules import (
    BYTES_MAX,
    SYNTAX,
    UNKNOWN,
    WORDS_MAX,
    RuleError,
    Rules,
    parse_known,
    parse_rules,
)
from delaylog.broker.keyspace.command import DL_CATEGORIES, NO_KEYS, Args, Command
from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.registry import COMMANDS
from delaylog.broker.keyspace.values.globs import Match, check_pattern, matcher

_OWN_CHECKS: Final = (b"acl", b"sentinel")
"""Commands, with their subcommands, that the host decides about or that every user may run."""


class Denied(NamedTuple):
    """Why a command is refused."""

    reason: str
    """`command`, `key` or `channel`; `auth` of a failed login."""
    name: bytes
    """The command, the key or the channel; of a login, AUTH."""

    @property
    def text(self) -> bytes:
        """The error, as Redis words it."""
        if self.reason == "command":
            return b"NOPERM this user has no permissions to run the '%b' command" % self.name
        return (
            b"NOPERM this user has no permissions to access one of the %bs used as arguments"
            % self.reason.encode()
        )

    @property
    def in_exec(self) -> bytes:
        """The error of a command that was allowed when it was queued."""
        why = {
            "command": b"execute the command or subcommand",
            "key": b"touch the specified keys",
            "channel": b"access one of the channels used as arguments",
        }[self.reason]
        return (
            b"NOPERM ACLs rules changed between the moment the transaction was accumulated and the "
            b"EXEC call. This command is no longer allowed for the following reason: no permission "
            b"to " + why
        )

    @property
    def in_script(self) -> bytes:
        """The error of a command that a script calls."""
        return (
            b"ERR The user executing the script can't "
            + {
                "command": b"run this command or subcommand",
                "key": b"access at least one of the keys mentioned in the command arguments",
                "channel": b"publish to the channel mentioned in the command",
            }[self.reason]
        )

    @property
    def dry(self) -> bytes:
        """The reply of ACL DRYRUN."""
        if self.reason == "command":
            return b"This user has no permissions to run the '%b' command" % self.name
        return b"This user has no permissions to access the '%b' %b" % (
            self.name,
            self.reason.encode(),
        )


class Rights:
    """Compiled rules."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.commands = _allowed(rules.commands)
        """Full names, such as `config|get`."""
        self._all_keys = rules.all_keys
        self._keys = [(matcher(key.pattern.encode()), key.reads, key.writes) for key in rules.keys]
        self._one_key = self._of_one_key()
        self._plain = frozenset(
            name
            for name, entry in _everything()
            if name in self.commands and entry.keys == NO_KEYS and entry.group != "pubsub"
        )
        """The allowed commands that use no keys and no channels."""
        self._all_channels = rules.all_channels
        self._patterns = {pattern.encode() for pattern in rules.channels}
        self._channels: list[Match] = [matcher(pattern) for pattern in self._patterns]

    @property
    def is_full(self) -> bool:
        """Whether every command is allowed, with every key and channel."""
        return (
            self._all_keys
            and self._all_channels
            and self.commands.issuperset(name for name, _ in _everything())
        )

    def denied(self, command: Command, argv: Args) -> Denied | None:
        """Why a command is refused; None = it may run."""
        name = command.name
        matches = self._one_key.get(name)
        if matches is not None and len(argv) > 1 and (len(argv) == 3 or name != b"set"):
            # Most calls end here.
            key = argv[1]
            for match in matches:
                if match(key):
                    return None
            return Denied("key", key)
        if name in self._plain:
            return None
        if name not in self.commands:
            return Denied("command", name)
        if not self._all_keys:
            for key, access in key_accesses(command, argv):
                if not any(match(key) for match in self._matchers(access)):
                    return Denied("key", key)
        if not self._all_channels:
            return self._denied_channel(name, argv)
        return None

    def _of_one_key(self) -> dict[bytes, list[Match]]:
        """The matchers for `argv[1]` of each allowed command that uses only this key."""
        found: dict[bytes, list[Match]] = {}
        if self._all_keys:
            return found
        for name, entry in _everything():
            if name in self.commands and entry.keys == (1, 1, 1):
                ((_, access),) = key_accesses(entry, [name, b""])
                found[name] = self._matchers(access)
        return found

    def _matchers(self, access: KeyAccess) -> list[Match]:
        """The matchers of the key patterns that allow this access."""
        return [
            match
            for match, may_read, may_write in self._keys
            if may_read >= access.reads and may_write >= access.writes
        ]

    def _denied_channel(self, name: bytes, argv: Args) -> Denied | None:
        if name == b"psubscribe":
            # A subscribed pattern has to be an allowed one, letter by letter.
            refused = (each for each in argv[1:] if each not in self._patterns)
        elif name in (b"subscribe", b"publish"):
            channels = argv[1:2] if name == b"publish" else argv[1:]
            refused = (
                each for each in channels if not any(match(each) for match in self._channels)
            )
        else:
            return None
        first = next(refused, None)
        return None if first is None else Denied("channel", first)


@lru_cache(maxsize=1_024)
def rights_of(words: tuple[str, ...]) -> Rights:
    """The rights that follow from stored words."""
    return Rights(parse_known(words))


def check_rules(words: tuple[str, ...]) -> Rules:
    """Parse words that a user is to have, and check their names and sizes. Raises RuleError."""
    if len(words) > WORDS_MAX:
        raise RuleError(words[WORDS_MAX], f"a user has at most {WORDS_MAX} rules")
    try:
        size = sum(len(word.encode()) for word in words)
    except UnicodeEncodeError:
        raise RuleError("", "rules are UTF-8 text") from None
    if size > BYTES_MAX:
        raise RuleError(words[-1], f"the rules of a user have at most {BYTES_MAX} bytes")
    rules = parse_rules(words)
    for word in rules.commands:
        _check_command(word)
    for pattern in (*(key.pattern for key in rules.keys), *rules.channels):
        try:
            check_pattern(pattern.encode())
        except CommandError as error:
            raise RuleError(pattern, error.text.decode().removeprefix("ERR ")) from None
    return rules


def _check_command(word: str) -> None:
    name, bar, sub = word[1:].partition("|")
    if name.startswith("@"):
        return
    entry = COMMANDS.get(name.encode())
    if entry is None:
        raise RuleError(word, UNKNOWN)
    if not bar:
        return
    if not sub:
        raise RuleError(word, SYNTAX)
    if "|" in sub:
        raise RuleError(word, "Allowing first-arg of a subcommand is not supported")
    if not entry.subcommands:
        raise RuleError(word, f"{name} has no subcommands; rules for a first argument do not exist")
    if sub.encode() not in entry.subcommands:
        raise RuleError(word, UNKNOWN)


def _everything() -> Iterator[tuple[bytes, Command]]:
    """All commands and subcommands, by full name."""
    for entry in COMMANDS.values():
        yield entry.name, entry
        for sub in entry.subcommands.values():
            yield sub.name, sub


def _allowed(words: tuple[str, ...]) -> frozenset[bytes]:
    """The full names of the commands that these words allow."""
    allowed: set[bytes] = set()
    for word in words:
        change = allowed.update if word[0] == "+" else allowed.difference_update
        name = word[1:]
        if name == "@all":
            change(name for name, _ in _everything())
        elif name.startswith("@"):
            for entry in COMMANDS.values():
                # Redis changes the subcommands of a container too, whatever their categories are.
                if name[1:] in entry.categories:
                    change(_with_subcommands(entry))
                change(sub.name for sub in entry.subcommands.values() if name[1:] in sub.categories)
        else:
            first, _, second = name.encode().partition(b"|")
            named = COMMANDS.get(first)
            if named is not None:
                change([name.encode()] if second else _with_subcommands(named))
    allowed.update(name for name, entry in _everything() if _is_for_all(entry))
    return frozenset(allowed)


def _with_subcommands(entry: Command) -> list[bytes]:
    return [entry.name, *(sub.name for sub in entry.subcommands.values())]


def _is_for_all(entry: Command) -> bool:
    """Whether rules do not concern a command."""
    return (
        entry.harmless
        or entry.name.partition(b"|")[0] in _OWN_CHECKS
        or not entry.categories.isdisjoint(DL_CATEGORIES)
    )
