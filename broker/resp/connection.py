"""The socket of one Redis client: parses requests, runs commands, and writes their replies.

Replies are written once the log is safe up to what they saw (`Turns`). A client runs no further
command while it leaves replies unread.
"""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from typing import TYPE_CHECKING, Final, cast

from delaylog.broker.keyspace.encoding import (
    ANSWER_BYTES_MAX,
    REPLY_BYTES_A_TURN,
    encode,
    encode_into,
)
from delaylog.broker.keyspace.registry import only_reads
from delaylog.broker.keyspace.replies import ErrorReply
from delaylog.broker.keyspace.running.executor import DEFERRED_BYTES_MIN
from delaylog.broker.keyspace.running.session import Session
from delaylog.broker.resp.parsing import CommandParser
from delaylog.broker.resp.reply_writer import ReplyWriter

if TYPE_CHECKING:
    from delaylog.broker.keyspace.registry import Args
    from delaylog.broker.keyspace.running.executor import Executor
    from delaylog.broker.resp.face import RespFace

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
COUNTED_BYTES_MIN: Final = 64 << 10
"""Fewer bytes that wait for the log are not counted, so most commands count nothing."""
STALL_BYTES: Final = 1 << 10
"""A client that sends fewer bytes of an unfinished command between two sweeps is closed."""
_FULL: Final = b"-ERR max number of clients reached\r\n"


