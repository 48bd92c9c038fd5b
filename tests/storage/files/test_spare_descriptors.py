"""Whatever opens files gets a spare descriptor when there is no other, or a survivable error."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.programs import run_program

pytestmark = pytest.mark.processes

CALLS = ("open", "listdir", "remove_tree", "sync_folder", "retention_suspended")
STARVED = """
import os, resource, sys
from delaylog.broker.host.system.folder_lock import retention_suspended
from delaylog.storage.files import file_system
from delaylog.storage.errors import NoDescriptorError
from delaylog.storage.files.os_file_system import OsFileSystem

folder, call, spares = sys.argv[1], sys.argv[2], int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
file_system.hold_spares(spares)
fs = OsFileSystem()
calls = {
    "open": lambda: fs.open(f"{folder}/file", create=True).close(),
    "listdir": lambda: fs.listdir(folder),
    "remove_tree": lambda: fs.remove_tree(f"{folder}/tree"),
    "sync_folder": lambda: fs.sync_folder(folder),
    "retention_suspended": lambda: retention_suspended(folder),
}
try:
    while True:
        os.open("/dev/null", os.O_RDONLY)
except OSError:
    pass
try:
    calls[call]()
    spares_left = 0
    while file_system.give_spare():
        spares_left += 1
    print("done", spares_left)
except NoDescriptorError:
    print("no descriptor")
"""


def starved(folder: Path, call: str, spares: int) -> str:
    (folder / "tree" / "inner").mkdir(parents=True)
    command = [sys.executable, "-c", STARVED, str(folder), call, str(spares)]
    return run_program(*command, check=True).stdout.strip()


@pytest.mark.parametrize("call", CALLS)
def test_a_spare_one_is_used_and_taken_back(call: str, tmp_path: Path) -> None:
    assert starved(tmp_path, call, 8) == "done 8"
    assert (tmp_path / "tree").exists() is (call != "remove_tree")


@pytest.mark.parametrize("call", CALLS)
def test_without_one_the_error_can_be_survived(call: str, tmp_path: Path) -> None:
    assert starved(tmp_path, call, 0) == "no descriptor"
