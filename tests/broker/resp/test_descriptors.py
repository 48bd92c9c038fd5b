"""Redis clients leave descriptors to the log, to hours and to HTTP, however many come."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from delaylog.broker.host.tls.listener import HANDSHAKE_SECONDS
from tests.broker.conftest import read_all
from tests.broker.resp.conftest import RespBroker
from tests.certificates import self_signed, write_private
from tests.starts.warm import PROGRAM
from tests.waiting import await_that

FILES = 256
LIMITED = ("/bin/sh", "-c", f'ulimit -n {FILES}; exec "$0" "$@"', PROGRAM)


@contextmanager
def limited(folder: Path, *options: str) -> Iterator[tuple[RespBroker, list[socket.socket]]]:
    """A broker with few descriptors, which ends well, and sockets that are closed after it."""
    broker = RespBroker(folder, "--resp", "RESP", *options, program=LIMITED)
    broker.start()
    socks: list[socket.socket] = []
    try:
        yield broker, socks
        broker.end_well()
    finally:
        for sock in socks:
            sock.close()
        broker.kill()


def crowd(broker: RespBroker) -> list[socket.socket]:
    """More connections than there are descriptors."""
    address = ("127.0.0.1", broker.resp_port)
    return [socket.create_connection(address, 30) for _ in range(FILES + 50)]


def test_more_clients_than_descriptors(tmp_path: Path) -> None:
    with limited(tmp_path) as (broker, socks):
        first = broker.connect()
        assert first.call("CONFIG", "GET", "maxclients") == [b"maxclients", b"%d" % (FILES // 2)]
        socks += crowd(broker)
        assert read_all(socks[-1]) == b"-ERR max number of clients reached\r\n"
        assert broker.call("GET", "/metrics").status == 200
        assert first.call("SET", "k", "v") == b"OK"
        told = first.call("INFO", "stats").decode().split("rejected_connections:")[1]
        assert int(told.split()[0]) > 0
        first.close()


def test_idle_sockets_on_the_tls_port(tmp_path: Path) -> None:
    """They never begin their handshake; each is counted all the same, and ends after a while."""
    pair = write_private(tmp_path / "broker.pem", self_signed())
    context = ssl.create_default_context(cafile=str(pair))
    with limited(tmp_path, "--tls-cert", str(pair)) as (broker, socks):
        broker.tls = context
        socks += crowd(broker)
        # The last ones were refused at once.
        assert socks[-1].recv(1) == b""
        assert broker.call("GET", "/healthz").status == 200
        assert broker._process is not None
        assert len(os.listdir(f"/proc/{broker._process.pid}/fd")) < FILES * 3 // 4
        assert broker.call("POST", "/v1/topics/t/messages", {"body": "x"}).status in (200, 201)
        context.check_hostname = False

        def has_room() -> bool:
            try:
                with closing(broker.connect(tls=context)) as client:
                    return bool(client.call("SET", "k", "v") == b"OK")
            except OSError:
                return False

        await_that(has_room, seconds=HANDSHAKE_SECONDS + 20)
