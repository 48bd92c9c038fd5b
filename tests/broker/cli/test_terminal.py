"""The command on a terminal: tables, lines that are typed, and one Ctrl-C."""

from __future__ import annotations

import asyncio
import os
import pty
import re
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest

from delaylog.broker.cli.connection import interruptible
from delaylog.broker.cli.failing import UsageError, fail
from tests.starts.warm import WarmProcess, run_warm


class Terminal:
    """A command on a terminal."""

    def __init__(self, *words: str, typing: bool = False) -> None:
        self._ours, theirs = pty.openpty()
        self._nothing = os.open(os.devnull, os.O_RDONLY)
        self.shown = b""
        self.process = WarmProcess(
            *words, stdin=theirs if typing else self._nothing, stdout=theirs, stderr=theirs
        )
        os.close(theirs)

    def until(self, text: bytes) -> None:
        """Read until it has shown this."""
        while text not in self.shown:
            self.shown += os.read(self._ours, 65_536)

    def end(self) -> int:
        """Its status; what it has shown is read to the end."""
        try:
            while part := os.read(self._ours, 65_536):
                self.shown += part
        except OSError:
            pass  # Linux says EIO when the other side is closed.
        return self.process.wait(30)

    def type(self, text: bytes) -> None:
        os.write(self._ours, text)

    def close(self) -> None:
        self.process.kill()
        os.close(self._ours)
        os.close(self._nothing)


@pytest.fixture
def start(broker: Any) -> Iterator[Any]:
    begun: list[Terminal] = []

    def call(*words: str, typing: bool = False) -> Terminal:
        begun.append(Terminal(*words, "--url", broker.url, typing=typing))
        return begun[-1]

    yield call
    for each in begun:
        each.close()


def test_a_table_with_a_header(broker: Any, topic: str, start: Any) -> None:
    message = {"body": "[red]x", "id": "m", "delay_ms": 3_600_000, "tags": ["[b]"]}
    broker.post(f"/v1/topics/{topic}/messages", message)
    terminal = start("list", topic)
    assert terminal.end() == 0
    plain = re.sub(rb"\x1b\[[0-9;]*m", b"", terminal.shown)
    header, row, *_ = plain.splitlines()
    assert header.split() == [b"id", b"state", b"due", b"attempts", b"tags"], "no empty columns"
    assert row.split()[:2] == [b"m", b"waiting"]
    assert b"[b]" in row, "what a sender writes is no markup"
    assert b"\x1b[1m" in terminal.shown


@pytest.mark.parametrize(
    "words",
    [("list", "--bodies"), ("show", "m"), ("peek",), ("peek", "--bodies-only"), ("receive",)],
)
def test_what_a_sender_writes_commands_no_terminal(
    words: tuple[str, ...], broker: Any, topic: str, start: Any
) -> None:
    """It could set the title, hide lines, or answer for the person who looks."""
    evil = "\x1b]0;evil\x07\x1b[2J\x9bm\u202e"
    message = {"body": evil, "id": "m", "key": evil, "tags": [evil], "headers": {"h": evil}}
    broker.post(f"/v1/topics/{topic}/messages", message)
    terminal = start(words[0], topic, *words[1:])
    assert terminal.end() == 0
    shown = re.sub(rb"\x1b\[[0-9;]*m", b"", terminal.shown).decode()
    assert [each for each in shown if not each.isprintable() and each not in "\r\n\t"] == []
    assert "\\x1b" in shown


def test_an_error_of_a_server_commands_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert fail(UsageError("one\x1b[2J\ntwo"), as_json=False) == 2
    assert capsys.readouterr().err == "delaylog: one\\x1b[2J\ntwo\n"


@pytest.mark.parametrize(
    "words",
    [("list",), ("dead",), ("receive",), ("peek",), ("stats",), ("forecast",)],
)
def test_a_topic_that_nobody_has_made(words: tuple[str, ...], topic: str, start: Any) -> None:
    terminal = start(*words, topic)
    assert terminal.end() == (3 if words[0] in ("receive", "peek") else 0)
    text = f"topic {topic} does not exist yet; nothing to show"
    assert terminal.shown.decode().splitlines()[-1] == text


