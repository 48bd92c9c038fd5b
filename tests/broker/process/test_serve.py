"""The process: its ready line, its end by signal, its folder lock, its logs, and what survives."""

from __future__ import annotations

import errno
import json
import os
import pty
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.process.exit_codes import end_of
from delaylog.client.child_broker import free_port
from delaylog.storage.errors import DiskFailedError
from delaylog.storage.files.file_system import raise_disk_error
from tests.starts.warm import PROGRAM, WarmProcess, as_text, run_warm

LATER = {"body": "x", "delay_ms": 3_600_000}


@pytest.fixture(scope="module")
def start_broker(start_broker: Callable[..., Any]) -> Callable[..., Any]:
    """The command itself, loading and all."""
    return partial(start_broker, program=(PROGRAM,))


def serve(*options: object) -> subprocess.CompletedProcess[str]:
    """Run a broker that is expected to refuse."""
    return as_text(run_warm("serve", *options))


def test_ready_line(start_broker: Callable[..., Any]) -> None:
    """One line on standard output with the port that answers; JSON logs on standard error."""
    broker = start_broker()
    assert re.fullmatch(r"ready http=127\.0\.0\.1:[1-9][0-9]*\n", broker.ready_line)
    assert broker.call("GET", "/healthz").status == 200
    assert broker.stop() == 0
    lines = broker.logs()
    assert {"time", "level", "logger", "message"} <= lines[0].keys()
    assert [line["message"] for line in lines][-2:] == ["stopping", "stopped"]
    broker.assert_clean_logs()


@pytest.mark.parametrize("fsync", ["always", "interval"])
def test_restart_keeps_everything(start_broker: Callable[..., Any], fsync: str) -> None:
    """Waiting, leased and ended messages are there after a clean end, under each dial."""
    broker = start_broker("--fsync", fsync)
    path = "/v1/topics/t"
    broker.post(f"{path}/messages", [LATER | {"id": text} for text in "ab"])
    broker.post(f"{path}/messages", [{"body": "l", "id": "l"}])
    (got,) = broker.post(f"{path}/receive", {"wait_ms": 20_000})["messages"]
    broker.call("DELETE", f"{path}/messages/b")
    before = {text: broker.call("GET", f"{path}/messages/{text}").json for text in "abl"}
    counts = broker.counts("t")
    assert broker.stop() == 0
    broker.start()
    assert broker.counts("t") == counts
    assert {text: broker.call("GET", f"{path}/messages/{text}").json for text in "abl"} == before
    assert broker.post(f"{path}/ack", {"receipts": [got["receipt"]]}) == {"results": ["done"]}
    broker.end_well()


def test_stop_while_polls_wait(start_broker: Callable[..., Any]) -> None:
    """Long polls are answered empty-handed and do not hold the end up."""
    broker = start_broker()
    calls = [broker.later("POST", "/v1/topics/t/receive", {"wait_ms": 60_000}) for _ in range(20)]
    broker.await_waiting(20)
    assert broker.stop() == 0
    for call in calls:
        assert call.result(30).json["messages"] == []
    broker.assert_clean_logs()


def test_stop_while_sends_run(start_broker: Callable[..., Any]) -> None:
    """Whatever was answered before or during the end is there after it."""
    broker = start_broker()
    sent: list[str] = []
    begun = threading.Semaphore(0)

    def send(number: int) -> None:
        at = 0
        while True:
            message = LATER | {"id": f"{number}-{at}"}
            try:
                answer = broker.call("POST", "/v1/topics/t/messages", message)
            except OSError:
                return
            if answer.status != 200:
                assert answer.status == 503
                return
            sent.append(message["id"])
            begun.release()
            at += 1

    threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        assert begun.acquire(timeout=60)
    assert broker.stop() == 0
    for thread in threads:
        thread.join(30)
    assert len(sent) >= 100
    broker.start()
    assert broker.counts("t")["waiting"] >= len(sent)
    for text in sent:
        assert broker.call("GET", f"/v1/topics/t/messages/{text}").status == 200
    broker.end_well()


def test_stop_with_stuck_clients(start_broker: Callable[..., Any]) -> None:
    """Idle connections and half-sent requests do not hold the end up."""
    broker = start_broker()
    head = (
        b"POST /v1/topics/t/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{"
    )
    stuck = [broker.connect() for _ in range(3)]
    try:
        stuck[0].sendall(head)
        stuck[1].sendall(head[:20])
        assert broker.call("GET", "/healthz").status == 200
        assert broker.stop() == 0
    finally:
        for sock in stuck:
            sock.close()
    broker.assert_clean_logs()


def test_stop_by_interrupt(start_broker: Callable[..., Any]) -> None:
    """SIGINT ends it like SIGTERM, and a second signal changes nothing."""
    broker = start_broker()
    for number in (signal.SIGINT, signal.SIGTERM):
        os.kill(broker.pid, number)
    assert broker.wait() == 0
    broker.assert_clean_logs()


