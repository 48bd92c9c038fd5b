"""Tokens of an OIDC issuer: real keys and signatures, and every way to forge one."""

from __future__ import annotations

import asyncio
import base64
import hmac
import json
import time
import tomllib
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, RSAKey

from delaylog.broker.host.config import load_config, parse_oidc
from delaylog.broker.host.machine import REAL
from delaylog.broker.host.settings import ConfigError
from delaylog.broker.web import oidc
from tests import http_server
from tests.broker.conftest import Broker
from tests.waiting import await_that

ISSUER, AUDIENCE = "https://login.example", "delaylog"
KEY = RSAKey.generate_key(2048, {"kid": "first"})
CURVE = ECKey.generate_key("P-256", {"kid": "curve"})
NEXT = RSAKey.generate_key(2048, {"kid": "next"})
TABLE = f"""
[oidc]
issuer = "{ISSUER}"
audience = "{AUDIENCE}"
keys = "KEYS"
claim = "roles"
algorithms = ["RS256", "ES256"]

[oidc.roles]
team = ["producer:orders.*"]
ops = ["viewer", "operate"]
"""


class Issuer(ThreadingHTTPServer):
    """A web server with the issuer's public keys."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), KeysHandler)
        self.keys: list[Any] = [KEY, CURVE]
        self.url = f"{http_server.url_of(self)}/certs"


class KeysHandler(http_server.Handler):
    server: Issuer

    def respond(self) -> None:
        keys = KeySet(self.server.keys).as_dict(private=False)
        self.answer(200, json.dumps(keys).encode())


@pytest.fixture(scope="module")
def issuer() -> Iterator[Issuer]:
    with http_server.served(Issuer()) as issuer:
        yield issuer


@pytest.fixture(scope="module")
def served(
    sound_broker: Callable[..., Broker], issuer: Issuer, tmp_path_factory: pytest.TempPathFactory
) -> Broker:
    config = tmp_path_factory.mktemp("oidc") / "delaylog.toml"
    config.write_text(TABLE.replace("KEYS", issuer.url))
    return sound_broker("--config", str(config))


def token(key: Any = KEY, algorithm: str = "RS256", /, **claims: Any) -> str:
    now = int(time.time())
    whole = {
        "iss": ISSUER,
        "aud": AUDIENCE,
        "sub": "ann",
        "iat": now,
        "exp": now + 600,
        "roles": ["team", "unknown"],
        **claims,
    }
    whole = {name: value for name, value in whole.items() if value is not None}
    header = {"alg": algorithm, "kid": key.kid or "first"}
    return jwt.encode(header, whole, key, algorithms=[algorithm])


def status(served: Broker, text: str, path: str = "/v1/session") -> int:
    return served.call("GET", path, None, {"Authorization": f"Bearer {text}"}).status


def test_claims_become_rights(served: Broker) -> None:
    for text in (token(), token(CURVE, "ES256"), token(aud=["other", AUDIENCE])):
        headers = {"Authorization": f"Bearer {text}"}
        shown = served.call("GET", "/v1/session", None, headers).json
        assert shown["principal"] == "oidc:ann"
        assert shown["grants"] == ["send:default/orders.*"]
        path = "/v1/topics/orders.new/messages"
        assert served.call("POST", path, {"body": "x"}, headers).status == 200
        assert served.call("POST", "/v1/topics/o/messages", {"body": "x"}, headers).status == 403
        assert served.call("GET", "/v1/principals", None, headers).status == 403
    assert status(served, token(roles="ops"), "/metrics") == 200
    assert status(served, token(roles=None), "/metrics") == 403
    assert served.call("GET", "/v1/topics").status == 401, "an issuer makes authentication needed"


def unsigned(header: dict[str, Any], claims: dict[str, Any], tail: str = "") -> str:
    parts = (json.dumps(header).encode(), json.dumps(claims).encode())
    encoded = [base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts]
    return ".".join([*encoded, tail])


def good_claims() -> dict[str, Any]:
    return json.loads(base64.urlsafe_b64decode(token().split(".")[1] + "=="))  # type: ignore[no-any-return]


def signed_with_the_public_key() -> str:
    """The key that everybody knows, used as the secret of HMAC."""
    head = unsigned({"alg": "HS256", "kid": "first"}, good_claims()).removesuffix(".")
    made = hmac.digest(KEY.as_pem(private=False), head.encode(), "sha256")
    return f"{head}.{base64.urlsafe_b64encode(made).decode().rstrip('=')}"


FORGED: dict[str, Callable[[], str]] = {
    "expired": lambda: token(exp=int(time.time()) - 60),
    "no expiry": lambda: token(exp=None),
    "endless": lambda: token(exp=1e400),
    "not yet": lambda: token(nbf=int(time.time()) + 600),
    "another issuer": lambda: token(iss="https://evil.example"),
    "no issuer": lambda: token(iss=None),
    "another audience": lambda: token(aud="other"),
    "no audience": lambda: token(aud=None),
    "no subject": lambda: token(sub=None),
    "a subject that is no text": lambda: token(sub=5),
    "a subject that breaks lines": lambda: token(sub="a\nb"),
    "another key": lambda: token(RSAKey.generate_key(2048, {"kid": "first"})),
    "an unknown key": lambda: token(RSAKey.generate_key(2048, {"kid": "none"})),
    "another algorithm": lambda: token(KEY, "RS512"),
    "no algorithm": lambda: unsigned({"alg": "none", "kid": "first"}, good_claims()),
    "no signature": lambda: unsigned({"alg": "RS256", "kid": "first"}, good_claims()),
    "the public key as a secret": signed_with_the_public_key,
    "cut": lambda: token()[:-3],
    "changed": lambda: ".".join(
        [token().split(".")[0], unsigned({}, {"sub": "root"}).split(".")[1], token().split(".")[2]]
    ),
    "a list": lambda: unsigned({"alg": "RS256"}, good_claims()).replace("eyJ", "W10", 1),
    "long": lambda: token(more="x" * 20_000),
}


@pytest.mark.parametrize("name", FORGED)
def test_forged_tokens(served: Broker, name: str) -> None:
    assert status(served, FORGED[name]()) in ((431,) if name == "long" else (401,))


def test_the_operator_learns_why(served: Broker) -> None:
    """The caller does not. The log has the reason, at most once in five seconds, and no token."""
    text = token(aud="other")
    answer = served.call("GET", "/v1/session", None, {"Authorization": f"Bearer {text}"})
    assert answer.json["detail"] == "the token is not valid: unknown, expired or revoked"
    said = served.log_path.read_text()
    assert "a token for the OIDC issuer is refused" in said
    assert text not in said


def test_an_expired_token_ends_although_it_is_cached(served: Broker) -> None:
    text = token(exp=int(time.time()))
    assert status(served, text) == 200, "clocks may differ by five seconds"
    await_that(lambda: status(served, text) == 401)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (("RS256", "none"), "oidc.algorithms must be a list of some of RS256"),
        (("RS256", "HS256"), "oidc.algorithms must be"),
        (('claim = "roles"', ""), "oidc.claim must be a text"),
        (("KEYS", "http://login.example/certs"), "oidc.keys must be an https URL or a file"),
        (('"viewer"', '"view"'), "oidc.roles.ops: the grant 'view' is not valid"),
        (("[oidc.roles]", "[oidc.other]"), "oidc has an unknown key 'other'"),
    ],
)
def test_wrong_tables(tmp_path: Path, change: tuple[str, str], text: str) -> None:
    file = tmp_path / "delaylog.toml"
    file.write_text(TABLE.replace(*change))
    with pytest.raises(ConfigError, match=text.replace("[", r"\[")):
        load_config({"config": str(file)}, {})


def test_new_keys_are_fetched(issuer: Issuer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Soon after a token names an unknown one, and the old ones end then."""
    monkeypatch.setattr(oidc, "AGAIN_SECONDS", 0.05)
    config = parse_oidc(tomllib.loads(TABLE.replace("KEYS", issuer.url))["oidc"])

    async def main() -> None:
        served = oidc.OidcIssuer(config, SimpleNamespace(machine=REAL))  # type: ignore[arg-type]
        await served.start()
        old, new = token(), token(NEXT)
        assert served.caller(old) is not None
        issuer.keys = [NEXT]
        assert served.caller(new) is None
        async with asyncio.timeout(30):
            while served.caller(new) is None:  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert served.caller(old) is None
        issuer.keys = [KEY, CURVE]
        served.stop()

    asyncio.run(main())


def test_without_keys_every_token_is_refused(
    start_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    config = tmp_path / "delaylog.toml"
    config.write_text(TABLE.replace("KEYS", "http://127.0.0.1:9/certs"))
    broker = start_broker("--config", str(config))
    assert status(broker, token()) == 401
    assert "keys of the OIDC issuer cannot be read" in broker.log_path.read_text()


def test_keys_from_a_file(start_broker: Callable[..., Broker], tmp_path: Path) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(json.dumps(KeySet([NEXT]).as_dict(private=False)))
    config = tmp_path / "delaylog.toml"
    config.write_text(TABLE.replace("KEYS", str(keys)))
    broker = start_broker("--config", str(config))
    assert status(broker, token(NEXT)) == 200
    assert status(broker, token()) == 401
