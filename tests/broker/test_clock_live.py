"""A real broker whose wall clock is set ahead and back while it runs (libfaketime), and one that
was away for three days.

Only wall time is faked: monotonic time must go on, as on a real machine whose clock is stepped.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.starts.warm import PROGRAM
from tests.waiting import await_that

DAY_S = 86_400
DAY_MS = DAY_S * 1000
STALL_S = 2.0
"""After a step is absorbed or accepted nothing stands still for longer."""


def library() -> str:
    """libfaketime, installed if it is not there."""
    found = _find_library()
    if found is None and shutil.which("apt-get"):
        command = ["apt-get", "install", "-y", "--no-install-recommends", "libfaketime"]
        subprocess.run(command, check=False, capture_output=True, timeout=300)
        found = _find_library()
    if found is None:
        pytest.fail("these tests need libfaketime: apt-get install libfaketime")
    return found


def _find_library() -> str | None:
    for folder in (Path("/usr/lib"), Path("/usr/local/lib"), Path("/usr/lib64")):
        for path in folder.glob("**/libfaketimeMT.so.1"):
            return str(path)
    return None


class Clock:
    """The wall clock that brokers started under it see: the real one and an offset."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._path = path
        self.set(0)
        monkeypatch.setenv("LD_PRELOAD", library())
        monkeypatch.setenv("FAKETIME_TIMESTAMP_FILE", str(path))
        monkeypatch.setenv("FAKETIME_NO_CACHE", "1")
        monkeypatch.setenv("FAKETIME_DONT_FAKE_MONOTONIC", "1")
        # Left to find out for itself, the library makes waits of threads a tenth of a second long.
        monkeypatch.setenv("FAKETIME_FORCE_MONOTONIC_FIX", "0")

    def set(self, offset_s: int) -> None:
        """Step to so many seconds from real time."""
        aside = self._path.with_suffix(".new")
        aside.write_text(f"{offset_s:+d}\n")
        aside.rename(self._path)


class Consumer:
    """Receives and acks all the time; notes what came, by the broker's clock and by ours."""

    def __init__(self, broker: Any, topic: str) -> None:
        self._broker = broker
        self._path = f"/v1/topics/{topic}"
        self._stop = threading.Event()
        self.got: dict[str, tuple[int, int, float]] = {}
        self.twice: list[str] = []
        self.order: list[int] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            answer = self._broker.post(f"{self._path}/receive", {"max": 5_000, "wait_ms": 300})
            receipts = []
            for message in answer["messages"]:
                body = message["body"]
                if body in self.got:
                    self.twice.append(body)
                self.got[body] = (message["deliver_at_ms"], answer["now_ms"], time.monotonic())
                self.order.append(message["deliver_at_ms"])
                receipts.append(message["receipt"])
            if receipts:
                self._broker.post(f"{self._path}/ack", {"receipts": receipts})

    def await_bodies(self, bodies: set[str], seconds: float) -> None:
        """Return once all have come; fail after so long."""
        await_that(
            lambda: bodies <= self.got.keys(), lambda: bodies - self.got.keys(), seconds=seconds
        )

    def stop(self) -> None:
        """End, and check that nothing came early by the broker's stated clock."""
        self._stop.set()
        self._thread.join(30)
        early = {body: at for body, at in self.got.items() if at[1] < at[0]}
        assert not early


@pytest.fixture
def clock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(tmp_path / "clock", monkeypatch)


@pytest.fixture
def stepped(clock: Clock, start_broker: Callable[..., Any]) -> Iterator[Any]:
    """A broker under that clock."""
    broker = start_broker(program=(PROGRAM,))
    yield broker
    broker.end_well()


def send(broker: Any, topic: str, body: str, delay_ms: int) -> dict[str, Any]:
    answer: dict[str, Any] = broker.post(
        f"/v1/topics/{topic}/messages", {"body": body, "delay_ms": delay_ms}
    )
    return answer


def send_many(broker: Any, topic: str, delays_ms: list[int]) -> set[str]:
    """In one call, since a sync of the log is slow under the library; bodies are numbers."""
    messages = [{"body": f"{k}", "delay_ms": delay} for k, delay in enumerate(delays_ms)]
    broker.post(f"/v1/topics/{topic}/messages", messages)
    return {message["body"] for message in messages}


def test_a_day_ahead(stepped: Any, clock: Clock, topic: str) -> None:
    """All that falls due comes at once; leases keep what is left of them."""
    held = send(stepped, "held", "held", 0)["id"]
    stepped.post("/v1/topics/held/receive", {"lease_ms": 60_000})
    bodies = send_many(stepped, topic, [1_000 + k * 60_000 for k in range(600)])
    consumer = Consumer(stepped, topic)
    consumer.await_bodies({"0"}, 5)
    clock.set(DAY_S)
    consumer.await_bodies(bodies, STALL_S + 1)
    clock_now = stepped.call("GET", "/v1/clock").json
    assert clock_now["steps"] == 1
    assert clock_now["held_ms"] == 0
    send(stepped, topic, "after", 300)
    consumer.await_bodies({"after"}, STALL_S)
    consumer.stop()
    assert not consumer.twice
    assert consumer.order == sorted(consumer.order)
    message = stepped.call("GET", f"/v1/topics/held/messages/{held}").json
    assert message["state"] == "leased"
    left_ms = message["lease_until_ms"] - stepped.call("GET", "/v1/clock").json["now_ms"]
    assert 30_000 < left_ms <= 60_000