@pytest.mark.parametrize(
    "numbers", [(signal.SIGTERM,), (signal.SIGINT,), (signal.SIGHUP, signal.SIGTERM)]
)
def test_a_signal_while_it_starts_ends_it(tmp_path: Path, numbers: Sequence[int]) -> None:
    """At whatever moment between the first connection and the ready line it comes; but not one
    that asks to read files again.
    """
    port = free_port()
    options = ("--data-dir", tmp_path / "d", "--http", f"127.0.0.1:{port}")
    for turn in range(24):
        nothing, said = os.open(os.devnull, os.O_RDWR), os.memfd_create("said")
        process = WarmProcess(
            "serve", *map(str, options), stdin=nothing, stdout=nothing, stderr=said
        )
        try:
            end = time.monotonic() + 60
            while True:
                with suppress(ConnectionRefusedError):
                    socket.create_connection(("127.0.0.1", port), 20).close()
                    break
                assert time.monotonic() < end
            time.sleep(turn / 2000)
            for number in numbers:
                process.send_signal(number)
            assert process.wait(60) == 0
            assert b"Traceback" not in os.pread(said, 100_000, 0)
        finally:
            process.kill()
            os.close(nothing)
            os.close(said)


def test_one_process_per_folder(start_broker: Callable[..., Any]) -> None:
    """A second broker on the folder is refused by name, and the first goes on."""
    broker = start_broker()
    refused = serve("--data-dir", broker.data_dir, "--http", "127.0.0.1:0")
    assert refused.returncode == 69
    assert refused.stdout == ""
    holder = f"process {broker.pid}; stop it first"
    assert f"data folder {broker.data_dir} is in use by {holder}" in refused.stderr
    assert "Traceback" not in refused.stderr
    broker.post("/v1/topics/t/messages", LATER)
    assert broker.stop() == 0
    broker.start()
    assert broker.counts("t")["waiting"] == 1
    assert broker.stop() == 0


def test_bad_folders(tmp_path: Path) -> None:
    """A data folder that is a file, or lies under one, is refused by name."""
    (tmp_path / "file").write_text("x")
    for folder in (tmp_path / "file", tmp_path / "file" / "d"):
        refused = serve("--data-dir", folder, "--http", "127.0.0.1:0")
        assert refused.returncode == 2
        assert str(folder) in refused.stderr
        assert "Traceback" not in refused.stderr


def test_files_of_another_user_are_no_failed_disk() -> None:
    """The advice, without a process: root, who may run this test, is denied nothing."""
    with pytest.raises(DiskFailedError) as failed:
        raise_disk_error(PermissionError(errno.EACCES, "Permission denied"), "d/first-admin")
    assert end_of(failed.value).advice.startswith("Let the user of this process own the folder")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        (["--http", "nonsense"], "http"),
        (["--config", "none.toml"], "none.toml"),
        (["--colour", "red"], "--colour"),
    ],
)
def test_bad_options(tmp_path: Path, options: list[str], named: str) -> None:
    """Status 2, and the message names the option; nothing is made."""
    refused = serve("--data-dir", tmp_path / "d", *options)
    assert refused.returncode == 2
    assert named in refused.stderr
    assert "Traceback" not in refused.stderr
    assert not (tmp_path / "d").exists()


def test_text_logs(start_broker: Callable[..., Any]) -> None:
    """--log-format text writes plain lines."""
    broker = start_broker("--log-format", "text")
    assert broker.stop() == 0
    assert "INFO delaylog.serve stopped" in broker.log_path.read_text()


def test_logs_on_a_terminal_are_text_and_with_json_everything_is_json(tmp_path: Path) -> None:
    for words, shown in (((), b"INFO delaylog.serve serving"), (("--json",), b'"level":"info"')):
        ours, theirs = pty.openpty()
        out_reading, out = os.pipe()
        process = WarmProcess(
            *("serve", "--data-dir", str(tmp_path), "--http", "127.0.0.1:0", *words),
            stdin=out_reading,
            stdout=out,
            stderr=theirs,
        )
        os.close(theirs)
        os.close(out)
        try:
            log = b""
            while b"serving" not in log:
                log += os.read(ours, 65_536)
            ready = os.read(out_reading, 1_000).decode()
            process.terminate()
            assert process.wait(30) == 0
        finally:
            process.kill()
            os.close(ours)
            os.close(out_reading)
        assert shown in log
        if words:
            assert json.loads(ready)["ready"]["http"].startswith("127.0.0.1:")
        else:
            assert ready.startswith("ready http=127.0.0.1:")


def test_a_broker_without_principals_says_that_it_refuses_every_call(
    start_broker: Callable[..., Any],
) -> None:
    broker = start_broker("--resp", "0.0.0.0:0", "--insecure=no-tls")
    assert broker.call("GET", "/v1/topics").status == 401
    told = [line["message"] for line in broker.logs() if "every call is refused" in line["message"]]
    assert len(told) == 1
    assert "delaylog init" in told[0]
