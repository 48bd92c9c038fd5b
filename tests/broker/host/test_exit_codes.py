"""How `delaylog serve` ends: a status for each kind of error, and none for errors of a client.

Method: the table on one error of each kind; a broker whose callback fails in the real command, by
a program that plants the failure.
"""

from __future__ import annotations

import errno
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.host.exit_codes import ExitCode, exit_code
from delaylog.broker.host.settings.options import ConfigError
from delaylog.storage.errors import (
    CorruptionError,
    DiskFailedError,
    DiskFullError,
    NewerFormatError,
    NoDescriptorError,
)
from delaylog.storage.files.file_system import raise_disk_error
from tests.programs import run_program

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
        (DiskFailedError("x"), 1),
        (OSError(errno.EIO, "x"), 1),
        (CorruptionError("x", path="p", position=0), 65),
        (DiskFullError("x"), 75),
        (KeyError("x"), 70),
    ],
)
def test_each_kind_of_error_has_its_status(error: Exception, code: int) -> None:
    assert exit_code(error) == code
    assert f"| {code} |" in Path("docs/OPERATIONS.md").read_text()


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
    last = ended.stderr.splitlines()[-1]
    assert last.startswith("delaylog: ")
    assert "This is a bug" in last


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
