"""The side of a copy that lacks the data: writes what comes aside, checks it, and says it is there.

Nothing of the folder changes here. Files are written by another thread, one part after the other,
and the giver is told how far that has got. Whatever goes wrong ends this copy only: the leader
offers another.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from delaylog.broker.backup.manifest import BackupError, Manifest
from delaylog.broker.cluster.copies.incoming import IncomingFolder
from delaylog.broker.cluster.copies.limits import CopyLimits
from delaylog.replication.errors import PeerError
from delaylog.replication.messages import (
    CopyEnd,
    CopyMessage,
    CopyOffer,
    CopyPart,
    CopyTaken,
)
from delaylog.storage.errors import DiskFullError
from delaylog.storage.files.file_system import FileSystem

T = TypeVar("T")

_END: Final = None

log = logging.getLogger("delaylog.cluster")


class Intake:
    """One copy that comes in."""

    def __init__(self, peer: int, offer: CopyOffer) -> None:
        self.peer = peer
        self.offer = offer
        self.parts: asyncio.Queue[CopyPart | None] = asyncio.Queue()
        self.received = 0
        self.taken = 0
        self.ended = False
        self.progress_at = time.monotonic()
        self.task: asyncio.Task[None] | None = None


class CopyReceiver:
    """Takes copies into one folder. All methods belong to the loop's thread."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        send: Callable[[int, CopyMessage], None],
        on_copied: Callable[[IncomingFolder, CopyOffer, Manifest], bool],
        on_fatal: Callable[[BaseException], None],
        *,
        limits: CopyLimits | None = None,
    ) -> None:
        """`on_copied` is called when a whole copy lies there, checked and durable; it says whether
        that is of any use still.
        """
        self._fs = fs
        self._folder = folder
        self._send = send
        self._on_copied = on_copied
        self._on_fatal = on_fatal
        self._limits = limits or CopyLimits()
        self._intake: Intake | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self.taken = 0
        """Whole copies."""
        self.failed = 0

    @property
    def receiving(self) -> bool:
        """Whether a copy comes in."""
        return self._intake is not None

    @property
    def peer(self) -> int | None:
        """Whose copy comes in."""
        return None if self._intake is None else self._intake.peer

    def accept(self, peer: int, offer: CopyOffer) -> None:
        """Take what a leader offers; a newer offer ends the copy before."""
        if self._intake is not None:
            self._give_up("another one is offered", tell=False)
        log.warning("node %d sends a copy of its folder: this log lies too far behind", peer)
        intake = self._intake = Intake(peer, offer)
        intake.task = asyncio.get_running_loop().create_task(self._run(intake, [*self._ending]))

    def receive(self, peer: int, message: CopyPart | CopyEnd) -> None:
        """A part, or the end. Raises PeerError for what no sound giver sends."""
        intake = self._intake
        if intake is None or intake.peer != peer:
            return
        if (message.epoch, message.copy) != intake.offer or intake.ended:
            return
        intake.progress_at = time.monotonic()
        if isinstance(message, CopyEnd):
            if message.whole:
                intake.ended = True
                intake.parts.put_nowait(_END)
            else:
                self._give_up("the leader gave it up", tell=False)
            return
        if message.at != intake.received:
            self._give_up("a part is missing")
            raise PeerError(f"a part of a copy at {message.at}, not at {intake.received}")
        intake.received += len(message.data)
        if intake.received - intake.taken > 2 * self._limits.window_bytes:
            self._give_up("it comes faster than it is taken")
            raise PeerError("a copy comes faster than it is taken")
        intake.parts.put_nowait(message)

    def look(self) -> None:
        """From time to time: is there progress?"""
        intake = self._intake
        if intake is not None and not intake.ended:
            if time.monotonic() - intake.progress_at > self._limits.stall_seconds:
                self._give_up("there was no progress")

    def lost(self, peer: int) -> None:
        """The connection of a peer is gone; a copy that has come whole is good all the same."""
        intake = self._intake
        if intake is not None and intake.peer == peer and not intake.ended:
            self._give_up("the connection was lost", tell=False)

    def abort(self, why: str) -> None:
        """Give up whatever comes in."""
        if self._intake is not None:
            self._give_up(why)

    async def stop(self) -> None:
        """End; nothing is written any more."""
        self.abort("this node stops")
        await asyncio.gather(*self._ending, return_exceptions=True)

    def _give_up(self, why: str, *, tell: bool = True) -> None:
        intake = self._intake
        assert intake is not None, "there is one"
        log.warning("the copy from node %d is given up: %s", intake.peer, why)
        self.failed += 1
        self._intake = None
        if intake.task is not None:
            intake.task.cancel()
            self._ending.add(intake.task)
            intake.task.add_done_callback(self._ending.discard)
        if tell:
            self._send(intake.peer, CopyEnd(intake.offer.epoch, intake.offer.copy, False))

    # ------------------------------------------------------------------ writing

    async def _run(self, intake: Intake, before: list[asyncio.Task[None]]) -> None:
        # Two of them would write to one folder.
        await asyncio.gather(*before, return_exceptions=True)
        incoming = IncomingFolder(self._fs, self._folder)
        try:
            await _whole(incoming.begin)
            self._note(intake, 0)
            while (part := await intake.parts.get()) is not _END:
                data = bytes(part.data)
                await _whole(partial(incoming.write, part.name, part.offset, data))
                self._note(intake, len(part.data))
            manifest = await _whole(incoming.finish)
            if self._intake is intake and not self._on_copied(incoming, intake.offer, manifest):
                await _whole(incoming.remove)
        except asyncio.CancelledError:
            await _whole(incoming.remove)
            raise
        except (BackupError, DiskFullError) as error:
            await _whole(incoming.remove)
            if self._intake is intake:
                self._give_up(str(error))
            return
        except Exception as error:
            self._on_fatal(error)
            return
        if self._intake is intake:
            self._intake = None
            self.taken += 1

    def _note(self, intake: Intake, size: int) -> None:
        """So much more is written: there is room for the next."""
        intake.taken += size
        intake.progress_at = time.monotonic()
        if self._intake is intake:
            offer = intake.offer
            self._send(intake.peer, CopyTaken(offer.epoch, offer.copy, intake.taken))


async def _whole(call: Callable[[], T]) -> T:
    """Run a call in another thread, to its end even if whoever waits is cancelled."""
    job = asyncio.ensure_future(asyncio.to_thread(call))
    try:
        return await asyncio.shield(job)
    except asyncio.CancelledError:
        await asyncio.gather(job, return_exceptions=True)
        raise
