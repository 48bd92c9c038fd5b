"""Redis clients leave descriptors to the log, to hours and to HTTP, however many come."""

from __future__ import annotations

import socket
from pathlib import Path

from tests.broker.conftest import read_all
from tests.broker.resp.conftest import RespBroker
from tests.starts.warm import PROGRAM

FILES = 256


def test_more_clients_than_descriptors(tmp_path: Path) -> None:
    limited = ("/bin/sh", "-c", f'ulimit -n {FILES}; exec "$0" "$@"', PROGRAM)
    broker = RespBroker(tmp_path, "--resp", "RESP", program=limited)
    broker.start()
    socks: list[socket.socket] = []
    try:
        first = broker.connect()
        assert first.call("CONFIG", "GET", "maxclients") == [b"maxclients", b"%d" % (FILES // 2)]
        address = ("127.0.0.1", broker.resp_port)
        socks += [socket.create_connection(address, 10) for _ in range(FILES + 50)]
        assert read_all(socks[-1]) == b"-ERR max number of clients reached\r\n"
        assert broker.call("GET", "/metrics").status == 200
        assert first.call("SET", "k", "v") == b"OK"
        # Nor does a client that asks for more get them.
        assert first.call("CONFIG", "SET", "maxclients", 10_000) == b"OK"
        socks.append(socket.create_connection(address, 10))
        assert read_all(socks[-1]) == b"-ERR max number of clients reached\r\n"
        first.close()
        assert broker.stop() == 0
        broker.assert_clean_logs()
    finally:
        for sock in socks:
            sock.close()
        broker.kill()
