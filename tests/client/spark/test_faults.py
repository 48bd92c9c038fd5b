"""Connections that can never work: the call is not repeated, and its error says what to change."""

from __future__ import annotations

import pickle
import ssl
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyspark_delaylog.broker_http import BrokerHttp
from pyspark_delaylog.errors import UnreachableError, UnusableEndpointError
from pyspark_delaylog.options import Options
from tests.certificates import Authority, write_pair, write_private
from tests.client.spark.fake_broker import FakeBroker

Secure = Callable[..., AbstractContextManager[FakeBroker]]
LOCAL = ["127.0.0.1"]


class Files:
    """An authority with certificates for a broker, each wrong in another way, and for clients."""

    def __init__(self, folder: Path) -> None:
        ours, theirs = Authority("ours"), Authority("theirs")
        self.ca = folder / "ca.pem"
        self.ca.write_bytes(ours.pem)
        self.server = {
            "good": write_private(folder / "good", ours.issue("b", hosts=LOCAL)),
            "other host": write_private(folder / "host", ours.issue("b", hosts=["broker.test"])),
            "other address": write_private(folder / "ip", ours.issue("b", hosts=["127.0.0.9"])),
            "expired": write_private(folder / "old", ours.issue("b", hosts=LOCAL, days=(-9, -1))),
            "too early": write_private(folder / "new", ours.issue("b", hosts=LOCAL, days=(1, 9))),
            "other authority": write_private(folder / "their", theirs.issue("b", hosts=LOCAL)),
        }
        self.theirs = write_pair(folder, "client", theirs.issue("client"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def secure(files: Files) -> Secure:
    @contextmanager
    def start(kind: str = "good", *, mutual: bool = False) -> Iterator[FakeBroker]:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(files.ca))
        context.load_cert_chain(files.server[kind])
        context.verify_mode = ssl.CERT_REQUIRED if mutual else ssl.CERT_NONE
        with FakeBroker() as broker:
            broker._server.socket = context.wrap_socket(broker._server.socket, server_side=True)
            broker.url = broker.url.replace("http:", "https:")
            yield broker

    return start


def ask(endpoint: str, files: Files, **given: Any) -> BrokerHttp:
    said = {"endpoint": endpoint, "caFile": files.ca, "retryWaitMs": 1, **given}
    http = BrokerHttp(Options.parse({name: str(value) for name, value in said.items()}))
    http.json("GET", "/v1/clock")
    http.close()
    return http


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("other host", "CERTIFICATE_VERIFY_FAILED.*; option endpoint must have a name"),
        ("other address", "CERTIFICATE_VERIFY_FAILED.*; option endpoint must have a name"),
        ("expired", "certificate has expired.*; renew the broker's certificate"),
        ("too early", "not yet valid.*; renew the broker's certificate, or set this machine's"),
        ("other authority", r"CERTIFICATE_VERIFY_FAILED.*; option caFile \(or DELAYLOG_CA_FILE\)"),
    ],
)
def test_a_certificate_that_cannot_be_trusted(
    secure: Secure, files: Files, kind: str, said: str
) -> None:
    with secure(kind) as broker, pytest.raises(UnusableEndpointError, match=said):
        ask(broker.url, files)


def test_an_executor_that_trusts_nothing_is_told_so_though_the_driver_was_answered(
    secure: Secure, files: Files, tmp_path: Path
) -> None:
    """The path of `caFile` may name another file there."""
    ca_file = tmp_path / "ca.pem"
    ca_file.write_bytes(files.ca.read_bytes())
    with secure() as broker:
        wire = pickle.dumps(ask(broker.url, files, caFile=ca_file, retryForMs=300))
        ca_file.write_bytes(Authority("other").pem)
        with pytest.raises(UnusableEndpointError, match="option caFile"):
            pickle.loads(wire).json("GET", "/v1/clock")


def test_a_client_certificate_that_is_missing_or_of_another_authority(
    secure: Secure, files: Files
) -> None:
    """With TLS 1.3 the refusal may also arrive as a closed connection, which is repeated."""
    certificate, key = files.theirs
    for given in ({}, {"clientCert": certificate, "clientKey": key}):
        with (
            secure(mutual=True) as broker,
            pytest.raises((UnusableEndpointError, UnreachableError)) as caught,
        ):
            ask(broker.url, files, retryForMs=200, **given)
        if isinstance(caught.value, UnusableEndpointError):
            assert "options clientCert and clientKey" in str(caught.value)


def test_the_wrong_scheme(secure: Secure, broker: FakeBroker, files: Files) -> None:
    with pytest.raises(UnusableEndpointError, match="does not speak TLS at this port: write http:"):
        ask(broker.url.replace("http:", "https:"), files)
    with (
        secure() as other,
        pytest.raises(UnusableEndpointError, match="speaks TLS at this port: write https:"),
    ):
        ask(other.url.replace("https:", "http:"), files)


def test_a_member_with_a_bad_certificate_is_passed_over(secure: Secure, files: Files) -> None:
    """Until all are so."""
    with secure("expired") as one, secure() as two, secure("other host") as three:
        assert ask(f"{one.url},{two.url}", files).repeats == 1
        with pytest.raises(UnusableEndpointError):
            ask(f"{one.url},{three.url}", files)
    with pytest.raises(UnreachableError):
        ask(f"{one.url},{three.url}", files, retryForMs=100)
