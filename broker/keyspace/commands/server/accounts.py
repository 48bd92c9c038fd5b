"""ACL: users, and what they may do.

The host stores the users, and everything but WHOAMI, CAT, GENPASS and HELP needs its permission to
manage them. No reply contains a secret or its digest.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.access.acl_log import Entry
from delaylog.broker.keyspace.access.rights import Denied
from delaylog.broker.keyspace.command import CATEGORIES, Args, Command
from delaylog.broker.keyspace.commands.server.introspection import entry_named, in_category
from delaylog.broker.keyspace.errors import CommandError, wrong_arity
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import OK, Double, Map, Members, Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.values.number_texts import to_int

_FLAGS: Final = "noscript loading stale"
_ADMIN: Final = "admin " + _FLAGS
_BITS_MAX: Final = 4_096
_SHOWN_MAX: Final = 10
"""Entries of ACL LOG that are shown without a count, as in Redis."""


def _check_may_manage(run: Run) -> None:
    """Raise CommandError unless the client may manage users."""
    if not run.shared.server.users.may_manage(run.session):
        assert run.command is not None
        denied = Denied("command", run.command.name)
        run.shared.note_denied(run.session, denied.name, denied)
        raise CommandError(denied.text)


@command("acl|whoami", 2, "server", _FLAGS)
def acl_whoami(run: Run, argv: Args) -> Reply:
    """Return the user name of this connection."""
    return run.session.user


@command("acl|users", 2, "server", _ADMIN)
def acl_users(run: Run, argv: Args) -> Reply:
    """List the users."""
    _check_may_manage(run)
    return run.shared.server.users.names()


@command("acl|list", 2, "server", _ADMIN)
def acl_list(run: Run, argv: Args) -> Reply:
    """List the rules of all users, without secrets."""
    _check_may_manage(run)
    users = run.shared.server.users
    lines = []
    for name in users.names():
        commands, keys, channels = _parts(run, name)
        words = [b"user", name, b"on", *([] if users.required else [b"nopass"]), *keys]
        if channels != [b"&*"]:
            words.append(b"resetchannels")
        lines.append(b" ".join([*words, *channels, *commands]))
    return lines


def _parts(run: Run, name: bytes) -> tuple[list[bytes], list[bytes], list[bytes]]:
    """The rules of a user about commands, keys and channels, as words."""
    rules = run.shared.server.users.find(name)
    assert rules is not None, "the user exists"
    words = [word.encode() for word in rules.commands]
    if words[:1] != [b"+@all"]:
        words.insert(0, b"-@all")
    keys = [str(key).encode() for key in rules.keys]
    return words, keys, [b"&" + pattern.encode() for pattern in rules.channels]


@command("acl|getuser", 3, "server", _ADMIN)
def acl_getuser(run: Run, argv: Args) -> Reply:
    """Return the rules of a user, without secrets."""
    _check_may_manage(run)
    users = run.shared.server.users
    if users.find(argv[2]) is None:
        return None
    commands, keys, channels = _parts(run, argv[2])
    flags = [b"on"] if users.required else [b"on", b"nopass"]
    return Map(
        [
            *(b"flags", Members(flags), b"passwords", []),
            *(b"commands", b" ".join(commands), b"keys", b" ".join(keys)),
            *(b"channels", b" ".join(channels), b"selectors", []),
        ]
    )


@command("acl|cat", -2, "server", _FLAGS)
def acl_cat(run: Run, argv: Args) -> Reply:
    """List the categories of commands, or the commands of one."""
    if len(argv) == 2:
        return [category.encode() for category in CATEGORIES]
    if len(argv) > 3:
        raise CommandError(
            b"ERR unknown subcommand or wrong number of arguments for '%b'. Try ACL HELP."
            % argv[1][:128]
        )
    category = argv[2].decode("latin-1").lower()
    if category not in CATEGORIES:
        raise CommandError(b"ERR Unknown category '%b'" % argv[2])
    return in_category(category)


@command("acl|log", -2, "server", _ADMIN)
def acl_log(run: Run, argv: Args) -> Reply:
    """List recent refusals and failed logins, newest first: [count|RESET]."""
    _check_may_manage(run)
    entries, count = run.shared.acl_log.entries, _SHOWN_MAX
    if len(argv) > 2:
        if argv[2].lower() == b"reset":
            entries.clear()
            return OK
        count = max(to_int(argv[2]), 0)
    return [_shown(entry, run.now_ms) for entry in entries[:count]]


def _shown(entry: Entry, now_ms: int) -> Reply:
    return Map(
        [
            *(b"count", entry.count, b"reason", entry.reason.encode()),
            *(b"context", entry.context.encode(), b"object", entry.name),
            *(b"username", entry.user),
            *(b"age-seconds", Double((now_ms - entry.at_ms) / 1000)),
            *(b"client-info", entry.client),
        ]
    )


@command("acl|genpass", -2, "server", _FLAGS)
def acl_genpass(run: Run, argv: Args) -> Reply:
    """Generate a random secret: [bits]."""
    bits = to_int(argv[2]) if len(argv) > 2 else 256
    if not 0 < bits <= _BITS_MAX:
        raise CommandError(
            b"ERR ACL GENPASS argument must be the number of bits for the output password, a "
            b"positive number up to 4096"
        )
    count = (bits + 3) // 4
    return b"%0*x" % (count, run.shared.server.secret_bits(count * 4))


@command("acl|dryrun", -4, "server", _ADMIN)
def acl_dryrun(run: Run, argv: Args) -> Reply:
    """Tell whether a user may run a command, without running it."""
    _check_may_manage(run)
    users = run.shared.server.users
    if users.find(argv[2]) is None:
        raise CommandError(b"ERR User '%b' not found" % argv[2])
    entry = _called(argv[3:])
    if not entry.takes(len(argv) - 3):
        raise wrong_arity(entry.name)
    denied = users.denied(argv[2], entry, argv[3:])
    return OK if denied is None else denied.dry


def _called(argv: Args) -> Command:
    """The command that an argv calls. Raises CommandError."""
    entry = None if b"|" in argv[0] else entry_named(argv[0])
    if entry is not None and entry.subcommands and len(argv) > 1:
        entry = entry.subcommands.get(argv[1].lower())
    if entry is None:
        raise CommandError(b"ERR Command '%b' not found" % argv[0])
    return entry


@command("acl|setuser", -3, "server", _ADMIN)
def acl_setuser(run: Run, argv: Args) -> Reply:
    """Create or change a user: name [rule ...]."""
    _check_may_manage(run)
    return run.shared.server.users.change(run, argv[2], argv[3:])


@command("acl|deluser", -3, "server", _ADMIN)
def acl_deluser(run: Run, argv: Args) -> Reply:
    """Remove users and close their connections; returns their number."""
    _check_may_manage(run)
    if b"default" in argv[2:]:
        raise CommandError(b"ERR The 'default' user cannot be removed")
    return run.shared.server.users.remove(run, argv[2:])


@command("acl|save", 2, "server", _ADMIN)
def acl_save(run: Run, argv: Args) -> Reply:
    """Do nothing: every change of a user is in the log already."""
    _check_may_manage(run)
    return OK


@command("acl|load", 2, "server", _ADMIN)
def acl_load(run: Run, argv: Args) -> Reply:
    """Do nothing: the log is the only place of users."""
    _check_may_manage(run)
    return OK
