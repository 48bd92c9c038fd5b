"""A data folder with everything in it, its files' places, and a broker served from a copy of it.

`make` leaves a folder as a killed broker would: several hours, two topics, ids, retries in other
hours, ended, leased and moved messages, two checkpoints, and a log behind them of which rows and
states have partly reached the hours' files. `serve` opens a copy, hands everything out over
hours of broker time and looks at every id; what it saw is plain data that can be compared.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from delaylog.storage.files.os_file_system import OsFileSystem
from delaylog.storage.layout import (
    EXTENT,
    FILE_HEADER_SIZE,
    FRAME_HEADER_SIZE,
    INDEX_ENTRY,
    SECOND_ENTRY_SIZE,
    STATE_ENTRY,
    TICK_SLOT_STRIDE,
)
from delaylog.storage.log.log_reader import scan_segment

HOUR = 3_600_000
MINUTE = 60_000
TOPICS = ("t", "u")
IDS = [f"i{k}" for k in range(60)]


def make(host: Any) -> int:
    """Fill the folder of a host and leave it; returns the broker's time."""
    random = Random(5)
    host.configure(max_retry=5, ended_keep_ms=12 * HOUR, lease_ms=30_000)
    host.engine.make_topic("u", host.now_ms)
    whens = [2_000, 3_000, 20 * MINUTE, HOUR, HOUR + 5_000, 2 * HOUR, 5 * HOUR]
    for k in range(6):
        bodies = [b"%d.%d " % (k, j) + bytes([65 + j]) * random.randrange(60) for j in range(14)]
        delays = [random.choice(whens) for _ in bodies]
        ids = IDS[k * 10 : k * 10 + 10] + [""] * 4
        host.send(bodies, delay=delays, ids=ids, topic=TOPICS[k % 2])
        if k in (1, 3):
            host.checkpoint()
    host.advance(2_500)
    got = host.receive(8)
    host.ack(got[:3])
    host.nack(got[3:5], delay=HOUR)
    host.cancel(["i5", "i25"])
    host.checkpoint()
    host.advance(1_000)
    host.reschedule(["i6", "i27"], host.now_ms + 2 * HOUR)
    host.checkpoint()
    # From here on the log alone says it, though some of it reaches the hours' files too.
    host.send([b"late %d" % j for j in range(6)], delay=HOUR, ids=[f"l{j}" for j in range(6)])
    more = host.receive(6)
    host.ack(more[:2])
    host.nack(more[2:3], delay=2 * HOUR)
    host.cancel(["i7"])
    host.flush()
    host.send([b"last %d" % j for j in range(6)], delay=2 * HOUR)
    host.ack(more[3:4])
    host.sync()
    host.engine.write_tick(host.now_ms)
    host.close()
    return int(host.now_ms)


def copy_folder(source: Path, target: Path) -> None:
    """A copy that keeps holes: state files are 16 MiB of little else."""
    target.mkdir()
    for path in source.iterdir():
        if path.is_dir():
            copy_folder(path, target / path.name)
            continue
        with path.open("rb") as old, (target / path.name).open("wb") as new:
            size = os.fstat(old.fileno()).st_size
            new.truncate(size)
            at = 0
            while at < size:
                try:
                    at = os.lseek(old.fileno(), at, os.SEEK_DATA)
                except OSError:
                    break
                end = os.lseek(old.fileno(), at, os.SEEK_HOLE)
                os.pwrite(new.fileno(), os.pread(old.fileno(), end - at, at), at)
                at = end


