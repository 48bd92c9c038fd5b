"""The `[oidc]` table of the configuration file: whose tokens are accepted, and what they allow.

[oidc]
issuer = "https://login.example/realms/ops"
audience = "delaylog"
keys = "https://login.example/realms/ops/certs"    # or a file
algorithms = ["RS256", "ES256"]
claim = "roles"

[oidc.roles]
delay-admin = ["admin"]
orders-team = ["producer:orders.*", "viewer:orders.*"]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from delaylog.broker.engine.access.grants import Grant, parse_grant
from delaylog.broker.engine.errors import BadRequestError

ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "EdDSA", "Ed25519"),
)
"""Only algorithms with public keys: with a shared secret, the broker could make tokens too."""
_TEXTS: Final = ("issuer", "audience", "keys", "claim")


@dataclass(frozen=True, slots=True)
class OidcConfig:
    """One issuer."""

    issuer: str
    audience: str
    keys: str
    """URL or path of the issuer's public keys (JWKS)."""
    claim: str
    """The claim whose values are looked up in `roles`: a text, or a list of texts."""
    algorithms: tuple[str, ...]
    roles: dict[str, tuple[Grant, ...]]


def parse_oidc(table: Any) -> OidcConfig:
    """Check the table. ValueError names what is wrong."""
    if not isinstance(table, dict):
        raise ValueError("oidc must be a table")
    for name in table:
        if name not in (*_TEXTS, "algorithms", "roles"):
            raise ValueError(f"oidc has an unknown key {name!r}")
    for name in _TEXTS:
        if not isinstance(table.get(name), str) or not table[name]:
            raise ValueError(f"oidc.{name} must be a text")
    algorithms = table.get("algorithms")
    if not isinstance(algorithms, list) or not algorithms or not set(algorithms) <= {*ALGORITHMS}:
        raise ValueError(f"oidc.algorithms must be a list of some of {', '.join(ALGORITHMS)}")
    keys = urlsplit(table["keys"])
    if keys.scheme == "http" and keys.hostname not in ("127.0.0.1", "::1", "localhost"):
        raise ValueError("oidc.keys must be an https URL or a file: others could replace the keys")
    return OidcConfig(
        issuer=table["issuer"],
        audience=table["audience"],
        keys=table["keys"],
        claim=table["claim"],
        algorithms=tuple(algorithms),
        roles=_roles(table.get("roles")),
    )


def _roles(table: Any) -> dict[str, tuple[Grant, ...]]:
    if not isinstance(table, dict) or not table:
        raise ValueError("oidc.roles must be a table of values of the claim and their grants")
    roles = {}
    for value, grants in table.items():
        if not isinstance(grants, list) or not all(isinstance(each, str) for each in grants):
            raise ValueError(f"oidc.roles.{value} must be a list of grants")
        try:
            roles[value] = tuple(map(parse_grant, grants))
        except BadRequestError as error:
            raise ValueError(f"oidc.roles.{value}: {error}") from None
    return roles
