"""`delaylog top` against a broker: as a table, as JSON, and on a terminal with keys."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import termios
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from tests.starts.warm import WarmProcess, as_text, run_warm


def test_one_table_for_a_pipe(broker: Any, topic: str, run: Any) -> None:
    broker.post(f"/v1/topics/{topic}/messages", [{"body": "x", "delay_ms": 3_600_000}] * 3)
    done = run("top", "--every", "50ms", "--sort", "waiting")
    assert done.returncode == 0, done.stderr
    header, *rows = done.stdout.splitlines()
    assert header.split()[:3] == ["topic", "sent/s", "out/s"]
    (mine,) = (row.split() for row in rows if row.split()[0] == topic)
    assert mine[4] == "3"


def test_json_lines(broker: Any, topic: str) -> None:
    """A line for each topic and interval; a message that was received shows how late it was."""
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x"})
    broker.post(f"/v1/topics/{topic}/receive", {"wait_ms": 5_000})
    words = ("top", "--json", "--every", "20ms", "--count", "2", "--url", broker.url)
    done = as_text(run_warm(*words))
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    mine = [line for line in lines if line["topic"] == topic]
    assert len(mine) == 2
    assert mine[0]["leased"] == 1


def test_another_server_has_no_topics() -> None:
    """An empty table would say that a broker has no topics."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Other) as other:
        Thread(target=other.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{other.server_port}"
        done = as_text(run_warm("top", "--every", "20ms", "--url", url))
        other.shutdown()
    assert (done.returncode, done.stdout) == (1, "")
    assert "it has no metrics of delaylog" in done.stderr


class _Other(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"go_goroutines 7\n")

    def log_message(self, *_: object) -> None:
        """Write nothing."""


class Screen:
    """The command on a terminal of 140 columns, and what it has shown."""

    def __init__(self, *words: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
        self.shown = b""
        # They would be believed before the terminal; pytest-xdist sets them.
        environment = {
            name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")
        }
        self.process = WarmProcess(
            *words, stdin=theirs, stdout=theirs, stderr=theirs, environment=environment
        )
        os.close(theirs)

    def until(self, text: bytes) -> None:
        """Read until this is shown, from now on."""
        self.shown, end_s = b"", time.monotonic() + 60
        while text not in self.shown:
            ready, _, _ = select.select([self._ours], [], [], 1)
            assert time.monotonic() < end_s, self.shown[-10_000:]
            if not ready:
                continue
            self.shown += os.read(self._ours, 65_536)

    def press(self, keys: bytes) -> None:
        os.write(self._ours, keys)

    def close(self) -> None:
        self.process.kill()
        os.close(self._ours)


def test_a_person_looks_at_a_topic(start_broker: Any, topic: str) -> None:
    """Purpose: keys work, and the screen is left clean. Method: sort by name, choose, look at the
    detail, go back, quit."""
    broker = start_broker()
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x", "delay_ms": 3_600_000})
    live = Screen("top", "--every", "50ms", "--url", broker.url)
    try:
        look_at(live, topic)
    finally:
        live.close()


def look_at(live: Screen, topic: str) -> None:
    live.until(topic.encode())
    live.press(b"w")
    live.until("waiting▾".encode())
    live.press(b"\r")
    live.until(b"became ready this late")
    live.press(b"\x1b")
    live.until("waiting▾".encode())
    live.press(b"q")
    # The screen from before is shown again.
    live.until(b"\x1b[?1049l")
    assert live.process.wait(30) == 0
