"""Folders: who may open one, what a crash leaves, and that `delaylog serve` reads the same."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

import delaylog
from delaylog.broker.backup.copies import MANIFEST, Route
from delaylog.broker.backup.folder_copy import take_backup
from delaylog.broker.backup.restore import restore_backup
from delaylog.broker.embedded import ConfigError, ManualClock
from delaylog.broker.engine.engine import Engine
from delaylog.broker.testing.live_broker import LiveBroker
from delaylog.client import Held, NewMessage, TooLarge
from delaylog.storage.errors import CorruptionError
from delaylog.storage.files.os_file_system import OsFileSystem

SOURCE = str(Path(delaylog.__file__).parents[1])


@pytest.fixture
def live(tmp_path: Path) -> Iterator[LiveBroker]:
    """A broker that serves `tmp_path/data`, when it is started."""
    broker = LiveBroker(tmp_path, limits={"reserve_file_bytes": 0})
    yield broker
    broker.close()


def test_a_restart_in_the_middle_forgets_nothing(open_embedded: Any, tmp_path: Path) -> None:
    """Waiting, leased, dead, cancelled, grouped: each is what it was, and the clock goes on."""
    folder = tmp_path / "f"
    broker = open_embedded(folder, clock=ManualClock())
    broker.put_topic("t", {"max_retry": 0})
    broker.put_group("t", "g")
    for name, delay in (("waits", 5_000), ("leased", 0), ("dies", 0), ("gone", 9_000)):
        broker.send("t", name, id=name, delay=timedelta(milliseconds=delay))
    taken = {message.id: message for message in broker.receive("t", max=9)}
    broker.nack(taken["dies"])
    broker.cancel("t", "gone")
    now = broker.clock.now_ms()
    broker.close()
    again = open_embedded(folder, clock=ManualClock(0))
    assert again.clock.now_ms() == now
    states = {each.id: each.state for each in again.browse("t")}
    assert states == {"waits": "waiting", "leased": "leased", "dies": "dead", "gone": "cancelled"}
    assert again.ack(taken["leased"]) == ["done"]
    again.clock.advance(ms=5_000)
    assert [message.id for message in again.receive("t", max=9)] == ["waits"]
    assert len(again.receive("t", max=9, group="g")) == 3


def test_what_it_wrote_a_broker_serves(open_embedded: Any, live: LiveBroker) -> None:
    """And the other way round, time and again."""
    with open_embedded(live.data_dir) as broker:
        broker.send_many(
            "t", [NewMessage("one", id="a"), NewMessage("two", delay=timedelta(milliseconds=200))]
        )
        (leased,) = broker.receive("t", lease=timedelta(minutes=1))
    live.start()
    with live.client() as client:
        assert client.get("t", "a").state == "leased"
        (second,) = client.receive("t", wait=timedelta(seconds=5))
        assert second.text == "two"
        client.send_columns("t", [b"three"], ids=["c"], delay_ms=0)
    assert live.stop() == 0
    with open_embedded(live.data_dir) as broker:
        # It is past, so it is loaded from its hour first, as a broker that serves does.
        assert [m.text for m in broker.receive("t", max=9, wait=timedelta(seconds=5))] == ["three"]
        assert broker.ack([leased, second]) == ["done", "done"]
        assert broker.stats("t").counts.acked == 2


def test_a_folder_has_one_owner(open_embedded: Any, live: LiveBroker) -> None:
    live.start()
    with pytest.raises(ConfigError, match=r"in use by process \d+; stop it first"):
        open_embedded(live.data_dir)
    live.stop()
    broker = open_embedded(live.data_dir)
    with pytest.raises(ConfigError, match="in use by this very process"):
        open_embedded(live.data_dir)
    broker.close()
    open_embedded(live.data_dir)


def test_a_folder_that_has_gone_is_in_nobody_s_way(open_embedded: Any, tmp_path: Path) -> None:
    """A program that removes a folder leaves a broker behind; others may be opened all the same."""
    left = open_embedded(tmp_path / "gone", clock=ManualClock(), fsync="never")
    (tmp_path / "gone").rename(tmp_path / "elsewhere")
    (tmp_path / "other").mkdir()
    open_embedded(tmp_path / "other").send("t", "one")
    (tmp_path / "elsewhere").rename(tmp_path / "gone")
    # It has failed if it measured the free space of its folder meanwhile.
    with suppress(FileNotFoundError):
        left.close()


@pytest.mark.parametrize("clock", [None, ManualClock()])
def test_a_start_that_fails_leaves_nothing_behind(
    open_embedded: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Any
) -> None:
    """The folder can be opened once the reason has gone, and the clock moves the others on."""
    before = {thread.name for thread in threading.enumerate()}
    with monkeypatch.context() as patched:

        def broken(_: Engine) -> None:
            raise CorruptionError("a row that is not the one written", path="p", position=0)

        patched.setattr(Engine, "create_reserve", broken)
        with pytest.raises(CorruptionError):
            open_embedded(tmp_path / "f", clock=clock)
    assert {thread.name for thread in threading.enumerate()} <= before
    if clock is not None:
        clock.advance(days=1)
    broker = open_embedded(tmp_path / "f", clock=clock)
    broker.send("t", "one")
    assert [message.text for message in broker.receive("t", wait=timedelta(seconds=5))] == ["one"]


def test_a_restored_folder_is_held(open_embedded: Any, tmp_path: Path) -> None:
    """Also for schedules; what waited for the release comes with it."""
    clock = ManualClock()
    with open_embedded(tmp_path / "f", clock=clock) as broker:
        broker.send("t", "one")
        broker.broker().put_schedule(
            "t", "s", "tick", interval=timedelta(hours=1), catch_up="latest"
        )
    files = OsFileSystem()
    backup, copy = str(tmp_path / "b"), str(tmp_path / "c")
    take_backup(Route(files, str(tmp_path / "f"), files, backup), version="1", now_ms=clock.now_ms)
    restore_backup(Route(files, backup, files, copy), now_ms=1, random=Random(1))
    with open_embedded(copy, clock=ManualClock(clock.now_ms())) as broker:
        with pytest.raises(Held, match="resume"):
            broker.receive("t", wait=timedelta(seconds=5))
        broker.send("t", "two")
        broker.clock.advance(ms=10 * 3_600_000 + 1)
        shown = broker.broker().held()
        assert (shown["due"], shown["firings"]) == (3, 1)
        assert broker.broker().release_hold()["result"] == "done"
        texts = [each.text for each in broker.receive("t", max=9)]
        assert sorted(texts) == ["one", "tick", "tick", "two"]
        broker.broker().hold("again")
    with open_embedded(copy, clock=ManualClock(0), release_hold=True) as broker:
        assert not broker.broker().held()["held"]


def test_a_receive_that_waits_ends_when_a_hold_begins(open_embedded: Any, tmp_path: Path) -> None:
    with open_embedded(tmp_path / "f") as broker:
        timer = threading.Timer(0.2, broker.broker().hold)
        timer.start()
        with pytest.raises(Held):
            broker.receive("t", wait=timedelta(seconds=20))
        timer.join()


def test_a_backup_is_not_opened(open_embedded: Any, tmp_path: Path) -> None:
    folder = tmp_path / "backup"
    folder.mkdir()
    (folder / MANIFEST).write_text("{}")
    names = [path.name for path in folder.iterdir()]
    with pytest.raises(ConfigError, match="is a backup"):
        open_embedded(folder)
    assert [path.name for path in folder.iterdir()] == names


@pytest.mark.parametrize(
    ("how", "kind", "why"),
    [
        ({"fsync": "sometimes"}, ValueError, "fsync is one of always, everysec, never"),
        ({"namespace": "a b"}, ValueError, "a namespace is"),
        ({"clock": 5}, TypeError, "a WallClock or a ManualClock"),
        ({"limits": {"colour": 1}}, ValueError, "unknown limit 'colour'"),
        ({"limits": 5}, TypeError, "limits are a mapping of names to integers, not int"),
        ({"limits": {"receive_max": -1}}, ValueError, "limits.receive_max is -1; set it"),
        ({"limits": {"receive_max": 1.5}}, ValueError, "limits.receive_max must be an integer"),
        ({"limits": {"connections_max": 0}}, ValueError, "connections_max is 0; set it between 1"),
    ],
)
def test_wrong_arguments_make_no_folder(
    open_embedded: Any, tmp_path: Path, how: dict[str, Any], kind: type[Exception], why: str
) -> None:
    with pytest.raises(kind, match=why):
        open_embedded(tmp_path / "f", **how)
    assert not (tmp_path / "f").exists()


def test_limits_are_those_of_a_broker(open_embedded: Any) -> None:
    broker = open_embedded(clock=ManualClock(), limits={"body_bytes_max": 4})
    broker.send("t", "four")
    with pytest.raises(TooLarge):
        broker.send("t", "five!")


CRASHER = """
import sys, delaylog
from delaylog.client import NewMessage
broker = delaylog.open(sys.argv[1], fsync="always")
number = int(sys.argv[2])
while True:
    broker.send_many("t", [NewMessage(f"{number}", id=f"m{number}"), NewMessage(f"{number}")])
    taken = broker.receive("t", max=1, ids=[f"m{number}"])
    broker.ack(taken)
    print(number, flush=True)
    number += 1
"""


def test_kill_9_loses_nothing_that_was_answered(open_embedded: Any, tmp_path: Path) -> None:
    """A child sends pairs and acks one of each, says so, and is killed in the middle, three times.

    All that it said is so: each pair is there, and what was acked never comes again.
    """
    folder, said = tmp_path / "f", set[int]()
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    for life in range(3):
        with subprocess.Popen(
            [sys.executable, "-c", CRASHER, str(folder), str(1_000 * life)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        ) as child:
            assert child.stdout is not None
            said |= {int(child.stdout.readline()) for _ in range(10)}
            child.kill()
            said |= set(map(int, child.stdout.read().split()))
    broker = open_embedded(folder)
    found = list(broker.browse("t", bodies=True))
    acked = {int(each.body or 0) for each in found if each.state == "acked"}
    plain = {int(each.body or 0) for each in found if each.id.startswith("~")}
    assert said <= acked
    assert said <= plain
    assert not acked & {
        int(each.body) for each in broker.receive("t", max=9_999) if each.id[0] == "m"
    }
