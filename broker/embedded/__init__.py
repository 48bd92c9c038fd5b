"""A broker inside a program: `delaylog.open(path)`, with a clock that tests may move.

Read `node` first: it runs a server's node on a thread of its own. `calls` has each call as a
coroutine for that thread, which `broker` runs for threads and `async_broker` for an event loop, and
runs the handlers of `broker/calls`.
"""

from delaylog.extras import absent

try:
    from delaylog.broker.embedded.async_broker import AsyncEmbeddedBroker
    from delaylog.broker.embedded.broker import EmbeddedBroker
    from delaylog.broker.embedded.clocks import ManualClock, WallClock
    from delaylog.broker.embedded.node import ClosedError
    from delaylog.broker.embedded.open_folder import open_async_broker, open_broker
    from delaylog.broker.host.clock import Clock
    from delaylog.broker.host.settings import ConfigError
except ImportError as error:
    raise absent(error, "delaylog.broker.embedded", "server") from None

__all__ = [
    "AsyncEmbeddedBroker",
    "Clock",
    "ClosedError",
    "ConfigError",
    "EmbeddedBroker",
    "ManualClock",
    "WallClock",
    "open_async_broker",
    "open_broker",
]
