"""Runs the commands of sessions: checks, MULTI, and blocked commands whose keys changed.

The host passes parsed commands and finds the encoded replies in `session.out`. It sets the time
first (`begin`), and takes the effects of the keyspace when its turn ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from delaylog.broker.keyspace.command import Args, Command
from delaylog.broker.keyspace.commands import all_commands  # noqa: F401 (fills the table)
from delaylog.broker.keyspace.commands.scripting import ScriptingHost
from delaylog.broker.keyspace.commands.transactions import drop_queue, enqueue
from delaylog.broker.keyspace.errors import (
    EXEC_ABORTED_BY,
    MASTER_DOWN,
    CommandError,
)
from delaylog.broker.keyspace.keyspace import DatabaseKey, Keyspace
from delaylog.broker.keyspace.registry import WORDS, Run, are_alike, find_command
from delaylog.broker.keyspace.replies import (
    OK,
    REPLY_BYTES_A_TURN,
    WAITS,
    WRITTEN,
    ErrorReply,
    Reply,
    encode_into,
)
from delaylog.broker.keyspace.running.session import Session, forget_watches
from delaylog.broker.keyspace.running.shared_state import ServerState, SharedState

_MANY_MIN: Final = 4
"""A pipeline of fewer commands runs one by one."""
_NO_WORDS: Final[dict[bytes, Command]] = {}
DEFERRED_BYTES_MIN: Final = 64 << 10
"""While unread replies use up their bound, a larger reply of a read command is deferred."""
_PIECES_COUNTED: Final = 64
"""The bytes of arrays are summed when there are more pieces of output than this."""
_LARGE_BYTES: Final = 4096
"""Replies up to this size are not summed: the 256 of a slice are 1 MiB at most."""


class Executor(SharedState):
    """Runs the commands of all sessions over one keyspace."""

    def __init__(self, keyspace: Keyspace, server: ServerState | None = None) -> None:
        super().__init__(keyspace, server)
        self.deferring = False
        """Read commands whose reply is a large string are deferred."""
        self.defers: Callable[[Reply, int], bool] = lambda reply, resp: False
        """Whether the reply of a blocked read command has to be deferred."""
        self._deferred: dict[DatabaseKey, None] = {}
        """Keys of the deferred blocked commands."""
        self.on_attack: Callable[[Session], None] = lambda session: None
        """Called with a client that sent an HTTP request; its connection is being closed."""
        nobody = Session(0, keyspace.databases[0])
        self.run = Run(self, nobody)
        self.script_run = Run(self, nobody)
        self.script_run.may_wait = False
        self.script_run.in_script = True
        self.make_scripting = lambda: ScriptingHost(self.script_run)
        self._next_session = 1

    # ------------------------------------------------------------------ sessions

    def connect(self, now_ms: int, certificate: Any = None) -> Session:
        """Create the session of a new client; `certificate` = `Session.certificate`."""
        session = Session(self._next_session, self.keyspace.databases[0])
        self._next_session += 1
        session.created_ms = session.used_ms = now_ms
        session.certificate = certificate
        self.server.users.enter(session)
        session.update_special()
        self.sessions[session.number] = session
        return session

    def disconnect(self, session: Session) -> None:
        """End the session of a client that has gone."""
        self.sessions.pop(session.number, None)
        self.waits.end(session)
        forget_watches(session)
        self.pubsub.leave(session)

    def exchange(self, keyspace: Keyspace) -> None:
        """Replace the keyspace: watched keys count as changed, and blocked clients are closed."""
        self.waits.end_all()
        self._deferred.clear()
        for session in self.sessions.values():
            if session.watched:
                session.watched = []
                session.dirty_watch = True
            session.database = keyspace.databases[session.database.number]
        self.keyspace = self.run.keyspace = self.script_run.keyspace = keyspace

    # ------------------------------------------------------------------ running

    def begin(self, now_ms: int) -> None:
        """Begin a turn at this time. The time that commands see never goes back."""
        if now_ms > self.keyspace.now_ms:
            self.keyspace.now_ms = now_ms

    def handle(self, session: Session, commands: list[Args]) -> int:
        """Run commands until one blocks, one is deferred, the client is to be closed, or its
        replies are large; returns how many ran.

        Most commands take the fast path in here: the work of `execute` and `Run.call` without the
        checks that cannot fail for them. A pipeline of GETs pays for nothing else.
        """
        out = session.out
        append = out.append
        find = _NO_WORDS.get if self.out_of_touch else WORDS.get
        keyspace, run = self.keyspace, self.run
        log = keyspace.log
        # Only the slow path changes these.
        run.session, run.database = session, session.database
        number, special, resp = session.database.number, session.special, session.resp
        checked = session.checked
        # Asked for by the first write: most turns only read.
        writable = False
        done = 0
        room, counted = REPLY_BYTES_A_TURN, len(out)
        if len(commands) >= _MANY_MIN and (not special or checked):
            command = find(commands[0][0])
            if (
                command is not None
                and command.many is not None
                and (not command.write or (writable := self._takes_writes()))
                and are_alike(commands)
                and command.takes(len(commands[0]))
                and not (checked and command.guarded)
                and command.many(run, commands)
            ):
                done = len(commands)
        for argv in commands[done:] if done else commands:
            done += 1
            command = find(argv[0])
            if (
                command is None
                or not command.quick
                or (special and (command.guarded or not checked))
                or not (
                    (count := len(argv)) == (arity := command.arity)
                    or (arity < 0 and count >= -arity)
                )
                or (command.write and not (writable := writable or self._takes_writes()))
            ):
                told = len(out)
                reply = self.execute(session, argv)
                if reply is WAITS:
                    break
                run.session, run.database = session, session.database
                number, resp = session.database.number, session.resp
                special, checked = session.special, session.checked
                if reply is not WRITTEN:
                    encode_into(out, reply, resp)
                room -= sum(map(len, out[told:]))
                if session.closing or room < 0:
                    break
                continue
            dirty = keyspace.dirty
            run.effects = None
            try:
                reply = command.function(run, argv)
            except CommandError as error:
                reply = ErrorReply(error.text)
                self.server.errors_answered += 1
            except Exception as bug:
                reply = self.answer_bug(command, bug)
            if keyspace.dirty != dirty:
                # Also if the command was refused half-way.
                if run.effects is None:
                    log(number, argv)
                else:
                    run.log(argv)
            if reply.__class__ is bytes:
                size = len(reply)
                if size > _LARGE_BYTES:
                    if self.deferring and size > DEFERRED_BYTES_MIN and not command.write:
                        # Defer it before its bytes are copied.
                        done -= 1
                        break
                    room -= size
                append(b"$%d\r\n%b\r\n" % (size, reply))
            elif reply is OK:
                append(b"+OK\r\n")
            elif reply.__class__ is int:
                append(b":%d\r\n" % reply)
            elif reply is WRITTEN:
                continue
            else:
                encode_into(out, reply, resp)
                if len(out) - counted > _PIECES_COUNTED:
                    room -= sum(map(len, out[counted:]))
                    counted = len(out)
            if keyspace.ready:
                self.serve_waiting()
                run.session, run.database = session, session.database
            if room < 0:
                break
        self.server.commands_run += done
        session.used_ms = keyspace.now_ms
        session.used_word = commands[done - 1][0] if done else b""
        return done

    def _takes_writes(self) -> bool:
        return self.may_write() is None and self.may_grow() is None and not self.held()

    def execute(self, session: Session, argv: Args) -> Reply:
        """Run one command; errors are replies too."""
        command = WORDS.get(argv[0])
        if command is None:
            found = find_command(argv)
            if isinstance(found, ErrorReply):
                if argv[0].lower() in (b"post", b"host:"):
                    # A web page may have a browser send a request whose body is full of commands.
                    session.kill()
                    self.on_attack(session)
                return self.refused(session, found)
            command = found
        count = len(argv)
        arity = command.arity
        if count != arity and (arity > 0 or count < -arity):
            name = command.name
            text = b"ERR wrong number of arguments for '%b' command" % name
            return self.refused(session, ErrorReply(text), command)
        if session.special:
            stopped = self._stopped(session, command, argv)
            if stopped is not None:
                return stopped
        if command.write:
            refusal = self.refusal_of(command)
            if refusal is not None:
                return self.refused(session, refusal, command)
        if self.lacks_data(session, command):
            return self.refused(session, ErrorReply(MASTER_DOWN))
        reply = self.run.call(session, command, argv)
        if self.keyspace.ready:
            self.serve_waiting()
        return reply

    # ------------------------------------------------------------------ the slow path

    def refused(
        self, session: Session, error: ErrorReply, command: Command | None = None
    ) -> ErrorReply:
        """Count a refused command; returns its reply."""
        self.server.errors_answered += 1
        if command is not None and command.name == b"exec":
            drop_queue(session)
            return ErrorReply(EXEC_ABORTED_BY + error.text.removeprefix(b"ERR "))
        if session.queue is not None:
            session.failed_multi = True
        return error

    def _stopped(self, session: Session, command: Command, argv: Args) -> Reply:
        """Return the reply of a command that is not to run now; None = run it."""
        if not session.authenticated and not command.no_auth:
            return self.refused(session, ErrorReply(b"NOAUTH Authentication required."), command)
        if (denied := self.denied(session, command)) is not None:
            return self.refused(session, denied, command)
        if session.resp == 2 and session.subscribed and not command.pubsub:
            text = (
                b"ERR Can't execute '%b': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / "
                b"RESET are allowed in this context" % command.name
            )
            return self.refused(session, ErrorReply(text), command)
        if session.queue is None or command.now:
            return None
        reply = enqueue(self, session, command, argv)
        return self.refused(session, reply) if isinstance(reply, ErrorReply) else reply

    # ------------------------------------------------------------------ blocked commands

    def serve_waiting(self) -> None:
        """Run blocked commands whose keys changed, oldest first."""
        keyspace = self.keyspace
        while keyspace.ready:
            ready, keyspace.ready = keyspace.ready, {}
            for database_key in ready:
                number, key = database_key
                waiters = keyspace.databases[number].waiters.get(key)
                for waiter in list(waiters or ()):
                    session = self.waits.sessions.get(waiter)
                    if session is not None:
                        self._retry(session, database_key)

    def serve_deferred(self) -> None:
        """Run the blocked commands again whose replies were deferred."""
        deferred, self._deferred = self._deferred, {}
        self.keyspace.ready |= deferred
        self.serve_waiting()

    def _retry(self, session: Session, database_key: DatabaseKey) -> None:
        blocked = session.blocked
        assert blocked is not None
        reads = "readonly" in blocked.command.flags
        if reads and database_key in self._deferred:
            # Its reply would be as large as when it was deferred.
            return
        key = database_key[1]
        kind = blocked.kind
        if kind is not None and blocked.database.find(key).__class__ is not kind:
            return
        blocked.ready = key
        run = self.run
        run.retried = blocked
        kept, session.database = session.database, blocked.database
        try:
            reply = run.call(session, blocked.command, blocked.argv)
        finally:
            session.database = kept
            run.retried = None
        if reply is WAITS:
            return
        if reads and self.defers(reply, session.resp):
            self._deferred[database_key] = None
            return
        self.waits.end(session)
        session.deliver(reply)
