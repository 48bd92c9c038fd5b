"""`delaylog top` against a broker: as a table, as JSON, and on a terminal with keys."""

from __future__ import annotations

import json
from http.server import ThreadingHTTPServer
from typing import Any

from tests.broker.cli.terminal import Terminal
from tests.http_server import Handler, served, url_of
from tests.starts.warm import as_text, run_warm


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
    with served(ThreadingHTTPServer(("127.0.0.1", 0), _Other)) as other:
        done = as_text(run_warm("top", "--every", "20ms", "--url", url_of(other)))
    assert (done.returncode, done.stdout) == (1, "")
    assert "it has no metrics of delaylog" in done.stderr


class _Other(Handler):
    def respond(self) -> None:
        self.answer(200, b"go_goroutines 7\n")


def test_a_person_looks_at_a_topic(start_broker: Any, topic: str) -> None:
    """Purpose: keys work, and the screen is left clean. Method: sort by name, choose, look at the
    detail, go back, quit."""
    broker = start_broker()
    broker.post(f"/v1/topics/{topic}/messages", {"body": "x", "delay_ms": 3_600_000})
    words = ("top", "--every", "50ms", "--url", broker.url)
    live = Terminal(*words, typing=True, lines=40, width=140)
    try:
        live.until(topic.encode())
        for keys, shown in (
            (b"w", "waiting▾"),
            (b"\r", "became ready this late"),
            (b"\x1b", "waiting▾"),
            # The screen from before is shown again.
            (b"q", "\x1b[?1049l"),
        ):
            live.type(keys)
            live.until(shown.encode(), from_now=True)
        assert live.process.wait(30) == 0
    finally:
        live.close()
