"""The socket of one Redis client: parses requests, runs commands, and writes their replies.

Replies are written once the log is safe up to what they saw (`Turns`). A client runs no further
command while it leaves replies unread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, Protocol, cast

from delaylog.broker.host.tls.failed_handshakes import ALERT, opens_with_tls
from delaylog.broker.keyspace.command import Args
from delaylog.broker.keyspace.registry import only_reads
from delaylog.broker.keyspace.replies import (
    ANSWER_BYTES_MAX,
    REPLY_BYTES_A_TURN,
    ErrorReply,
    encode,
    encode_into,
)
from delaylog.broker.keyspace.running.executor import DEFERRED_BYTES_MIN, Executor
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.resp.face import RespFace
from delaylog.broker.resp.parser import CommandParser
from delaylog.broker.resp.unread_replies import ReplyCount, ReplyWriter

COMMANDS_A_SLICE: Final = 256
"""Commands of one client that run between two checks of the bytes it is owed."""
SLICES_A_TURN: Final = 4
"""After this number of slices, other clients and the timers have their turn."""
HELD_BACK_BYTES: Final = 64 << 10
"""Bytes that are read, at most, from a client whose commands wait: its requests must not fill the
memory, and the time of parsing grows with the bytes that are not parsed yet.
"""
OUTPUT_BYTES_MAX: Final = 32 << 20
"""A subscriber with more unread bytes is closed: others publish faster than it reads."""
SENT_BYTES_MIN: Final = 1 << 20
"""While memory is used up, a client that has sent more of an unfinished command is closed."""
UNREAD_BYTES_MIN: Final = 1 << 20
"""While memory is used up, a client that leaves more replies unread may be closed."""
STALL_BYTES: Final = 1 << 10
"""A client that sends fewer bytes of an unfinished command between two sweeps is closed."""
_FULL: Final = b"-ERR max number of clients reached\r\n"


class Cancellable(Protocol):
    """A command that takes more than one turn."""

    def cancel(self) -> object:
        """The client has left."""


class Connection(asyncio.Protocol):
    """All methods belong to the loop's thread."""

    def __init__(self, face: RespFace) -> None:
        self._face = face
        self._transport: asyncio.Transport | None = None
        """None once the connection is closed or about to be."""
        self._writer: ReplyWriter
        self._replies: ReplyCount
        self._parser: CommandParser = face.new_parser()
        self._rest: list[Args] = []
        """Commands that are parsed and have not run."""
        self._scheduled = False
        self._stopped = False
        """A command waits; the commands behind it run when it is answered."""
        self._deferred = False
        """The next command has a large reply, and unread replies use up their bound."""
        self._behind = False
        """More requests arrived than can run in a turn; nothing is read until they have run."""
        self.owed = 0
        """Turns whose replies wait for the log."""
        self._received = 0
        """Bytes received since the connection was made."""
        self._seen = -1
        """`_received` when a sweep last found an unfinished command, or -1."""
        self._ended = False
        """The client sends nothing more; the connection is closed when its commands are answered.
        """
        self._last = False
        """The connection is closed after the replies taken so far."""
        self.entered = False
        """The client was accepted and has a session."""
        self.session: Session
        self.task: Cancellable | None = None
        """A command that takes more than one turn; later commands wait for it."""

    # ------------------------------------------------------------------ the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Accept the client, or turn it away if there are too many."""
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        if self._face.is_full():
            self._transport.write(_FULL)
            self._transport.close()
            self._transport = None
            return
        self._writer = ReplyWriter(self._transport)
        self.entered = True
        self.session = self._face.enter(self, self._transport)
        self._parser.authenticated = self.session.authenticated
        self._replies = ReplyCount(
            self.session, self._writer, self._face.replies, self._face.loop, self.finished
        )

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        """Release the client's resources."""
        self._transport = None
        if self._behind:
            self._face.resets.forget(self)
        self._rest = []
        # This object may live on in a cycle: what it has received must not.
        self._parser = self._face.new_parser()
        if self.task is not None:
            self.task.cancel()
        if self.entered:
            self._replies.drop()
            self._face.leave(self)

    @property
    def transport(self) -> asyncio.Transport | None:
        """The transport; None once the connection is closed or about to be."""
        return self._transport

    def data_received(self, data: bytes) -> None:
        """Take requests, or parts of them."""
        if not self.entered or self._transport is None:
            return
        if not self._received and opens_with_tls(data):
            self._transport.write(ALERT)
            self._face.note_tls()
            self.close()
            return
        unread = self._parser.feed(data)
        if unread > SENT_BYTES_MIN and self._face.memory.refuses(len(data)):
            self._face.close(self, "used memory > 'maxmemory', and the client continues to send")
            return
        self._received += len(data)
        if not self._scheduled:
            self.run()

    def eof_received(self) -> bool:
        """Answer what the client has sent, as Redis does, and close. Over TLS close at once."""
        transport = self._transport
        if not self.entered or transport is None or transport.get_extra_info("sslcontext"):
            return False
        self._ended = True
        if not self._scheduled:
            self.run()
        return True

    def pause_writing(self) -> None:
        """Run no more commands until the client has read."""
        if not self.entered:
            return
        self._writer.pause()
        if self._transport is not None:
            self._transport.pause_reading()
            self._replies.update()

    def resume_writing(self) -> None:
        """Send more, and run commands again if everything is sent."""
        if not self.entered:
            return
        self._replies.read_at = self._face.loop.time()
        self._writer.resume()
        self._replies.update()
        if self._writer.paused or self._transport is None:
            return
        if self._last and not self.owed:
            self._transport.close()
            return
        self._transport.resume_reading()
        self.go_on()

    # ------------------------------------------------------------------ commands

    def go_on(self) -> None:
        """Run commands soon, if there are any: what they waited for has ended."""
        parser = self._parser
        left = self._rest or parser.unread_bytes or parser.error is not None
        if not left and not self._ended:
            return
        if not self._scheduled and self._transport is not None:
            self._scheduled = True
            self._face.loop.call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._scheduled = False
        self.run()

    def run(self) -> None:
        """Run one turn's share of the commands that have been parsed."""
        self._run_share()
        if self._ended:
            self._end_wait()

    def _run_share(self) -> None:
        session = self.session
        if self._waits() or self._writer.paused or self._is_owed_much():
            self._stopped = True
            self._hold_back()
            return
        if session.closing or self._transport is None:
            return
        face = self._face
        if self._deferred and face.replies.is_used_up:
            self._stopped = True
            self._hold_back()
            face.replies.wait(self._replies)
            return
        self._deferred = self._stopped = False
        if not face.ready():
            self.task = face.loop.create_task(self._after(face.until_ready))
            return
        executor = face.begin()
        if self._transport is None:
            # The client's rights have ended.
            return
        try:
            self._run(session, executor)
        except Exception as error:
            face.note_lost(self, error)
            self.abort()
        if executor.keyspace.condemned:
            # The changes of this turn are undone.
            session.out[:] = [encode(face.restoring.since, session.resp)]
            session.closing = True
        if session.blocked is not None:
            face.arm()
        self._replies.update()
        if session.out or session.closing or executor.keyspace.effects:
            face.turns.touch(self)

    def _run(self, session: Session, executor: Executor) -> None:
        parser = self._parser
        for number in range(SLICES_A_TURN):
            commands = self._rest
            whole = not commands and parser.authenticated
            if not commands:
                commands = parser.next_commands(COMMANDS_A_SLICE)
                if not commands:
                    break
            if number == 0 and not session.authenticated:
                # Only the first command of a turn waits: other guesses of a pipeline get an error.
                seconds = self._face.failed_logins.left(session, commands[0])
                if seconds > 0:
                    self.task = self._face.loop.create_task(self._after(asyncio.sleep, seconds))
                    self._rest, self._stopped = commands, True
                    break
            count = len(commands)
            done = self._handle(executor, commands)
            self._rest = commands[done:] if done < count else []
            if self._waits() or session.closing or self._deferred:
                self._stopped = True
                break
            if whole and count < COMMANDS_A_SLICE and not self._rest:
                # The parser has no more.
                break
            if self._is_owed_much():
                # The next commands run when these replies are written.
                self._stopped = True
                break
            if self._rest:
                self.go_on()
                break
        else:
            self.go_on()
        parser.authenticated = session.authenticated
        if not self._rest and parser.error is not None and not session.closing:
            if parser.error:
                encode_into(session.out, ErrorReply(b"ERR " + parser.error), session.resp)
            session.closing = True
        if self._ended and not (self._rest or self._scheduled or self._stopped):
            session.closing = True
        if self._scheduled:
            self._hold_back()
        elif self._behind and not self._stopped:
            self._read_on()

    def _waits(self) -> bool:
        """Whether a command is under way."""
        return self.session.blocked is not None or self.task is not None

    def _is_owed_much(self) -> bool:
        """Whether replies have to be written before more commands run."""
        return self._replies.owed_bytes() > REPLY_BYTES_A_TURN

    def _handle(self, executor: Executor, commands: list[Args]) -> int:
        try:
            executor.deferring = self._face.replies.is_used_up
            if executor.deferring:
                return self._handle_small(executor, commands)
            return executor.handle(self.session, commands)
        except Exception as error:
            self._face.restoring.broken(error)
            self.abort()
            return len(commands)

    def _handle_small(self, executor: Executor, commands: list[Args]) -> int:
        """Run commands one by one until the reply of one has to be deferred; returns how many ran.

        A reading command runs again later: it changed nothing, so its reply can be dropped.
        """
        session = self.session
        for done, argv in enumerate(commands):
            told = len(session.out)
            ran = executor.handle(session, [argv])
            size = sum(map(len, session.out[told:]))
            if not ran or (size > DEFERRED_BYTES_MIN and only_reads(argv)):
                del session.out[told:]
                self._deferred = True
                self._face.replies.wait(self._replies)
                return done
            if self._waits() or session.closing or self._is_owed_much():
                return done + 1
        return len(commands)

    async def _after(self, event: Callable[..., Awaitable[None]], *given: float) -> None:
        """Continue with the next command after an event."""
        await event(*given)
        self.task = None
        self.finished()

    def stalls(self) -> bool:
        """Whether a command has been unfinished since the last sweep and hardly grew."""
        waits = self._waits() or self._writer.paused or self._stopped
        if waits or self._rest or not self._parser.unread_bytes:
            self._seen = -1
            return False
        seen, self._seen = self._seen, self._received
        return seen >= 0 and self._received - seen < STALL_BYTES

    def _hold_back(self) -> None:
        """Stop reading from a client that continues to send while its commands wait."""
        if (
            self._transport is not None
            and not self._writer.paused
            and self._parser.unread_bytes > HELD_BACK_BYTES
        ):
            self._behind = True
            self._face.resets.pause(self, self._transport, self._end_wait)

    def _end_wait(self) -> None:
        """Close a client that sends nothing more and waits, after its earlier replies: as in Redis,
        it takes nothing that others wait for.
        """
        if self.session.is_blocked and not self.session.closing:
            self._face.executor.waits.end(self.session)
            if self.task is not None:
                self.task.cancel()
            self.session.close()

    def _read_on(self) -> None:
        if self._behind:
            self._behind = False
            self._face.resets.forget(self)
        if self._transport is not None and not self._writer.paused:
            self._transport.resume_reading()

    def finished(self) -> None:
        """Continue with the next command: the last one is answered, or its reply has room."""
        self._stopped = False
        self._read_on()
        self.go_on()

    # ------------------------------------------------------------------ replies

    def has_output(self) -> None:
        """Count replies that came while no command of this client ran, and have them written."""
        if self._transport is None:
            self.session.out.clear()
            return
        self._replies.update()
        self._face.turns.touch(self)

    def take(self) -> bytes:
        """Return the replies of the turn that ends."""
        session = self.session
        size = self._replies.note_taken()
        out, session.out = session.out, []
        if session.killed:
            # Even if the client has unread replies.
            self.abort()
        if self._transport is None:
            return b""
        if size > ANSWER_BYTES_MAX:
            self._face.close(self, f"one turn answers {size:,} bytes")
            return b""
        replies = b"".join(out)
        if session.closing:
            self._last = True
        elif self._stopped and not self._waits():
            self.finished()
        return replies

    def write(self, data: bytes) -> None:
        """Send replies that are safe in the log."""
        self._replies.waiting_bytes -= len(data)
        transport, writer = self._transport, self._writer
        if transport is None:
            return
        if data:
            had_unread = writer.paused
            writer.write(data)
            if writer.paused or self._replies.counted_bytes:
                self._note_unread(had_unread)
                if self._transport is None:
                    return
            if self._stopped and not writer.paused and not self._is_owed_much():
                self.finished()
        if self._last and not self.owed and writer.idle:
            transport.close()

    def _note_unread(self, had_unread: bool) -> None:
        """Count replies that were just written, and close clients that leave too many unread."""
        unread = self._writer.unread_bytes
        if unread and not had_unread:
            self._replies.note_written()
        self._replies.update()
        if unread > OUTPUT_BYTES_MAX and self.session.subscribed:
            self._face.close(self, f"a subscriber leaves {unread:,} bytes unread")
        elif unread and not had_unread and self._face.memory.refuses():
            self._face.replies.close_one(UNREAD_BYTES_MIN)

    def abort(self) -> None:
        """Close the connection and drop its replies."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
            self._replies.drop()

    def close(self) -> None:
        """Close the connection after the replies that are written; a waiting command gets none."""
        if self.task is not None:
            self.task.cancel()
        self.session.closing = self._last = True
        if self._transport is not None and self._writer.idle:
            self._transport.close()
