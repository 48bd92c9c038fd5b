"""Connects scripts and functions to the keyspace: `redis.call`, and the stored libraries.

The keyspace stores libraries as sources. They are compiled when a function is first needed, so
recovery and followers need no Lua.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.registry import WORDS, find_command
from delaylog.broker.keyspace.replies import ErrorReply, Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.scripts import FunctionLibraries, Scripts

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
                    scripts.note_write()
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


def library_name(source: bytes) -> bytes:
    """Return the name in the first line of a library, which was checked before it was logged."""
    head = source.partition(b"\n")[0]
    for word in head.split():
        if word.lower().startswith(b"name="):
            return word[5:].strip(b"'\"")
    raise CommandError(b"ERR Missing library metadata")
