"""The connector's token and TLS files: where each process finds them, and where the token goes."""

from __future__ import annotations

import pickle
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspark_delaylog.broker_http import BrokerHttp
from pyspark_delaylog.errors import OptionError, RefusedError, UnreachableError
from pyspark_delaylog.options import Options
from tests.client.certificates import Certificates, make_certificates
from tests.client.spark.conftest import OptionsOf
from tests.client.spark.fake_broker import FakeBroker
from tests.client.spark.misbehaving_server import Call, Fault

SECRET = "s3cret-of-the-test"
CLOCK = ("GET", "/v1/clock")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return make_certificates(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def secure(certificates: Certificates) -> Iterator[FakeBroker]:
    """A broker behind TLS that asks for a client certificate."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates.ca))
    context.load_cert_chain(certificates.server, certificates.server_key)
    context.verify_mode = ssl.CERT_REQUIRED
    with FakeBroker() as broker:
        broker._server.socket = context.wrap_socket(broker._server.socket, server_side=True)
        broker.url = broker.url.replace("http:", "https:")
        yield broker


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


def test_a_private_authority_and_a_client_certificate(
    secure: FakeBroker, certificates: Certificates
) -> None:
    c = certificates
    said = {"endpoint": secure.url, "topic": "t", "token": SECRET}
    pair = {"clientCert": str(c.client), "clientKey": str(c.client_key)}
    http = BrokerHttp(Options.parse(said | pair | {"caFile": str(c.ca)}))
    http.json(*CLOCK)
    both = c.client.with_name("both.pem")
    both.write_bytes(c.client.read_bytes() + c.client_key.read_bytes())
    both.chmod(0o600)
    one = {"caFile": str(c.ca), "clientCert": str(both)}
    BrokerHttp(Options.parse(said | one)).json(*CLOCK)
    assert shown(secure) == [f"Bearer {SECRET}"] * 2


def test_a_redirect_out_of_tls_gets_no_request(
    secure: FakeBroker, broker: FakeBroker, certificates: Certificates
) -> None:
    """Not even to a node that the options name."""
    c = certificates
    secure.members = [{"http": broker.url}]

    def redirect(call: Call) -> Fault | None:
        leads = call.path == "/v1/cluster"
        return None if leads else Fault(307, {"Location": broker.url + call.path})

    secure.fault = redirect
    said = {
        "topic": "t",
        "token": SECRET,
        "caFile": str(c.ca),
        "clientCert": str(c.client),
        "clientKey": str(c.client_key),
    }
    for endpoint in (secure.url, f"{secure.url},{broker.url}"):
        http = BrokerHttp(Options.parse({**said, "endpoint": endpoint}))
        with pytest.raises(RefusedError, match="not followed: the token would leave https"):
            http.json(*CLOCK)
    assert broker.calls == []
