"""Private maps of sparse files, also where a look into a hole would take space (tmpfs)."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from delaylog.storage.files.file_system import make_folder
from delaylog.storage.files.os_file_system import OsFileSystem

SIZE = 1 << 20
TMPFS = Path("/dev/shm")


@pytest.fixture(params=["disk", "tmpfs"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param == "disk":
        yield tmp_path
        return
    assert TMPFS.is_dir(), "Linux has a tmpfs at /dev/shm: mount one there"
    with tempfile.TemporaryDirectory(dir=TMPFS) as made:
        yield Path(made)


def test_a_private_map_of_a_sparse_file(folder: Path) -> None:
    """Bytes and holes read as they are, stores stay private, and looking takes no space."""
    path = folder / "sparse"
    file = OsFileSystem().open(str(path), create=True)
    file.truncate(2 * SIZE)
    file.pwritev([b"one"], 10_000)
    file.pwritev([b"two"], SIZE + 100_000)
    file.pwritev([b"end"], 2 * SIZE - 3)
    blocks = path.stat().st_blocks
    for offset, expected in ((0, {10_000: b"one"}), (SIZE, {100_000: b"two", SIZE - 3: b"end"})):
        mapping = file.map_private(offset, SIZE)
        wanted = bytearray(SIZE)
        for at, text in expected.items():
            wanted[at : at + 3] = text
        assert bytes(mapping.buffer) == wanted
        mapping.buffer[50_000:50_003] = b"new"
        assert file.pread(3, offset + 50_000) == bytes(3)
        file.pwritev([b"new"], offset + 50_000)
        mapping.forget(49_152, 4_096)
        assert bytes(mapping.buffer[50_000:50_003]) == b"new"
        mapping.close()
    grown = path.stat().st_blocks - blocks
    assert grown <= 2 * 8, "two pages were written, none by looking"
    file.close()


def test_what_is_begun_to_be_written_stays_as_it_is(folder: Path) -> None:
    """Also beside pages that are changed again, and past the end."""
    file = OsFileSystem().open(str(folder / "file"), create=True)
    file.pwritev([b"a" * SIZE], 0)
    file.begin_writing(0, SIZE)
    file.pwritev([b"b" * 100], SIZE // 2)
    file.begin_writing(SIZE // 4, 4 * SIZE)
    file.fdatasync()
    assert file.pread(2 * SIZE, 0) == b"a" * (SIZE // 2) + b"b" * 100 + b"a" * (SIZE // 2 - 100)
    file.close()


def test_allocate(folder: Path) -> None:
    path = folder / "file"
    file = OsFileSystem().open(str(path), create=True)
    file.pwritev([b"kept"], 0)
    file.allocate(SIZE)
    file.allocate(10)
    assert path.stat().st_size == SIZE
    assert path.stat().st_blocks * 512 >= SIZE
    assert file.pread(4, 0) == b"kept"
    assert OsFileSystem().total_bytes(str(folder)) > OsFileSystem().free_bytes(str(folder)) > 0
    file.close()


def test_a_map_that_somebody_still_looks_at_is_closed(folder: Path) -> None:
    """With `--log-level debug` a thread holds frames of the loop, and so arrays in them."""
    path = folder / "run"
    path.write_bytes(b"12345678" * 512)
    fs = OsFileSystem()
    file = fs.open(str(path))
    mapping = file.map_read(0, 4096)
    held = np.frombuffer(mapping.buffer, np.uint8)
    mapping.close()
    file.close()
    del mapping
    assert bytes(held[:8]) == b"12345678"


def test_a_map_is_one_of_the_process_and_ends_with_its_last_view(tmp_path: Path) -> None:
    """The kernel counts maps: 65,530 a process by default."""

    def maps() -> int:
        return Path("/proc/self/maps").read_text().count(str(tmp_path))

    path = tmp_path / "file"
    path.write_bytes(bytes(8 << 20))
    file = OsFileSystem().open(str(path))
    before = len(Path("/proc/self/maps").read_text().splitlines())
    mapping = file.map_read(0, 4 << 20)
    view = memoryview(mapping.buffer)
    assert view.readonly
    assert maps() == 1
    assert len(Path("/proc/self/maps").read_text().splitlines()) <= before + 1
    mapping.close()
    assert maps() == 1
    view.release()
    assert maps() == 0
    file.close()


def test_a_folder_where_none_can_be_made() -> None:
    with pytest.raises(OSError, match="/proc/nowhere"):
        make_folder("/proc/nowhere")
