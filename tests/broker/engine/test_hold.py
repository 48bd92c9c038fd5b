"""The hold as state of the log: checkpoints, replays, orders of folders, missed instants."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.cli import main
from delaylog.broker.engine.errors import HeldError
from delaylog.broker.engine.hold import FILE, Hold, Order, leave_order, read_order
from delaylog.broker.engine.schedules.commands import run_now
from delaylog.broker.engine.views.counts import Pending
from delaylog.storage.errors import CorruptionError
from delaylog.storage.layout import FrameKind
from tests.broker.engine.host import HOUR, START_MS
from tests.broker.engine.schedules.rig import ScheduleHost
from tests.broker.verify.verifying import verify

MINUTE = 60_000


def pending(host: Any) -> Pending:
    """What a release would set going now."""
    found = Pending(host.engine.state, host.now_ms, lambda _: True)
    host.engine.run_inline(found.work())
    return found


@pytest.fixture
def schedules(tmp_path: Path) -> Iterator[ScheduleHost]:
    """A host with schedules, just behind a minute."""
    made = ScheduleHost(tmp_path / "folder", START_MS + 1)
    yield made
    made.close()


def hold(host: Any, note: str = "") -> bool:
    done = host.engine.hold(note, host.now_ms)
    host.turn()
    return bool(done)


def release(host: Any) -> bool:
    done = host.engine.release_hold(host.now_ms)
    host.turn()
    return bool(done)


@pytest.mark.parametrize("checkpoint", [False, True])
def test_a_hold_survives_restarts(host: Any, checkpoint: bool) -> None:
    assert hold(host, "a copy")
    since_ms = host.now_ms
    host.send([b"x"])
    for _ in range(2):
        if checkpoint:
            host.checkpoint(2)
        host.restart(HOUR)
        assert host.engine.state.holding.now == Hold(since_ms, "a copy")
        with pytest.raises(HeldError):
            host.receive()
    assert release(host)
    if checkpoint:
        host.checkpoint(2)
    host.restart()
    assert len(host.receive()) == 1


def test_a_second_hold_keeps_the_first_time(host: Any) -> None:
    assert hold(host, "one")
    since_ms = host.now_ms
    host.advance(MINUTE)
    assert not hold(host)
    assert not hold(host, "one")
    assert hold(host, "two")
    assert host.engine.state.holding.now == Hold(since_ms, "two")
    assert release(host)
    assert not release(host)


def test_leases_and_ttl_go_by_the_clock_while_held(host: Any) -> None:
    """Nothing is handed out, but a lease ends at its deadline and a message at its ttl."""
    host.send([b"x"], ids=["leased"])
    (leased,) = host.receive(lease=MINUTE)
    host.send([b"y"], ids=["short"], ttl_ms=MINUTE)
    hold(host)
    assert host.ack([leased]) == 1
    host.send([b"z"], ids=["again"])
    host.advance(2 * MINUTE)
    release(host)
    assert [message.id for message in host.receive()] == ["again"]


def test_an_open_lease_ends_while_held(host: Any) -> None:
    host.send([b"x"])
    (leased,) = host.receive(lease=MINUTE)
    hold(host)
    host.advance(2 * MINUTE)
    assert host.ack([leased]) == 0
    with pytest.raises(HeldError):
        host.receive()


# --------------------------------------------------------------------------- orders


def test_an_order_counts_until_the_log_has_a_newer_frame(host: Any) -> None:
    host.send([b"x"])
    folder, end = str(host.folder), host.engine.state.log.end_position
    order = Order(Hold(1, "restored"), end)
    leave_order(host.fs, folder, order)
    host.restart()
    assert host.engine.state.holding.now == Hold(1, "restored")
    assert read_order(host.fs, folder) is None
    release(host)
    leave_order(host.fs, folder, order)
    host.restart()
    assert host.engine.state.holding.now is None
    assert not host.fs.exists(f"{folder}/{FILE}")


@pytest.mark.parametrize("wanted", [True, False])
def test_the_host_replaces_the_order(host: Any, wanted: bool) -> None:
    """Also the newest one of a log that says the opposite."""
    leave_order(host.fs, str(host.folder), Order(Hold(1, "x"), host.engine.state.log.end_position))
    for how in (wanted, None):
        host.hold = how
        host.restart()
        assert (host.engine.state.holding.now is not None) == wanted


def test_a_damaged_order_stops_the_start(host: Any) -> None:
    """A copy that might have to be held must not begin to push."""
    Path(host.folder, FILE).write_bytes(b"nonsense")
    with pytest.raises(CorruptionError, match="--release-hold"):
        host.restart()
    host.hold = False
    host.open()
    assert host.engine.state.holding.now is None


def test_the_bytes_of_an_order(tmp_path: Path, host: Any) -> None:
    leave_order(host.fs, str(tmp_path), Order(Hold(5, "n"), 64))
    assert (tmp_path / FILE).read_bytes().hex() == (
        "444c4844010000004000000000000000010000000000000004000000" + "5c19561c" + "9205a16e"
    )
    leave_order(host.fs, str(tmp_path), Order(None, 64))
    assert read_order(host.fs, str(tmp_path)) == Order(None, 64)


# --------------------------------------------------------------------------- schedules


@pytest.mark.parametrize(
    ("rules", "fired"),
    [
        ({"catch_up": "none"}, 0),
        ({"catch_up": "latest"}, 1),
        ({"catch_up": "all"}, 5),
        ({"catch_up": "all", "overlap": "skip"}, 1),
        ({"catch_up": "all", "overlap": "buffer_one"}, 1),
        ({"catch_up": "all", "overlap": "replace"}, 5),
        ({"catch_up": "all", "catch_up_window_ms": 2 * HOUR}, 2),
        ({"catch_up": "all", "count": 3}, 3),
    ],
)
def test_missed_instants_follow_catch_up_and_are_counted(
    schedules: ScheduleHost, rules: dict[str, Any], fired: int
) -> None:
    """Five hourly instants pass while the broker is held, with a restart among them."""
    host = schedules
    host.put("h", cron="0 * * * *", **rules)
    hold(host)
    host.advance(3 * HOUR)
    host.restart()
    host.advance(2 * HOUR)
    assert host.topic.default.counts.living == 0
    assert host.engine.next_wake_ms() is None or host.engine.next_wake_ms() > host.now_ms
    assert pending(host).firings == fired
    sent = host.topic.sent
    release(host)
    host.turn()
    assert host.topic.sent - sent == fired


def test_a_firing_by_hand_waits_for_the_release(schedules: ScheduleHost) -> None:
    host = schedules
    one = host.put("h", cron="0 9 * * *")
    hold(host)
    id_ = run_now(host.engine.state, one, host.now_ms)
    host.turn()
    assert (pending(host).due, pending(host).firings) == (1, 0)
    release(host)
    assert [message.id for message in host.receive()] == [id_]


def test_the_count_says_when_it_is_not_whole(
    schedules: ScheduleHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = schedules
    for module in ("engine.views.counts", "rules.schedules.firings"):
        monkeypatch.setattr(f"delaylog.broker.{module}.COUNTED_MAX", 10)
    host.put("s", rrule="FREQ=SECONDLY", catch_up="all")
    hold(host)
    host.advance(HOUR)
    found = pending(host)
    assert found.partial
    assert 10 <= found.firings <= 12


def test_no_frame_but_that_of_the_hold_while_nothing_happens(host: Any) -> None:
    """A held broker does not write for what it does not do."""
    host.send(100)
    hold(host)
    before = host.engine.state.position
    host.advance(HOUR)
    assert host.engine.state.position - before < 200
    assert FrameKind.HELD == 22


def test_verify_and_dump_read_an_order(
    host: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(host.folder)
    host.checkpoint()
    leave_order(host.fs, folder, Order(Hold(5, "n"), 64))
    assert (verify(folder).damage, verify(folder).notes) == ([], [])
    assert main(["dump", f"{folder}/{FILE}"]) == 0
    assert '"hold":{"since_ms":5,"note":"n"}' in capsys.readouterr().out
    Path(folder, FILE).write_bytes(b"nonsense")
    assert [each.path for each in verify(folder).damage] == [FILE]
    assert main(["dump", f"{folder}/{FILE}"]) == 1
