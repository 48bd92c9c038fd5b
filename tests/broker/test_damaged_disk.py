"""A broker that meets rot: it stops, says which file, and hands out nothing of it.

Method: real processes; a clean end, one flipped bit, a start and a call that reads it.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from delaylog.broker.process.exit_codes import ExitCode
from delaylog.storage.layout import STATE_ENTRY_SIZE
from tests.broker.verify.damaged_folder import flip
from tests.starts.warm import as_text, run_warm

HOUR_MS = 3_600_000


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("delay.log", "read"),
        ("delay.log", "receive"),
        ("delay.log", "camellia"),
        ("delay.index", "receive"),
        ("state", "read"),
    ],
)
def test_it_stops_and_names_the_file(
    start_broker: Callable[..., Any], name: str, call: str
) -> None:
    broker = start_broker()
    # Far ahead for what is read, due in a moment for what is received after the restart.
    delay_ms = 1_500 if call == "receive" else 5 * HOUR_MS
    message = {"body": "precious", "id": "a", "delay_ms": delay_ms}
    broker.post("/v1/topics/t/messages", [message, message | {"id": "b"}])
    if name == "state":
        assert broker.call("DELETE", "/v1/topics/t/messages/a").status == 200
    assert broker.stop() == 0
    (path,) = (
        path
        for path in (broker.data_dir / "hours").rglob(name)
        if path.with_name("delay.index").exists()
    )
    size = min(path.stat().st_size, STATE_ENTRY_SIZE)
    flip(path, size * 8 // 2)
    broker.start()
    with contextlib.suppress(ConnectionError, http.client.HTTPException):
        if call == "read":
            answer = broker.call("GET", "/v1/topics/t/messages/a")
            assert answer.status == 503, answer
        elif call == "camellia":
            answer = broker.call("POST", "/camellia/delayQueue/getMsg?topic=t&msgId=a")
            assert answer.status == 503, answer
        else:
            answer = broker.call("POST", "/v1/topics/t/receive", {"wait_ms": 20_000})
            assert answer.status == 503 or not answer.json["messages"], answer
    assert broker.wait() == ExitCode.DAMAGED
    logged = [*map(json.loads, broker.log_path.read_text().splitlines())]
    fatal, last = (line for line in logged if line["level"] == "critical")
    assert fatal["message"] == "the node stops"
    assert str(path) in fatal["exception"]
    assert last is logged[-1]
    assert str(path) in last["message"]
    assert "Restore the file from a backup" in last["message"]
    assert last["status"] == ExitCode.DAMAGED
    verify = run_warm("verify", broker.data_dir)
    assert verify.returncode == 1, verify.stdout
    assert path.relative_to(broker.data_dir).as_posix().encode() in verify.stdout


def test_a_start_refuses_what_it_can_see(start_broker: Callable[..., Any]) -> None:
    """The extent up to which an hour is kept is looked at by every start."""
    broker = start_broker()
    broker.post("/v1/topics/t/messages", [{"body": "x", "delay_ms": 5 * HOUR_MS}])
    assert broker.stop() == 0
    (path,) = (broker.data_dir / "hours").rglob("extents")
    flip(path, 500)
    environment = {"DELAYLOG_DATA_DIR": str(broker.data_dir), "DELAYLOG_HTTP": "127.0.0.1:0"}
    refused = as_text(run_warm("serve", environment=environment))
    assert refused.returncode == ExitCode.DAMAGED
    assert (
        f"a damaged extent in {path} at 0" in json.loads(refused.stderr.splitlines()[-1])["message"]
    )


def test_an_id_index_that_is_cut_under_the_broker(start_broker: Callable[..., Any]) -> None:
    """A look-up behind the end of a mapped file is a signal; the start says so, makes the index
    anew, and finds all ids.
    """
    broker = start_broker()
    far = [{"body": "x", "id": f"i{k}", "delay_ms": 5 * HOUR_MS} for k in range(2_000)]
    broker.post("/v1/topics/t/messages", far)
    assert broker.stop() == 0
    broker.start()
    (run,) = (broker.data_dir / "ids").glob("*.ids")
    os.truncate(run, 4096)
    with contextlib.suppress(ConnectionError, http.client.HTTPException):
        for k in range(0, 2_000, 50):
            broker.call("GET", f"/v1/topics/t/messages/i{k}")
    assert broker.wait() < 0
    broker.start()
    errors = [line for line in broker.logs() if line["level"] == "error"]
    assert ["native code" in line["message"] for line in errors] == [True], errors
    assert "run_store.py" in errors[0]["trace"]
    for k in range(0, 2_000, 50):
        assert broker.call("GET", f"/v1/topics/t/messages/i{k}").status == 200
    assert broker.stop() == 0
    broker.start()
    assert len([line for line in broker.logs() if line["level"] == "error"]) == 1, "told once"
    assert broker.stop() == 0


def test_rot_in_an_hour_of_dead_letters_is_no_torn_flush(start_broker: Callable[..., Any]) -> None:
    """All of an hour has ended and its dead letters are kept: a start refuses a flipped bit in its
    first extent, and verify calls it damage, instead of cutting the hour as new and empty."""
    broker = start_broker()
    topic = "/v1/topics/t"
    broker.post(f"{topic}/messages", {"body": "precious", "id": "a", "max_retry": 0})
    (got,) = broker.post(f"{topic}/receive", {"wait_ms": 20_000})["messages"]
    broker.post(f"{topic}/nack", {"receipts": [got["receipt"]]})
    assert broker.call("GET", f"{topic}/messages/a").json["state"] == "dead"
    assert broker.stop() == 0
    (path,) = (broker.data_dir / "hours").rglob("extents")
    flip(path, 51 * 8)
    for words in (["verify", broker.data_dir], ["serve", "--data-dir", broker.data_dir]):
        done = run_warm(*words, *(["--http", "127.0.0.1:0"] if len(words) == 3 else []))
        assert done.returncode == (1 if words[0] == "verify" else ExitCode.DAMAGED), done
        assert b"extents" in done.stdout + done.stderr
