"""A FileSystem in memory that crashes, fills up, fails and rots when it is told to.

Operations that change something are counted. A crash at the n-th leaves that operation in flight
and ends every later call; `restart` then gives the disk as the next boot finds it. Mappings are
copies: what storage promises about views and forgotten pages is checked, not assumed.
"""

from __future__ import annotations

import mmap
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Literal

from delaylog.storage.errors import DiskFailedError, DiskFullError
from tests.storage.disk_image import PAGE_SIZE, FileNode, FolderNode, Link, Move

Survival = Literal["nothing", "everything", "prefix", "sectors"]
SURVIVALS: tuple[Survival, ...] = ("nothing", "everything", "prefix", "sectors")


class DiskCrashed(Exception):
    """The machine is off: this operation and all later ones have no answer."""


class FakeMapping:
    """A private copy of a range: stores stay here, `forget` reads the file again."""

    def __init__(self, node: FileNode, offset: int, size: int) -> None:
        assert offset % PAGE_SIZE == 0, "maps begin at a page"
        assert offset + size <= node.written.size, "a map behind the end is SIGBUS"
        self._node = node
        self._offset = offset
        self._size = size
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._copy = mmap.mmap(-1, size, flags=flags)
        self._fill(0, size)

    def _fill(self, start: int, size: int) -> None:
        first = (self._offset + start) // PAGE_SIZE
        last = -(-(self._offset + start + size) // PAGE_SIZE)
        for number, page in self._node.written.pages.items():
            if first <= number < last:
                at = number * PAGE_SIZE - self._offset
                end = min(at + PAGE_SIZE, self._size)
                self._copy[at:end] = bytes(page[: end - at])

    @property
    def buffer(self) -> Any:
        return self._copy

    def forget(self, start: int, size: int) -> None:
        assert start % PAGE_SIZE == 0, "whole pages are forgotten"
        self._copy.madvise(mmap.MADV_DONTNEED, start, size)
        self._fill(start, size)

    def close(self) -> None:
        self._copy.close()


class FakeFile:
    """An open file of the fake disk."""

    def __init__(self, disk: FakeDisk, node: FileNode, path: str) -> None:
        self._disk = disk
        self._node = node
        self._path = path
        self._closed = False

    def _open_node(self) -> FileNode:
        assert not self._closed, f"{self._path} is used after close"
        return self._node

    def pread(self, size: int, offset: int) -> bytes:
        self._disk.alive()
        return self._open_node().written.read(size, offset)

    def pwritev(self, buffers: Sequence[Any], offset: int) -> int:
        node = self._open_node()
        data = b"".join(bytes(memoryview(buffer).cast("B")) for buffer in buffers)

        def part() -> None:
            # A full disk takes some of it before it says so.
            count = self._disk.random.randrange(len(data) + 1)
            if count:
                node.write(self._disk.count, data[:count], offset)

        def whole() -> None:
            node.write(self._disk.count, data, offset)

        self._disk.operate("write", self._path, whole, part)
        return len(data)

    def begin_writing(self, offset: int, size: int) -> None:
        """A crash keeps any part of what was not synced, begun or not."""
        self._disk.alive()

    def punch(self, offset: int, size: int) -> None:
        """As a file system that cannot do it: the bytes stay."""
        self._disk.alive()

    def fdatasync(self) -> None:
        node = self._open_node()
        self._disk.operate("sync", self._path, node.sync, node.lose, begun=lambda: None)

    def truncate(self, size: int) -> None:
        node = self._open_node()
        self._disk.operate("truncate", self._path, lambda: node.truncate(self._disk.count, size))

    def allocate(self, size: int) -> None:
        node = self._open_node()
        size = max(size, node.written.size)
        self._disk.operate("truncate", self._path, lambda: node.truncate(self._disk.count, size))

    def size(self) -> int:
        self._disk.alive()
        return self._open_node().written.size

    def map_read(self, offset: int, size: int) -> FakeMapping:
        self._disk.alive()
        return FakeMapping(self._open_node(), offset, size)

    def map_private(self, offset: int, size: int) -> FakeMapping:
        self._disk.alive()
        return FakeMapping(self._open_node(), offset, size)

    def close(self) -> None:
        assert not self._closed, f"{self._path} is closed twice"
        self._closed = True


class FakeDisk:
    """A whole disk; paths are plain text with slashes."""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.root = FolderNode()
        self.count = 0
        """Operations so far."""
        self.log: list[str] = []
        self.crash_at = 0
        self.full_at: frozenset[int] | range = frozenset()
        self.fail_at: frozenset[int] | range = frozenset()
        self.full_kinds = ("write", "create", "mkdir", "truncate")
        self.crashed = False
        self.on_operation: Callable[[], None] = lambda: None

    # ------------------------------------------------------------------ faults

    def alive(self) -> None:
        if self.crashed:
            raise DiskCrashed("the machine is off")

    def operate(
        self,
        kind: str,
        path: str,
        act: Callable[[], None],
        failed: Callable[[], None] = lambda: None,
        *,
        begun: Callable[[], None] | None = None,
    ) -> None:
        """Count one operation and do it, or what its fault leaves of it."""
        self.alive()
        self.count += 1
        self.log.append(f"{kind} {path}")
        self.on_operation()
        if self.count == self.crash_at:
            self.crashed = True
            (begun or act)()
            raise DiskCrashed(f"crash in operation {self.count}, {kind} {path}")
        if self.count in self.full_at and kind in self.full_kinds:
            failed()
            raise DiskFullError(f"no space for {path}")
        if self.count in self.fail_at:
            failed()
            raise DiskFailedError(f"I/O failed on {path}")
        act()

    def restart(self, survival: Survival, seed: int = 0) -> FakeDisk:
        """The disk after a power cut now; this one is not to be used any more."""
        self.crashed = True
        random = Random(seed)
        cut = random.randrange(self.count + 1)

        def keep(number: int) -> int | None:
            if survival == "sectors":
                return None
            if survival == "prefix":
                if number == cut:
                    return random.randrange(1, 4096)
                return 1 << 40 if number < cut else 0
            return 1 << 40 if survival == "everything" else 0

        share = random.choice((0.1, 0.5, 0.9))
        self.root.settle(keep, lambda number: random.random() < share)
        after = FakeDisk(seed)
        after.root = self.root
        return after

    def flip(self, path: str, bit: int) -> None:
        """Rot: one bit of a file changes on the disk."""
        self._file_node(path).flip(bit)

    def sync_all(self) -> None:
        """Everything becomes durable, as if time had passed."""

        def settle(folder: FolderNode) -> None:
            folder.sync()
            for node in folder.written.values():
                settle(node) if isinstance(node, FolderNode) else node.sync()

        settle(self.root)

    def content(self, path: str) -> bytes:
        """The bytes of a file as programs see them."""
        node = self._file_node(path)
        return node.written.read(node.written.size, 0)

    def put(self, path: str, data: bytes) -> None:
        """Make a file with these bytes, durable."""
        file = self.open(path, create=True)
        file.truncate(0)
        file.pwritev([data], 0)
        file.close()
        self.sync_all()

    # ------------------------------------------------------------------ paths

    def _find(self, path: str) -> FileNode | FolderNode | None:
        node: FileNode | FolderNode | None = self.root
        for name in path.strip("/").split("/"):
            if name in ("", "."):
                continue
            if not isinstance(node, FolderNode):
                return None
            node = node.written.get(name)
        return node

    def _file_node(self, path: str) -> FileNode:
        node = self._find(path)
        if not isinstance(node, FileNode):
            raise FileNotFoundError(path)
        return node

    def _folder(self, path: str) -> tuple[FolderNode, str]:
        """The folder that holds `path`, and the last name."""
        head, _, name = path.rstrip("/").rpartition("/")
        folder = self._find(head)
        if not isinstance(folder, FolderNode):
            raise FileNotFoundError(head)
        return folder, name

    # ------------------------------------------------------------------ FileSystem

    def open(self, path: str, *, create: bool = False) -> FakeFile:
        self.alive()
        folder, name = self._folder(path)
        node = folder.written.get(name)
        if node is None:
            if not create:
                raise FileNotFoundError(path)
            node = made = FileNode()
            self.operate("create", path, lambda: folder.change(Link(self.count, (), name, made)))
        assert isinstance(node, FileNode), f"{path} is a folder"
        return FakeFile(self, node, path)

    def exists(self, path: str) -> bool:
        self.alive()
        return self._find(path) is not None

    def listdir(self, path: str) -> list[str]:
        self.alive()
        folder = self._find(path)
        if not isinstance(folder, FolderNode):
            raise FileNotFoundError(path)
        return sorted(folder.written)

    def mkdir(self, path: str) -> None:
        self.alive()
        at = ""
        for name in path.strip("/").split("/"):
            folder = self._find(at)
            assert isinstance(folder, FolderNode)
            at = f"{at}/{name}"
            if name not in folder.written:
                link = Link(self.count + 1, (), name, FolderNode())
                self.operate("mkdir", at, lambda folder=folder, link=link: folder.change(link))

    def rename(self, source: str, target: str) -> None:
        folder, old = self._folder(source)
        other, new = self._folder(target)
        node = folder.written[old]
        move = None if folder is other else Move((folder, other))

        def act() -> None:
            if move is None:
                folder.change(Link(self.count, (old,), new, node))
            else:
                other.change(Link(self.count, (), new, node, move))
                folder.change(Link(self.count, (old,), move=move))

        self.operate("rename", target, act)

    def unlink(self, path: str) -> None:
        folder, name = self._folder(path)
        if name not in folder.written:
            raise FileNotFoundError(path)
        self.operate("unlink", path, lambda: folder.change(Link(self.count, (name,))))

    def remove_tree(self, path: str) -> None:
        """File by file, as the real one does it."""
        node = self._find(path)
        if node is None:
            raise FileNotFoundError(path)
        if isinstance(node, FolderNode):
            names = sorted(node.written)
            self.random.shuffle(names)
            for name in names:
                self.remove_tree(f"{path}/{name}")
        self.unlink(path)

    def sync_folder(self, path: str) -> None:
        node = self._find(path)
        if not isinstance(node, FolderNode):
            raise FileNotFoundError(path)
        self.operate("sync", path, node.sync, node.journal.clear, begun=lambda: None)

    def free_bytes(self, path: str) -> int:
        return 1 << 40

    def total_bytes(self, path: str) -> int:
        return 1 << 42
