"""The copies of one member: offers and takes copies, and replaces the folder by a complete copy.

The folder is replaced while the process runs: replication stops, the engine and all files are
closed, the copy is moved in, and everything is opened again as at a start. Promises are kept: the
meta file is not part of a copy, and a copy from a leader below the promised epoch is discarded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from delaylog.broker.backup.copies import Manifest
from delaylog.broker.cluster.copies.giver import CopyGiver
from delaylog.broker.cluster.copies.incoming_folder import IncomingFolder
from delaylog.broker.cluster.copies.receiver import CopyReceiver
from delaylog.broker.cluster.leading.succession import Succession
from delaylog.broker.cluster.member_files import MemberFiles
from delaylog.broker.engine.engine import Engine
from delaylog.broker.host.node import Node
from delaylog.replication.epochs import epoch_node
from delaylog.replication.errors import PeerError
from delaylog.replication.messages import (
    CopyEnd,
    CopyMessage,
    CopyOffer,
    CopyPart,
    CopyTaken,
    Role,
)
from delaylog.storage.files.file_system import FileSystem
from delaylog.storage.log.frames import Tick
from delaylog.storage.log.tick_slots import TickRecord

if TYPE_CHECKING:
    from delaylog.broker.cluster.member import ClusterMember

log = logging.getLogger("delaylog.cluster")


class Copies:
    """The copies of one member. All methods but `giving` belong to the loop's thread."""

    def __init__(
        self,
        fs: FileSystem,
        folder: str,
        member: ClusterMember,
        node: Node,
        succession: Succession,
        reopen: Callable[[], tuple[MemberFiles, Engine]],
    ) -> None:
        """`reopen` opens the folder as a start does; it may take minutes."""
        self._member = member
        self._node = node
        self._succession = succession
        self._reopen = reopen
        send, on_fatal = member.transport.send, member.on_fatal
        machine = node.machine
        self.giver = CopyGiver(folder, send, on_fatal, machine)
        incoming = partial(IncomingFolder, fs, folder)
        self.receiver = CopyReceiver(incoming, send, self.take_copy, on_fatal, machine)
        self._task: asyncio.Task[None] | None = None

    @property
    def giving(self) -> bool:
        """Whether a copy is being sent, so that no log may be removed. Any thread."""
        return self.giver.giving

    @property
    def exchanging(self) -> bool:
        """Whether the folder is being replaced at the moment."""
        return self._task is not None and not self._task.done()

    # ------------------------------------------------------------------ what happens

    def receive(self, peer: int, message: CopyMessage) -> None:
        """A message about a copy. Raises PeerError."""
        match message:
            case CopyOffer():
                self._offered(peer, message)
            case CopyTaken():
                self.giver.receive(peer, message)
            case CopyPart():
                self.receiver.receive(peer, message)
            case CopyEnd():
                if epoch_node(message.epoch) == peer:
                    self.receiver.receive(peer, message)
                else:
                    self.giver.receive(peer, message)

    def _offered(self, peer: int, offer: CopyOffer) -> None:
        if epoch_node(offer.epoch) != peer:
            raise PeerError(f"node {peer} offers a copy in epoch {offer.epoch:#x}, not its own")
        if self._follows(offer.epoch):
            self.receiver.accept(peer, offer)
        else:
            self._member.transport.send(peer, CopyEnd(offer.epoch, offer.copy, False))

    def _follows(self, epoch: int) -> bool:
        """Whether this node follows the leader of that epoch and nothing newer is promised."""
        replication = self._member.replication
        if replication is None or self.exchanging or self._succession.leading:
            return False
        return replication.role == Role.FOLLOWER and replication.promised == epoch

    def look(self) -> None:
        """Offer copies to peers that need one, and check progress; called by the poll."""
        self.giver.look()
        self.receiver.look()
        replication = self._member.replication
        leader = None if replication is None else replication.leader
        if leader is None or not leader.serving:
            self.giver.abort("this node no longer leads")
            return
        for peer, one in leader.progress.items():
            self.giver.note_match(peer, one.match)
        # A node may be connected that is no member for this leader: the change that added it again
        # was not committed.
        here = self._member.transport.connected()
        behind = [peer for peer, one in leader.progress.items() if one.behind and peer in here]
        for peer in sorted(behind, key=self.giver.last_offer):
            self.giver.offer(peer, leader.epoch)

    def lost(self, peer: int) -> None:
        """The connection to a peer was lost."""
        self.giver.lost(peer)
        self.receiver.lost(peer)

    async def stop(self) -> None:
        """Stop; an exchange that has begun is finished first."""
        await self.giver.stop()
        await self.receiver.stop()
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    # ------------------------------------------------------------------ the exchange

    def take_copy(self, incoming: IncomingFolder, offer: CopyOffer, manifest: Manifest) -> bool:
        """Begin the exchange with a whole copy; False if it came too late."""
        if not self._follows(offer.epoch):
            log.warning("a copy is discarded: this node has begun to follow another leader")
            return False
        newest = self._member.files.slots.newest or TickRecord(0, Tick(), 0, 0)
        tick = replace(newest, durable_end=manifest.end_position)
        # From here on nothing is promised or acknowledged until the copy is in place.
        self._member.fall_silent(manifest.end_position)
        self._task = asyncio.get_running_loop().create_task(self._exchange(incoming, tick))
        return True

    async def _exchange(self, incoming: IncomingFolder, tick: TickRecord) -> None:
        node, member = self._node, self._member
        try:
            await self._succession.stop()
            await node.exchange.suspend()
            node.engine.close()
            member.files.close()
            files, engine = await node.machine.in_thread(lambda: self._install(incoming, tick))
            member.take_files(files)
            node.resume(engine, files.physical)
            self._succession.start()
        except Exception as error:
            self._member.on_fatal(error)
            return
        log.warning("the copy is in place: the log goes to %d", files.physical.end_position)
        # The last step of the task: from here on the member takes part again.
        member.go_on()

    def _install(self, incoming: IncomingFolder, tick: TickRecord) -> tuple[MemberFiles, Engine]:
        incoming.keep(tick)
        return self._reopen()
