"""The dashboard of an embedded broker: its files, the API on the broker's clock, and its end."""

from __future__ import annotations

import asyncio
import errno
import json
import threading
import urllib.error
import urllib.request
from concurrent.futures import Future
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from delaylog.broker.embedded import ManualClock
from delaylog.broker.embedded.node import ClosedError
from delaylog.broker.embedded.open_folder import open_async_broker
from delaylog.broker.process import embedded_dashboard

DAY = 86_400_000


def ask(url: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    """Status and JSON of an answer."""
    data = None if body is None else json.dumps(body).encode()
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    wanted = {"Content-Type": "application/json", **given}
    request = urllib.request.Request(url.removesuffix("/ui/") + path, data, wanted)
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_it_shows_the_broker_on_its_own_clock(open_embedded: Any) -> None:
    clock = ManualClock()
    broker = open_embedded(clock=clock)
    broker.send("reminders", "pay the rent", id="rent", delay=timedelta(milliseconds=30 * DAY))
    url = broker.serve_ui()
    assert broker.serve_ui() == url
    with urllib.request.urlopen(url, timeout=30) as page:
        assert b"<title>delaylog</title>" in page.read()
        assert page.headers["Content-Security-Policy"].startswith("default-src 'self'")
    status, before = ask(url, "/v1/clock")
    assert status == 200
    path = "/v1/topics/reminders/messages/rent"
    assert ask(url, path)[1]["state"] == "waiting"
    clock.advance(days=30)
    assert ask(url, path)[1]["state"] == "ready"
    assert ask(url, "/v1/clock")[1]["now_ms"] - before["now_ms"] == 30 * DAY
    assert ask(url, "/v1/overview")[1]["counts"]["ready"] == 1
    (grant,) = ask(url, "/v1/session")[1]["grants"]
    assert {"send", "admin", "dashboard"} <= {*grant.split(",")}
    assert "metrics" not in grant


def test_the_overview_has_the_lateness_of_minutes_that_ended(open_embedded: Any) -> None:
    clock = ManualClock()
    broker = open_embedded(clock=clock)
    url = broker.serve_ui()
    broker.send("t", "x")
    clock.advance(seconds=7)
    broker.receive("t")
    clock.advance(minutes=1)
    lateness = ask(url, "/v1/overview")[1]["lateness"]
    (minute,) = lateness["minutes"]
    counts = zip(lateness["bounds_ms"], minute["counts"], strict=False)
    assert [bound for bound, count in counts if count] == [30_000]


def test_changes_and_refusals(open_embedded: Any) -> None:
    broker = open_embedded(clock=ManualClock(), fsync="never")
    url = broker.serve_ui()
    sent = ask(url, "/v1/topics/t/messages", {"body": "x", "id": "m"})
    assert (sent[0], sent[1]["result"]) == (200, "created")
    assert broker.receive("t")[0].id == "m"
    assert ask(url, "/v1/topics/t/messages", {"body": 1})[0] == 400
    assert ask(url, "/v1/nothing")[0] == 404
    assert ask(url, "/v1/principals")[0] == 404
    big = {"body": "x" * (1 << 21)}
    assert ask(url, "/v1/topics/t/messages", big)[0] == 413
    foreign = ask(url, "/v1/topics/t/purge", {}, Origin="https://evil.example")
    assert (foreign[0], foreign[1]["code"]) == (403, "forbidden")
    assert ask(url, "/v1/clock", None, Host="evil.example")[0] == 421


def test_live_reads(open_embedded: Any) -> None:
    """They are a stream, without the id that a server gives to each request."""
    broker = open_embedded(clock=ManualClock())
    url = broker.serve_ui().removesuffix("/ui/")
    with urllib.request.urlopen(f"{url}/v1/live?read=/v1/clock", timeout=30) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        assert "X-Request-Id" not in answer.headers
        assert json.loads(answer.readline().removeprefix(b"data: "))["/v1/clock"]["now_ms"]
        broker.close()


def test_it_ends_with_the_broker(open_embedded: Any) -> None:
    broker = open_embedded()
    url = broker.serve_ui()
    assert ask(url, "/v1/clock")[0] == 200
    broker.close()
    assert "delaylog-ui" not in [each.name for each in threading.enumerate()]
    with pytest.raises(urllib.error.URLError):
        ask(url, "/v1/clock")
    with pytest.raises(ClosedError):
        broker.serve_ui()


def test_a_port_that_is_taken(open_embedded: Any) -> None:
    one, other = open_embedded(), open_embedded()
    port = int(one.serve_ui().split(":")[2].partition("/")[0])
    with pytest.raises(OSError, match="address already in use"):
        other.serve_ui(port=port)
    assert ask(other.serve_ui(), "/v1/clock")[0] == 200


def test_addresses_that_cannot_be_used(open_embedded: Any) -> None:
    """Each is refused at once, and names the value; the broker can serve at another one."""
    broker = open_embedded()
    for port in (-1, 65_536, 70_000):
        with pytest.raises(ValueError, match=f"port is {port}: give 0 .* to 65535"):
            broker.serve_ui(port=port)
    for option, value in (("port", "80"), ("port", True), ("port", None), ("host", None)):
        with pytest.raises(TypeError, match=f"{option} is {value!r}: give an? "):
            broker.serve_ui(**{option: value})
    for host in ("x" * 70, "no-such-host.invalid"):
        with pytest.raises((OSError, UnicodeError)):
            broker.serve_ui(host=host)
    assert "delaylog-ui" not in [each.name for each in threading.enumerate()]
    assert ask(broker.serve_ui(), "/v1/clock")[0] == 200


class Interrupted(Future[int]):
    def result(self, timeout: float | None = None) -> int:
        raise KeyboardInterrupt


class InterruptedLate(Future[int]):
    def result(self, timeout: float | None = None) -> int:
        super().result(timeout)
        raise KeyboardInterrupt


@pytest.mark.parametrize("future", [Interrupted, InterruptedLate])
def test_a_start_that_ctrl_c_met_serves_nothing(
    open_embedded: Any, monkeypatch: pytest.MonkeyPatch, future: type[Future[int]]
) -> None:
    broker = open_embedded()
    with monkeypatch.context() as patched:
        patched.setattr(embedded_dashboard, "Future", future)
        with pytest.raises(KeyboardInterrupt):
            broker.serve_ui()
    assert "delaylog-ui" not in [each.name for each in threading.enumerate()]
    assert ask(broker.serve_ui(), "/v1/clock")[0] == 200


def test_a_process_without_a_descriptor_for_its_loop(
    open_embedded: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = open_embedded()

    def fail() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patched:
        patched.setattr(asyncio.events, "new_event_loop", fail)
        with pytest.raises(OSError, match="Too many"):
            broker.serve_ui()
    assert ask(broker.serve_ui(), "/v1/clock")[0] == 200


async def test_for_event_loops(tmp_path: Path) -> None:
    async with open_async_broker(tmp_path / "data", clock=ManualClock()) as broker:
        url = await broker.serve_ui()
        sending = asyncio.to_thread(ask, url, "/v1/topics/t/messages", {"body": "x", "id": "m"})
        assert (await sending)[0] == 200
        (got,) = await broker.receive("t")
        assert got.id == "m"
