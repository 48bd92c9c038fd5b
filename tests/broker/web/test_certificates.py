"""Client certificates that prove a principal, over real TLS."""

from __future__ import annotations

import http.client
import json
import ssl
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.broker.answer import Answer
from tests.broker.conftest import Secured
from tests.broker.host.tls.listening import Files
from tests.certificates import CLIENT, Authority, write_private


class Served:
    """A broker that asks for client certificates, and its authority."""

    def __init__(self, secured_broker: Callable[..., Secured], folder: Path) -> None:
        self.files = Files(folder)
        self.authority = Authority("clients")
        self.files.trust(self.authority)
        self.secured = secured_broker(
            "--tls-cert", f"{folder}/broker.pem", "--tls-client-ca", f"{folder}/clients.pem"
        )

    def call(
        self, method: str, path: str, body: Any = None, *, pem: bytes = b"", **headers: str
    ) -> Answer:
        with closing(self.connect(pem)) as connection:
            return ask(connection, method, path, body, **headers)

    def connect(self, pem: bytes = b"") -> http.client.HTTPSConnection:
        context = self.files.client()
        if pem:
            context.load_cert_chain(write_private(self.files.folder / "client.pem", pem))
        return http.client.HTTPSConnection(
            "127.0.0.1", self.secured.broker.port, timeout=30, context=context
        )

    def principal(self, name: str, *grants: str, certificates: list[str]) -> None:
        body = {"grants": grants, "certificates": certificates}
        made = self.call("PUT", f"/v1/principals/{name}", body, token=self.secured.admin)
        assert made.status == 201, made


def ask(
    connection: http.client.HTTPConnection,
    method: str,
    path: str,
    body: Any = None,
    *,
    token: str = "",
    **headers: str,
) -> Answer:
    if token:
        headers["Authorization"] = f"Bearer {token}"
    wire = None if body is None else json.dumps(body).encode()
    connection.request(method, path, wire, headers)
    answer = connection.getresponse()
    return Answer(answer.status, dict(answer.getheaders()), answer.read())


@pytest.fixture(scope="module")
def served(
    secured_broker: Callable[..., Secured], tmp_path_factory: pytest.TempPathFactory
) -> Served:
    return Served(secured_broker, tmp_path_factory.mktemp("certificates"))


def test_a_certificate_is_as_good_as_a_token(served: Served) -> None:
    served.principal("worker", "send:mine", certificates=["dns:worker.example"])
    pem = served.authority.issue("anything", hosts=("worker.example",), uses=[CLIENT])
    who = served.call("GET", "/v1/session", pem=pem).json
    assert who["principal"] == "worker"
    sent = served.call("POST", "/v1/topics/mine/messages", {"body": "x"}, pem=pem)
    assert sent.status == 200
    assert served.call("POST", "/v1/topics/other/messages", {"body": "x"}, pem=pem).status == 403
    token = served.call("GET", "/v1/session", pem=pem, token=served.secured.admin).json
    assert token["principal"] == "admin", "a token counts before the certificate"
    revoked = served.call("DELETE", "/v1/principals/worker", token=served.secured.admin)
    assert revoked.status == 200
    unknown = served.call("GET", "/v1/session", pem=pem)
    assert unknown.status == 401
    assert (
        "no principal has an identity of this certificate: dns:worker.example"
        in (unknown.json["detail"])
    )


def test_names_have_kinds(served: Served) -> None:
    """A host name is not a common name, and nobody gets rights by the name of a principal."""
    served.principal("exact", "send", certificates=["dns:exact.example"])
    for pem in (
        served.authority.issue("exact.example", hosts=("else.example",), uses=[CLIENT]),
        served.authority.issue("admin", hosts=("admin",), uses=[CLIENT]),
        served.authority.issue("x", hosts=("not.exact.example",), uses=[CLIENT]),
    ):
        assert served.call("GET", "/v1/session", pem=pem).status == 401
    assert served.call("GET", "/v1/session").status == 401, "no certificate at all"


def test_a_stranger_is_refused_by_the_handshake(served: Served) -> None:
    pem = Authority("clients").issue("x", hosts=("worker.example",), uses=[CLIENT])
    with pytest.raises((ssl.SSLError, ConnectionError)):
        served.call("GET", "/v1/session", pem=pem)


def test_an_expired_certificate_ends_what_it_began(served: Served) -> None:
    """Calls of an open connection, a call that waits, and a session in its browser."""
    served.principal("brief", "receive:none", certificates=["cn:brief"])
    pem = served.authority.issue("brief", uses=[CLIENT], days=(-1, 8 / 86_400))
    with closing(served.connect(pem)) as connection, closing(served.connect(pem)) as waiting:
        opened = ask(connection, "POST", "/v1/session", {})
        assert opened.status == 201
        assert opened.json["expires_at_ms"] < (time.time() + 9) * 1_000
        with pytest.raises((http.client.HTTPException, OSError)):
            ask(waiting, "POST", "/v1/topics/none/receive", {"wait_ms": 25_000})
        refused = ask(connection, "GET", "/v1/session")
        assert refused.status == 401
        assert "the client certificate has expired" in refused.json["detail"]
    cookie = opened.headers["Set-Cookie"].partition(";")[0]
    assert served.call("GET", "/v1/session", Cookie=cookie).status == 401


def test_a_removed_authority_ends_sessions(
    secured_broker: Callable[..., Secured], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Those of its certificates. Sessions of tokens go on."""
    served = Served(secured_broker, tmp_path_factory.mktemp("removed"))
    served.principal("worker", "send:mine", certificates=["cn:worker"])
    pem = served.authority.issue("worker", uses=[CLIENT])
    admin = served.secured.admin
    certified = served.call("POST", "/v1/session", {}, pem=pem)
    by_token = served.call("POST", "/v1/session", {}, token=admin)
    cookies = [each.headers["Set-Cookie"].partition(";")[0] for each in (certified, by_token)]

    def statuses() -> list[int]:
        return [served.call("GET", "/v1/session", Cookie=each).status for each in cookies]

    assert statuses() == [200, 200]
    served.files.trust(Authority("next"))
    assert served.call("POST", "/v1/reload", {}, token=admin).status == 200
    assert statuses() == [401, 200]
