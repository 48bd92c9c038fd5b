"""Redis clients whose certificates prove who they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.host.tls.listening import Files
from tests.broker.resp.conftest import RespSecured
from tests.broker.resp.resp_client import RespClient, is_closed, is_error
from tests.certificates import Authority


class Certified:
    """A broker that verifies certificates of clients."""

    def __init__(self, secured_broker: Callable[..., RespSecured], folder: Path) -> None:
        self.files, self.clients = Files(folder), Authority("clients")
        self.files.trust(self.clients)
        self.secured = secured_broker(
            *("--tls-cert", str(folder / "broker.pem")),
            *("--tls-client-ca", str(folder / "clients.pem")),
        )
        self.secured.broker.tls = self.files.client()

    def connect(self, name: str | None, **how: Any) -> RespClient:
        """A client that has not sent AUTH; None = without a certificate."""
        issuer = None if name is None else self.clients
        context = self.files.client(issuer, name or "", **how)
        context.check_hostname = False
        return self.secured.connect(None, tls=context)


@pytest.fixture
def certified(
    secured_broker: Callable[..., RespSecured], tmp_path_factory: pytest.TempPathFactory
) -> Certified:
    return Certified(secured_broker, tmp_path_factory.mktemp("tls"))


def test_a_certificate_is_a_login(certified: Certified) -> None:
    secured = certified.secured
    token = secured.principal("worker", "redis", certificates=["cn:worker"])
    client = certified.connect("worker")
    assert client.call("ACL", "WHOAMI") == b"worker"
    assert client.call("SET", "k", b"x" * 100_000) == b"OK"
    assert client.call("RESET") == b"RESET"
    assert client.call("ACL", "WHOAMI") == b"worker"
    assert client.call("AUTH", "admin", secured.admin) == b"OK"
    assert client.call("ACL", "WHOAMI") == b"admin"
    for name in (None, "stranger"):
        stranger = certified.connect(name)
        assert is_error(stranger.call("GET", "k"), "NOAUTH")
        assert stranger.call("AUTH", token) == b"OK"
        assert stranger.call("STRLEN", "k") == 100_000


def test_a_certificate_that_is_taken_away_ends_connections(certified: Certified) -> None:
    secured = certified.secured
    secured.principal("worker", "redis", certificates=["cn:worker"])
    client = certified.connect("worker")
    assert client.call("PING") == b"PONG"
    changed = secured.call("PUT", "/v1/principals/worker", {"grants": ["redis"]})
    assert changed.status == 200
    assert is_closed(client)
    assert is_error(certified.connect("worker").call("GET", "k"), "NOAUTH")


def test_an_expired_certificate_ends_connections(certified: Certified) -> None:
    certified.secured.principal("brief", "redis", certificates=["cn:brief"])
    client = certified.connect("brief", days=(-1, 8 / 86_400))
    assert client.call("SUBSCRIBE", "news")[0] == b"subscribe"
    assert is_closed(client)
