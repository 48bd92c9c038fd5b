"""EVAL, EVALSHA, SCRIPT, FCALL and FUNCTION.

Scripts are never logged: the commands that they call are, within one frame.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.errors import NO_SCRIPT, NOT_INTEGER, CommandError, syntax
from delaylog.broker.keyspace.options import Option, Options, read_options
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import OK, Map, Members, Reply, Status
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.running.scripting_host import library_name
from delaylog.broker.keyspace.values.globs import matcher
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


# --------------------------------------------------------------------------- functions

_CALL: Final = "noscript stale skip_monitor no_mandatory_keys movablekeys"
_WRITE: Final = "write denyoom noscript"


@command("fcall", -3, "scripting", _CALL)
def fcall(run: Run, argv: Args) -> Reply:
    """Call a function: name numkeys [key …] [arg …]."""
    scripting = run.shared.scripting
    functions = scripting.functions()
    if functions.function(argv[1]) is None:
        raise CommandError(b"ERR Function not found")
    keys, args = take_keys(argv, b"ERR Bad number of keys provided")
    scripting.enter(run.session)
    return functions.call(argv[1], keys, args)


@command("function|load", -3, "scripting", _WRITE)
def function_load(run: Run, argv: Args) -> Reply:
    """Load a library: [REPLACE] source."""
    *options, source = argv[2:]
    for option in options:
        if option.lower() != b"replace":
            raise CommandError(b"ERR Unknown option given: %b" % option)
    if len(options) > 1:
        raise syntax()
    keyspace = run.keyspace
    if keyspace.applying:
        # Compiled when it is first called.
        keyspace.libraries = {**keyspace.libraries, library_name(source): source}
        return OK
    scripting = run.shared.scripting
    functions = scripting.functions()
    name = functions.load(source, replace=bool(options))
    scripting.keep(functions)
    keyspace.dirty += 1
    run.rewrite(b"FUNCTION", b"LOAD", b"REPLACE", source)
    return name


@command("function|delete", 3, "scripting", "write noscript")
def function_delete(run: Run, argv: Args) -> Reply:
    """Remove a library."""
    keyspace, name = run.keyspace, argv[2]
    if keyspace.applying:
        keyspace.libraries = {k: v for k, v in keyspace.libraries.items() if k != name}
        return OK
    scripting = run.shared.scripting
    functions = scripting.functions()
    functions.delete(name)
    scripting.keep(functions)
    keyspace.dirty += 1
    return OK


@command("function|flush", -2, "scripting", "write noscript")
def function_flush(run: Run, argv: Args) -> Reply:
    """Remove all libraries."""
    take_mode(argv, 2, b"FUNCTION FLUSH only supports")
    run.keyspace.libraries = {}
    run.keyspace.dirty += 1
    return OK


_LIST_OPTIONS: Final[Options] = {
    b"libraryname": Option("name", bytes),
    b"withcode": Option("code", once=True),
}


def _bad_list(word: bytes) -> CommandError:
    if word.lower() == b"libraryname":
        return CommandError(b"ERR library name argument was not given")
    return CommandError(b"ERR Unknown argument %b" % word.split(b"\0")[0])


@command("function|list", -2, "scripting", "noscript")
def function_list(run: Run, argv: Args) -> Reply:
    """List the libraries: [LIBRARYNAME pattern] [WITHCODE]."""
    options = read_options(argv, 2, _LIST_OPTIONS, _bad_list)
    matches = matcher(options.value("name", b"*"), ignore_case=True)
    out: list[Reply] = []
    for library in run.shared.scripting.functions().libraries():
        if not matches(library.name):
            continue
        functions: list[Reply] = [
            Map(
                [
                    *(b"name", function.name),
                    *(b"description", function.description),
                    *(b"flags", Members([Status(flag) for flag in function.flags])),
                ]
            )
            for function in library.functions.values()
        ]
        flat: list[Reply] = [b"library_name", library.name, b"engine", b"LUA"]
        flat += [b"functions", functions]
        if "code" in options:
            flat += [b"library_code", library.source]
        out.append(Map(flat))
    return out
