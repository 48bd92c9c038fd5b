"""FUNCTION and FCALL."""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.scripting import take_keys, take_mode
from delaylog.broker.keyspace.errors import CommandError, syntax
from delaylog.broker.keyspace.options import Option, Options, read_options
from delaylog.broker.keyspace.registry import command
from delaylog.broker.keyspace.replies import OK, Map, Members, Reply, Status
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.running.scripting_host import library_name
from delaylog.broker.keyspace.values.globs import matcher

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
