"""Ports that stay free for their owner.

Method: real sockets; other processes that are given ports at the same time; forced picks.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from delaylog.client import child_broker
from delaylog.client.child_broker import free_port, free_ports
from tests.programs import run_program

SYSTEM_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def choose(monkeypatch: pytest.MonkeyPatch, *ports: int) -> None:
    """These are tried, in this order."""

    class Chosen:
        def choices(self, candidates: range, *, k: int) -> list[int]:
            assert set(ports) <= set(candidates)
            return list(ports)

    monkeypatch.setattr(secrets, "SystemRandom", Chosen)


def test_they_differ_and_can_be_listened_on() -> None:
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert not set(ports) & set(free_ports(50))
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_the_system_gives_none_of_them_to_a_connection() -> None:
    lowest, highest = map(int, SYSTEM_RANGE.read_text().split())
    if lowest > 20_000:  # else hardly any port is left below
        assert not set(free_ports(50)) & set(range(lowest, highest + 1))


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "0.0.0.0"])
def test_one_that_somebody_has_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, kind: socket.SocketKind, host: str
) -> None:
    taken, other = free_ports(2)
    monkeypatch.setattr(child_broker, "_given", set())
    choose(monkeypatch, taken, other)
    with socket.socket(socket.AF_INET, kind) as holder:
        holder.bind((host, taken))
        assert free_port() == other


def test_one_of_another_process_is_passed_over_until_that_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Also of one with another folder for its temporary files."""
    program = "from delaylog.client.child_broker import free_port; print(free_port(), flush=True);"
    with subprocess.Popen(
        [sys.executable, "-c", f"{program} input()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    ) as owner:
        assert owner.stdout is not None
        theirs = int(owner.stdout.readline())
        ours = free_port()
        monkeypatch.setattr(child_broker, "_given", set())
        choose(monkeypatch, theirs, ours)
        assert free_port() == ours
        owner.communicate("\n")
    choose(monkeypatch, theirs)
    assert free_port() == theirs


FORK = """
import os, secrets
from delaylog.client import child_broker as module
ours = module.free_port()
if os.fork():
    os.wait()
else:
    module._given.clear()
    secrets.SystemRandom = type("Chosen", (), {"choices": lambda self, ports, k: [ours]})
    module.free_port()
"""


def test_a_fork_is_given_none_of_its_parents() -> None:
    done = run_program(sys.executable, "-c", FORK, check=True)
    assert "no 1 free ports" in done.stderr


@pytest.mark.parametrize(
    ("told", "end"), [("40000\t60999", 40_000), ("1024\t65535", 32_768), (None, 32_768)]
)
def test_they_come_from_below_the_systems_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, told: str | None, end: int
) -> None:
    """If it leaves enough below; where nothing is said, it is where it usually is."""
    file = tmp_path / "range"
    if told is not None:
        file.write_text(told)
    monkeypatch.setattr(child_broker, "_RANGE_FILE", file)
    assert child_broker._candidates.__wrapped__() == range(10_000, end)


def test_none_left_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    (taken,) = free_ports(1)
    choose(monkeypatch, taken)
    with pytest.raises(OSError, match="no 1 free ports among") as caught:
        free_port()
    assert caught.value.errno == errno.EADDRINUSE