def flip(path: Path, bit: int) -> None:
    """Change one bit of a file."""
    with path.open("r+b") as file:
        old = os.pread(file.fileno(), 1, bit // 8)
        os.pwrite(file.fileno(), bytes([old[0] ^ 1 << bit % 8]), bit // 8)


@dataclass
class Seen:
    """What a broker showed: deliveries by (origin, attempt), and what each id was found as."""

    delivered: dict[tuple[int, int], tuple[Any, ...]] = field(default_factory=dict)
    found: dict[str, tuple[Any, ...] | None] = field(default_factory=dict)

    def agrees(self, expected: Seen) -> bool:
        """Whether all of it is also in `expected`, which may have seen more."""
        return all(
            expected.delivered.get(key) == seen for key, seen in self.delivered.items()
        ) and (all(expected.found[key] == seen for key, seen in self.found.items()))


def look_up(host: Any, seen: Seen, when: str) -> None:
    for topic in TOPICS:
        host.topic_name = topic
        names = [*IDS, *(f"l{j}" for j in range(6)), "nobody"]
        for name, found in zip(names, host.find(names), strict=True):
            seen.found[f"{when} {topic} {name}"] = found and (
                found.origin,
                found.ref,
                found.state,
                int(found.row["deliver_at"]),
                int(found.entry["attempts"]),
            )
    host.topic_name = "t"


def serve(host_class: type, folder: Path, now_ms: int, seen: Seen) -> None:
    """Open a broker on the folder and let it do everything; what is seen goes into `seen`."""
    host = host_class(folder, now_ms=now_ms)
    try:
        look_up(host, seen, "first")
        for pause in (0, MINUTE, HOUR, MINUTE, HOUR, HOUR, MINUTE, 4 * HOUR):
            host.advance(pause)
            for topic in TOPICS:
                host.topic_name = topic
                got = host.receive(1_000)
                for message in got:
                    key = (message.origin, message.attempts)
                    assert key not in seen.delivered, "one delivery an attempt"
                    seen.delivered[key] = (
                        message.id,
                        message.body,
                        message.deliver_at_ms,
                        topic,
                        host.now_ms,
                    )
                if pause == MINUTE:
                    host.nack(got[::3], delay=HOUR)
                    got = [message for at, message in enumerate(got) if at % 3]
                host.ack(got)
            host.topic_name = "t"
            if pause == MINUTE:
                host.checkpoint()
        look_up(host, seen, "last")
    finally:
        host.engine.close()


# --------------------------------------------------------------------------- places


def files(folder: Path) -> Iterator[tuple[str, Path]]:
    """(kind, relative path) of each file that can rot."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or path.stat().st_size == 0 or name.startswith("ready/"):
            continue
        top = name.partition("/")[0]
        kind = top if top in ("log", "ids") else path.name.partition("-")[0]
        yield kind, path.relative_to(folder)


def _field_starts(dtype: np.dtype, base: int) -> list[int]:
    assert dtype.fields is not None
    return [base + int(place[1]) for place in dtype.fields.values()]


_FRAME_FIELDS = (0, 4, 5, 6, 8, 12, 16, 24, 32, 40, 48, 52, 56)
_SEALED_FIELDS = (0, 4, 6, 8, 16, 24, 28)
_RUN_OF_IDS_FIELDS = (32, 36, 40, 63, 64, 71, 72)
_TICK_FIELDS = (0, 4, 6, 8, 16, 24, 28, 32, 40, 48, 56, 60, 64, 300)


def places(kind: str, path: Path, random: Random, count: int) -> list[int]:
    """Bytes of a file: each field of some records, then random ones where something stands."""
    size = path.stat().st_size
    out: list[int] = []
    if kind == "log":
        file = OsFileSystem().open(str(path))
        base = int(path.stem)
        frames = [frame.header.position - base for frame in scan_segment(file, base, base)]
        file.close()
        for start in (frames[1], random.choice(frames), frames[-1]):
            out += [start + at for at in (*_FRAME_FIELDS, FRAME_HEADER_SIZE)]
    elif kind == "checkpoint":
        out = list(_SEALED_FIELDS)
    elif kind == "ids":
        out = [*_SEALED_FIELDS, *_RUN_OF_IDS_FIELDS] if path.suffix else list(_SEALED_FIELDS)
    elif kind == "tick":
        out = [slot * TICK_SLOT_STRIDE + at for slot in (0, 1) for at in _TICK_FIELDS]
    elif kind == "second.index":
        raw = np.frombuffer(path.read_bytes()[FILE_HEADER_SIZE:], "<u8").reshape(-1, 2)
        second = int(random.choice(np.flatnonzero(raw[:, 0]).tolist()))
        out = [FILE_HEADER_SIZE + second * SECOND_ENTRY_SIZE + at for at in (0, 7, 8, 15)]
        out += _SEALED_FIELDS
    elif kind in ("delay.index", "extents", "state"):
        dtype = {"delay.index": INDEX_ENTRY, "extents": EXTENT, "state": STATE_ENTRY}[kind]
        records = size // dtype.itemsize
        if kind == "state":
            entries = np.fromfile(path, dtype)
            stored = np.flatnonzero(entries.view("u1").reshape(-1, 32).any(axis=1)).tolist()
            picked = [random.choice(stored), random.randrange(40), random.randrange(records)]
        else:
            picked = [0, random.randrange(records)]
        out = [at for number in picked for at in _field_starts(dtype, number * dtype.itemsize)]
    limit = min(size, 8_192) if kind == "state" else size
    out += [random.randrange(limit) for _ in range(count)]
    return [at for at in out if at < size]
