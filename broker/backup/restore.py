"""`delaylog restore`: creates a data folder from a backup, and verifies every byte.

The broker of the folder is held (broker/engine/hold.py) until an operator releases it, since the
original may be served too.

All files are first copied into the folder `restoring` inside the data folder, synced, and then
moved out of it. (The data folder itself may be the root of a volume, which cannot be replaced by a
rename.) While `restoring` exists the restore is unfinished: `serve` refuses the folder, and another
restore starts again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import PurePosixPath
from random import Random
from typing import Final

from delaylog.broker.backup.copies import (
    BackupError,
    FileEntry,
    Manifest,
    Progress,
    Route,
    Target,
    files_below,
    is_backup_file,
    is_inside,
    read_manifest,
)
from delaylog.broker.engine.hold import FILE as HELD
from delaylog.broker.engine.hold import Hold, Order, leave_order
from delaylog.broker.engine.keyspace.keyspace_files import FOLDER as KEYSPACE
from delaylog.broker.engine.schedules.table import FOLDER as SCHEDULES
from delaylog.broker.host.settings import ConfigError
from delaylog.broker.host.system.folder_lock import LOCK, lock_folder, unlock_folder
from delaylog.contract.calls.shapes import NOTE_MAX
from delaylog.storage.checkpoint import load_newest
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.file_system import FileSystem, parent_of
from delaylog.storage.layout import EPOCH_NODE_BITS, HOLD, TAG_COUNT, TICK_SLOT_SIZE, FrameKind
from delaylog.storage.log.frames import encode_frame
from delaylog.storage.log.log_reader import segment_bases, segment_name
from delaylog.storage.log.tick_slots import TickRecord, decode_slot, encode_slot

RESTORING: Final = "restoring"
_ALLOWED: Final = frozenset({LOCK, HOLD, "lost+found"})
_EPOCHS_AHEAD_MIN: Final = TAG_COUNT // 4
_EPOCHS_AHEAD_MAX: Final = TAG_COUNT * 3 // 4


def epoch_ahead(epoch: int, drawn: int) -> int:
    """An epoch far ahead of `epoch`, that of a backup or a survivor; `drawn` = a random number.

    The broker that is replaced may have served on. The ids and receipts that it gave out since then
    must not name messages of the new one.
    """
    ahead = _EPOCHS_AHEAD_MIN + drawn % (_EPOCHS_AHEAD_MAX - _EPOCHS_AHEAD_MIN)
    return epoch + (ahead << EPOCH_NODE_BITS)


def restore_unfinished(data_dir: str) -> bool:
    """Whether a restore into this folder was started and not finished."""
    return os.path.lexists(f"{data_dir}/{RESTORING}")


def restore_backup(
    route: Route[FileSystem],
    *,
    now_ms: int,
    random: Random,
    progress: Callable[[str, int, int], None] = lambda what, done, total: None,
) -> Manifest:
    """Create a data folder from a backup; the folder must be absent or empty.

    Raises ConfigError for unsuitable folders, BackupError for a damaged or incomplete backup, and
    StorageError for full and failing disks and for a backup of another release. Then the files
    copied so far are removed.
    """
    source, target = route.source, route.target
    backup, data_dir = route.folder.rstrip("/") or "/", route.dest.rstrip("/") or "/"
    if not os.path.isdir(backup):
        raise ConfigError(f"{backup} is not a folder")
    manifest = read_manifest(source, backup)
    if is_inside(data_dir, backup):
        raise ConfigError(f"{data_dir} is inside the backup: name a folder outside it")
    if is_inside(backup, data_dir):
        raise ConfigError(f"{backup} is inside {data_dir}: move the backup outside it")
    existed = os.path.isdir(data_dir)
    if existed:
        _check_empty(data_dir)
    elif os.path.lexists(data_dir):
        raise ConfigError(f"{data_dir} is not a folder")
    lock = lock_folder(data_dir)
    try:
        _check_empty(data_dir)
        _clear(data_dir)
        place = f"{data_dir}/{RESTORING}"
        try:
            target.mkdir(place)
            target.sync_folder(data_dir)
            target.sync_folder(parent_of(data_dir))
            _copy(Route(source, backup, target, place), manifest, progress)
            # Of another release: refused before anything is there.
            load_newest(target, place)
            end = _begin_leadership(target, place, now_ms, random)
            taken = datetime.fromtimestamp(manifest.began_at_ms / 1000, UTC)
            note = f"restored from a backup of {manifest.source} as of {taken:%Y-%m-%dT%H:%M:%SZ}"
            leave_order(target, place, Order(Hold(now_ms, note[:NOTE_MAX]), end))
            _sync_folders(target, place)
        except BaseException:
            _clear(data_dir)
            if not existed:
                shutil.rmtree(data_dir, ignore_errors=True)
            raise
        for name in target.listdir(place):
            target.rename(f"{place}/{name}", f"{data_dir}/{name}")
        target.sync_folder(data_dir)
        target.remove_tree(place)
        target.sync_folder(data_dir)
    finally:
        unlock_folder(lock)
    return manifest


def _check_empty(data_dir: str) -> None:
    """Raise ConfigError if the folder has files that no unfinished restore has left."""
    names: Iterable[str] = set(os.listdir(data_dir)) - _ALLOWED
    if RESTORING in names:
        names = filter(_is_foreign, files_below(data_dir))
    name = min(names, default=None)
    if name is not None:
        raise ConfigError(
            f"{data_dir} is not empty (it has {name!r}): restore into a new or empty folder"
        )


def _is_foreign(path: str) -> bool:
    if path.partition("/")[0] in _ALLOWED:
        return False
    name = path.removeprefix(f"{RESTORING}/")
    return name != HELD and not is_backup_file(name)


def _clear(data_dir: str) -> None:
    """Remove the files of an unfinished restore, the folder `restoring` last."""
    for name in sorted(set(os.listdir(data_dir)) - _ALLOWED, key=lambda name: name == RESTORING):
        path = f"{data_dir}/{name}"
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def _copy(
    route: Route[Target], manifest: Manifest, progress: Callable[[str, int, int], None]
) -> None:
    done, total = 0, manifest.byte_count

    def advance(what: str, size: int) -> None:
        nonlocal done
        done += size
        progress(what, done, total)

    for folder in ("hours", "log"):
        route.target.mkdir(f"{route.dest}/{folder}")
    for entry in manifest.files:
        route.target.mkdir(str(PurePosixPath(route.dest, entry.path).parent))
        _copy_file(route, entry, advance)


def _copy_file(route: Route[Target], entry: FileEntry, advance: Progress) -> None:
    path = f"{route.folder}/{entry.path}"
    try:
        file = route.source.open(path)
    except FileNotFoundError:
        raise BackupError(f"{path} is missing: the backup is incomplete") from None
    with closing(file), closing(route.begin(entry.path, advance)) as copied:
        try:
            crc = copied.copy(file, 0, entry.size)
        except CorruptionError:
            raise BackupError(
                f"{path} is shorter than the {entry.size} bytes of the manifest: "
                "the backup is damaged"
            ) from None
        if crc != entry.crc32c:
            raise BackupError(f"{path} has a wrong checksum: the backup is damaged")
        copied.finish(entry.hole)


def _begin_leadership(target: FileSystem, place: str, now_ms: int, random: Random) -> int:
    """Append an EPOCH_BEGIN far ahead of the backup's epoch, and mark the log as durable.

    Returns the end of the log.
    """
    with closing(target.open(f"{place}/tick")) as slots:
        # A backup has one slot of the tick (`folder_copy`).
        found = decode_slot(slots.pread(TICK_SLOT_SIZE, 0))
        if found is None:
            raise BackupError("the tick of the backup cannot be read: the backup is damaged")
        record, sequence = found
        epoch = epoch_ahead(record.epoch, random.getrandbits(64))
        frame, size = encode_frame(
            FrameKind.EPOCH_BEGIN,
            [],
            (epoch, now_ms, record.tick),
            position=record.durable_end,
            synced_position=record.durable_end,
        )
        bases = segment_bases(target, f"{place}/log")
        if not bases:
            raise BackupError("the backup has no log: the backup is damaged")
        base = bases[-1]
        with closing(target.open(f"{place}/log/{segment_name(base)}")) as log:
            if base + log.size() != record.durable_end:
                raise BackupError(
                    "the log of the backup does not end where its tick says: the backup is damaged"
                )
            log.pwritev(frame, record.durable_end - base)
            log.fdatasync()
        begun = TickRecord(epoch, record.tick, record.durable_end + size, now_ms)
        slots.pwritev([encode_slot(begun, sequence)], 0)
        slots.fdatasync()
    return begun.durable_end


def _sync_folders(target: FileSystem, place: str) -> None:
    for name in target.listdir(f"{place}/hours"):
        target.sync_folder(f"{place}/hours/{name}")
    folders = [f"{place}/{name}" for name in ("hours", "log", KEYSPACE, SCHEDULES)]
    for folder in (*folders, place):
        if target.exists(folder):
            target.sync_folder(folder)
