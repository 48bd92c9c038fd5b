"""Configuration: the checked values of the settings.

`settings` has the table of the settings and reads their sources. The file's `[limits]` table sets
fields of `Limits` by name. Its `[oidc]` table says whose tokens are accepted, and what they allow::

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

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final
from urllib.parse import urlsplit

from delaylog.broker.engine.access.grants import Grant, parse_grant
from delaylog.broker.engine.access.token_form import is_token
from delaylog.broker.engine.errors import BadRequestError
from delaylog.broker.engine.limits import Limits
from delaylog.broker.host.settings import ADMIN_TOKEN, ConfigError, did_you_mean, read_sources
from delaylog.broker.host.watch.audit_files import MODES, AuditSettings
from delaylog.broker.leaves import leaf_rows

# ----------------------------------------------------------------------------- the [oidc] table

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


# --------------------------------------------------------------------------------- all settings

_HOST_NAME: Final = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")
_INSECURE: Final = re.compile("no-auth|no-tls")
_ANY: Final = ("0.0.0.0", "::")
"""Hosts of listeners that stand for all addresses of the machine."""
_ORIGIN: Final = re.compile(r"https?://[^\s/,]+")


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """TLS of the listeners for HTTP and Redis clients. Members are paths of PEM files."""

    cert: str
    key: str | None = None
    """None: the key is in the file of the certificate."""
    client_ca: str | None = None
    policy: str = "intermediate"


@dataclass(frozen=True, slots=True)
class Config:
    """A checked configuration."""

    data_dir: str
    http_host: str
    http_port: int
    fsync: str
    cluster: str | None
    """Path of the cluster file."""
    cluster_node: str | None
    new_cluster: bool
    """The cluster has never run, so a node with an empty folder starts as a voter."""
    log_level: str
    log_format: str
    http_hosts: tuple[str, ...] = ()
    """Host names that requests may use for this broker, besides its addresses."""
    http_allowed_origins: tuple[str, ...] = ()
    """Origins of web pages that may call this broker."""
    tls: TlsConfig | None = None
    tls_ca: str | None = None
    """Path of the CAs that this node trusts in calls to other nodes; None = the system's."""
    hold: bool | None = None
    """Hold the broker from this start on (True), or release it (False)."""
    archive_hold: bool = False
    """Keep ended hours until an operator releases them."""
    admin_token: str | None = field(default=None, repr=False)
    """The first administrator's token, from the environment only: flags show in lists of
    processes.
    """
    no_auth: bool = False
    """The operator accepts that nobody has to authenticate."""
    no_tls: bool = False
    """The operator accepts that listeners beyond loopback do not use TLS."""
    oidc: OidcConfig | None = None
    """The issuer whose tokens are accepted besides the broker's own."""
    audit: AuditSettings = field(default_factory=AuditSettings)
    limits: Limits = field(default_factory=Limits)
    leaves: Mapping[str, Any] = field(default_factory=dict)
    """What leaves make of their settings, by the name of the leaf."""
    listeners: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    """The addresses of their listeners, by the name of the setting."""

    @property
    def open_to_others(self) -> bool:
        """Whether a listener can be reached from other machines."""
        return not all(map(is_loopback, self._hosts))

    @property
    def called_at(self) -> list[str]:
        """Names and addresses at which the settings expect clients of other machines."""
        listening = [host for host in self._hosts if host not in _ANY and not is_loopback(host)]
        return [*dict.fromkeys((*self.http_hosts, *listening))]

    @property
    def _hosts(self) -> list[str]:
        """The hosts of all listeners."""
        return [self.http_host, *(host for host, _ in self.listeners.values())]


def parse_address(text: str, name: str) -> tuple[str, int]:
    """(host, port) of `host:port`; IPv6 hosts in brackets."""
    host, colon, port = text.rpartition(":")
    host = host.strip("[]")
    if not colon or not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65_535:
        raise ConfigError(f"{name} must be HOST:PORT, not {text!r}")
    return host, int(port)


def one_of(value: str, name: str, known: tuple[str, ...]) -> str:
    """The value of a setting, which must be one of these words."""
    if value not in known:
        raise ConfigError(f"{name} must be one of {', '.join(known)}, not {value!r}")
    return value


def words(
    values: Mapping[str, str], name: str, pattern: re.Pattern[str], what: str
) -> tuple[str, ...]:
    """The comma-separated words of a setting; each must match `pattern`, described by `what`."""
    text = values[name.replace("-", "_")]
    found = tuple(word.strip() for word in text.split(",")) if text.strip() else ()
    for word in found:
        if not pattern.fullmatch(word):
            raise ConfigError(f"{name} must be {what}, comma-separated, not {word!r}")
    return found


