"""A service manager is notified when the broker is ready, reloads and stops, over a real socket."""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from delaylog.broker.process.serve import VARIABLE, ServiceManager
from delaylog.client.child_broker import free_ports
from tests.starts.warm import PROGRAM

SECONDS = 60


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """A socket as that of systemd, and the value of the variable that names it."""
    name = f"{tmp_path}/notify" if request.param == "path" else f"@delaylog-{os.urandom(8).hex()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as heard:
        heard.bind(name.replace("@", "\0"))
        heard.settimeout(SECONDS)
        yield heard, name


def take(heard: socket.socket) -> list[str]:
    """The lines of the next datagram."""
    return heard.recv(4_096).decode().splitlines()


def test_facts_are_lines(manager: tuple[socket.socket, str]) -> None:
    heard, name = manager
    environ = {VARIABLE: name, "OTHER": "x"}
    told = ServiceManager(environ)
    assert environ == {"OTHER": "x"}, "children do not notify"
    assert told.listens
    told.notify(READY=1, STATUS="serving")
    assert take(heard) == ["READY=1", "STATUS=serving"]


def test_without_one_nothing_is_sent() -> None:
    told = ServiceManager({})
    assert not told.listens
    told.notify(READY=1)


def test_one_that_is_gone_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        ServiceManager({VARIABLE: f"{tmp_path}/none"}).notify(READY=1)
    assert f"the service manager at {tmp_path}/none cannot be notified" in caplog.text


def test_a_broker_from_start_to_stop(manager: tuple[socket.socket, str], tmp_path: Path) -> None:
    """READY comes once it listens; a reload begins and ends; then it stops."""
    heard, name = manager
    (port,) = free_ports(1)
    words = ["serve", "--data-dir", tmp_path / "data", "--http", f"127.0.0.1:{port}"]
    with subprocess.Popen(
        [PROGRAM, *words],
        env={**os.environ, VARIABLE: name},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as broker:
        try:
            assert take(heard) == ["READY=1", "STATUS=serving"]
            socket.create_connection(("127.0.0.1", port)).close()
            broker.send_signal(signal.SIGHUP)
            reloading = take(heard)
            assert reloading[0] == "RELOADING=1"
            assert reloading[1].startswith("MONOTONIC_USEC=")
            assert take(heard) == ["READY=1"]
            broker.terminate()
            assert take(heard) == ["STOPPING=1"]
            assert broker.wait(SECONDS) == 0
        finally:
            broker.kill()
