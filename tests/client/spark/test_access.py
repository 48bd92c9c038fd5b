"""The connector's token and TLS files: where each process finds them, and where the token goes.

A connection that can never work is not tried again, and its error says what to change.
"""

from __future__ import annotations

import pickle
import ssl
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pyspark_delaylog.broker_http import BrokerHttp
from pyspark_delaylog.errors import (
    OptionError,
    RefusedError,
    UnreachableError,
    UnusableEndpointError,
)
from pyspark_delaylog.options import Options
from tests.certificates import Authority, write_pair, write_private
from tests.client.spark.conftest import OptionsOf
from tests.client.spark.fake_broker import FakeBroker
from tests.client.spark.misbehaving_server import Call, Fault

SECRET = "s3cret-of-the-test"
CLOCK = ("GET", "/v1/clock")
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
        self.both = write_private(folder / "both", ours.issue("client"))
        self.client = pair_of(write_pair(folder, "client", ours.issue("client")))
        self.theirs = pair_of(write_pair(folder, "stranger", theirs.issue("client")))


def pair_of(paths: Sequence[Path]) -> dict[str, Path]:
    return dict(zip(("clientCert", "clientKey"), paths, strict=True))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def secure(files: Files) -> Secure:
    """Brokers behind TLS; with `mutual`, they ask for a client certificate."""

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
    http.json(*CLOCK)
    http.close()
    return http


def secret_file(folder: Path, token: str = SECRET) -> Path:
    new, path = folder / "new", folder / "token"
    new.write_text(token)
    new.chmod(0o600)
    return new.rename(path)


def shown(broker: FakeBroker) -> list[str | None]:
    """The headers that came with the tokens."""
    return [call.headers.get("Authorization") for call in broker.calls]


def test_a_token_of_a_file_or_variable_does_not_travel(
    broker: FakeBroker, options_of: OptionsOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The executor finds its own, which may differ."""
    path = secret_file(tmp_path)
    http = BrokerHttp(options_of(tokenFile=path))
    http.json(*CLOCK)
    wire = pickle.dumps((http, options_of(tokenFile=path)))
    assert SECRET.encode() not in wire
    secret_file(tmp_path, "another-token")
    there, options = pickle.loads(wire)
    there.json(*CLOCK)
    BrokerHttp(options).json(*CLOCK)
    monkeypatch.setenv("DELAYLOG_TOKEN", SECRET)
    http = BrokerHttp(options_of())
    http.json(*CLOCK)
    wire = pickle.dumps(http)
    assert SECRET.encode() not in wire
    monkeypatch.setenv("DELAYLOG_TOKEN", "third-token")
    pickle.loads(wire).json(*CLOCK)
    assert [str(said).removeprefix("Bearer ") for said in shown(broker)] == [
        SECRET,
        "another-token",
        "another-token",
        SECRET,
        "third-token",
    ]


def test_a_rotated_file_is_read_again_once(
    broker: FakeBroker, options_of: OptionsOf, tmp_path: Path
) -> None:
    broker.token = "first-token"
    http = BrokerHttp(options_of(tokenFile=secret_file(tmp_path, "first-token")))
    http.json(*CLOCK)
    broker.token = "second-token"
    secret_file(tmp_path, "second-token")
    http.json(*CLOCK)
    assert (len(broker.calls), http.repeats) == (3, 0)
    broker.token = "third-token"
    with pytest.raises(RefusedError, match=r"401 .*option tokenFile"):
        http.json(*CLOCK)
    assert len(broker.calls) == 4


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_a_proxy_gets_no_token_for_this_machine(
    broker: FakeBroker, options_of: OptionsOf, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for each in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(each, raising=False)
    with FakeBroker() as proxy:
        monkeypatch.setenv(name, proxy.url)
        BrokerHttp(options_of(token=SECRET)).json(*CLOCK)
        assert proxy.calls == []
    assert shown(broker) == [f"Bearer {SECRET}"]


@pytest.mark.parametrize(("status", "code"), [(401, "unauthorized"), (403, "forbidden")])
def test_a_refusal_names_the_right_and_is_not_repeated(
    broker: FakeBroker, options_of: OptionsOf, status: int, code: str
) -> None:
    problem = {"code": code, "status": status, "detail": "the right send on topic t is missing"}
    broker.fault = lambda call: Fault(status, document=problem)
    with pytest.raises(RefusedError, match=f"{status} {code} the right send on topic t"):
        BrokerHttp(options_of(token=SECRET)).json(*CLOCK)
    assert len(broker.calls) == 1


def test_files_that_cannot_be_used_are_errors_of_options(
    options_of: OptionsOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = secret_file(tmp_path)
    path.chmod(0o644)
    for given, said in (
        ({"tokenFile": path}, f"run: chmod 600 {path}"),
        ({"caFile": "/none"}, "CA file /none: No such file"),
        ({"token": SECRET, "endpoint": "http://h:1"}, "over plain http to http://h:1"),
    ):
        with pytest.raises(OptionError, match=said) as caught:
            BrokerHttp(options_of(**given)).json(*CLOCK)
        assert SECRET not in str(caught.value)
    named = {"endpoint": "http://localhost.:9", "insecurePlainToken": "true", "retryForMs": 0}
    with pytest.raises(UnreachableError):
        BrokerHttp(options_of(token=SECRET, **named)).json(*CLOCK)


def test_a_private_authority_and_a_client_certificate(secure: Secure, files: Files) -> None:
    with secure(mutual=True) as broker:
        for pair in (files.client, {"clientCert": files.both}):
            ask(broker.url, files, token=SECRET, **pair)
        assert shown(broker) == [f"Bearer {SECRET}"] * 2


def test_a_redirect_out_of_tls_gets_no_request(
    secure: Secure, broker: FakeBroker, files: Files
) -> None:
    """Not even to a node that the options name."""

    def redirect(call: Call) -> Fault | None:
        leads = call.path == "/v1/cluster"
        return None if leads else Fault(307, {"Location": broker.url + call.path})

    with secure() as node:
        node.members, node.fault = [{"http": broker.url}], redirect
        for endpoint in (node.url, f"{node.url},{broker.url}"):
            with pytest.raises(RefusedError, match="not followed: the token would leave https"):
                ask(endpoint, files, token=SECRET)
    assert broker.calls == []


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
            pickle.loads(wire).json(*CLOCK)


def test_a_client_certificate_that_is_missing_or_of_another_authority(
    secure: Secure, files: Files
) -> None:
    """With TLS 1.3 the refusal may also arrive as a closed connection, which is repeated."""
    for given in ({}, files.theirs):
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
