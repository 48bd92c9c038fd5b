"""Progress: a bar on a terminal, plain lines elsewhere, nothing with --json."""

from __future__ import annotations

import io
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from delaylog.broker.cli import progress as progress_module
from delaylog.broker.cli.progress import FIRST_SECONDS, SECONDS, Progress, scaled
from tests.waiting import await_that

PROGRAM = str(Path(sys.executable).parent / "delaylog")


def test_plain_lines_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first after a second, also while one step lasts: what is done sooner says nothing."""
    monkeypatch.setattr(progress_module, "LINE_SECONDS", 0.05)
    out = io.StringIO()
    with Progress("backup", stream=out, first_seconds=0.05) as progress:
        await_that(lambda: "0 B\n" in out.getvalue())
        progress("hours/x", 7_500_000, 24_000_000)
        await_that(lambda: "at hours/x\n" in out.getvalue())
    lines = out.getvalue().splitlines()
    assert lines[0] == "delaylog: backup: 0 B"
    assert lines[-1] == "delaylog: backup: 7.5 MB of 24.0 MB (31%), at hours/x"
    with Progress("backup", stream=(soon := io.StringIO())) as progress:
        progress("hours/x", 1)
    assert (soon.getvalue(), FIRST_SECONDS) == ("", 1.0)


def test_work_that_has_nothing_to_count_says_how_long_it_lasts() -> None:
    out, none = io.StringIO(), io.StringIO()
    with Progress("purge", unit=SECONDS, stream=out, first_seconds=0):
        await_that(out.getvalue)
    assert out.getvalue().startswith("delaylog: purge: 0 s\n")
    with Progress("send", quiet=True, stream=none, first_seconds=0):
        time.sleep(0.1)
    assert none.getvalue() == ""


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (23_500_000, "23.5 MB"), (10**13, "10.0 TB")],
)
def test_scaled(count: int, text: str) -> None:
    assert scaled(count, "B") == text


@pytest.mark.parametrize("json", [False, True])
def test_a_bar_on_a_terminal(tmp_path: Path, json: bool) -> None:
    """`check` of a history that comes slowly, with standard error on a terminal: it is wiped."""
    history = tmp_path / "h.jsonl"
    os.mkfifo(history)
    ours, theirs = pty.openpty()
    words = [PROGRAM, "check", str(history), *(["--json"] if json else [])]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=theirs)
    os.close(theirs)
    shown = b""
    with history.open("wb"):
        if json:
            time.sleep(2.5)
        else:
            while b"check:" not in shown:
                shown += os.read(ours, 65_536)
    out, _ = process.communicate(timeout=60)
    try:
        while part := os.read(ours, 65_536):
            shown += part
    except OSError:
        pass  # Linux says EIO when the other side is closed.
    finally:
        os.close(ours)
    assert process.returncode == 0
    assert out
    if json:
        assert shown == b""
    else:
        assert shown.endswith(b"\x1b[2K"), "the line is wiped"
