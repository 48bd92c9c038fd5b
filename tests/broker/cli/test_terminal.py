"""The command on a terminal: tables, lines that are typed, and one Ctrl-C."""

from __future__ import annotations

import asyncio
import fcntl
import os
import re
import shlex
import signal
import struct
import termios
from collections.abc import Iterator
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from delaylog.broker.cli.connection import interruptible
from delaylog.broker.cli.failures import UsageError, fail
from tests.broker.cli.terminal import Terminal
from tests.starts.warm import WarmProcess, run_warm
from tests.waiting import await_that

WIDTH = 80


@pytest.fixture
def start(broker: Any) -> Iterator[Any]:
    begun: list[Terminal] = []

    def call(*words: str, typing: bool = False, zone: str = "UTC") -> Terminal:
        begun.append(Terminal(*words, "--url", broker.url, typing=typing, zone=zone))
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


LONG = "x" * 200


@pytest.fixture
def wide(broker: Any, topic: str) -> str:
    """A topic with messages of the broker's ids, long texts, a dead letter, and a schedule."""
    path = f"/v1/topics/{topic}"
    broker.call("PUT", path, {"max_retry": 0})
    broker.call("PUT", f"{path}/groups/{'g' * 40}", {})
    row = {"body": LONG, "key": f"key-{LONG}", "tags": [LONG[:60], "b"]}
    broker.post(f"{path}/messages", [row | {"delay_ms": 3_600_000}] * 2)
    for name in ("ValueError", "KeyError"):
        broker.post(f"{path}/messages", row | {"id": name * 4})
        (got,) = broker.post(f"{path}/receive", {"wait_ms": 20_000})["messages"]
        broker.post(f"{path}/nack", {"receipts": [got["receipt"]], "reason": f"{name}: {LONG}"})
    digest = {"cron": "0 9 * * 1-5", "zone": "America/Argentina/Buenos_Aires", "body": "b"}
    for name in ("digest-of-the-week", "digest-of-the-day"):
        broker.call("PUT", f"{path}/schedules/{name}", digest)
    return topic


@pytest.mark.parametrize(
    "words",
    [
        "list T",
        "list T --bodies",
        "list T --state all",
        "dead T",
        "dead T --bodies",
        "dead T --reasons",
        "stats T",
        "stats",
        "topics",
        "groups list T",
        "schedule list T",
        "jobs",
        "forecast T",
    ],
)
def test_lists_fit_a_terminal(broker: Any, wide: str, start: Any, words: str) -> None:
    """Of 80 columns: no line is longer, so the terminal folds no id, no time and no header."""
    path = f"/v1/topics/{wide}"
    broker.call("POST", f"{path}/messages:cancel", {"filter": {"tag": "none"}})
    verb, *rest = words.replace("T", wide).split()
    lines = start(verb, *rest).lines()
    assert [line for line in lines if len(line) > WIDTH] == []
    states = {"list": "waiting", "dead": "dead"}.get(verb)
    if states is not None and "--reasons" not in rest:
        listed = broker.call("GET", f"{path}/messages?state={states}").json["messages"]
        assert len(listed) == 2
        assert all(any(each["id"] in line for line in lines) for each in listed)


def test_one_row_that_does_not_fit_is_lines(wide: str, start: Any) -> None:
    shown = dict(line.split(maxsplit=1) for line in start("stats", wide).lines())
    assert (shown["topic"], shown["waiting"], shown["dead"]) == (wide, "2", "2")
    assert "bounded_by" in shown
    shown = dict(line.split(maxsplit=1) for line in start("dead", wide, "--max", "1").lines())
    assert shown["reason"] == f"ValueError: {LONG}"


@pytest.mark.parametrize("zone", ["UTC", "Asia/Kolkata", "America/St_Johns"])
def test_times_are_local_on_a_terminal(broker: Any, topic: str, start: Any, zone: str) -> None:
    """With the offset, so that each can be given back; JSON and pipes have UTC."""
    at_ms = 1_830_297_600_123
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x", "id": "m", "deliver_at_ms": at_ms})
    local = datetime.fromtimestamp(at_ms / 1000, ZoneInfo(zone)).isoformat(timespec="milliseconds")
    local = local.replace("+00:00", "Z")
    for words in (("list", topic), ("show", topic, "m"), ("stats", topic)):
        assert local in " ".join(start(*words, zone=zone).lines()), words
    life = start("show", topic, "m", "--life", zone=zone).lines()
    assert any(line.split()[1:2] == ["sent"] for line in life)
    again = start("list", topic, "--due-from", local, "--due-to", f"{local}", zone=zone)
    assert "m " not in " ".join(again.lines())
    piped = run_warm("list", topic, "--url", broker.url).stdout.decode()
    assert piped.split("\t")[2] == "2028-01-01T00:00:00.123Z"


def test_ids_can_be_pasted_into_a_shell(broker: Any, topic: str, start: Any) -> None:
    """zsh expands `~` and every shell a blank; pipes and JSON have the plain id."""
    later = {"body": "x", "delay_ms": 3_600_000}
    sent = [later, later | {"id": "two words"}, later | {"id": "plain-1"}]
    ids = [each["id"] for each in broker.post(f"/v1/topics/{topic}/messages", sent)["messages"]]
    assert ids[0].startswith("~")
    lines = start("list", topic).lines()[1:]
    assert {shlex.split(line)[0] for line in lines} == {*ids}
    assert f"'{ids[0]}'" in " ".join(lines)
    assert "'plain-1'" not in " ".join(lines)
    piped = run_warm("list", topic, "--url", broker.url).stdout.decode()
    assert {line.split("\t")[0] for line in piped.splitlines()} == {*ids}
    (shown,) = (line for line in start("show", topic, ids[0]).lines() if line.startswith("id "))
    assert shown.split()[1] == f"'{ids[0]}'"


@pytest.mark.parametrize(
    "words",
    [("list", "--bodies"), ("show", "m"), ("peek",), ("peek", "--bodies-only"), ("receive",)],
)
def test_text_of_a_sender_does_not_control_the_terminal(
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


def test_an_error_of_a_server_does_not_control_the_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert fail(UsageError("one\x1b[2J\ntwo"), as_json=False) == 2
    assert capsys.readouterr().err == "delaylog: one\\x1b[2J\ntwo\n"


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


def unread(pipe: int) -> int:
    """Bytes in a pipe that nobody has read."""
    (count,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
    return int(count)


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
        if verb == "receive":
            broker.await_waiting(1)
        else:
            # It reads its input once this is gone, and waits for more.
            os.write(writing, b"x")
            await_that(lambda: unread(reading) == 0)
        assert process.poll() is None
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert os.pread(out, 1_000, 0) == b""
        broker.await_waiting(0)
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
        jobs = await_that(
            lambda: [
                job for job in broker.call("GET", "/v1/jobs").json["jobs"] if job["topic"] == topic
            ]
        )
        # Its progress shows that it knows of the job.
        await_that(lambda: os.pread(out, 1, 0))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
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
    assert " 1d " not in plain
    assert [row[2] for row in rows] == ["2", "0", "1"]
    assert [row[4:] for row in rows] == [["█" * 24], [], ["█" * 12]]
