"""The receiver of copies: writes a copy beside the data, checks it, and reports it.

While a copy arrives the data of the folder does not change. Another thread writes the parts in
order, and the sender is told how many bytes are written. Any failure ends this copy only: the
leader offers another one.

It is apart from `incoming`, which `delaylog verify` reads without an event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from delaylog.broker.backup.copies import BackupError, Manifest
from delaylog.broker.cluster.copies.incoming_folder import CopyLimits, IncomingFolder
from delaylog.broker.host.machine import Machine
from delaylog.replication.errors import PeerError
from delaylog.replication.messages import CopyEnd, CopyMessage, CopyOffer, CopyPart, CopyTaken
from delaylog.storage.errors import DiskFullError

T = TypeVar("T")

_END: Final = None

log = logging.getLogger("delaylog.cluster")


class Intake:
    """One copy that is being received."""

    def __init__(self, peer: int, offer: CopyOffer, now_s: float) -> None:
        self.peer = peer
        self.offer = offer
        self.parts: asyncio.Queue[CopyPart | None] = asyncio.Queue()
        self.received = 0
        self.taken = 0
        self.ended = False
        self.progress_at = now_s
        self.task: asyncio.Task[None] | None = None


class CopyReceiver:
    """Takes copies into one folder. All methods belong to the loop's thread."""

    def __init__(
        self,
        incoming: Callable[[], IncomingFolder],
        send: Callable[[int, CopyMessage], None],
        on_copied: Callable[[IncomingFolder, CopyOffer, Manifest], bool],
        on_fatal: Callable[[BaseException], None],
        machine: Machine,
        *,
        limits: CopyLimits | None = None,
    ) -> None:
        """`incoming` returns the folder that a copy is written into. `on_copied` is called with a
        complete copy, checked and durable; it returns whether the copy is used.
        """
        self._incoming = incoming
        self._send = send
        self._on_copied = on_copied
        self._on_fatal = on_fatal
        self._machine = machine
        self._limits = limits or CopyLimits()
        self._intake: Intake | None = None
        self._ending: set[asyncio.Task[None]] = set()
        self.taken = 0
        """Complete copies that were used."""
        self.failed = 0

    @property
    def receiving(self) -> bool:
        """Whether a copy is being received."""
        return self._intake is not None

    @property
    def peer(self) -> int | None:
        """The peer that sends a copy at the moment."""
        return None if self._intake is None else self._intake.peer

    def accept(self, peer: int, offer: CopyOffer) -> None:
        """Accept a leader's offer; a newer offer ends the previous copy."""
        if self._intake is not None:
            self._give_up("another one is offered", tell=False)
        log.warning("node %d sends a copy of its folder: this log is too far behind", peer)
        intake = self._intake = Intake(peer, offer, self._machine.steady_s())
        intake.task = asyncio.get_running_loop().create_task(self._run(intake, [*self._ending]))

    def receive(self, peer: int, message: CopyPart | CopyEnd) -> None:
        """A part or the end of a copy came. Raises PeerError for what no correct sender sends."""
        intake = self._intake
        if intake is None or intake.peer != peer:
            return
        if (message.epoch, message.copy) != intake.offer or intake.ended:
            return
        intake.progress_at = self._machine.steady_s()
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
            self._give_up("the sender exceeds the window")
            raise PeerError("a copy exceeds its window")
        intake.parts.put_nowait(message)

    def look(self) -> None:
        """Give the copy up if it makes no progress; called by the poll."""
        intake = self._intake
        if intake is not None and not intake.ended:
            if self._machine.steady_s() - intake.progress_at > self._limits.stall_seconds:
                self._give_up("there was no progress")

    def lost(self, peer: int) -> None:
        """The connection to a peer was lost; a copy that has ended is still good."""
        intake = self._intake
        if intake is not None and intake.peer == peer and not intake.ended:
            self._give_up("the connection was lost", tell=False)

    def abort(self, why: str) -> None:
        """Give up the copy that is being received."""
        if self._intake is not None:
            self._give_up(why)

    async def stop(self) -> None:
        """Stop; nothing is written when this returns."""
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
        # Two tasks must not write to one folder.
        await asyncio.gather(*before, return_exceptions=True)
        incoming = self._incoming()
        try:
            await self._whole(incoming.begin)
            self._note(intake, 0)
            while (part := await intake.parts.get()) is not _END:
                data = bytes(part.data)
                await self._whole(partial(incoming.write, part.name, part.offset, data))
                self._note(intake, len(part.data))
            manifest = await self._whole(incoming.finish)
            if self._intake is intake and not self._on_copied(incoming, intake.offer, manifest):
                await self._whole(incoming.remove)
        except asyncio.CancelledError:
            await self._whole(incoming.remove)
            raise
        except (BackupError, DiskFullError) as error:
            await self._whole(incoming.remove)
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
        """Tell the sender that `size` more bytes are written."""
        intake.taken += size
        intake.progress_at = self._machine.steady_s()
        if self._intake is intake:
            offer = intake.offer
            self._send(intake.peer, CopyTaken(offer.epoch, offer.copy, intake.taken))

    async def _whole(self, call: Callable[[], T]) -> T:
        """Run a call in another thread, to its end even if the caller is cancelled."""
        job = asyncio.ensure_future(self._machine.in_thread(call))
        try:
            return await asyncio.shield(job)
        except asyncio.CancelledError:
            await asyncio.gather(job, return_exceptions=True)
            raise
