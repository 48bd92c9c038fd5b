"""Both sides of a copy: windows, ends and everything that can come between.

Method: a giver and a receiver over two real folders in one loop; what they say is carried by hand,
so it can be held up, lost or altered.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest

from delaylog.broker.backup.copies import Manifest
from delaylog.broker.cluster.copies.giver import CopyGiver
from delaylog.broker.cluster.copies.incoming_folder import INCOMING, CopyLimits, IncomingFolder
from delaylog.broker.cluster.copies.receiver import CopyReceiver
from delaylog.broker.engine.engine import Engine, Setup
from delaylog.broker.engine.send.sends import send
from delaylog.broker.host.machine import REAL
from delaylog.broker.host.system.folder_lock import retention_suspended
from delaylog.replication.errors import PeerError
from delaylog.replication.messages import (
    CopyEnd,
    CopyMessage,
    CopyOffer,
    CopyPart,
    CopyTaken,
)
from delaylog.storage.errors import CorruptionError, DiskFailedError, DiskFullError
from delaylog.storage.files.file_system import File
from delaylog.storage.files.os_file_system import OsFileSystem, ReadOnlyFileSystem
from delaylog.storage.messages.batch import decode_send, encode_send
from tests.waiting import until

GIVER, RECEIVER = 1, 2
EPOCH = 0x10001
SMALL = CopyLimits(window_bytes=512 << 10, stall_seconds=1.5, install_seconds=2.5, pause_seconds=0)
NOW_MS = 450_000 * 3_600_000
FAR_MS = 40 * 86_400_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A leader's folder with a few megabytes due soon or in months, a checkpoint, later log."""
    path = tmp_path_factory.mktemp("leader")
    random = Random(1)
    engine = Engine(OsFileSystem(), str(path), Setup(random=random), now_ms=NOW_MS)
    for round_ in range(8):
        topic = engine.make_topic("t", NOW_MS)
        columns = {
            "n": 2,
            "delay_ms": np.array([1_000 + round_ * 900_000, (1 + round_) * FAR_MS]),
            "body_size": np.array([200_000] * 2),
            "bodies": random.randbytes(400_000),
        }
        batch = decode_send(encode_send(columns), rows_max=2)
        send(engine.state, topic, batch, NOW_MS, free_bytes=1 << 60)
        engine.state.log.write_pending()
        engine.commit(engine.state.log.sync(), NOW_MS)
        if round_ == 5:
            engine.run_inline(engine.upkeep.checkpoint(lambda: NOW_MS))
    engine.write_tick(NOW_MS)
    yield path
    engine.close()


class BadDisk(OsFileSystem):
    """Fails with `error`, if there is one, when a file of this name is made."""

    error: Exception | None = None

    def open(self, path: str, *, create: bool = False) -> File:
        if create and path.endswith("extents") and self.error:
            error, self.error = self.error, None
            raise error
        return super().open(path, create=create)


class SourceFiles(ReadOnlyFileSystem):
    """Calls `look` before a file is opened."""

    look: Callable[[str], None] = staticmethod(lambda path: None)

    def open(self, path: str, *, create: bool = False) -> File:
        self.look(path)
        return super().open(path, create=create)


