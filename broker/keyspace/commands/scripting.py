"""EVAL, EVALSHA, SCRIPT, FCALL and FUNCTION, and what scripts do to the keyspace by `redis.call`.

Scripts are never logged: the commands that they call are, within one frame. The keyspace stores
libraries as sources. They are compiled when a function is first needed, so recovery and followers
need no Lua.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.commands.arguments import Option, Options, read_options
from delaylog.broker.keyspace.errors import NO_SCRIPT, NOT_INTEGER, CommandError, c_text, syntax
from delaylog.broker.keyspace.registry import WORDS, Run, command, find_command
from delaylog.broker.keyspace.replies import OK, ErrorReply, Map, Members, Reply, Status
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.scripts import FunctionLibraries, Scripts
from delaylog.broker.keyspace.scripts.scripts import library_head
from delaylog.broker.keyspace.values.globs import matcher
from delaylog.broker.keyspace.values.number_texts import to_int

# ----------------------------------------------------------------------------- calls of scripts

_LOOK_BYTES: Final = 1 << 20
_CALL_BYTES: Final = 200
"""Approximate memory that a call adds besides its words: its effect, a collection entry."""
_UNKNOWN: Final = ErrorReply(b"ERR Unknown Redis command called from script")
_WRONG_ARITY: Final = ErrorReply(b"ERR Wrong number of args calling Redis command from script")
_NOT_ALLOWED: Final = ErrorReply(b"ERR This Redis command is not allowed from script")
_ONLY_READS: Final = ErrorReply(b"ERR Write commands are not allowed from read-only scripts.")


class ScriptingHost:
    """The scripts and functions of one executor."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._session = Session(0, run.keyspace.databases[0])
        """The session of scripts: SELECT in a script changes only this."""
        self._caller = self._session
        """The session of the client that the script runs for."""
        self.scripts = self._make_scripts()
        self._functions: FunctionLibraries | None = None
        self._sources: dict[bytes, bytes] | None = None
        """The sources that `_functions` was compiled from."""

    def enter(self, caller: Session) -> Scripts:
        """Prepare to run a script for this client."""
        session = self._session
        session.database = caller.database
        self._caller = caller
        return self.scripts

    def functions(self) -> FunctionLibraries:
        """Return the libraries of the keyspace, compiled."""
        sources = self._run.keyspace.libraries
        functions = self._functions
        if functions is None or self._sources is not sources:
            functions = self._functions = FunctionLibraries(self.scripts)
            for source in sources.values():
                functions.load(source)
            self._sources = sources
        return functions

    def keep(self, functions: FunctionLibraries) -> None:
        """Store changed libraries in the keyspace."""
        self._sources = self._run.keyspace.libraries = functions.dump()

    # ------------------------------------------------------------------ redis.call

    def _make_scripts(self) -> Scripts:
        """Make the scripts with their `redis.call`: the checks of a script, and `Run.call` inlined.

        Each command of a script pays for this, so it is one function over local variables.
        """
        run, session, find = self._run, self._session, WORDS.get
        shared = run.shared
        server = shared.server
        grown = 0

        def call(argv: list[bytes]) -> Reply:
            command = find(argv[0])
            if command is None:
                found = find_command(argv)
                if isinstance(found, ErrorReply):
                    known = found.text.startswith(b"ERR wrong number")
                    return _WRONG_ARITY if known else _UNKNOWN
                command = found
            arity = command.arity
            if len(argv) != arity and (arity > 0 or len(argv) < -arity):
                return _WRONG_ARITY
            if command.noscript:
                return _NOT_ALLOWED
            if command.administrative and (refusal := shared.may_administer()) is not None:
                return refusal
            write = command.write
            # PUBLISH is no write, but read-only scripts may not call it.
            if scripts.read_only and (write or "may_replicate" in command.flags):
                return _ONLY_READS
            if write:
                if not scripts.wrote:
                    refusal = shared.refusal_of(command)
                    if refusal is not None:
                        return refusal
                    scripts.wrote = True
                elif command.grows:
                    # A script may run for seconds, so its memory is checked meanwhile.
                    nonlocal grown
                    grown += _CALL_BYTES + sum(map(len, argv))
                    if grown > _LOOK_BYTES:
                        refusal = shared.may_take(grown)
                        grown = 0
                        if refusal is not None:
                            return refusal
            keyspace = run.keyspace
            run.session, run.database = session, session.database
            run.command, run.effects = command, None
            dirty = keyspace.dirty
            try:
                reply = command.function(run, argv)
            except CommandError as error:
                reply = ErrorReply(error.text)
                server.errors_answered += 1
            except Exception as bug:
                # No exception may pass through Lua.
                reply = shared.answer_bug(command, bug, in_script=True)
            if write and keyspace.dirty != dirty:
                # Also if the command was refused half-way.
                number = run.database.number
                if run.effects is None:
                    keyspace.log(number, argv)
                else:
                    for effect in run.effects:
                        keyspace.log(number, effect)
            if command.audited:
                shared.on_audited(self._caller, command, argv, reply)
            return reply

        def now() -> float:
            return shared.waits.clock_ms() / 1000

        scripts = Scripts(call, now)
        scripts.on_stopped = shared.on_script_stopped
        return scripts


# ------------------------------------------------------------------------------------- commands

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
    count = _count_keys(argv, b"ERR Bad number of keys provided")
    scripting.enter(run.session)
    return functions.call(argv[1], count, argv[3:])


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
        keyspace.libraries = {**keyspace.libraries, library_head(source)[0]: source}
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
    return CommandError(b"ERR Unknown argument %b" % c_text(word))


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
