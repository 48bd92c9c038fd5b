"""EVAL, EVALSHA and SCRIPT.

Scripts are never logged: the commands that they call are, within one frame.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.errors import NO_SCRIPT, NOT_INTEGER, CommandError
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import OK, Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.values.number_texts import to_int

_FLAGS: Final = "noscript stale skip_monitor no_mandatory_keys movablekeys quick"
_SHA_SIZE: Final = 40
_ONE_DIGIT: Final = {b"%d" % count: count for count in range(10)}


def _count_keys(argv: Args, refusal: bytes) -> int:
    """Parse the number in `name script numkeys key … arg …`. Raises CommandError."""
    count = to_int(argv[2], refusal)
    if count > len(argv) - 3:
        raise CommandError(b"ERR Number of keys can't be greater than number of args")
    if count < 0:
        raise CommandError(b"ERR Number of keys can't be negative")
    return count


def take_keys(argv: Args, refusal: bytes = NOT_INTEGER) -> tuple[list[bytes], list[bytes]]:
    """Parse KEYS and ARGV of `name script numkeys key … arg …`. Raises CommandError."""
    count = _count_keys(argv, refusal)
    return argv[3 : 3 + count], argv[3 + count :]


@command("eval", -3, "scripting", _FLAGS)
def eval_(run: Run, argv: Args) -> Reply:
    """Run a script: script numkeys [key …] [arg …]."""
    count = _count_keys(argv, NOT_INTEGER)
    run.no_effect()
    scripts = run.shared.scripting.enter(run.session)
    sha = scripts.load(argv[1])
    return scripts.run(sha, count, argv[3:])


@command("evalsha", -3, "scripting", _FLAGS)
def evalsha(run: Run, argv: Args) -> Reply:
    """Run a cached script: sha1 numkeys [key …] [arg …]."""
    if len(argv[1]) != _SHA_SIZE:
        raise CommandError(NO_SCRIPT)
    # Nearly every script has a one-digit number of keys.
    count = _ONE_DIGIT.get(argv[2])
    if count is None or count > len(argv) - 3:
        count = _count_keys(argv, NOT_INTEGER)
    run.no_effect()
    scripts = run.shared.scripting.enter(run.session)
    return scripts.run(argv[1], count, argv[3:])


# --------------------------------------------------------------------------- the cache


@command("script|load", 3, "scripting", "noscript stale")
def script_load(run: Run, argv: Args) -> Reply:
    """Cache a script; returns its SHA1."""
    return run.shared.scripting.scripts.load(argv[2])


@command("script|exists", -3, "scripting", "noscript")
def script_exists(run: Run, argv: Args) -> Reply:
    """Return which scripts are cached."""
    scripts = run.shared.scripting.scripts
    return [int(scripts.known(sha)) for sha in argv[2:]]


def take_mode(argv: Args, at: int, what: bytes) -> None:
    """Check the [ASYNC|SYNC] of a flush. Raises CommandError."""
    if len(argv) > at + 1 or (len(argv) > at and argv[at].lower() not in (b"async", b"sync")):
        raise CommandError(b"ERR %b SYNC|ASYNC option" % what)


@command("script|flush", -2, "scripting", "noscript")
def script_flush(run: Run, argv: Args) -> Reply:
    """Remove all scripts from the cache."""
    take_mode(argv, 2, b"SCRIPT FLUSH only support")
    run.shared.scripting.scripts.flush()
    return OK
