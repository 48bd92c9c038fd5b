"""Idle clients leave descriptors to the broker: it serves, and does not blame the disk."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.starts.tuned import tuned

FILES = 256
OFTEN = {"delaylog.broker.engine.upkeep.checkpoints.CHECKPOINT_MS": 100}


def test_more_idle_sockets_than_descriptors(
    start_broker: Callable[..., Any], tmp_path: Path
) -> None:
    """Those beyond half are refused; checkpoints and the log find the files they need."""
    limited = ("/bin/sh", "-c", f'ulimit -n {FILES}; exec "$0" "$@"', *tuned(OFTEN))
    broker = start_broker(folder=tmp_path, program=limited)
    socks: list[socket.socket] = []
    try:
        assert broker.call("POST", "/v1/topics/t/messages", {"body": "x"}).status == 200
        address = ("127.0.0.1", broker.port)
        socks += [socket.create_connection(address, 10) for _ in range(FILES + 50)]
        refused = broker.call("GET", "/healthz")
        assert (refused.status, refused.json["code"]) == (503, "not_ready")
        for sock in socks[FILES // 4 :]:
            sock.close()
        # They are still many, and each send goes to an hour of its own.
        for k in range(30):
            sent = {"body": "x", "delay_ms": k * 3_600_000}
            while (status := broker.call("POST", "/v1/topics/t/messages", sent).status) == 503:
                time.sleep(0.05)
            assert status == 200
    finally:
        for sock in socks:
            sock.close()
    assert broker.stop() == 0
    assert "repair or replace" not in broker.log_path.read_text()
