"""What scripts and functions have to do with the rest: their commands, and the libraries kept.

Libraries are part of the keyspace as sources; they are compiled when somebody first needs one, so
that recovery and followers need no Lua.
"""

from __future__ import annotations

from typing import Final

from delaylog.broker.keyspace.errors import CommandError
from delaylog.broker.keyspace.registry import WORDS, find_command
from delaylog.broker.keyspace.replies import ErrorReply, Reply
from delaylog.broker.keyspace.running.run import Run
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.keyspace.scripts import FunctionLibraries, ScriptLimits, Scripts

_LOOK_BYTES: Final = 1 << 20
_CALL_BYTES: Final = 200
"""What a call adds beside its words, about: its effect, and an entry of a collection."""
_UNKNOWN: Final = ErrorReply(b"ERR Unknown Redis command called from script")
_WRONG_ARITY: Final = ErrorReply(b"ERR Wrong number of args calling Redis command from script")
_NOT_ALLOWED: Final = ErrorReply(b"ERR This Redis command is not allowed from script")
_ONLY_READS: Final = ErrorReply(b"ERR Write commands are not allowed from read-only scripts.")


class ScriptingHost:
    """One for an shared."""

    def __init__(self, run: Run, limits: ScriptLimits | None = None) -> None:
        self._run = run
        self._session = Session(0, run.keyspace.databases[0])
        """Stands for the script: its SELECT and its protocol are its own."""
        self.scripts = self._make_scripts(limits)
        self._functions: FunctionLibraries | None = None
        self._sources: dict[bytes, bytes] | None = None
        """The libraries that `_functions` holds."""

    def enter(self, caller: Session) -> Scripts:
        """A script of this client is about to run."""
        self._session.database = caller.database
        return self.scripts

    def functions(self) -> FunctionLibraries:
        """The libraries of the keyspace, compiled."""
        sources = self._run.keyspace.libraries
        functions = self._functions
        if functions is None or self._sources is not sources:
            functions = self._functions = FunctionLibraries(self.scripts)
            for source in sources.values():
                functions.load(source)
            self._sources = sources
        return functions

    def keep(self, functions: FunctionLibraries) -> None:
        """The libraries were changed: they are the keyspace's from now on."""
        self._sources = self._run.keyspace.libraries = functions.dump()

    # ------------------------------------------------------------------ redis.call

    def _make_scripts(self, limits: ScriptLimits | None) -> Scripts:
        """The scripts, with what `redis.call` does: `Executor.call` behind a script's checks.

        A script pays for it with each command, so all is in one function, and what does not change
        is bound here once.
        """
        run, session, find = self._run, self._session, WORDS.get
        shared = run.shared
        server = shared.server
        grown = 0

        def call(argv: list[bytes], resp: int) -> Reply:
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
            write = command.write
            # PUBLISH is no write, but not for scripts that only read either.
            if scripts.read_only and (write or "may_replicate" in command.flags):
                return _ONLY_READS
            if write:
                if not scripts.wrote:
                    refusal = shared.refusal_of(command)
                    if refusal is not None:
                        return refusal
                    scripts.note_write()
                elif command.grows:
                    # A script may go on for seconds: what it adds is looked at meanwhile.
                    nonlocal grown
                    grown += _CALL_BYTES + sum(map(len, argv))
                    if grown > _LOOK_BYTES:
                        refusal = shared.may_take(grown)
                        grown = 0
                        if refusal is not None:
                            return refusal
            session.resp = resp
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
                # Nothing may be raised through Lua.
                reply = shared.answer_bug(command, bug, in_script=True)
            if write and keyspace.dirty != dirty:
                # Also when it was refused half-way.
                number = run.database.number
                if run.effects is None:
                    keyspace.log(number, argv)
                else:
                    for effect in run.effects:
                        keyspace.log(number, effect)
            return reply

        def now() -> float:
            return shared.waits.clock_ms() / 1000

        scripts = Scripts(call, now, limits, check=self._check)
        scripts.on_stopped = shared.on_script_stopped
        return scripts

    def _check(self, argv: list[bytes]) -> bool | None:
        found = find_command(argv)
        return None if isinstance(found, ErrorReply) else True


def library_name(source: bytes) -> bytes:
    """The name in a library's first line, which was read before it was logged."""
    head = source.partition(b"\n")[0]
    for word in head.split():
        if word.lower().startswith(b"name="):
            return word[5:].strip(b"'\"")
    raise CommandError(b"ERR Missing library metadata")