def test_a_day_back_holds_until_it_is_accepted(stepped: Any, clock: Clock, topic: str) -> None:
    consumer = Consumer(stepped, topic)
    send(stepped, topic, "before", 0)
    consumer.await_bodies({"before"}, 5)
    clock.set(-DAY_S)
    send(stepped, topic, "while held", 400)
    time.sleep(1.0)
    assert "while held" not in consumer.got, "the broker's time stands still"
    shown = stepped.call("GET", "/v1/clock").json
    assert DAY_MS - 60_000 < shown["held_ms"] <= DAY_MS
    assert stepped.call("GET", "/readyz").json["clock_held_ms"] > DAY_MS - 60_000
    accepted = stepped.post("/v1/clock", {"accept": True})
    assert -DAY_MS <= accepted["accepted_ms"] < -DAY_MS + 60_000
    assert accepted["held_ms"] == 0
    assert abs(accepted["now_ms"] + DAY_MS - time.time() * 1000) < 5_000
    send(stepped, topic, "after", 300)
    consumer.await_bodies({"after"}, STALL_S)
    time.sleep(0.3)
    assert "while held" not in consumer.got, "its time is a day off now"
    consumer.stop()
    stepped.kill()
    stepped.start()
    assert stepped.call("GET", "/v1/clock").json["held_ms"] == 0
    consumer = Consumer(stepped, topic)
    send(stepped, topic, "after the restart", 300)
    consumer.await_bodies({"after the restart"}, STALL_S)
    assert "while held" not in consumer.got
    clock.set(0)
    consumer.await_bodies({"while held"}, STALL_S + 1)
    consumer.stop()
    assert not consumer.twice


def test_three_seconds_back_are_absorbed(stepped: Any, clock: Clock, topic: str) -> None:
    consumer = Consumer(stepped, topic)
    bodies = send_many(stepped, topic, [500 + k * 50 for k in range(40)])
    clock.set(-3)
    stepped_at = time.monotonic()
    consumer.await_bodies(bodies, 2.5 + 3 + STALL_S)
    assert max(at for _, _, at in consumer.got.values()) - stepped_at >= 4
    consumer.stop()
    assert not consumer.twice
    assert stepped.call("GET", "/v1/clock").json["held_ms"] == 0


def test_a_start_behind_the_told_time_holds_it(stepped: Any, clock: Clock, topic: str) -> None:
    told = send(stepped, topic, "a", 0)["deliver_at_ms"]
    assert stepped.stop() == 0
    clock.set(-DAY_S)
    stepped.start()
    shown = stepped.call("GET", "/v1/clock").json
    assert shown["now_ms"] >= told
    assert shown["held_ms"] > DAY_MS - 60_000
    assert any("accepted" in line["message"] for line in stepped.logs())
    stepped.post("/v1/clock", {"accept": True})
    consumer = Consumer(stepped, topic)
    send(stepped, topic, "b", 200)
    consumer.await_bodies({"b"}, STALL_S)
    assert "a" not in consumer.got
    consumer.stop()


def test_accepting_when_nothing_is_held_changes_nothing(
    broker: Any, topic: str, assert_problem: Callable[..., Any]
) -> None:
    assert broker.post("/v1/clock", {"accept": True})["accepted_ms"] == 0
    assert_problem(broker.call("POST", "/v1/clock", {"accept": False}), 400, "bad_request")
    assert_problem(broker.call("POST", "/v1/clock", {}), 400, "bad_request", "accept")
    send(broker, topic, "x", 0)
    assert broker.post(f"/v1/topics/{topic}/receive", {"wait_ms": 5_000})["messages"]


def test_three_days_away(clock: Clock, start_broker: Callable[..., Any], topic: str) -> None:
    """Serving at once; the past streams in, oldest first, whole and once each."""
    past, ahead = 20_000, 2_000
    clock.set(-3 * DAY_S)
    broker = start_broker(program=(PROGRAM,))
    begun_ms = broker.call("GET", "/v1/clock").json["now_ms"]
    random = np.random.default_rng(3)
    due = np.concatenate(
        [
            random.integers(begun_ms + 60_000, begun_ms + 3 * DAY_MS - 60_000, past),
            random.integers(begun_ms + 3 * DAY_MS + 3_600_000, begun_ms + 4 * DAY_MS, ahead),
        ]
    )
    for start in range(0, len(due), 5_000):
        part = due[start : start + 5_000]
        texts = [f"{start + k}".encode() for k in range(len(part))]
        fields = {
            "v": 1,
            "n": len(part),
            "deliver_at_ms": part.astype("<i8").tobytes(),
            "body_size": np.array([len(text) for text in texts], "<u4").tobytes(),
            "bodies": b"".join(texts),
        }
        assert broker.bulk(f"/v1/topics/{topic}/messages", fields).status == 200
    broker.kill()
    clock.set(0)
    broker.start()
    other = Consumer(broker, "other")
    started = time.monotonic()
    send(broker, "other", "fresh", 0)
    other.await_bodies({"fresh"}, STALL_S)
    consumer = Consumer(broker, topic)
    send(broker, topic, "fresh", 0)
    consumer.await_bodies({f"{k}" for k in range(past)} | {"fresh"}, 60)
    assert time.monotonic() - started < 60
    consumer.stop()
    other.stop()
    assert not consumer.twice
    assert len(consumer.got) == past + 1, "what is due tomorrow waits"
    backlog = [moment for moment in consumer.order if moment < begun_ms + 3 * DAY_MS - 30_000]
    assert backlog == sorted(backlog), "oldest first"
    counts = broker.counts(topic)
    assert counts is not None
    assert counts["waiting"] == ahead
    broker.end_well()
