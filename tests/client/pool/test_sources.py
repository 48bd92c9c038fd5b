"""Which changes below a folder are noticed."""

from __future__ import annotations

import os
from pathlib import Path

from delaylog.client.workers.pool import Sources


def touch(path: Path, ns: int = 1_000_000_000) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    os.utime(path, ns=(ns, ns))


def test_python_files_that_are_changed_added_or_removed(tmp_path: Path) -> None:
    touch(tmp_path / "a.py")
    touch(tmp_path / "shop" / "b.py")
    sources = Sources(tmp_path)
    assert sources.changed() == []
    touch(tmp_path / "shop" / "b.py", 2_000_000_000)
    touch(tmp_path / "c.py")
    (tmp_path / "a.py").unlink()
    assert sources.changed() == ["a.py", "c.py", os.path.join("shop", "b.py")]
    assert sources.changed() == []


def test_other_files_and_environments_are_passed_over(tmp_path: Path) -> None:
    sources = Sources(tmp_path)
    touch(tmp_path / "env" / "pyvenv.cfg")
    touch(tmp_path / "env" / "lib" / "x.py")
    for name in ("notes.txt", ".hidden/x.py", "__pycache__/x.py", "node_modules/x.py"):
        touch(tmp_path / name)
    assert sources.changed() == []
