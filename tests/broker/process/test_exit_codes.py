"""How `delaylog serve` ends: a status for each kind of error, and none for errors of a client.

Method: the table on one error of each kind; each end for real (a failed disk is in
test_disk_errors.py), against the table of the documentation; a broker whose callback fails in the
real command, by a program that plants the failure.
"""

from __future__ import annotations

import errno
import json
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.host.settings import ConfigError, InUseError
from delaylog.broker.host.system import folder_lock
from delaylog.broker.process.exit_codes import ExitCode, end_of
from delaylog.client.child_broker import free_ports
from delaylog.replication.errors import DivergedError, TermFileDamagedError
from delaylog.storage.errors import (
    CorruptionError,
    DiskFailedError,
    DiskFullError,
    NewerFormatError,
    NoDescriptorError,
    OlderFormatError,
)
from delaylog.storage.files.file_system import raise_disk_error
from tests.programs import run_program
from tests.starts.warm import PROGRAM

BROKEN = """#!{python}
import sys
from delaylog.broker.host.node import Node
def fail(self):
    if self.engine.state.by_number:
        raise KeyError("planted")
Node.{name} = fail
from delaylog.broker.cli.main import main
sys.exit(main())
"""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("x"), 2),
        (NoDescriptorError("x"), 2),
        (NewerFormatError("x"), 2),
        (OlderFormatError("x"), 2),
        (DiskFailedError("x"), 1),
        (OSError(errno.EIO, "x"), 1),
        (CorruptionError("x", path="p", position=0), 65),
        (DiskFullError("x"), 75),
        (KeyError("x"), 70),
        (TermFileDamagedError("vote"), 65),
        (DivergedError("x", position=0, epoch=1), 65),
        (FileNotFoundError(errno.ENOENT, "x", "file"), 65),
        (PermissionError(errno.EACCES, "x", "/"), 2),
        (InUseError("x"), 69),
    ],
)
def test_each_kind_of_error_has_its_status(error: Exception, code: int) -> None:
    assert end_of(error).code == code


def test_the_documentation_has_the_table() -> None:
    """The rows of SERVICE, and what its unit prevents."""
    text = Path("docs/SERVICE.md").read_text().partition("## How a broker ends")[2]
    rows = re.findall(r"^\| (\d+) \|.*\| (yes|no)\b.*\|$", text, re.MULTILINE)
    assert rows == [(str(int(code)), "yes" if code.restart else "no") for code in ExitCode]
    (prevented,) = re.findall(r"RestartPreventExitStatus=(.*)", text)
    # A stop that was asked for is none that a unit could prevent.
    kept = [code for code in ExitCode if code and not code.restart]
    assert prevented.split() == [str(int(code)) for code in kept]


def in_use(folder: Path) -> None:
    """`run` gives it a port that is taken."""


def damaged(folder: Path) -> None:
    (path,) = folder.glob("checkpoint-*")
    path.write_bytes(bytes(64))


def missing(folder: Path) -> None:
    shutil.rmtree(folder / "log")


def replaced(folder: Path) -> None:
    (path,) = (folder / "log").iterdir()
    path.unlink()
    path.mkdir()


def a_backup(folder: Path) -> None:
    (folder / "backup.json").write_text("{}")


def of_a_cluster(folder: Path) -> None:
    (folder / "meta").write_bytes(b"x")


def sound(folder: Path) -> None:
    """Nothing is done to the folder."""


