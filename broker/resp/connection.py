"""One client's socket: bytes in, commands to the executor, replies out when their turn is safe."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, cast

from delaylog.broker.keyspace.encoding import encode, encode_into
from delaylog.broker.keyspace.executor import ANSWER_BYTES_MAX, REPLY_BYTES_A_TURN
from delaylog.broker.keyspace.replies import ErrorReply
from delaylog.broker.keyspace.session import Session
from delaylog.broker.resp.parsing import CommandParser

if TYPE_CHECKING:
    from delaylog.broker.keyspace.executor import Executor
    from delaylog.broker.keyspace.registry import Args
    from delaylog.broker.resp.face import RespFace

COMMANDS_A_SLICE: Final = 256
"""Commands of a client between two looks at how much it is owed."""
SLICES_A_TURN: Final = 4
"""After so many the others, and the timers, have their turn."""
HELD_BACK_BYTES: Final = 64 << 10
"""Of a client whose commands wait, for something or for their turn, no more is read than this and
what is under way: it may not fill the memory, and a parser takes ever longer for ever more.
"""
OUTPUT_BYTES_MAX: Final = 32 << 20
"""A subscriber that reads slower than others publish is dropped when so much waits for it."""
SENT_BYTES_MIN: Final = 1 << 20
"""With memory used up, who has sent more of an unfinished command is closed."""
COUNTED_BYTES_MIN: Final = 64 << 10
"""A client that leaves less unread is not counted: most calls count nothing."""
STALL_BYTES: Final = 1 << 10
"""Who sends fewer of an unfinished command between two looks at it is closed."""
_FULL: Final = b"-ERR max number of clients reached\r\n"


class Connection(asyncio.Protocol):
    """All methods belong to the loop's thread."""

    def __init__(self, face: RespFace) -> None:
        self._face = face
        self._transport: asyncio.Transport | None = None
        self._parser: CommandParser = face.new_parser()
        self._rest: list[Args] = []
        """Parsed, and not run yet."""
        self._scheduled = False
        self._paused = False
        """The client does not read its replies: nothing of it runs meanwhile."""
        self.paused_at = 0.0
        """Since when."""
        self._held = False
        """A command waited: what came behind it is to be looked at when it has its answer."""
        self._behind = False
        """More came than there were turns for: nothing is read until that has been run."""
        self.owed = 0
        """Turns whose replies wait for the log."""
        self._owed_bytes = 0
        """Replies that wait for the log."""
        self._counted = 0
        """Replies that the face knows to be unread."""
        self._received = 0
        """Bytes, ever; and as they were when an unfinished command was looked at."""
        self._seen = -1
        self._last = False
        """What is taken now ends with the last reply."""
        self.entered = False
        """It was not turned away, and has a session."""
        self.session: Session
        self.task: asyncio.Task[None] | None = None
        """A command that takes more than a turn; the next one waits for it."""

    # ------------------------------------------------------------------ the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        # uvloop's transports are of no class of asyncio.
        self._transport = cast(asyncio.Transport, transport)
        if self._face.is_full():
            self._transport.write(_FULL)
            self._transport.close()
            self._transport = None
            return
        self.entered = True
        self.session = self._face.enter(self, self._transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 (asyncio's signature)
        """It has gone."""
        self._transport = None
        self._rest = []
        if self.task is not None:
            self.task.cancel()
        if self.entered:
            self._count(0)
            self._face.leave(self)

    def data_received(self, data: bytes) -> None:
        """Requests, or parts of them."""
        if not self.entered:
            return
        parser = self._parser
        if parser.unread_bytes > SENT_BYTES_MIN and self._face.memory.refuses(len(data)):
            self._face.note_lost(MemoryError("used memory > 'maxmemory', and it sends on"))
            self.abort()
            return
        parser.feed(data)
        self._received += len(data)
        if not self._scheduled:
            self.run()

    def pause_writing(self) -> None:
        """It does not read what it is told."""
        self._paused = True
        self.paused_at = self._face.loop.time()
        if self._transport is not None:
            self._transport.pause_reading()
        self.count_replies()
        if self._face.memory.refuses():
            self._face.shed()

    def resume_writing(self) -> None:
        """It does again."""
        self._paused = False
        self.count_replies()
        if self._transport is not None:
            self._transport.resume_reading()
            self.go_on()

    # ------------------------------------------------------------------ commands

    def go_on(self) -> None:
        """Something ended that commands waited for: look for more soon."""
        if not self._scheduled and self._transport is not None:
            self._scheduled = True
            self._face.loop.call_soon(self._run_scheduled)

    def _run_scheduled(self) -> None:
        self._scheduled = False
        self.run()

    def run(self) -> None:
        """Run what has been parsed, one turn's share of it."""
        session = self.session
        if (
            session.blocked is not None
            or self.task is not None
            or self._paused
            or self._is_owed_much()
        ):
            self._held = True
            self._hold_back()
            return
        if session.closing or self._transport is None:
            return
        face = self._face
        if face.replies.is_used_up:
            self._held = True
            self._hold_back()
            face.replies.wait(self)
            return
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
            face.note_lost(error)
            self.abort()
        if executor.keyspace.condemned:
            # Nothing that it did in this turn has been.
            session.out[:] = [encode(face.restored_since, session.resp)]
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
            if session.blocked is not None or session.closing or self.task is not None:
                self._held = True
                break
            if whole and count < COMMANDS_A_SLICE and not self._rest:
                # The parser had no more.
                break
            if self._is_owed_much():
                # Looked at again when it has been answered.
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

    def _is_owed_much(self) -> bool:
        """Whether it is to be answered before more of its commands run."""
        return self._owed() > REPLY_BYTES_A_TURN

    def _owed(self) -> int:
        """Bytes of replies that were not written."""
        return self._owed_bytes + sum(map(len, self.session.out))

    def _handle(self, executor: Executor, commands: list[Args]) -> int:
        try:
            return executor.handle(self.session, commands)
        except Exception as error:
            self._face.broken(error)
            self.abort()
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
        """Whether a command has been unfinished since the last look, and hardly more of it came."""
        session = self.session
        waits = session.blocked is not None or self.task is not None or self._paused or self._held
        if waits or self._rest or not self._parser.unread_bytes:
            self._seen = -1
            return False
        seen, self._seen = self._seen, self._received
        return seen >= 0 and self._received - seen < STALL_BYTES

    def _hold_back(self) -> None:
        """A client that sends on while its commands wait fills no more than the parser takes."""
        if (
            self._transport is not None
            and not self._paused
            and self._parser.unread_bytes > HELD_BACK_BYTES
        ):
            self._behind = True
            self._transport.pause_reading()

    def _read_on(self) -> None:
        self._behind = False
        if self._transport is not None and not self._paused:
            self._transport.resume_reading()

    def finished(self) -> None:
        """A command that waited has its answer, or its task has ended."""
        self._held = False
        self._read_on()
        self.go_on()

    # ------------------------------------------------------------------ replies

    def take(self) -> bytes:
        """What is to be written for the turn that ends."""
        session = self.session
        out, session.out = session.out, []
        if session.killed:
            # Also if it does not read what it is owed.
            self.abort()
            return b""
        size = sum(map(len, out))
        if size > ANSWER_BYTES_MAX:
            self._face.note_lost(MemoryError(f"one turn answers {size:,} bytes"))
            self.abort()
            return b""
        replies = b"".join(out)
        self._owed_bytes += size
        self.count_replies()
        if session.closing:
            self._last = True
        elif self._held and session.blocked is None and self.task is None:
            self.finished()
        return replies

    def write(self, data: bytes) -> None:
        """Write what is safe to say."""
        self._owed_bytes -= len(data)
        transport = self._transport
        if transport is None:
            return
        if data:
            transport.write(data)
            self.count_replies()
            if self._held and not self._paused and not self._is_owed_much():
                self.finished()
            if transport.get_write_buffer_size() > OUTPUT_BYTES_MAX and self.session.subscribed:
                transport.abort()
                return
        if self._last and not self.owed:
            transport.close()

    def unread_bytes(self) -> int:
        """Of what it was told."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def count_replies(self) -> None:
        """Have the face know how much of what it was or is to be told is not read."""
        unread = self._owed() + (self.unread_bytes() if self._paused else 0)
        self._count(unread if unread > COUNTED_BYTES_MIN else 0)

    def _count(self, unread: int) -> None:
        change, self._counted = unread - self._counted, unread
        if change:
            self._face.replies.count(change)

    def abort(self) -> None:
        """End without a word."""
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """End after what is written."""
        if self._transport is not None:
            self._transport.close()
