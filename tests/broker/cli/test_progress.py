"""Progress: a bar on a terminal, plain lines elsewhere, nothing with --json."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from delaylog.broker.cli import progress as progress_module
from delaylog.broker.cli.progress import Progress, scaled

PROGRAM = str(Path(sys.executable).parent / "delaylog")


def test_plain_lines_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first after five seconds: what is done sooner says nothing."""
    now = 100.0
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now)
    out = io.StringIO()
    with Progress("backup", stream=out) as progress:
        for _ in range(12):
            now += 1
            progress("hours/x", 1_500_000 * int(now - 100), 24_000_000)
    assert out.getvalue() == (
        "delaylog: backup: 7.5 MB of 24.0 MB (31%), at hours/x\n"
        "delaylog: backup: 15.0 MB of 24.0 MB (62%), at hours/x\n"
    )


def test_without_a_total(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(progress_module.time, "monotonic", lambda: now)
    out = io.StringIO()
    progress = Progress("send", unit="messages", stream=out)
    now = 9.0
    progress("", 1_234_000)
    quiet = Progress("send", quiet=True, stream=out, line_seconds=0)
    quiet("", 1)
    assert out.getvalue() == "delaylog: send: 1,234,000 messages\n"


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (23_500_000, "23.5 MB"), (10**13, "10.0 TB")],
)
def test_scaled(count: int, text: str) -> None:
    assert scaled(count, "B") == text


@pytest.mark.parametrize("json", [False, True])
def test_a_bar_on_a_terminal(tmp_path: Path, json: bool) -> None:
    """`check` of a long history with standard error on a terminal: it is wiped in the end."""
    history = tmp_path / "h.jsonl"
    history.write_bytes(b"\n" * 3_000)
    ours, theirs = pty.openpty()
    words = [PROGRAM, "check", str(history), *(["--json"] if json else [])]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=theirs, timeout=30, check=False)
    os.close(theirs)
    shown = b""
    try:
        while part := os.read(ours, 65_536):
            shown += part
    except OSError:
        pass  # Linux says EIO when the other side is closed.
    finally:
        os.close(ours)
    assert done.returncode == 0
    assert done.stdout
    if json:
        assert shown == b""
    else:
        assert b"check:" in shown
        assert shown.endswith(b"\x1b[2K"), "the line is wiped"
