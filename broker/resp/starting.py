"""Creates the endpoint for Redis clients from its configuration."""

from __future__ import annotations

import ssl

from delaylog.broker.calls.serving_node import ServingNode
from delaylog.broker.host.config import ConfigError, RespConfig
from delaylog.broker.keyspace.server_state import ServerState
from delaylog.broker.resp.accounts import read_accounts
from delaylog.broker.resp.connection import Connection
from delaylog.broker.resp.face import RespFace


def make_face(node: ServingNode, config: RespConfig) -> RespFace:
    """Create the endpoint, which does not listen yet. Raises ConfigError."""
    accounts = {} if config.auth is None else read_accounts(config.auth)
    server = ServerState(accounts=accounts, started_ms=node.clock.now_ms())
    return RespFace(
        node,
        server,
        after_write=config.after_write,
        maxmemory=config.maxmemory,
        scripts=config.scripts,
        script_seconds=config.script_seconds,
    )


async def listen(face: RespFace, config: RespConfig) -> str:
    """Listen; returns HOST:PORT. Raises ConfigError."""
    try:
        port = await face.start(lambda: Connection(face), config.host, config.port, _tls(config))
    except OSError as error:
        raise ConfigError(
            f"cannot listen on {config.host}:{config.port}: {error.strerror}"
        ) from None
    host = f"[{config.host}]" if ":" in config.host else config.host
    return f"{host}:{port}"


def _tls(config: RespConfig) -> ssl.SSLContext | None:
    if config.tls_cert is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    key_name, key = "resp-tls-key", config.tls_key
    if key is None:
        key_name, key = "resp-tls-cert", config.tls_cert
    _readable("resp-tls-cert", config.tls_cert)
    _readable(key_name, key)

    def ask() -> str:
        raise ConfigError(f"{key_name} {key}: the key is encrypted; write it without a passphrase")

    try:
        context.load_cert_chain(config.tls_cert, key, ask)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            why = f"the key of {key_name} {key} belongs to another certificate"
        else:
            why = f"it must contain a certificate, and {key} a private key, both in PEM format"
        raise ConfigError(f"resp-tls-cert {config.tls_cert} cannot be used: {why}") from None
    return context


def _readable(name: str, path: str) -> None:
    """Raise ConfigError if a file cannot be read: OpenSSL's error does not name the file."""
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        raise ConfigError(f"cannot read {name} {path}: {error.strerror}") from None
