"""The options of clients that reach a broker over the network.

Each option is declared here once, for the asyncio clients and the threaded ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from datetime import timedelta
from typing import Any, TypedDict

from delaylog.client.codec import Codec
from delaylog.client.hooks import Hooks
from delaylog.client.keywords import TimeLimit
from delaylog.client.sending.outbox import SendLimits
from delaylog.client.shards.sharding import Sharding
from delaylog.client.wire.checks import check_keywords
from delaylog.client.wire.credentials import CredentialOptions, Credentials
from delaylog.client.wire.times import split_limit


class TransportOptions(TypedDict, total=False):
    """The options that transports take."""

    timeout_s: float
    connections_max: int


class ConnectionOptions(CredentialOptions, TimeLimit, total=False):
    """The options of the connection. The time limit is that of calls which give none."""

    connections_max: int


class ClientOptions(ConnectionOptions, total=False):
    """The options of the connection, and the fields of `SendLimits`."""

    linger: timedelta
    batch_max: int
    batch_bytes_max: int
    pending_max: int
    pending_bytes_max: int
    retry_for: timedelta


class EnvironmentOptions(ClientOptions, total=False):
    """All arguments of a client but its endpoints."""

    namespace: str
    zone: str | None
    sharding: Sharding | None
    producer: str | None
    hooks: Sequence[Hooks]
    codec: Codec


_LIMITS = {each.name for each in fields(SendLimits)}
assert ClientOptions.__annotations__.keys() - ConnectionOptions.__annotations__.keys() == _LIMITS


def split_options(options: ClientOptions) -> tuple[SendLimits, ConnectionOptions]:
    """Split the options into send limits and the rest. TypeError for an unknown option."""
    given: Mapping[str, Any] = options
    check_keywords("a client", given, ClientOptions)
    connection: Any = {name: value for name, value in given.items() if name not in _LIMITS}
    limits = {name: value for name, value in given.items() if name in _LIMITS}
    return SendLimits(**limits), connection


def split_connection(options: ConnectionOptions) -> tuple[Credentials, TransportOptions]:
    """The credentials, and the options of the transport. TypeError for an unknown option."""
    transport: TransportOptions = {}
    limit_s, rest = split_limit(options)
    given: dict[str, Any] = {**rest}
    if limit_s is not None:
        transport["timeout_s"] = limit_s
    if "connections_max" in given:
        transport["connections_max"] = given.pop("connections_max")
    return Credentials(**given), transport