@dataclass
class Pair(AbstractAsyncContextManager["Pair"]):
    """A giver, a receiver, and what is under way."""

    source: Path
    target: Path
    fs: BadDisk = field(default_factory=BadDisk)
    limits: CopyLimits = SMALL
    said: list[tuple[int, CopyMessage]] = field(default_factory=list)
    copied: list[Manifest] = field(default_factory=list)
    fatal: list[BaseException] = field(default_factory=list)
    change: Callable[[CopyMessage], list[CopyMessage]] = lambda message: [message]
    wanted: bool = True
    source_fs: SourceFiles = field(default_factory=SourceFiles)
    taken: int = 0
    most: int = 0
    """The most bytes that were on their way at once."""

    async def __aenter__(self) -> Pair:
        self.giver = CopyGiver(
            str(self.source),
            self.to_receiver,
            self.fatal.append,
            REAL,
            source=self.source_fs,
            limits=self.limits,
        )
        self.receiver = CopyReceiver(
            partial(IncomingFolder, self.fs, str(self.target)),
            self.to_giver,
            self.take,
            self.fatal.append,
            REAL,
            limits=self.limits,
        )
        return self

    def take(self, incoming: IncomingFolder, offer: CopyOffer, manifest: Manifest) -> bool:
        assert offer.epoch == EPOCH
        self.copied.append(manifest)
        return self.wanted

    def to_receiver(self, peer: int, message: CopyMessage) -> None:
        assert peer == RECEIVER
        self.said.append((GIVER, message))
        for each in self.change(message):
            asyncio.get_running_loop().call_soon(self.carry, each)

    def carry(self, message: CopyMessage) -> None:
        if isinstance(message, CopyOffer):
            self.receiver.accept(GIVER, message)
        elif isinstance(message, (CopyPart, CopyEnd)):
            if isinstance(message, CopyPart):
                self.most = max(self.most, message.at + len(message.data) - self.taken)
            try:
                self.receiver.receive(GIVER, message)
            except PeerError:
                self.said.append((RECEIVER, CopyEnd(0, 0, False)))

    def to_giver(self, peer: int, message: CopyMessage) -> None:
        assert peer == GIVER
        assert isinstance(message, (CopyTaken, CopyEnd))
        if isinstance(message, CopyTaken):
            self.taken = message.taken
        self.said.append((RECEIVER, message))
        asyncio.get_running_loop().call_soon(self.giver.receive, RECEIVER, message)

    async def copy(self) -> None:
        """Give a copy, from the offer to its end."""
        before = len(self.copied)
        self.giver.offer(RECEIVER, EPOCH)
        await until(lambda: len(self.copied) > before)

    async def giver_ends(self) -> None:
        """Return once the giver has given the copy up, or has forgotten it."""

        def ended() -> bool:
            self.giver.look()
            return not self.giver.giving

        await until(ended)

    def count(self, kind: type) -> int:
        return sum(isinstance(message, kind) for _, message in self.said)

    async def __aexit__(self, *error: object) -> None:
        await self.giver.stop()
        await self.receiver.stop()
        # Nothing is left behind by a copy that was given up.
        if not self.copied:
            assert not (self.target / INCOMING).exists() or self.fatal
        assert not retention_suspended(str(self.source))


@pytest.fixture
def pair(folder: Path, tmp_path: Path) -> Pair:
    target = tmp_path / "t"
    target.mkdir()
    return Pair(folder, target)


async def test_a_whole_copy(pair: Pair, folder: Path, tmp_path: Path) -> None:
    """Everything comes, never more than a window is under way, and files are held meanwhile."""
    held = []

    def look(message: CopyMessage) -> list[CopyMessage]:
        if isinstance(message, CopyPart):
            held.append(retention_suspended(str(folder)))
        return [message]

    pair.change = look
    pair.giver.offer(RECEIVER, EPOCH)
    assert pair.giver.giving
    await until(lambda: pair.copied)
    (manifest,) = pair.copied
    assert not pair.fatal
    pair.giver.note_match(RECEIVER, manifest.end_position - 1)
    assert pair.giver.giving, "log is kept until the receiver goes on from the copy's end"
    pair.giver.note_match(RECEIVER, manifest.end_position)
    assert not pair.giver.giving
    assert pair.most <= SMALL.window_bytes + (256 << 10)

    assert any(held)
    (manifest,) = pair.copied
    assert any(entry.path.startswith("hours/far/") for entry in manifest.files)
    for entry in manifest.files:
        # What is written in place may have changed; nothing works here, so nothing did.
        theirs, mine = folder / entry.path, tmp_path / "t" / INCOMING / entry.path
        if entry.path.startswith("hours/"):
            assert mine.read_bytes() == theirs.read_bytes(), entry.path


async def test_one_at_a_time(pair: Pair) -> None:
    pair.giver.offer(RECEIVER, EPOCH)
    pair.giver.offer(3, EPOCH)
    await until(lambda: pair.copied)
    assert pair.count(CopyOffer) == 1