def limited() -> None:
    """No file may grow, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


@pytest.fixture(scope="module")
def whole(start_broker: Callable[..., Any]) -> Path:
    """A data folder that a broker has left."""
    broker = start_broker()
    broker.post("/v1/topics/t/messages", {"body": "x", "delay_ms": 60_000})
    assert broker.stop() == 0
    folder: Path = broker.data_dir
    return folder


@pytest.mark.parametrize(
    ("spoil", "code", "says"),
    [
        (
            in_use,
            ExitCode.IN_USE,
            "cannot listen on 127.0.0.1:PORT (--http): Address already in use",
        ),
        (damaged, ExitCode.DAMAGED, "Restore the file from a backup"),
        (missing, ExitCode.DAMAGED, "the physical log is missing"),
        (replaced, ExitCode.DAMAGED, "Restore the file from a backup"),
        (a_backup, ExitCode.CONFIGURATION, "`delaylog restore` it first"),
        (of_a_cluster, ExitCode.CONFIGURATION, "serve it with its --cluster FILE"),
        (limited, ExitCode.DISK_FULL, "Free some space and start again"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
@pytest.mark.parametrize("form", ["json", "text"])
def test_each_end_for_real(
    whole: Path, tmp_path: Path, spoil: Callable[..., None], code: ExitCode, says: str, form: str
) -> None:
    """The status, and the last line in the form of the log."""
    folder = tmp_path / "data"
    shutil.copytree(whole, folder)
    if spoil is not limited:
        spoil(folder)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1] if spoil is in_use else 0
        ended = subprocess.run(
            [PROGRAM, "serve", "--data-dir", folder, "--http", f"127.0.0.1:{port}"],
            env={**os.environ, "DELAYLOG_LOG_FORMAT": form},
            preexec_fn=limited if spoil is limited else None,
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )
    assert ended.returncode == code, ended.stderr
    assert spoil is not in_use or "Traceback" not in ended.stderr
    last, says = ended.stderr.splitlines()[-1], says.replace("PORT", str(port))
    if form == "json":
        line = json.loads(last)
        assert (line["level"], line["status"], line["end"]) == ("critical", code, code.name.lower())
        assert says in line["message"]
        assert all(json.loads(each) for each in ended.stderr.splitlines())
    else:
        assert last.startswith("delaylog: ")
        assert says in last


def test_a_folder_of_another_user_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a container without root finds a new volume; root, who may run this, is denied nothing."""

    def deny(*_: object) -> int:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    volume = tmp_path / "volume"
    mode = tmp_path.stat().st_mode & 0o7777
    me = f"{os.geteuid()}:{os.getegid()}"
    monkeypatch.setattr(folder_lock, "make_folder", deny)
    with pytest.raises(ConfigError) as refused:
        folder_lock.lock_folder(str(volume / "data"))
    said = str(refused.value)
    assert said.startswith(f"data-dir {volume}/data cannot be used: Permission denied; {tmp_path} ")
    assert f"belongs to user {os.geteuid()} and group {os.getegid()} (mode {mode:o})" in said
    assert said.endswith(f"run `chown -R {me} {volume}/data`")
    denied = PermissionError(errno.EACCES, "Permission denied", str(volume))
    assert f"chown -R {me} {volume}" in end_of(denied).advice


def test_a_member_that_can_get_a_copy_is_started_again(tmp_path: Path) -> None:
    """Damage of a folder whose other voters do not answer at the moment: after ten seconds."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    (folder / "damaged").write_text("bytes with a wrong checksum\n")
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text(os.urandom(32).hex())
    members = [
        f'[members.{node}]\npeer = "127.0.0.1:{peer}"\nhttp = "127.0.0.1:{http}"\n'
        for node, (peer, http) in enumerate(zip(*[iter(free_ports(6))] * 2, strict=True))
    ]
    cluster = tmp_path / "cluster.toml"
    cluster.write_text('cluster = "c"\nsecret_file = "secret"\nnode = 0\n' + "".join(members))
    words = ["--data-dir", folder, "--http", "127.0.0.1:0", "--cluster", cluster]
    ended = run_program(PROGRAM, "serve", *map(str, words))
    assert ended.returncode == ExitCode.COPY_NEEDED
    assert "Start the node again" in json.loads(ended.stderr.splitlines()[-1])["message"]
    assert {each.name for each in folder.iterdir()} <= {"damaged", "lock", "crash"}


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE])
def test_a_lack_of_descriptors_is_no_disk_fault(number: int) -> None:
    with pytest.raises(NoDescriptorError, match="ulimit -n"):
        raise_disk_error(OSError(number, "Too many open files"), "p")


def test_a_bug_at_the_start_is_no_failed_disk(tmp_path: Path) -> None:
    program = tmp_path / "broken"
    broken = BROKEN.format(python=sys.executable, name="start")
    program.write_text(broken.replace("if self.engine.state.by_number:", "if True:"))
    program.chmod(0o755)
    command = [str(program), "serve", "--data-dir", str(tmp_path / "data"), "--http", "127.0.0.1:0"]
    ended = run_program(*command)
    assert ended.returncode == ExitCode.BUG
    last = json.loads(ended.stderr.splitlines()[-1])
    assert last["status"] == ExitCode.BUG
    assert "This is a bug" in last["message"]


@pytest.mark.parametrize("name", ["log_synced", "turn_ended", "wake_ready"])
def test_a_bug_in_a_callback_ends_the_node(
    start_broker: Callable[..., Any], tmp_path: Path, name: str
) -> None:
    """Whoever waits for what the callback had to do would wait for ever."""
    program = tmp_path / "broken"
    program.write_text(BROKEN.format(python=sys.executable, name=name))
    program.chmod(0o755)
    broker = start_broker(folder=tmp_path, program=[str(program)])
    with suppress(OSError):
        broker.call("POST", "/v1/topics/t/messages", {"body": "x"})
    assert broker.wait() == ExitCode.BUG
    last = broker.log_path.read_text().splitlines()[-1]
    assert "planted" in last
    assert "This is a bug" in last
