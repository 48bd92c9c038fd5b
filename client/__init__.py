"""The SDK: clients of the broker's HTTP API for threads and asyncio. It contains no server code.

A name is imported from its module when it is first used: a program with threads does not load the
modules for asyncio, nor the other way round.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from delaylog.client._async.client import AsyncClient
    from delaylog.client._async.message import AsyncMessage
    from delaylog.client._async.plain_client import AsyncPlainClient
    from delaylog.client._async.surface import AsyncQueueClient
    from delaylog.client._async.tasks import AsyncTask
    from delaylog.client._async.timers import AsyncTimer
    from delaylog.client._sync.client import Client
    from delaylog.client._sync.message import Message
    from delaylog.client._sync.plain_client import PlainClient
    from delaylog.client._sync.surface import QueueClient
    from delaylog.client._sync.tasks import Task
    from delaylog.client._sync.timers import Timer
    from delaylog.client.codec import Codec
    from delaylog.client.errors import (
        AnswerLate,
        AnswerLost,
        ApiError,
        BadRequest,
        ClientClosed,
        ClientError,
        Conflict,
        DiskFull,
        Forbidden,
        Gone,
        Held,
        IdInUse,
        NotFound,
        NotReached,
        NotReachedInTime,
        NotReady,
        QuotaExceeded,
        ReplayFailed,
        SendFailed,
        SettleFailed,
        ShardsFailed,
        TooLarge,
        TooLate,
        Unauthorized,
        Unsupported,
    )
    from delaylog.client.handlers import Reject, Retry, TimeLimitExceeded, current_message
    from delaylog.client.hooks import Hooks
    from delaylog.client.message import LeasedMessage
    from delaylog.client.models import (
        Changed,
        Counts,
        Forecast,
        GroupInfo,
        MessageInfo,
        NewMessage,
        Sent,
        Settled,
        Stats,
        TimerState,
        TopicInfo,
        TopicSettings,
    )
    from delaylog.client.sending.async_sender import AsyncSending
    from delaylog.client.sending.outbox import OutboxFull
    from delaylog.client.sending.queued import Sending
    from delaylog.client.sending.thread_sender import ThreadSending
    from delaylog.client.shards.sharding import ByKey, BySlot, RoundRobin, Shard
    from delaylog.client.workers.consumer import Backoff

__all__ = [
    "AnswerLate",
    "AnswerLost",
    "ApiError",
    "AsyncClient",
    "AsyncMessage",
    "AsyncPlainClient",
    "AsyncQueueClient",
    "AsyncSending",
    "AsyncTask",
    "AsyncTimer",
    "Backoff",
    "BadRequest",
    "ByKey",
    "BySlot",
    "Changed",
    "Client",
    "ClientClosed",
    "ClientError",
    "Codec",
    "Conflict",
    "Counts",
    "DiskFull",
    "Forbidden",
    "Forecast",
    "Gone",
    "GroupInfo",
    "Held",
    "Hooks",
    "IdInUse",
    "LeasedMessage",
    "Message",
    "MessageInfo",
    "NewMessage",
    "NotFound",
    "NotReached",
    "NotReachedInTime",
    "NotReady",
    "OutboxFull",
    "PlainClient",
    "QueueClient",
    "QuotaExceeded",
    "Reject",
    "ReplayFailed",
    "Retry",
    "RoundRobin",
    "SendFailed",
    "Sending",
    "Sent",
    "SettleFailed",
    "Settled",
    "Shard",
    "ShardsFailed",
    "Stats",
    "Task",
    "ThreadSending",
    "TimeLimitExceeded",
    "Timer",
    "TimerState",
    "TooLarge",
    "TooLate",
    "TopicInfo",
    "TopicSettings",
    "Unauthorized",
    "Unsupported",
    "current_message",
]

_NAMES: Final = {
    "_async.client": "AsyncClient",
    "_async.message": "AsyncMessage",
    "_async.plain_client": "AsyncPlainClient",
    "_async.surface": "AsyncQueueClient",
    "_async.tasks": "AsyncTask",
    "_async.timers": "AsyncTimer",
    "_sync.client": "Client",
    "_sync.message": "Message",
    "_sync.plain_client": "PlainClient",
    "_sync.surface": "QueueClient",
    "_sync.tasks": "Task",
    "_sync.timers": "Timer",
    "codec": "Codec",
    "errors": (
        "AnswerLate AnswerLost ApiError BadRequest ClientClosed ClientError Conflict DiskFull "
        "Forbidden Gone Held IdInUse NotFound NotReached NotReachedInTime NotReady QuotaExceeded "
        "ReplayFailed SendFailed SettleFailed ShardsFailed TooLarge TooLate Unauthorized "
        "Unsupported"
    ),
    "handlers": "Reject Retry TimeLimitExceeded current_message",
    "hooks": "Hooks",
    "message": "LeasedMessage",
    "models": (
        "Changed Counts Forecast GroupInfo MessageInfo NewMessage Sent Settled Stats "
        "TimerState TopicInfo TopicSettings"
    ),
    "sending.async_sender": "AsyncSending",
    "sending.outbox": "OutboxFull",
    "sending.queued": "Sending",
    "sending.thread_sender": "ThreadSending",
    "shards.sharding": "ByKey BySlot RoundRobin Shard",
    "workers.consumer": "Backoff",
}
"""The names of each module, those that type checkers read above."""
_MODULES: Final = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'delaylog.client' has no attribute {name!r}")
    found = getattr(import_module(f"delaylog.client.{_MODULES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return __all__