def test_lines_that_are_typed_are_sent_one_by_one(broker: Any, topic: str, start: Any) -> None:
    terminal = start("send", topic, typing=True)
    terminal.until(b"Ctrl-D ends")
    terminal.type(b"one\n")
    terminal.until(b"created")
    assert sum(broker.counts(topic).values()) == 1
    terminal.process.send_signal(signal.SIGINT)
    assert terminal.end() == 130
    assert b"Traceback" not in terminal.shown


def test_an_interruption_just_before_a_read_is_enough() -> None:
    """asyncio has noted it, and has had no turn to act on it."""

    async def read() -> None:
        signal.raise_signal(signal.SIGINT)
        with interruptible():
            pytest.fail("the read would block")

    # Whoever starts the tests in the background of a shell has interruptions ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(read())
    finally:
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("verb", "options"),
    [
        ("send", ()),
        ("receive", ("--wait", "50s")),
        ("receive", ("--follow",)),
        ("stats", ("--token", "-")),
    ],
)
def test_one_interruption_is_enough(
    broker: Any, topic: str, verb: str, options: tuple[str, ...]
) -> None:
    """While it waits for its input or for a token, and while it waits for the broker."""
    reading, writing = os.pipe()
    out = os.memfd_create("out")
    words = [verb, topic, *options, "--url", broker.url]
    process = WarmProcess(*words, stdin=reading, stdout=out, stderr=out)
    try:
        time.sleep(1.5)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        assert os.pread(out, 1_000, 0) == b""
    finally:
        process.kill()
        for each in (reading, writing, out):
            os.close(each)


def test_an_interrupted_cancel_names_the_job_that_goes_on(broker: Any, topic: str) -> None:
    later = [{"body": "x", "delay_ms": 3_600_000, "tags": ["t"]}] * 100
    broker.post(f"/v1/topics/{topic}/messages", later)
    nothing, out = os.open(os.devnull, os.O_RDONLY), os.memfd_create("out")
    words = ("cancel", topic, "--tag", "t", "--rate", "1", "--url", broker.url)
    process = WarmProcess(*words, stdin=nothing, stdout=out, stderr=out)
    try:
        end = time.monotonic() + 20
        while (
            not (jobs := broker.call("GET", "/v1/jobs").json["jobs"]) or jobs[0]["topic"] != topic
        ):
            assert time.monotonic() < end
            time.sleep(0.05)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        *progress, line = os.pread(out, 10_000, 0).decode().splitlines()
        assert all(each.startswith("delaylog: cancel ") for each in progress)
    finally:
        process.kill()
        os.close(nothing)
        os.close(out)
    name = jobs[0]["job"]
    assert line == (
        f"delaylog: interrupted, but the job {name} goes on: `delaylog job show {name}` shows its "
        f"progress, `delaylog job stop {name}` stops it"
    )
    stopped = run_warm("job", "stop", name, "--url", broker.url)
    assert stopped.returncode == 0, stopped.stderr


def test_a_forecast_is_a_plot(broker: Any, topic: str, start: Any) -> None:
    """A bar for each hour between the first and the last one, also for those without messages."""
    hours = [2, 2, 4]
    messages = [{"body": "x", "delay_ms": hour * 3_600_000} for hour in hours]
    broker.post(f"/v1/topics/{topic}/messages", messages)
    terminal = start("forecast", topic)
    assert terminal.end() == 0
    plain = re.sub(rb"\x1b\[[0-9;]*m", b"", terminal.shown).decode()
    rows = [line.split() for line in plain.splitlines() if " 1h " in line]
    assert [row[2] for row in rows] == ["2", "0", "1"]
    assert [row[4:] for row in rows] == [["█" * 24], [], ["█" * 12]]