def load_config(flags: Mapping[str, Any], environ: Mapping[str, str] = os.environ) -> Config:
    """Merge all sources. Raises ConfigError."""
    sources = read_sources(flags, environ)
    values = sources.values
    host, port = parse_address(values["http"], "http")
    fsync = one_of(values["fsync"], "fsync", ("always", "interval"))
    if values["cluster"] and fsync != "always":
        raise ConfigError("fsync must be always in a cluster: a majority must not lose its frames")
    insecure = words(values, "insecure", _INSECURE, "no-auth or no-tls")
    no_auth = "no-auth" in insecure
    listeners = {
        leaf.listens: parse_address(values[leaf.listens], leaf.listens)
        for leaf in leaf_rows()
        if leaf.listens and values[leaf.listens]
    }
    tls = _tls(values)
    if tls is None and "no-tls" not in insecure:
        _check_reach(values, {"http": host, **{name: at[0] for name, at in listeners.items()}})
    if flags.get("new_cluster") and not values["cluster"]:
        raise ConfigError("new-cluster requires --cluster FILE")
    return Config(
        data_dir=values["data_dir"],
        http_host=host,
        http_port=port,
        fsync=fsync,
        cluster=values["cluster"] or None,
        cluster_node=values["node"] or None,
        new_cluster=bool(flags.get("new_cluster")),
        hold=flags.get("hold"),
        log_level=one_of(values["log_level"], "log-level", ("debug", "info", "warning", "error")),
        log_format=one_of(values["log_format"], "log-format", ("auto", "json", "text")),
        http_hosts=words(values, "http-host", _HOST_NAME, "host names without a port"),
        http_allowed_origins=words(
            values, "http-allowed-origin", _ORIGIN, "origins such as https://console.example:8443"
        ),
        admin_token=_admin_token(environ.get(ADMIN_TOKEN) or None),
        no_auth=no_auth,
        no_tls="no-tls" in insecure,
        tls=tls,
        tls_ca=values["tls_ca"] or None,
        archive_hold=one_of(values["archive_hold"], "archive-hold", ("off", "on")) == "on",
        oidc=None if sources.oidc is None else _oidc(sources.oidc),
        audit=AuditSettings(one_of(values["audit"], "audit", MODES)),
        limits=_limits(sources.limits),
        leaves={
            leaf.name: leaf.configure(values, no_auth) for leaf in leaf_rows() if leaf.configure
        },
        listeners=listeners,
    )


def _oidc(table: Any) -> OidcConfig:
    try:
        return parse_oidc(table)
    except ValueError as error:
        raise ConfigError(str(error)) from None


def _admin_token(text: str | None) -> str | None:
    """The token of the variable. The error does not show it."""
    if text is not None and not is_token(text):
        raise ConfigError(f"{ADMIN_TOKEN} is not a token: make one with delaylog token generate")
    return text


def _check_reach(values: Mapping[str, str], hosts: Mapping[str, str]) -> None:
    """Refuse listeners without TLS that other machines can reach."""
    for name, host in hosts.items():
        if not is_loopback(host):
            raise ConfigError(
                f"{name} {values[name]} is open to other machines without TLS: give "
                "--tls-cert FILE, or accept it with --insecure=no-tls"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches the address. A name counts only if it is localhost."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def _tls(values: Mapping[str, str]) -> TlsConfig | None:
    policy = one_of(values["tls_policy"], "tls-policy", ("intermediate", "modern"))
    if not values["tls_cert"]:
        for name in ("tls-key", "tls-client-ca"):
            if values[name.replace("-", "_")]:
                raise ConfigError(f"{name} requires tls-cert FILE")
        return None
    return TlsConfig(
        cert=values["tls_cert"],
        key=values["tls_key"] or None,
        client_ca=values["tls_client_ca"] or None,
        policy=policy,
    )


def _limits(table: Any) -> Limits:
    names = {f.name for f in fields(Limits)}
    if not isinstance(table, dict):
        raise ConfigError("limits must be a table")
    for name, value in table.items():
        if name not in names:
            meant = did_you_mean(name, names, "`delaylog config` lists them")
            raise ConfigError(f"there is no limit {name!r}; {meant}")
        if not isinstance(value, int) or isinstance(value, bool):
            raise ConfigError(f"limits.{name} must be a whole number")
    try:
        return Limits(**table)
    except ValueError as error:
        raise ConfigError(str(error)) from None
