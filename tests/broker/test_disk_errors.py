"""A disk that answers EIO ends the node: status 1, a line that says why, nothing acknowledged lost.

System calls of the log and of the id index fail under strace in the real command; what is written
in the background fails through the FileSystem seam, in the real command as well. Each case loads
the broker until it ends by itself, starts it again on a good disk and asks for every message that
had been answered for.
"""

from __future__ import annotations

import itertools
import json
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.broker.strace import strace
from tests.starts.tuned import BUSY, tuned
from tests.starts.warm import run_warm

FAILING = str(Path(__file__).with_name("failing_disk.py"))
LATER = {"body": "x" * 200, "delay_ms": 7_200_000}
PATH = "/v1/topics/t"
SENDERS = 3


class Load:
    """Threads that send and cancel until the broker is gone; `sent` holds what was answered."""

    def __init__(self, broker: Any) -> None:
        self._broker = broker
        self.sent: list[str] = []
        self._threads = [threading.Thread(target=self._send, args=(n,)) for n in range(SENDERS)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        for thread in self._threads:
            thread.join(30)

    def _send(self, number: int) -> None:
        # A broker that dies resets connections in any state of the call.
        with suppress(Exception):
            for at in itertools.count():
                name = f"{number}-{at}"
                answer = self._broker.call("POST", f"{PATH}/messages", LATER | {"id": name})
                if answer.status != 200:
                    return
                if at % 3:
                    self.sent.append(name)
                else:
                    self._broker.call("DELETE", f"{PATH}/messages/{name}")


def assert_ended(broker: Any, *words: str) -> None:
    """It ended by itself with status 1, and its last line says what failed and what to do."""
    assert broker.wait() == 1
    *_, last = broker.log_path.read_text().splitlines()
    last = json.loads(last)["message"]
    assert last.startswith("the node stops: "), last
    for word in (*words, "Input/output error", "repair or replace the disk"):
        assert word in last, last


def assert_kept(broker: Any, sent: list[str]) -> None:
    """On a good disk everything that was answered for is there, and the folder is sound."""
    broker.program = None
    broker.start()
    assert sent
    for name in sent:
        assert broker.call("GET", f"{PATH}/messages/{name}").status == 200, name
    assert broker.stop() == 0
    done = run_warm("verify", broker.data_dir)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("file", "calls", "when", "words"),
    [
        ("log/00000000000000000000.log", "fdatasync", 40, ["fdatasync failed on", "/log/"]),
        ("log/00000000000000000000.log", "pwritev,pwritev2", 40, ["I/O failed on", "/log/"]),
    ],
    ids=["log-fsync", "log-write"],
)
def test_a_failing_system_call(
    start_broker: Callable[..., Any],
    tmp_path: Path,
    file: str,
    calls: str,
    when: int,
    words: list[str],
) -> None:
    """One call fails and later ones would succeed: it is not tried again."""
    # With -D the broker, not strace, is our child.
    program = [strace(), "-D", "-f", "-qq", "--seccomp-bpf", "-o", str(tmp_path / "strace")]
    program += ["-P", str(tmp_path / "data" / file), "-e", f"trace={calls}"]
    program += ["-e", f"inject={calls}:error=EIO:when={when}", *tuned(BUSY)]
    broker = start_broker(constants=BUSY, folder=tmp_path, program=program)
    with Load(broker) as load:
        assert_ended(broker, *words)
    assert_kept(broker, load.sent)


@pytest.mark.parametrize(
    ("kind", "pattern", "words"),
    [
        ("write", "*/hours/*/delay.log", ["I/O failed on", "delay.log"]),
        ("sync", "*/hours/*/delay.index", ["fdatasync failed on", "delay.index"]),
        ("write", "*/hours/*/state", ["I/O failed on", "/state"]),
        ("write", "*/checkpoint-*.tmp", ["I/O failed on", "/checkpoint-"]),
        ("write", "*/tick", ["I/O failed on", "/tick"]),
        ("write", "*/ids/*.ids", ["I/O failed on", "/ids/"]),
        ("sync", "*/ids/*.ids", ["fdatasync failed on", "/ids/"]),
    ],
    ids=["splitter", "hour-sync", "states", "checkpoint", "tick", "ids-write", "ids-sync"],
)
def test_failing_background_work(
    start_broker: Callable[..., Any], tmp_path: Path, kind: str, pattern: str, words: list[str]
) -> None:
    armed = tmp_path / "armed"
    program = [sys.executable, FAILING, kind, pattern, str(armed)]
    broker = start_broker(constants=BUSY, folder=tmp_path, program=program)
    with Load(broker) as load:
        while len(load.sent) < 20:
            assert any(thread.is_alive() for thread in threading.enumerate()[1:])
            time.sleep(0.005)
        armed.touch()
        assert_ended(broker, *words)
    assert_kept(broker, load.sent)


@pytest.mark.parametrize(
    ("kind", "pattern", "words"),
    [
        ("sync", "*/log/*", ["fdatasync failed on", "/log/"]),
        ("write", "*/checkpoint-*.tmp", ["I/O failed on", "/checkpoint-"]),
        ("write", "*/tick", ["I/O failed on", "/tick"]),
    ],
    ids=["log", "checkpoint", "tick"],
)
def test_a_disk_that_fails_at_the_end(
    start_broker: Callable[..., Any], tmp_path: Path, kind: str, pattern: str, words: list[str]
) -> None:
    """Asked to end, with its last checkpoint to write: it still ends, and says what failed."""
    armed = tmp_path / "armed"
    program = [sys.executable, FAILING, kind, pattern, str(armed)]
    broker = start_broker(folder=tmp_path, program=program)
    broker.post(f"{PATH}/messages", [LATER | {"id": "kept"}])
    armed.touch()
    broker.terminate()
    assert_ended(broker, *words)
    assert_kept(broker, ["kept"])


def test_nothing_stands_behind_the_line_that_says_what_failed(
    start_broker: Callable[..., Any], tmp_path: Path
) -> None:
    """What begins while the broker goes is not complained about: it leaves without another turn."""
    armed = tmp_path / "armed"
    program = [sys.executable, FAILING, "--busy", "sync", "*/log/*", str(armed)]
    broker = start_broker(constants=BUSY, folder=tmp_path, program=program)
    with Load(broker) as load:
        while len(load.sent) < 20:
            assert any(thread.is_alive() for thread in threading.enumerate()[1:])
            time.sleep(0.005)
        armed.touch()
        assert_ended(broker, "fdatasync failed on", "/log/")
    assert "destroyed" not in broker.log_path.read_text()
    assert_kept(broker, load.sent)


def test_a_failing_read(start_broker: Callable[..., Any], tmp_path: Path) -> None:
    """What cannot be read is not skipped: the node stops, and delivers it from a good disk."""
    armed = tmp_path / "armed"
    program = [sys.executable, FAILING, "read", "*/hours/*/delay.*", str(armed)]
    broker = start_broker(constants=BUSY, folder=tmp_path, program=program)
    broker.post(f"{PATH}/messages", [{"body": "kept", "delay_ms": 1_000, "id": "m"}])
    broker.await_metric("delaylog_tail_bytes", 0)
    armed.touch()
    with suppress(Exception):
        broker.call("POST", f"{PATH}/receive", {"wait_ms": 5_000})
    assert_ended(broker, "I/O failed on", "/hours/")
    broker.program = None
    broker.start()
    (got,) = broker.post(f"{PATH}/receive", {"wait_ms": 20_000})["messages"]
    assert (got["id"], got["attempts"]) == ("m", 1)
    assert broker.stop() == 0
