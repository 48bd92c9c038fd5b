"""The sender of copies: one at a time, while the leader serves.

A thread reads the folder as `delaylog backup` does. It waits whenever the receiver is a window
behind, so that messages of replication never queue behind much data. Retention is held off while
the folder is read and until the receiver's log reaches the copy's end; both have a deadline.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any

from delaylog import __version__
from delaylog.broker.backup.copies import Manifest, Route, Target
from delaylog.broker.backup.folder_copy import FolderCopy, Vanished, write_manifest
from delaylog.broker.cluster.copies.incoming_folder import CopyLimits
from delaylog.broker.host.machine import Machine
from delaylog.broker.host.system.folder_lock import suspended_retention
from delaylog.replication.messages import (
    CopyEnd,
    CopyMessage,
    CopyOffer,
    CopyPart,
    CopyTaken,
)
from delaylog.replication.wire import PIECE_BYTES_MAX
from delaylog.storage.errors import NoDescriptorError
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.files.os_file_system import ReadOnlyFileSystem

log = logging.getLogger("delaylog.cluster")


class CopyStopped(Exception):
    """The copy was given up, so the thread that reads for it has to end."""


class Gift:
    """One copy being sent; also the `Target` that the backup code writes to."""

    def __init__(
        self,
        peer: int,
        offer: CopyOffer,
        tell: Callable[[CopyPart], None],
        limits: CopyLimits,
        steady_s: Callable[[], float],
    ) -> None:
        """`tell` is called from the thread that reads."""
        self.peer = peer
        self.offer = offer
        self._tell = tell
        self._limits = limits
        self._steady_s = steady_s
        self._room = threading.Condition()
        self.stopped = ""
        """Why the copy was given up; empty while it was not."""
        self.sent = 0
        self.taken = 0
        self.progress_at = steady_s()
        self.thread: asyncio.Task[None] | None = None
        self.end: int | None = None
        """End of the copy's log, once the whole copy was read and sent."""

    # ------------------------------------------------------------------ the loop's side

    def take(self, taken: int) -> None:
        """The receiver has written this many bytes."""
        with self._room:
            self.taken = max(self.taken, taken)
            self.progress_at = self._steady_s()
            self._room.notify()

    def stop(self, why: str) -> None:
        """Send no more of it."""
        with self._room:
            self.stopped = why
            self._room.notify()

    # ------------------------------------------------------------------ the thread's side

    def put(self, name: str, offset: int, data: bytes) -> None:
        """Send bytes of a file once there is room. Raises CopyStopped."""
        with self._room:
            while self.sent - self.taken >= self._limits.window_bytes and not self.stopped:
                self._room.wait()
            if self.stopped:
                raise CopyStopped(self.stopped)
            at = self.sent
            self.sent += len(data)
        self._tell(CopyPart(self.offer.epoch, self.offer.copy, at, offset, name, data))

    def open(self, path: str, *, create: bool = False) -> GiftFile:
        """A file of the copy."""
        assert create, "nothing is read back"
        return GiftFile(self, path.lstrip("/"))

    def mkdir(self, path: str) -> None:
        """The receiver makes folders as it needs them."""

    def sync_folder(self, path: str) -> None:
        """The receiver makes all of it durable at its end."""


class GiftFile:
    """A file that the receiver writes."""

    def __init__(self, gift: Gift, name: str) -> None:
        self._gift = gift
        self._name = name

    def pwritev(self, buffers: Sequence[Any], offset: int) -> int:
        """Send it, in pieces."""
        data = b"".join(buffers)
        for at in range(0, len(data), PIECE_BYTES_MAX):
            self._gift.put(self._name, offset + at, data[at : at + PIECE_BYTES_MAX])
        return len(data)

    def fdatasync(self) -> None:
        """The receiver makes the file durable."""

    def truncate(self, size: int) -> None:
        """The manifest states the size."""

    def close(self) -> None:
        """Nothing is open on this side."""


