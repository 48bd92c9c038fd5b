"""Workers as processes that are killed or asked to end, against a live broker.

What a handler did stands in a file that outlives it; what the broker thinks of each message is in
its life line, by the broker's own clock.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.client.workers.live import Kind, Live
from tests.waiting import await_that

PROGRAM: Final = Path(__file__).with_name("worker_program.py")
LEASE_MS: Final = 1_500


class Book:
    """What handlers wrote."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def lines(self, word: str) -> list[str]:
        """Ids of those that began, or ended, in order; a line that was cut off is none."""
        rows = [line.split() for line in self.path.read_text().split("\n")[:-1]]
        return [row[1] for row in rows if row[0] == word]


@contextmanager
def worker(
    kind: Kind,
    live: Live,
    book: Book,
    *,
    handler_ms: int = 3,
    grace_s: float = 10.0,
    concurrency: int = 4,
) -> Iterator[subprocess.Popen[str]]:
    members = {
        "handler_ms": handler_ms,
        "grace_s": grace_s,
        "concurrency": concurrency,
        "lease_ms": LEASE_MS,
    }
    process = subprocess.Popen(
        [
            sys.executable,
            "-P",
            str(PROGRAM),
            kind,
            live.url,
            live.namespace,
            str(book.path),
            json.dumps(members),
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def judge_life(steps: list[dict[str, Any]]) -> None:
    """A message is leased again only after its lease was over, or had been given back."""
    until_ms = 0
    for step in steps:
        match step["event"]:
            case "leased":
                assert step["at_ms"] >= until_ms, steps
                until_ms = step["lease_until_ms"]
            case "lease_extended" | "begun":
                assert step["at_ms"] <= until_ms + 100, steps
                until_ms = step["lease_until_ms"]
            case "nacked":
                until_ms = step["at_ms"]


def test_workers_that_are_killed_at_any_point(live: Live, kind: Kind, tmp_path: Path) -> None:
    book = Book(tmp_path / "book")
    chance = random.Random(7)
    ids = [f"m{number}" for number in range(1_500)]
    live.client.put_topic("t", {"backoff": {"first_ms": 0}, "ended_keep_ms": 600_000})
    live.send(ids, ids=ids, keys=[f"k{n}" if n % 3 else "" for n in range(len(ids))])
    for _ in range(4):
        with worker(kind, live, book) as process:
            before = len(book.lines("begin"))
            await_that(lambda before=before: len(book.lines("begin")) > min(before + 20, 1_400))  # type: ignore[misc]
            time.sleep(chance.uniform(0.0, 0.2))
            process.kill()
            process.wait()
        ended = set(book.lines("end"))
        page = live.client.page("t", state="acked", limit=1_000)
        assert {each["id"] for each in page["messages"]} <= ended, "acked and not finished"
    with worker(kind, live, book):
        # Some thousand calls, whatever else the machine does.
        await_that(lambda: live.counts() == {"acked": len(ids)}, live.counts, seconds=90)
    assert set(book.lines("end")) == set(ids)
    again = [each for each in ids if book.lines("begin").count(each) > 1]
    for each in again:
        judge_life(live.life(each))
    assert again, "nobody was killed in the middle of anything"


def test_a_message_that_ends_its_worker_takes_no_other_along(
    live: Live, kind: Kind, tmp_path: Path
) -> None:
    """What waits in the process is not counted, and what runs beside it runs again once.

    Attempts begin ahead by a quarter of a second at most, so by 17 handlers of 14 ms, however long
    the calls take that begin them.
    """
    book = Book(tmp_path / "book")
    bodies = [*["x"] * 20, "exit", *["x"] * 39]
    ids = [f"m{number}" for number in range(len(bodies))]
    live.client.put_topic("t", {"backoff": {"first_ms": 0}, "max_retry": 2})
    live.send(bodies, ids=ids)
    for _ in range(3):
        with worker(kind, live, book, concurrency=1, handler_ms=14) as process:
            assert process.wait(60) == 9
    with worker(kind, live, book, concurrency=1, handler_ms=14):
        live.await_counts(acked=59, dead=1)
    begun = book.lines("begin")
    assert begun.count("m20") == 3
    assert all(begun.count(each) <= 2 for each in ids if each != "m20")
    attempts = [live.client.get("t", each)["attempts"] for each in ids]
    assert attempts[40:] == [1] * 20


def test_sigterm_lets_handlers_end_and_gives_the_rest_back(
    live: Live, kind: Kind, tmp_path: Path
) -> None:
    book = Book(tmp_path / "book")
    live.send([str(number) for number in range(60)], max_retry=100)
    with worker(kind, live, book, handler_ms=400) as process:
        await_that(lambda: len(book.lines("begin")) > 4)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    ended = len(book.lines("end"))
    assert sorted(book.lines("begin")) == sorted(book.lines("end"))
    live.await_counts(acked=ended, ready=60 - ended)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_after_its_grace_what_runs_is_given_back_too(
    live: Live, kind: Kind, tmp_path: Path, number: signal.Signals
) -> None:
    book = Book(tmp_path / "book")
    live.send(["x"] * 4)
    with worker(kind, live, book, handler_ms=60_000, grace_s=0.3) as process:
        await_that(lambda: len(book.lines("begin")) == 4)
        process.send_signal(number)
        assert process.wait(60) == 0
    assert live.counts() == {"ready": 4}
    assert book.lines("end") == []


def test_a_second_signal_ends_at_once(live: Live, kind: Kind, tmp_path: Path) -> None:
    book = Book(tmp_path / "book")
    live.send(["x"])
    with worker(kind, live, book, handler_ms=60_000, grace_s=60) as process:
        await_that(lambda: len(book.lines("begin")) == 1)
        process.send_signal(signal.SIGTERM)
        time.sleep(1)
        assert process.poll() is None

        def ended() -> bool:
            # Two signals that a process finds at once are one to it.
            process.send_signal(signal.SIGTERM)
            return process.poll() is not None

        await_that(ended, pause_s=1)
        assert process.wait(30) == -signal.SIGTERM
    live.await_counts(ready=1)


def test_a_handler_that_blocks_does_not_hold_up_the_end(
    live: Live, kind: Kind, tmp_path: Path
) -> None:
    book = Book(tmp_path / "book")
    live.send(["block"])
    with worker(kind, live, book, grace_s=0.2) as process:
        await_that(lambda: len(book.lines("begin")) == 1)
        process.send_signal(signal.SIGTERM)
        status = process.wait(60)
    assert status == (128 + signal.SIGTERM if kind == "tasks" else 0)
    live.await_counts(ready=1)
