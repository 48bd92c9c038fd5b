"""The options of clients that reach a broker over the network.

Each option is declared here once, for the asyncio clients and the threaded ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any, TypedDict

from delaylog.client.codec import Codec
from delaylog.client.hooks import Hooks
from delaylog.client.sending.outbox import SendLimits
from delaylog.client.shards.sharding import Sharding
from delaylog.client.wire.credentials import CredentialOptions, Credentials


class TransportOptions(TypedDict, total=False):
    """The options that transports take."""

    call_timeout_s: float
    connections_max: int


class ConnectionOptions(CredentialOptions, TransportOptions, total=False):
    """The options of the connection."""


class ClientOptions(ConnectionOptions, total=False):
    """The options of the connection, and the fields of `SendLimits`."""

    linger_ms: float
    batch_max: int
    batch_bytes_max: int
    pending_max: int
    pending_bytes_max: int
    retry_for_s: float


class EnvironmentOptions(ClientOptions, total=False):
    """All arguments of a client but its endpoints."""

    namespace: str
    zone: str | None
    sharding: Sharding | None
    producer: str | None
    hooks: Sequence[Hooks]
    codec: Codec


_LIMITS = {each.name for each in fields(SendLimits)}
_TRANSPORT = TransportOptions.__annotations__.keys()
assert ClientOptions.__annotations__.keys() - ConnectionOptions.__annotations__.keys() == _LIMITS


def split_options(options: ClientOptions) -> tuple[SendLimits, ConnectionOptions]:
    """Split the options into send limits and the rest. TypeError for an unknown option."""
    given: Mapping[str, Any] = options
    for name in given.keys() - ClientOptions.__annotations__.keys():
        raise TypeError(f"a client has no option {name!r}")
    connection: Any = {name: value for name, value in given.items() if name not in _LIMITS}
    limits = {name: value for name, value in given.items() if name in _LIMITS}
    return SendLimits(**limits), connection


def split_connection(options: ConnectionOptions) -> tuple[Credentials, TransportOptions]:
    """The credentials, and the options of the transport. TypeError for an unknown option."""
    given: Mapping[str, Any] = options
    rest: Any = {name: value for name, value in given.items() if name in _TRANSPORT}
    credentials = {name: value for name, value in given.items() if name not in _TRANSPORT}
    return Credentials(**credentials), rest
