"""A small async client of the broker's HTTP API; it imports nothing from the server."""

from delaylog.client.http_client import (
    AnswerLost,
    ApiError,
    AsyncClient,
    ClientError,
    Message,
    NotReached,
    Received,
)

__all__ = [
    "AnswerLost",
    "ApiError",
    "AsyncClient",
    "ClientError",
    "Message",
    "NotReached",
    "Received",
]