class CopyGiver:
    """Gives copies of one folder. All methods belong to the loop's thread."""

    def __init__(
        self,
        folder: str,
        send: Callable[[int, CopyMessage], None],
        on_fatal: Callable[[BaseException], None],
        machine: Machine,
        *,
        source: FileSystem | None = None,
        limits: CopyLimits | None = None,
    ) -> None:
        self._folder = folder
        self._send = send
        self._on_fatal = on_fatal
        self._machine = machine
        self._source = source or ReadOnlyFileSystem()
        self._limits = limits or CopyLimits()
        self._loop = asyncio.get_running_loop()
        self._gift: Gift | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._number = 0
        self._offered: dict[int, int] = {}
        """The number of the newest copy that was offered to each peer."""
        self._not_before = 0.0
        self._pause_seconds = self._limits.pause_seconds
        self.given = 0
        """Copies that were sent to their end."""
        self.failed = 0
        """Copies that were given up."""

    @property
    def giving(self) -> bool:
        """Whether a copy is on its way, so that no log may be removed. Any thread."""
        return self._gift is not None

    @property
    def peer(self) -> int | None:
        """The peer that gets a copy at the moment."""
        return None if self._gift is None else self._gift.peer

    # ------------------------------------------------------------------ what the member says

    def offer(self, peer: int, epoch: int) -> None:
        """A peer needs a copy: offer it one, unless another is on its way or it is too early."""
        if self._gift is not None or self._machine.steady_s() < self._not_before:
            return
        self._number += 1
        self._offered[peer] = self._number
        offer = CopyOffer(epoch, self._number)
        gift: Gift

        def tell(part: CopyPart) -> None:
            self._loop.call_soon_threadsafe(self._pass_on, gift, part)

        gift = self._gift = Gift(peer, offer, tell, self._limits, self._machine.steady_s)
        self._send(peer, offer)

    def last_offer(self, peer: int) -> int:
        """The number of the newest copy that was offered to a peer; 0 = none.

        The peer with the smallest goes first: one that fails every copy must not keep the others
        from theirs.
        """
        return self._offered.get(peer, 0)

    def _pass_on(self, gift: Gift, part: CopyPart) -> None:
        if self._gift is gift and not gift.stopped:
            self._send(gift.peer, part)

    def receive(self, peer: int, message: CopyTaken | CopyEnd) -> None:
        """The receiver has answered. An answer about another copy is ignored, as it is late."""
        gift = self._gift
        if gift is None or gift.peer != peer:
            return
        if (message.epoch, message.copy) != gift.offer:
            return
        if isinstance(message, CopyEnd):
            self._give_up("the receiver gave it up", tell=False, refused=True)
            return
        gift.take(message.taken)
        if gift.thread is None:
            log.warning(
                "a copy of this folder is sent to node %d, whose log is too far behind", peer
            )
            gift.thread = self._loop.create_task(self._give(gift))
            self._tasks.add(gift.thread)
            gift.thread.add_done_callback(self._tasks.discard)

    def note_match(self, peer: int, match: int) -> None:
        """A peer has the log up to `match`: at the copy's end no log is kept for it any more."""
        gift = self._gift
        if gift is not None and gift.peer == peer and gift.end is not None and match >= gift.end:
            log.info("node %d goes on from the copy", peer)
            self._gift = None
            self._pause_seconds = self._limits.pause_seconds

    def look(self) -> None:
        """Give the copy up if it makes no progress; called by the poll."""
        gift = self._gift
        if gift is not None:
            limits = self._limits
            most = limits.stall_seconds if gift.end is None else limits.install_seconds
            if self._machine.steady_s() - gift.progress_at > most:
                self._give_up("there was no progress")

    def lost(self, peer: int) -> None:
        """The connection to a peer was lost; a peer that has the whole copy comes back with it."""
        gift = self._gift
        if gift is not None and gift.peer == peer and gift.end is None:
            self._give_up("the connection was lost", tell=False)

    def met(self, peer: int, end: int) -> None:
        """A peer has connected with a log up to `end`: give up if it does not use the copy."""
        gift = self._gift
        if gift is not None and gift.peer == peer and gift.end is not None and end < gift.end:
            self._give_up("the receiver came back without the copy", tell=False)

    def abort(self, why: str) -> None:
        """Give up: this node no longer leads, or ends, so its log may be cut."""
        if self._gift is not None:
            self._give_up(why)

    async def stop(self) -> None:
        """Stop; nothing of a copy runs when this returns."""
        self.abort("this node stops")
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _give_up(self, why: str, *, tell: bool = True, refused: bool = False) -> None:
        gift = self._gift
        assert gift is not None, "there is one"
        log.warning("the copy for node %d is given up: %s", gift.peer, why)
        self.failed += 1
        gift.stop(why)
        self._gift = None
        limits = self._limits
        if refused:
            self._pause_seconds = min(2 * self._pause_seconds, limits.pause_seconds_max)
        else:
            self._pause_seconds = limits.pause_seconds
        self._not_before = self._machine.steady_s() + self._pause_seconds
        if tell:
            self._send(gift.peer, CopyEnd(gift.offer.epoch, gift.offer.copy, False))

    # ------------------------------------------------------------------ reading

    async def _give(self, gift: Gift) -> None:
        try:
            manifest = await self._machine.in_thread(lambda: self._read(gift))
        except CopyStopped:
            return
        except Vanished as error:
            if self._gift is gift:
                self._give_up(f"{error} was removed meanwhile")
            return
        except NoDescriptorError as error:
            # The files are sound, and a later copy may find a descriptor.
            if self._gift is gift:
                self._give_up(str(error))
            return
        except Exception as error:
            if self._gift is not gift:
                # The copy was given up meanwhile, perhaps because this node no longer leads and its
                # log was cut: then a bad read says nothing about the disk.
                log.warning("a copy that was given up could not be read on: %s", error)
                return
            # The leader cannot read its own files, so it must not serve from them either.
            self._give_up(str(error))
            self._on_fatal(error)
            return
        # The thread's parts were scheduled before this, so they are sent first.
        if self._gift is gift:
            self.given += 1
            gift.end = manifest.end_position
            gift.progress_at = self._machine.steady_s()
            self._send(gift.peer, CopyEnd(gift.offer.epoch, gift.offer.copy, True))
            extra = {"bytes": manifest.byte_count, "rows": manifest.rows}
            log.info("a whole copy was sent to node %d", gift.peer, extra=extra)

    def _read(self, gift: Gift) -> Manifest:
        began_at_ms = int(self._machine.wall_s() * 1000)
        manifest = Manifest(__version__, self._folder, began_at_ms=began_at_ms)
        with suspended_retention(self._folder):
            route: Route[Target] = Route(self._source, self._folder, gift, "")
            copy = FolderCopy(route, lambda what, done, total: None, self._machine.sleep)
            copy.run(manifest)
            manifest.ended_at_ms = int(self._machine.wall_s() * 1000)
            write_manifest(gift, "", manifest)
        return manifest