class Connection(asyncio.Protocol):
    """All methods belong to the loop's thread."""

    def __init__(self, face: RespFace) -> None:
        self._face = face
        self._transport: asyncio.Transport | None = None
        """None once the connection is closed or about to be."""
        self._writer: ReplyWriter
        self._parser: CommandParser = face.new_parser()
        self._rest: list[Args] = []
        """Commands that are parsed and have not run."""
        self._scheduled = False
        self.read_at = 0.0
        """Loop time at which the client last read, or at which its oldest unread reply was written.
        """
        self._held = False
        """A command waits; the commands behind it run when it is answered."""
        self._deferred = False
        """The next command has a large reply, and unread replies use up their bound."""
        self._behind = False
        """More requests came than run in a turn; nothing is read until they have run."""
        self.owed = 0
        """Turns whose replies wait for the log."""
        self._owed_bytes = 0
        """Bytes of these replies."""
        self._out_bytes = self._out_count = 0
        """Bytes of the first `_out_count` pieces of `session.out`."""
        self._counted = 0
        """Bytes of replies that the face's bound counts for this client."""
        self._queued = -1
        """Bytes in the socket's own buffer when progress was last noted, or -1."""
        self._received = 0
        """Bytes received since the connection was made."""
        self._seen = -1
        """`_received` when a sweep last found an unfinished command, or -1."""
        self._last = False
        """The connection is closed after the replies taken so far."""
        self.entered = False
        """The client was accepted and has a session."""
        self.session: Session
        self.task: asyncio.Task[None] | None = None
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

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        """Release what the client held."""
        self._transport = None
        self._rest = []
        if self.task is not None:
            self.task.cancel()
        if self.entered:
            self._drop_replies()
            self._face.leave(self)

    def data_received(self, data: bytes) -> None:
        """Take requests, or parts of them."""
        if not self.entered or self._transport is None:
            return
        parser = self._parser
        if parser.unread_bytes > SENT_BYTES_MIN and self._face.memory.refuses(len(data)):
            self._face.close(self, "used memory > 'maxmemory', and it sends on")
            return
        parser.feed(data)
        self._received += len(data)
        if not self._scheduled:
            self.run()

    def pause_writing(self) -> None:
        """Run no more commands until the client has read."""
        if not self.entered:
            return
        self._writer.pause()
        if self._transport is not None:
            self._transport.pause_reading()
            self.count_replies()

    def resume_writing(self) -> None:
        """Send more, and run commands again if everything is sent."""
        if not self.entered:
            return
        self.read_at = self._face.loop.time()
        self._writer.resume()
        self.count_replies()
        if self._writer.paused or self._transport is None:
            return
        if self._last and not self.owed:
            self._transport.close()
            return
        self._transport.resume_reading()
        self.go_on()

    # ------------------------------------------------------------------ commands

    def go_on(self) -> None:
        """Run commands soon: what they waited for has ended."""
        if not self._scheduled and self._transport is not None:
            self._scheduled = True
            self._face.loop.call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._scheduled = False
        self.run()

    def run(self) -> None:
        """Run one turn's share of the commands that have been parsed."""
        session = self.session
        if (
            session.blocked is not None
            or self.task is not None
            or self._writer.paused
            or self._is_owed_much()
        ):
            self._held = True
            self._hold_back()
            return
        if session.closing or self._transport is None:
            return
        face = self._face
        if self._deferred and face.replies.is_used_up:
            self._held = True
            self._hold_back()
            face.replies.wait(self)
            return
        self._deferred = False
        if not face.ready():
            self.task = face.loop.create_task(self._until_ready())
            return
        if not session.authenticated and (seconds := face.penalty_seconds(session)) > 0:
            self.task = face.loop.create_task(self._wait(seconds))
            return
        executor = face.begin()
        try:
            self._run(session, executor)
        except Exception as error:
            face.note_lost(self, error)
            self.abort()
        if executor.keyspace.condemned:
            # What this turn did is undone.
            session.out[:] = [encode(face.restoring.since, session.resp)]
            session.closing = True
        if session.blocked is not None:
            face.arm()
        self.count_replies()
        if session.out or session.closing or executor.keyspace.effects:
            face.turns.touch(self)

    def _run(self, session: Session, executor: Executor) -> None:
        parser = self._parser
        for _ in range(SLICES_A_TURN):
            commands = self._rest
            whole = not commands and parser.authenticated
            if not commands:
                commands = parser.next_commands(COMMANDS_A_SLICE)
                if not commands:
                    break
            count = len(commands)
            done = self._handle(executor, commands)
            self._rest = commands[done:] if done < count else []
            if self._waits() or session.closing or self._deferred:
                self._held = True
                break
            if whole and count < COMMANDS_A_SLICE and not self._rest:
                # The parser has no more.
                break
            if self._is_owed_much():
                # They run on when these replies are written.
                self._held = True
                break
            if self._rest:
                self.go_on()
                break
        else:
            self.go_on()
        if not parser.authenticated:
            parser.authenticated = session.authenticated
        if not self._rest and parser.error is not None and not session.closing:
            if parser.error:
                encode_into(session.out, ErrorReply(b"ERR " + parser.error), session.resp)
            session.closing = True
        if self._scheduled:
            self._hold_back()
        elif self._behind and not self._held:
            self._read_on()

    def _waits(self) -> bool:
        """Whether a command is under way."""
        return self.session.blocked is not None or self.task is not None

    def _is_owed_much(self) -> bool:
        """Whether replies have to be written before more commands run."""
        return self._owed() > REPLY_BYTES_A_TURN

    def _owed(self) -> int:
        """Bytes of replies that are not written yet."""
        out, seen = self.session.out, self._out_count
        if len(out) != seen:
            if len(out) < seen:
                self._out_bytes = seen = 0
            self._out_bytes += sum(map(len, out[seen:] if seen else out))
            self._out_count = len(out)
        return self._owed_bytes + self._out_bytes

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
                self._face.replies.wait(self)
                return done
            if self._waits() or session.closing or self._is_owed_much():
                return done + 1
        return len(commands)

    async def _until_ready(self) -> None:
        await self._face.until_ready()
        self.task = None
        self.finished()

    async def _wait(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.task = None
        self.finished()

    def stalls(self) -> bool:
        """Whether a command is unfinished since the last sweep and hardly more of it came."""
        waits = self._waits() or self._writer.paused or self._held
        if waits or self._rest or not self._parser.unread_bytes:
            self._seen = -1
            return False
        seen, self._seen = self._seen, self._received
        return seen >= 0 and self._received - seen < STALL_BYTES

    def _hold_back(self) -> None:
        """Stop reading from a client that sends on while its commands wait."""
        if (
            self._transport is not None
            and not self._writer.paused
            and self._parser.unread_bytes > HELD_BACK_BYTES
        ):
            self._behind = True
            self._transport.pause_reading()

    def _read_on(self) -> None:
        self._behind = False
        if self._transport is not None and not self._writer.paused:
            self._transport.resume_reading()

    def finished(self) -> None:
        """Run commands again: the one that waited is answered, or its reply has room."""
        self._held = False
        self._read_on()
        self.go_on()

    # ------------------------------------------------------------------ replies

    def has_output(self) -> None:
        """Count replies that came while no command of this client ran, and have them written."""
        if self._transport is None:
            self.session.out.clear()
            return
        self.count_replies()
        self._face.turns.touch(self)

    def take(self) -> bytes:
        """Return the replies of the turn that ends."""
        session = self.session
        out, session.out = session.out, []
        self._out_bytes = self._out_count = 0
        if session.killed:
            # Also if it leaves replies unread.
            self.abort()
        if self._transport is None:
            return b""
        size = sum(map(len, out))
        if size > ANSWER_BYTES_MAX:
            self._face.close(self, f"one turn answers {size:,} bytes")
            return b""
        replies = b"".join(out)
        # They are counted already.
        self._owed_bytes += size
        if session.closing:
            self._last = True
        elif self._held and not self._waits():
            self.finished()
        return replies

    def write(self, data: bytes) -> None:
        """Send replies that are safe in the log."""
        self._owed_bytes -= len(data)
        transport, writer = self._transport, self._writer
        if transport is None:
            return
        if data:
            had_unread = writer.paused
            writer.write(data)
            if writer.paused or self._counted:
                self._note_unread(had_unread)
                if self._transport is None:
                    return
            if self._held and not writer.paused and not self._is_owed_much():
                self.finished()
        if self._last and not self.owed and writer.idle:
            transport.close()

    def _note_unread(self, had_unread: bool) -> None:
        """Count replies that were just written, and close clients that leave too many unread."""
        unread = self._writer.unread_bytes
        if unread and not had_unread:
            self.read_at = self._face.loop.time()
            self._queued = -1
        self.count_replies()
        if unread > OUTPUT_BYTES_MAX and self.session.subscribed:
            self._face.close(self, f"a subscriber leaves {unread:,} bytes unread")
        elif unread and not had_unread and self._face.memory.refuses():
            self._face.replies.close_one(UNREAD_BYTES_MIN)

    @property
    def unread_bytes(self) -> int:
        """Bytes that were written and that the client does not read."""
        return self._writer.unread_bytes

    @property
    def counted_bytes(self) -> int:
        """Bytes that the face's bound counts for this client."""
        return self._counted

    def note_progress(self, now: float) -> None:
        """Set `read_at` if bytes have left the socket's own buffer since the last call.

        That buffer may hold megabytes, and the transport has room only when a third of it is free.
        So the first call, which cannot compare, counts as progress too.
        """
        before, self._queued = self._queued, _queued_bytes(self.session.descriptor)
        if before < 0 or self._queued < before:
            self.read_at = now

    def count_replies(self) -> None:
        """Tell the face's bound how many bytes the client's replies hold."""
        owed = self._owed()
        if owed <= COUNTED_BYTES_MIN and not self._counted and not self._writer.paused:
            return
        size = self._writer.unread_bytes
        if size or owed > COUNTED_BYTES_MIN:
            size += owed
        if size != self._counted:
            if not self._counted:
                self.read_at = self._face.loop.time()
            self._counted = size
            self._face.replies.count(self, size)

    def abort(self) -> None:
        """Close the connection and drop its replies."""
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
            self._drop_replies()

    def close(self) -> None:
        """Close the connection after the replies that are written."""
        self.session.closing = self._last = True
        if self._transport is not None and self._writer.idle:
            self._transport.close()

    def _drop_replies(self) -> None:
        self._writer.clear()
        self.session.out.clear()
        self._out_bytes = self._out_count = self._counted = 0
        self._face.replies.forget(self)


def _queued_bytes(descriptor: int) -> int:
    """Return the bytes that a socket has not delivered to the other host."""
    try:
        return int(struct.unpack("i", fcntl.ioctl(descriptor, termios.TIOCOUTQ, bytes(4)))[0])
    except OSError:
        return 0
