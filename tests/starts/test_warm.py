"""A warm start gives a process as a real one does: words, surroundings, streams, signals, end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.starts.warm import PROGRAM, WarmProcess, as_text, run_warm


@pytest.fixture
def serving(tmp_path: Path) -> WarmProcess:
    """A broker that serves; whoever asks for it ends it."""
    reading, writing = os.pipe()
    with (tmp_path / "log").open("wb") as log, Path(os.devnull).open() as nothing:
        process = WarmProcess(
            *("serve", "--data-dir", "data", "--http", "127.0.0.1:0"),
            stdin=nothing.fileno(),
            stdout=writing,
            stderr=log.fileno(),
            folder=tmp_path,
        )
    os.close(writing)
    with os.fdopen(reading) as out:
        assert out.readline().startswith("ready http="), (tmp_path / "log").read_text()
    return process


@pytest.mark.parametrize(
    "words",
    [["--version"], ["nonsense"], ["check", "none"], ["topics", "--url", "http://127.0.0.1:1"]],
)
def test_it_is_as_the_command_is(words: list[str], tmp_path: Path) -> None:
    real = subprocess.run([PROGRAM, *words], capture_output=True, cwd=tmp_path, check=False)
    warm = run_warm(*words, folder=tmp_path)
    assert (warm.returncode, warm.stdout, warm.stderr) == (
        real.returncode,
        real.stdout,
        real.stderr,
    )


def test_it_has_the_surroundings_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Folder, environment and input, and no environment but what is given."""
    monkeypatch.setenv("DELAYLOG_LOG_LEVEL", "loud")
    environment = {"DELAYLOG_HTTP": "nowhere", "DELAYLOG_DATA_DIR": "data"}
    refused = as_text(run_warm("serve", environment=environment, folder=tmp_path))
    assert refused.returncode == 2
    assert "nowhere" in refused.stderr
    (tmp_path / "history").write_text("{")
    assert "history" in as_text(run_warm("check", "history", folder=tmp_path)).stderr
    both = ("send", "t", "x", "--id", "a", "--url", "http://127.0.0.1:1")
    assert "Connection refused" in as_text(run_warm(*both)).stderr
    lines = ("send", "t", "--id", "a", "--url", "http://127.0.0.1:1")
    assert run_warm(*lines, stdin=b"x\n").returncode == 2


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGTERM, 0), (signal.SIGINT, 0), (signal.SIGKILL, -9), (signal.SIGABRT, -6)],
)
def test_it_ends_by_signals(serving: WarmProcess, number: int, status: int) -> None:
    assert serving.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        serving.wait(0)
    serving.send_signal(number)
    assert serving.wait(20) == serving.poll() == status
    serving.send_signal(number)  # To nobody, and no error.


def test_several_may_wait_for_one_end(serving: WarmProcess) -> None:
    with ThreadPoolExecutor(8) as waiting:
        ends = [waiting.submit(serving.wait, 20) for _ in range(8)]
        serving.kill()
        assert [end.result() for end in ends] == [-9] * 8


def test_what_takes_too_long_is_ended(tmp_path: Path) -> None:
    before = time.monotonic()
    with pytest.raises(subprocess.TimeoutExpired):
        run_warm("serve", "--http", "127.0.0.1:0", folder=tmp_path, timeout=0.2)
    assert time.monotonic() - before < 20
