"""Client certificates that prove a principal, over real TLS."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.broker.answer import Answer
from tests.broker.conftest import Secured
from tests.certificates import CLIENT, Authority


class Served:
    """A broker that asks for client certificates, and its authority."""

    def __init__(self, secured_broker: Callable[..., Secured], folder: Path) -> None:
        self.folder = folder
        self.authority = Authority("clients")
        server = Authority("servers")
        (folder / "ca.pem").write_bytes(self.authority.pem)
        pair = folder / "server.pem"
        pair.touch(mode=0o600)
        pair.write_bytes(server.issue("server", hosts=("127.0.0.1",)))
        self.trusted = folder / "servers.pem"
        self.trusted.write_bytes(server.pem)
        self.secured = secured_broker(
            "--tls-cert", str(pair), "--tls-client-ca", f"{folder}/ca.pem"
        )

    def call(
        self, method: str, path: str, body: Any = None, *, pem: bytes = b"", token: str = ""
    ) -> Answer:
        context = ssl.create_default_context(cafile=str(self.trusted))
        if pem:
            file = self.folder / "client.pem"
            file.write_bytes(pem)
            context.load_cert_chain(file)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.secured.broker.port, timeout=30, context=context
        )
        try:
            wire = None if body is None else json.dumps(body).encode()
            connection.request(method, path, wire, headers)
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read())
        finally:
            connection.close()

    def principal(self, name: str, *grants: str, certificates: list[str]) -> None:
        body = {"grants": grants, "certificates": certificates}
        made = self.call("PUT", f"/v1/principals/{name}", body, token=self.secured.admin)
        assert made.status == 201, made


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
