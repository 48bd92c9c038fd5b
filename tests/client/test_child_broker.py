"""ChildBroker with a stand-in program: what it takes from the ready line, and that it cleans up."""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from delaylog.client import child_broker
from delaylog.client.child_broker import BrokerStartError, ChildBroker
from tests.waiting import until

SERVES = (
    "print('recovering', flush=True); "
    "print('ready http=127.0.0.1:4711 resp=127.0.0.1:1', flush=True); import time; time.sleep(60)"
)
POLITE = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); " + SERVES
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SERVES
ECHOES = "import sys; print(sys.argv[1:], file=sys.stderr); " + SERVES
FAILS = "import sys; print('disk is on fire', file=sys.stderr); sys.exit(2)"
SILENT = "import time; time.sleep(60)"


def use(monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    monkeypatch.setattr(child_broker, "delaylog_program", lambda: [sys.executable, "-c", program])


async def test_it_serves_until_the_block_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, ECHOES)
    monkeypatch.setattr(child_broker, "free_port", lambda: 4710)
    async with ChildBroker(tmp_path / "data", options=["--config", "c.toml"]) as broker:
        assert broker.url == "http://127.0.0.1:4711"
        assert broker.running
        assert broker.process_id
        assert broker.started_in_s > 0
    assert not broker.running
    assert broker.process_id is None
    wanted = ["serve", "--data-dir", str(tmp_path / "data"), "--http", "127.0.0.1:4710"]
    assert str([*wanted, "--config", "c.toml"]) in broker.log_tail()


async def test_a_killed_broker_starts_again_on_its_port(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, ECHOES)
    async with ChildBroker(tmp_path / "data") as broker:
        await broker.kill()
        await broker.kill()
        await broker.start()
        assert "'--http', '127.0.0.1:4711'" in broker.log_tail()


@pytest.mark.parametrize(("program", "status"), [(POLITE, 3), (STUBBORN, -9)])
async def test_stop_asks_first_and_insists_later(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, status: int
) -> None:
    use(monkeypatch, program)
    monkeypatch.setattr(child_broker, "STOP_TIMEOUT_S", 0.3)
    broker = ChildBroker(tmp_path / "data")
    assert await broker.stop() is None
    await broker.start()
    assert await broker.stop() == status


@pytest.mark.parametrize(
    ("program", "said"),
    [(FAILS, "status 2 before it was ready\ndisk is on fire"), (SILENT, "no ready line")],
)
async def test_a_broker_that_does_not_come_up_says_why(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, program: str, said: str
) -> None:
    use(monkeypatch, program)
    monkeypatch.setattr(child_broker, "READY_TIMEOUT_S", 0.3)
    with pytest.raises(BrokerStartError, match=said):
        async with ChildBroker(tmp_path / "data"):
            raise AssertionError


def test_no_log_yet_is_an_empty_tail(tmp_path: Path) -> None:
    assert ChildBroker(tmp_path / "data").log_tail() == ""


def test_the_program_is_the_environments_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.executable", str(tmp_path / "python"))
    assert child_broker.delaylog_program()[1:] == ["-P", "-m", "delaylog.broker"]
    (tmp_path / "delaylog").touch()
    assert child_broker.delaylog_program() == [str(tmp_path / "delaylog")]


async def test_giving_up_on_a_start_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    use(monkeypatch, SILENT)
    broker = ChildBroker(tmp_path / "data")
    starting = asyncio.create_task(broker.start())
    await until(lambda: broker.running)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert not broker.running


async def test_a_program_host_and_options_of_its_own(tmp_path: Path) -> None:
    program = [sys.executable, "-c", ECHOES]
    broker = ChildBroker(tmp_path / "data", host="127.0.0.2", port=4711, program=program)
    async with broker:
        assert broker.url == "http://127.0.0.2:4711"
        assert "'--http', '127.0.0.2:4711']" in broker.log_tail()
        broker.send_signal(signal.SIGTERM)
    await broker.start("--new-cluster")
    assert "'127.0.0.2:4711', '--new-cluster']" in broker.log_tail()
    await broker.kill()