@pytest.mark.parametrize("side", ["giver", "receiver", "both"])
async def test_a_lost_connection_begins_again(pair: Pair, side: str) -> None:
    """Also when only one of the two has noticed: a new offer ends the old intake."""
    pair.giver.offer(RECEIVER, EPOCH)
    await until(lambda: pair.count(CopyPart) > 2)
    if side in ("receiver", "both"):
        pair.receiver.lost(GIVER)
    if side in ("giver", "both"):
        pair.giver.lost(RECEIVER)
    else:
        await pair.giver_ends()
    assert not pair.copied
    await pair.copy()


async def test_a_giver_that_leads_no_more_ends_the_copy(pair: Pair) -> None:
    """Then another leader gives its own."""

    pair.giver.offer(RECEIVER, EPOCH)
    await until(lambda: pair.count(CopyPart) > 2)
    pair.giver.abort("it no longer leads")
    await until(lambda: not pair.receiver.receiving)
    sent = pair.count(CopyPart)
    await asyncio.sleep(0.05)
    assert pair.count(CopyPart) == sent

    assert not pair.copied


async def test_a_receiver_that_is_silent(pair: Pair) -> None:
    """No more than a window is sent to it, and files are not held for it for ever."""
    pair.giver.offer(RECEIVER, EPOCH)
    await asyncio.sleep(0)
    pair.change = lambda message: []
    await until(lambda: pair.count(CopyPart) > 0)
    await asyncio.sleep(0.1)
    sent = sum(len(m.data) for _, m in pair.said if isinstance(m, CopyPart))
    assert sent <= SMALL.window_bytes + (256 << 10)
    await pair.giver_ends()
    await until(lambda: (pair.receiver.look(), not pair.receiver.receiving)[1])

    assert not pair.copied


async def test_an_offer_that_nobody_answers(pair: Pair) -> None:
    pair.change = lambda message: []
    pair.giver.offer(RECEIVER, EPOCH)
    await pair.giver_ends()
    assert pair.giver.failed == 1


async def test_log_is_not_kept_for_ever_for_who_has_the_copy(pair: Pair) -> None:
    await pair.copy()
    await pair.giver_ends()


async def test_a_receiver_that_comes_back_without_it(pair: Pair) -> None:
    """It was killed before the copy was kept: another one is offered."""
    await pair.copy()
    end = pair.copied[0].end_position
    pair.giver.lost(RECEIVER)
    pair.giver.met(RECEIVER, end)
    assert pair.giver.giving, "it stands on the copy"
    pair.giver.met(RECEIVER, end - 1)
    assert not pair.giver.giving
    await pair.copy()


def altered(message: CopyMessage) -> list[CopyMessage]:
    if isinstance(message, CopyPart) and message.name.endswith("delay.log") and message.data:
        data = bytearray(message.data)
        data[0] ^= 1
        return [message._replace(data=bytes(data))]
    return [message]


def left_out(message: CopyMessage) -> list[CopyMessage]:
    gap = isinstance(message, CopyPart) and 300_000 < message.at < 600_000
    return [] if gap else [message]


def twice(message: CopyMessage) -> list[CopyMessage]:
    return [message, message] if isinstance(message, CopyPart) else [message]


def ended_early(message: CopyMessage) -> list[CopyMessage]:
    if isinstance(message, CopyPart) and message.at > 300_000:
        return [CopyEnd(message.epoch, message.copy, True)]
    return [message]


def named(message: CopyMessage) -> list[CopyMessage]:
    if isinstance(message, CopyPart):
        return [message._replace(name="../meta")]
    return [message]


@pytest.mark.parametrize("change", [altered, left_out, twice, ended_early, named])
async def test_what_no_sound_giver_sends(
    pair: Pair, tmp_path: Path, change: Callable[[CopyMessage], list[CopyMessage]]
) -> None:
    """The copy is refused, nothing is left of it, and the node lives on."""
    pair.change = change
    pair.giver.offer(RECEIVER, EPOCH)
    await until(lambda: pair.receiver.failed)
    assert not pair.receiver.receiving
    await pair.giver_ends()
    pair.change = lambda message: [message]
    await pair.copy()

    assert not pair.fatal
    assert not (tmp_path / "meta").exists()


