"""delaylog: a disk-backed delay log broker with a hierarchical timing wheel.

The names of the SDK (`delaylog.client`) and of the embedded broker are imported when they are first
used, so that importing delaylog costs nothing. `open` and `open_async` serve a folder inside this
program.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delaylog.broker.embedded import (
        AsyncEmbeddedBroker,
        EmbeddedBroker,
        ManualClock,
        WallClock,
    )
    from delaylog.broker.embedded import open_async_broker as open_async
    from delaylog.broker.embedded import open_broker as open  # noqa: A004
    from delaylog.client import *  # noqa: F403

__version__ = "0.2.0.dev0"
# What is neither `__version__` nor in `_EMBEDDED` is a name of `delaylog.client`. Type checkers
# read only a list that is written out.
# ruff: noqa: F405
__all__ = [
    "AnswerLate",
    "AnswerLost",
    "ApiError",
    "AsyncClient",
    "AsyncEmbeddedBroker",
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
    "EmbeddedBroker",
    "Forbidden",
    "Forecast",
    "Gone",
    "GroupInfo",
    "Held",
    "Hooks",
    "IdInUse",
    "LeasedMessage",
    "ManualClock",
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
    "WallClock",
    "__version__",
    "current_message",
    "open",
    "open_async",
]

_EMBEDDED = {
    "AsyncEmbeddedBroker": "AsyncEmbeddedBroker",
    "EmbeddedBroker": "EmbeddedBroker",
    "ManualClock": "ManualClock",
    "WallClock": "WallClock",
    "open": "open_broker",
    "open_async": "open_async_broker",
}


def __getattr__(name: str) -> Any:
    if name in _EMBEDDED:
        from delaylog.extras import needed_by

        with needed_by(f"delaylog.{name}"):
            from delaylog.broker import embedded
        return getattr(embedded, _EMBEDDED[name])
    if name in __all__:
        from delaylog import client

        return getattr(client, name)
    raise AttributeError(f"module 'delaylog' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
