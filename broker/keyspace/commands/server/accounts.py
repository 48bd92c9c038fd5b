"""ACL: lists the accounts. Users differ in their tokens, not in their rights.

Every user may run all commands. Accounts come from the file of the setting resp-auth, so no command
creates or changes an account. No reply contains a token.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import CATEGORIES, Args
from delaylog.broker.keyspace.commands.server.introspection import entry_named, in_category
from delaylog.broker.keyspace.errors import CommandError, wrong_arity
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import OK, Map, Members, Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.values.number_texts import to_int

_FLAGS: Final = "noscript loading stale"
_ADMIN: Final = "admin " + _FLAGS
_NO_CHANGE: Final = b"ERR accounts come from the file of resp-auth and cannot be changed by clients"
_NO_FILE: Final = b"ERR accounts come from the file of resp-auth, which is read at the start"
_BITS_MAX: Final = 4_096


def _users(run: Run) -> list[bytes]:
    return sorted(run.shared.server.accounts) or [b"default"]


@command("acl|whoami", 2, "server", _FLAGS)
def acl_whoami(run: Run, argv: Args) -> Reply:
    """Return the user name of this connection."""
    return run.session.user


@command("acl|users", 2, "server", _ADMIN)
def acl_users(run: Run, argv: Args) -> Reply:
    """List the users."""
    return _users(run)


@command("acl|list", 2, "server", _ADMIN)
def acl_list(run: Run, argv: Args) -> Reply:
    """List the rules of all users, without tokens."""
    secret = b"" if run.shared.server.wants_password else b"nopass "
    return [b"user %b on %b~* &* +@all" % (user, secret) for user in _users(run)]


@command("acl|getuser", 3, "server", _ADMIN)
def acl_getuser(run: Run, argv: Args) -> Reply:
    """Return the rules of a user, without tokens."""
    if argv[2] not in _users(run):
        return None
    flags = [b"on"] if run.shared.server.wants_password else [b"on", b"nopass"]
    return Map(
        [
            *(b"flags", Members(flags), b"passwords", [], b"commands", b"+@all"),
            *(b"keys", b"~*", b"channels", b"&*", b"selectors", []),
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
    """List failed logins; none are recorded: [count|RESET]."""
    if len(argv) > 2:
        if argv[2].lower() == b"reset":
            return OK
        to_int(argv[2])
    return []


@command("acl|genpass", -2, "server", _FLAGS)
def acl_genpass(run: Run, argv: Args) -> Reply:
    """Generate a random token: [bits]."""
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
    """Check whether a user may run a command; every user may run all commands."""
    if argv[2] not in _users(run):
        raise CommandError(b"ERR User '%b' not found" % argv[2])
    entry = entry_named(argv[3])
    if entry is not None and entry.subcommands and len(argv) > 4:
        entry = entry.subcommands.get(argv[4].lower())
    if entry is None:
        raise CommandError(b"ERR Command '%b' not found" % argv[3])
    if not entry.takes(len(argv) - 3):
        raise wrong_arity(entry.name)
    return OK


@command("acl|setuser", -3, "server", _ADMIN)
def acl_setuser(run: Run, argv: Args) -> Reply:
    """Refused."""
    raise CommandError(_NO_CHANGE)


@command("acl|deluser", -3, "server", _ADMIN)
def acl_deluser(run: Run, argv: Args) -> Reply:
    """Refused, unless there is no such user."""
    if b"default" in argv[2:]:
        raise CommandError(b"ERR The 'default' user cannot be removed")
    if not run.shared.server.accounts.keys() & set(argv[2:]):
        return 0
    raise CommandError(_NO_CHANGE)


@command("acl|save", 2, "server", _ADMIN)
def acl_save(run: Run, argv: Args) -> Reply:
    """Refused."""
    raise CommandError(_NO_FILE)


@command("acl|load", 2, "server", _ADMIN)
def acl_load(run: Run, argv: Args) -> Reply:
    """Refused."""
    raise CommandError(_NO_FILE)