async def test_a_receiver_without_space(pair: Pair) -> None:
    """It says so, takes nothing, and takes the next one when there is space."""
    pair.fs.error = DiskFullError("full")
    pair.giver.offer(RECEIVER, EPOCH)
    await until(lambda: pair.receiver.failed and not pair.giver.giving)
    assert pair.giver.failed == 1
    await pair.copy()

    assert not pair.fatal


async def test_a_receiver_whose_disk_fails(pair: Pair) -> None:
    pair.fs.error = DiskFailedError("broken")
    pair.giver.offer(RECEIVER, EPOCH)
    await until(lambda: pair.fatal)

    assert not pair.copied


@pytest.mark.parametrize("name", ["hold", "extents"])
async def test_a_giver_without_a_descriptor(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Its files are sound and it leads on: the copy is given up, and offered again later."""
    real = os.open

    def no_descriptor(path: str, *args: Any, **more: Any) -> int:
        if str(path).startswith(str(pair.source)) and str(path).endswith(name):
            raise OSError(errno.EMFILE, "Too many open files")
        return real(path, *args, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", no_descriptor)
        pair.giver.offer(RECEIVER, EPOCH)
        await until(lambda: pair.giver.failed and not pair.receiver.receiving)
    assert not pair.fatal
    await until(lambda: pair.giver.offer(RECEIVER, EPOCH) or pair.giver.giving)
    await until(lambda: pair.copied)
    assert not pair.fatal


async def test_a_giver_that_is_damaged_itself(pair: Pair, folder: Path) -> None:
    """It gives nothing of that, and may not go on."""
    path = max((folder / "hours").glob("*/delay.log"), key=lambda path: path.stat().st_size)
    raw = path.read_bytes()
    path.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    try:
        pair.giver.offer(RECEIVER, EPOCH)
        await until(lambda: pair.fatal and not pair.receiver.receiving)
    finally:
        path.write_bytes(raw)
    assert isinstance(pair.fatal[0], CorruptionError)
    assert not pair.copied


async def test_a_read_error_of_a_copy_that_was_given_up_is_not_fatal(pair: Pair) -> None:
    """A leader that fell had its log cut while it was read; its disk is sound."""
    reading, cut = threading.Event(), threading.Event()

    def look(path: str) -> None:
        reading.set()
        assert cut.wait(30)
        raise CorruptionError("a bad frame", path=path, position=0)

    pair.source_fs.look = look
    pair.giver.offer(RECEIVER, EPOCH)
    await until(reading.is_set)
    pair.giver.abort("it no longer leads")
    cut.set()
    await pair.giver.stop()
    assert not pair.fatal


async def test_late_words_are_passed_over(pair: Pair) -> None:
    """Of another copy, another peer, or none."""
    pair.receiver.receive(GIVER, CopyPart(EPOCH, 1, 0, 0, "tick", b"x"))
    pair.receiver.receive(GIVER, CopyEnd(EPOCH, 1, True))
    pair.giver.receive(RECEIVER, CopyTaken(EPOCH, 1, 0))
    pair.giver.offer(RECEIVER, EPOCH)
    pair.giver.receive(3, CopyEnd(EPOCH, 1, False))
    pair.giver.receive(RECEIVER, CopyEnd(EPOCH, 7, False))
    pair.giver.lost(3)
    await until(lambda: pair.receiver.receiving)
    pair.receiver.receive(3, CopyEnd(EPOCH, 1, False))
    pair.receiver.receive(GIVER, CopyEnd(EPOCH, 7, False))
    pair.receiver.lost(3)
    await until(lambda: pair.copied)


async def test_a_copy_that_came_too_late_is_removed(pair: Pair, tmp_path: Path) -> None:
    pair.wanted = False
    pair.giver.offer(RECEIVER, EPOCH)
    await until(lambda: pair.copied and not pair.receiver.receiving)
    assert not (tmp_path / "t" / INCOMING).exists()
